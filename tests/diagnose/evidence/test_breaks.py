"""Clients that become another from one participation to the next: in a real run, with what one sends changed after."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from charted import trained
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvitals.diagnose.chart import MAX, MEAN, MIN, NORM, STD, Chart
from fedvitals.diagnose.evidence.breaks import Break, lengthened, mirrored, relabelled, steeper, turned

ROUNDS = 12
CHANGES = {"train.rounds": ROUNDS, "train.clients_per_round": 20, "execute.clock": "real", "execute.workers": 1}
SIZES = np.array([NORM, MEAN, STD, MIN, MAX])
WHEN = st.integers(4, ROUNDS - 4)
WHO = st.integers(0, 19)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    """Twenty clients, all in every round, and nothing wrong."""
    return trained(Path(tmp_path_factory.mktemp("sound")), CHANGES)


def _rows(chart: Chart, client: int, rounds: range) -> np.ndarray:
    table = chart.participations
    return np.flatnonzero((table.client == client) & np.isin(table.round, list(rounds)))


def _sent(chart: Chart, rows: np.ndarray, factor: float) -> Chart:
    """The run as it would be recorded had these updates been this many times what they were; not what came of it."""
    updates = chart.updates
    assert updates is not None
    assert updates.sketches is not None
    assert updates.unit_sums is not None
    assert updates.unit_sketches is not None
    stats, sketches = updates.stats.copy(), updates.sketches.copy()
    sums, units = updates.unit_sums.copy(), updates.unit_sketches.copy()
    stats[np.ix_(rows, np.arange(stats.shape[1]), SIZES)] *= abs(factor)
    for one in (sketches, sums, units):
        one[rows] *= np.sign(factor)
    table = replace(chart.participations, update_norm=chart.participations.update_norm.copy())
    table.update_norm[rows] *= abs(factor)
    changed = replace(updates, stats=stats, sketches=sketches, unit_sums=sums, unit_sketches=units)
    return replace(chart, updates=changed, participations=table, _shared={})


def _seen(found: tuple[Break, ...]) -> list[tuple[int, int]]:
    """Who, and in which round first."""
    return [(one.client, one.rounds[0]) for one in found]


def test_a_sound_run_has_no_breaks(sound: Chart) -> None:
    """However its clients differ."""
    assert [_seen(look(sound)) for look in (turned, lengthened, steeper)] == [[], [], []]


@settings(max_examples=6, deadline=None)
@given(WHO, WHEN)
def test_who_begins_to_send_the_mirror_image_has_turned(sound: Chart, client: int, begins: int) -> None:
    """From the round in which he began; his rows are what they were, so that it is not his labels."""
    chart = _sent(sound, _rows(sound, client, range(begins, ROUNDS)), -1.0)
    assert _seen(mirrored(chart)) == [(client, begins)]
    assert relabelled(chart) == ()
    assert lengthened(chart) == ()


def test_a_mirror_image_needs_two_participations(sound: Chart) -> None:
    """Not found after one, found after the second; one alone that is taken back is no break."""
    chart = _sent(sound, _rows(sound, 3, range(6, ROUNDS)), -1.0)
    assert turned(chart.until(6)) == ()
    assert _seen(turned(chart.until(7))) == [(3, 6)]
    assert turned(_sent(sound, _rows(sound, 3, range(6, 7)), -1.0)) == ()


def test_others_who_turn_hide_nobody(sound: Chart) -> None:
    """A fifth of the clients at once, all named."""
    rows = np.concatenate([_rows(sound, client, range(5, ROUNDS)) for client in (1, 4, 9, 16)])
    assert sorted(_seen(turned(_sent(sound, rows, -1.0)))) == [(1, 5), (4, 5), (9, 5), (16, 5)]


def test_a_leap_of_the_loss_makes_it_a_matter_of_labels(sound: Chart) -> None:
    """A mirrored update of rows that the received model suddenly fails on."""
    rows = _rows(sound, 7, range(6, ROUNDS))
    chart = _sent(sound, rows, -1.0)
    table = replace(chart.participations, first_loss=chart.participations.first_loss.copy())
    table.first_loss[rows] *= 4.0
    chart = replace(chart, participations=table, _shared={})
    assert (_seen(relabelled(chart)), mirrored(chart)) == ([(7, 6)], ())


@settings(max_examples=6, deadline=None)
@given(WHO, WHEN, st.floats(5.0, 12.0))
def test_who_sends_a_multiple_became_longer(sound: Chart, client: int, begins: int, factor: float) -> None:
    """By about that factor, and did not turn. Client 6 of this run might be four times as long by chance."""
    chart = _sent(sound, _rows(sound, client, range(begins, ROUNDS)), factor)
    assert _seen(lengthened(chart)) == [(client, begins)]
    assert lengthened(chart)[0].size == pytest.approx(np.log(factor), abs=0.7)
    assert turned(chart) == ()


def test_who_became_longer_in_one_layer_was_not_scaled(sound: Chart) -> None:
    """The rest of the update stands as it was: that is another matter."""
    rows, updates = _rows(sound, 2, range(6, ROUNDS)), sound.updates
    assert updates is not None
    stats = updates.stats.copy()
    stats[np.ix_(rows, np.array([0]), SIZES)] *= 30.0
    assert lengthened(replace(sound, updates=replace(updates, stats=stats), _shared={})) == ()


def test_first_gradients_that_leap_are_seen(sound: Chart) -> None:
    """Ten times as long from a round on; of one who always had such, nothing is said."""
    gradients = sound.gradients
    assert gradients is not None

    def lifted(rounds: range) -> Chart:
        norms = gradients.norms.copy()
        norms[np.isin(gradients.row, _rows(sound, 5, rounds))] *= 10.0
        return replace(sound, gradients=replace(gradients, norms=norms), _shared={})

    assert _seen(steeper(lifted(range(6, ROUNDS)))) == [(5, 6)]
    assert steeper(lifted(range(ROUNDS))) == ()


@settings(max_examples=4, deadline=None)
@given(WHO, st.integers(4, ROUNDS - 5), st.sampled_from([-1.0, 8.0]))
def test_what_ends_is_told_until_it_ends(sound: Chart, client: int, begins: int, factor: float) -> None:
    """Two participations as before tell that it is over; after the first of them nobody knows."""
    chart = _sent(sound, _rows(sound, client, range(begins, begins + 3)), factor)
    look = turned if factor < 0 else lengthened
    (one,) = look(chart)
    assert (one.rounds, one.over) == ((begins, begins + 1, begins + 2), True)
    assert one.since == f"from round {begins} until round {begins + 2},"
    (one,) = look(chart.until(begins + 3))
    assert (one.rounds, one.over) == (tuple(range(begins, begins + 4)), False)


@settings(max_examples=4, deadline=None)
@given(WHO, WHEN, st.sampled_from([-1.0, 8.0]))
def test_what_is_over_at_once_was_chance(sound: Chart, client: int, begins: int, factor: float) -> None:
    """It is told while it may go on, and taken back when two participations are as before."""
    chart = _sent(sound, _rows(sound, client, range(begins, begins + 2)), factor)
    look = turned if factor < 0 else lengthened
    assert _seen(look(chart.until(begins + 2))) == [(client, begins)]
    assert look(chart) == ()


def test_what_ends_may_begin_again(sound: Chart) -> None:
    """The sound rounds between are left out."""
    rows = np.concatenate([_rows(sound, 3, range(4, 6)), _rows(sound, 3, range(8, ROUNDS))])
    (one,) = turned(_sent(sound, rows, -1.0))
    assert (one.rounds, one.over) == ((4, 5, *range(8, ROUNDS)), False)


def test_what_goes_on_does_not_end(sound: Chart) -> None:
    """In all its rounds."""
    for factor, look in ((-1.0, turned), (8.0, lengthened)):
        for client in range(0, 20, 4):
            (one,) = look(_sent(sound, _rows(sound, client, range(4, ROUNDS)), factor))
            assert (one.rounds, one.over) == (tuple(range(4, ROUNDS)), False)
