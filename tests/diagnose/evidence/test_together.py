"""Clients that change in the same way at once: in a real run, with something added to what several of them sent."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from charted import trained

from fedvitals.bench.faults.cells import Cell, played
from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.diagnosis import examine
from fedvitals.diagnose.evidence.together import Turn, _graded, turns
from fedvitals.diagnose.registry import RULES
from fedvitals.vocabulary import Grade

ROUNDS = 14
CHANGES = {"train.rounds": ROUNDS, "train.clients_per_round": 20, "execute.clock": "real", "execute.workers": 1}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    """Twenty clients, all in every round, and nothing wrong."""
    return trained(Path(tmp_path_factory.mktemp("sound")), CHANGES)


def _added(
    chart: Chart, clients: list[int], rounds: range, seed: int = 0, *, much: float = 1.0, each: bool = False
) -> Chart:
    """The run as it would be recorded had these sent as much again in one direction, or each in his own."""
    updates, table = chart.updates, chart.participations
    assert updates is not None
    assert updates.sketches is not None
    sketches = updates.sketches.astype(np.float32)
    for client in clients:
        rows = np.flatnonzero((table.client == client) & np.isin(table.round, list(rounds)))
        way = np.random.default_rng([seed, client if each else 0]).standard_normal(sketches.shape[1])
        lengths = np.linalg.norm(sketches[rows], axis=1, keepdims=True)
        sketches[rows] += much * lengths * (way / np.linalg.norm(way)).astype(np.float32)
    return replace(chart, updates=replace(updates, sketches=sketches), _shared={})


def test_a_sound_run_has_no_groups(sound: Chart) -> None:
    """Nor one in which too few take part for a group to tell anything."""
    assert turns(sound) == ()
    assert turns(sound.until(2)) == ()


@pytest.mark.parametrize("begins", [4, 6, 8])
@pytest.mark.parametrize("clients", [[2, 9, 14], [3, 7, 16], [5, 10, 12, 18]])
def test_those_who_begin_to_send_the_same_beside_their_own_are_a_group(
    sound: Chart, clients: list[int], begins: int
) -> None:
    """All of them and nobody else, since the round in which they began; as soon as three participations more have shown
    that they go on."""
    chart = _added(sound, clients, range(begins, ROUNDS))
    for seen in (chart, chart.until(begins + 4)):
        (found,) = turns(seen)
        assert (set(found.clients), found.round, found.grade) == (set(clients), begins, Grade.ACCUSED)
        assert found.alike > 0.4 > 0.2 > found.alike_before
    assert turns(chart.until(begins + 1)) == ()


def test_who_is_as_before_again_was_no_group(sound: Chart) -> None:
    """Two participations that look alike are chance; what passes has passed. Who stops together has changed, too."""
    assert [one.round for one in turns(_added(sound, [2, 9, 14], range(6, 8)))] == [8]


def test_who_changes_each_in_his_own_way_is_no_group(sound: Chart) -> None:
    """Nor is he part of that of the others."""
    assert turns(_added(sound, [1, 5, 8, 13], range(6, ROUNDS), each=True)) == ()
    both = _added(_added(sound, [2, 9, 14], range(6, ROUNDS)), [4], range(6, ROUNDS), seed=1)
    assert [set(one.clients) for one in turns(both)] == [{2, 9, 14}]


def test_who_had_been_alike_before_may_change_alike(sound: Chart) -> None:
    """As clients of one kind do when the model begins to learn what they hold."""
    before = _added(sound, [2, 9, 14], range(6), seed=1, much=2.0)
    assert turns(_added(before, [2, 9, 14], range(6, ROUNDS), seed=2)) == ()


@pytest.mark.parametrize("spoilt", [4, 5, 6])
def test_on_a_model_that_somebody_spoilt_there_are_no_groups(sound: Chart, spoilt: int) -> None:
    """Of the rounds that are compared none may be one in which everybody's loss leapt: whole groups go astray then."""
    chart = _added(sound, [2, 9, 14], range(6, ROUNDS))
    table = chart.participations
    leapt = np.where(table.round == spoilt, 10 * table.first_loss, table.first_loss)
    assert len(turns(chart)) == 1
    assert turns(replace(chart, participations=replace(table, first_loss=leapt), _shared={})) == ()


def test_where_groups_are_nothing_rare_none_tells_anything() -> None:
    """Others part as clearly in another round; nor does one that is not clear, nor a pair that is little alike."""
    group = Turn(5, (2, 9, 14), (102, 109, 114), apart=3.0, alike=0.5, alike_before=0.0, nearest=6.0, stays=2.5)
    assert _graded(group, [group]) is Grade.ACCUSED
    assert _graded(group, [group, replace(group, round=11, apart=2.8)]) is None
    assert _graded(group, [group, replace(group, round=6, apart=2.8)]) is Grade.ACCUSED
    assert _graded(replace(group, apart=1.5), [group]) is None
    assert _graded(replace(group, nearest=2.0), [group]) is None
    assert _graded(replace(group, stays=1.5), [group]) is None
    assert _graded(replace(group, stays=math.nan), [group]) is None
    pair = replace(group, clients=(2, 9), rows=(102, 109))
    assert _graded(pair, [pair]) is Grade.ACCUSED
    assert _graded(replace(pair, alike=0.4), [pair]) is None


def test_a_backdoor_that_several_open_at_once_is_found_in_all_of_them() -> None:
    """One of them alone is too quiet; the finding says who, when, and in what they are alike."""
    run = played(Cell("synthetic", "iid", 30, 1.0, "backdoor", bad="20%", from_round=5, seed=2))
    named = [one for one in examine(run.chart, RULES).findings if one.code == "FL608"]
    assert {client for one in named for client in one.clients} == run.bad
    (turn,) = turns(run.chart)
    assert {run.chart.clients[client] for client in turn.clients} == run.bad
    assert turn.round == 5
