"""Where a run's time went, against schedules whose truth is known."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted import a_round, profiled, span, work

from fedvitals.profile.phases import phases_of, phases_of_all
from fedvitals.profile.profile import Profile
from fedvitals.vocabulary import Outcome, Record


def _parts(profile: Profile) -> dict[str, float]:
    """The phases that took any time, and the wall time, to which they have to add up."""
    return {name: took for name, took in profile.breakdown_s.items() if took > 0} | {"wall": profile.wall_s}


def _near(**truth: float) -> object:
    """These phases, to the microsecond, and no other; the wall time is their sum."""
    return pytest.approx(truth | {"wall": sum(truth.values())}, abs=1e-6)


def test_clients_one_after_the_other_are_all_on_the_path(tmp_path: Path) -> None:
    """Each with its own phases; what lies between them is unexplained."""
    records: list[Record] = [
        a_round(0, 0, 10),
        span(1, "select", 0, 1),
        work("a", 1, 4, {"load": 1, "train": 2}),
        work("b", 4.5, 8, {"download": 0.5, "train": 2, "upload": 1}),
        span(2, "aggregate", 8, 9),
        span(3, "evaluate", 9, 10),
    ]
    profile = profiled(tmp_path, records, end=10)
    assert _parts(profile) == _near(
        select=1, load=1, train=4, download=0.5, upload=1, unexplained=0.5, aggregate=1, evaluate=1
    )
    assert profile.rounds[0].holder == "b"
    assert profile.rounds[0].held_s == pytest.approx(3.5)
    assert {one.client: one.path_s for one in profile.clients} == pytest.approx({"a": 3, "b": 3.5})


def test_the_last_of_those_side_by_side_was_waited_for(tmp_path: Path) -> None:
    """Its phases are the round's; it held the round for as long as it was alone."""
    records: list[Record] = [
        a_round(0, 0, 9),
        work("a", 0, 3, {"download": 1, "train": 1, "upload": 1}),
        work("slow", 0, 8, {"download": 1, "train": 2, "upload": 5}),
        work("b", 0, 4, {"download": 1, "train": 2, "upload": 1}),
        span(1, "aggregate", 8, 9),
    ]
    profile = profiled(tmp_path, records, end=9)
    assert _parts(profile) == _near(download=1, train=2, upload=5, aggregate=1)
    assert profile.rounds[0].holder == "slow"
    assert profile.rounds[0].held_s == pytest.approx(4)


def test_two_workers_make_way_for_the_next(tmp_path: Path) -> None:
    """The path is that of the worker that ended last, through the clients it trained before."""
    records: list[Record] = [
        a_round(0, 0, 10),
        work("a", 0, 5, {"train": 5}),
        work("c", 0, 7, {"load": 7, "train": 0}),
        work("b", 5, 10, {"train": 5}),
    ]
    assert _parts(profiled(tmp_path, records, end=10)) == _near(train=10)


def test_inner_spans_count_and_outer_ones_only_outside_of_them(tmp_path: Path) -> None:
    """Each instant once."""
    records: list[Record] = [
        a_round(0, 0, 10),
        span(1, "aggregate", 0, 10),
        span(2, "decode", 2, 4),
        span(3, "decode", 3, 5),
        span(4, "encode", 6, 7),
    ]
    assert _parts(profiled(tmp_path, records, end=10)) == _near(aggregate=6, decode=3, encode=1)


def test_a_server_that_says_it_waits_waits_for_somebody(tmp_path: Path) -> None:
    """Its waiting is the clients' time; only what nobody worked in is `wait`."""
    records: list[Record] = [
        a_round(0, 0, 10),
        span(1, "wait", 0, 9),
        work("a", 1, 8, {"train": 6, "upload": 1}),
        span(2, "aggregate", 9, 10),
    ]
    assert _parts(profiled(tmp_path, records, end=10)) == _near(wait=2, train=6, upload=1, aggregate=1)


def test_what_never_ended_lasts_until_its_round_did(tmp_path: Path) -> None:
    """A run that was killed in its second round still adds up, and says what is missing."""
    records: list[Record] = [
        a_round(0, 0, 4),
        span(1, "aggregate", 3, None, round=0),
        work("a", 0, 3, {"train": 3}),
        a_round(1, 4, None),
        work("a", 4, 6, {"train": 1.5}, round=1, attempt=1),
    ]
    profile = profiled(tmp_path, records, end=None)
    assert _parts(profile) == _near(train=4.5, aggregate=1, unexplained=0.5)
    assert profile.wall_s == pytest.approx(6)
    assert any("1 span never ended" in note for note in profile.notes)
    assert "the run has not ended, or was cut off: it counts until its last record" in profile.notes


def test_a_retry_counts_beside_the_attempt_that_failed(tmp_path: Path) -> None:
    """Both took the run's time."""
    records: list[Record] = [
        a_round(0, 0, 6),
        work("a", 0, 2, {"train": 1, "upload": 1}, outcome=Outcome.FAILED),
        work("a", 2, 6, {"train": 3, "upload": 1}, attempt=1),
    ]
    profile = profiled(tmp_path, records, end=6)
    assert _parts(profile) == _near(train=4, upload=2)
    assert (profile.clients[0].participations, profile.clients[0].failed) == (2, 1)


def test_a_clients_spans_say_when_and_its_sums_fill_the_rest(tmp_path: Path) -> None:
    """Two spans, and a loader whose time was only counted, between them."""
    records: list[Record] = [
        a_round(0, 0, 10),
        work("a", 0, 10, {"download": 2, "load": 1, "train": 5, "upload": 1}),
        span(1, "download", 0, 2, client="a", attempt=0),
        span(2, "upload", 9, 10, client="a", attempt=0),
    ]
    assert _parts(profiled(tmp_path, records, end=10)) == _near(download=2, load=1, train=5, upload=1, unexplained=1)


def test_a_loader_inside_of_a_phase_keeps_its_time(tmp_path: Path) -> None:
    """`with c.phase("train")` around the whole loop: what the loop's loader took was counted apart from it."""
    records: list[Record] = [
        a_round(0, 0, 10),
        work("a", 0, 10, {"load": 6, "train": 3, "upload": 1}),
        span(1, "train", 0, 9, client="a", attempt=0),
        span(2, "upload", 9, 10, client="a", attempt=0),
    ]
    assert _parts(profiled(tmp_path, records, end=10)) == _near(load=6, train=3, upload=1)


def test_messages_on_their_way_are_waited_for(tmp_path: Path) -> None:
    """Of clients elsewhere only their own work is known: the server waits for the rest."""
    far = [work(name, start, end, {"train": end - start}) for name, start, end in (("a", 1.0, 3.0), ("b", 2.0, 5.0))]
    records: list[Record] = [
        a_round(0, 0, 8),
        *(one._replace(executor="remote") for one in far),
        span(1, "aggregate", 6, 8),
    ]
    assert _parts(profiled(tmp_path, records, end=8)) == _near(wait=2, train=4, aggregate=2)


def test_without_phases_a_clients_time_is_training(tmp_path: Path) -> None:
    """And the profile says that it was not told."""
    profile = profiled(tmp_path, [a_round(0, 0, 3), work("a", 0, 3)], end=3)
    assert _parts(profile) == _near(train=3)
    assert any("no phases of clients" in note for note in profile.notes)
    assert any("no phases of the server" in note for note in profile.notes)


def test_who_never_came_back_explains_nothing(tmp_path: Path) -> None:
    """Waiting that was told of is waiting; the rest nobody knows."""
    records: list[Record] = [a_round(0, 0, 5), work("a", 0, 5, {"wait": 3}, outcome=Outcome.DROPPED)]
    profile = profiled(tmp_path, records, end=5)
    assert _parts(profile) == _near(wait=3, unexplained=2)
    assert "1 participation never came back" in profile.notes


def test_who_was_asked_and_never_heard_of_is_named(tmp_path: Path) -> None:
    """A client that a ticket was made for and that sent nothing; in a round that goes on it may yet."""
    records: list[Record] = [
        a_round(0, 0, 2)._replace(selected=3),
        work("a", 0, 2),
        a_round(1, 2, None)._replace(selected=3),
        work("a", 2, 4, round=1, attempt=1),
    ]
    profile = profiled(tmp_path, records, end=4)
    assert [(one.clients, one.asked) for one in profile.rounds] == [(1, 3), (1, 3)]
    assert [note for note in profile.notes if "asked" in note] == [
        "clients were asked twice of whom nothing at all is known: not when, nor for how long"
    ]


def test_without_rounds_who_is_asked_in_one_step_may_come_in_another(tmp_path: Path) -> None:
    """An update that began versions ago: then more asked than heard of is no loss."""
    records: list[Record] = [
        a_round(0, 0, 2)._replace(selected=2),
        work("a", 0, 2)._replace(staleness=0),
        a_round(1, 2, 4)._replace(selected=1),
        work("b", 0, 4, round=1)._replace(staleness=1),
    ]
    profile = profiled(tmp_path, records, end=4)
    assert [(one.clients, one.asked) for one in profile.rounds] == [(1, 1), (1, 1)]
    assert not [note for note in profile.notes if "asked" in note]


def test_a_late_client_does_not_hold_the_round_that_left_without_it(tmp_path: Path) -> None:
    """The server went on when the second had arrived."""
    records: list[Record] = [
        a_round(0, 0, 5),
        work("a", 0, 2, {"train": 2}),
        work("b", 0, 4, {"train": 3, "upload": 1}),
        work("late", 0, 9, {"upload": 9, "train": 0}, outcome=Outcome.LATE),
        span(1, "aggregate", 4, 5),
        a_round(1, 5, 9),
        work("a", 5, 9, {"train": 4}, round=1, attempt=1),
    ]
    profile = profiled(tmp_path, records, end=9)
    assert _parts(profile) == _near(train=7, upload=1, aggregate=1)


def test_clocks_that_jump_are_brought_inside_the_run(tmp_path: Path) -> None:
    """And named."""
    records: list[Record] = [
        a_round(0, 0, 4),
        work("back", 3, 1, {"train": 1}),
        work("ahead", 2, 90, {"train": 88}),
        work("before", -5, 2, {"train": 7}),
    ]
    profile = profiled(tmp_path, records, end=4)
    assert _parts(profile) == _near(train=4)
    assert any("went back" in note for note in profile.notes)
    assert any("outside of the run" in note for note in profile.notes)


def test_phases_of_the_server_that_cross_or_leave_the_run_are_named(tmp_path: Path) -> None:
    """The later one counts where two overlap; one inside of another is nothing odd."""
    crossing: list[Record] = [a_round(0, 0, 4), span(1, "aggregate", 0, 3), span(2, "evaluate", 2, 9)]
    profile = profiled(tmp_path / "crossing", crossing, end=4)
    assert _parts(profile) == _near(aggregate=2, evaluate=2)
    assert "1 phase of the server began in another and outlasted it; there the later one counts" in profile.notes
    assert "rounds or phases outside of the run: 1, cut to it" in profile.notes
    nested: list[Record] = [a_round(0, 0, 4), span(1, "aggregate", 0, 4), span(2, "evaluate", 1, 2)]
    assert profiled(tmp_path / "nested", nested, end=4).notes == (
        "no client was recorded: only the server's phases are known",
    )


def test_times_that_cannot_be_are_not_counted(tmp_path: Path) -> None:
    """Below nothing, or longer than anybody lives: neither in the breakdown nor in bytes a second; and it is said."""
    records: list[Record] = [
        a_round(0, 0, 4),
        work("a", 0, 4, {"train": 3, "upload": -1e300, "load": math.inf})._replace(wire_bytes_up=100),
    ]
    profile = profiled(tmp_path, records, end=4)
    assert _parts(profile) == _near(train=3, unexplained=1)
    assert (profile.communication.up.seconds, profile.clients[0].load_ratio) == (None, None)
    assert any("cannot be" in note and "twice" in note for note in profile.notes)


def test_who_is_late_may_end_after_the_run(tmp_path: Path) -> None:
    """Nobody waited for it: no clock is wrong. Who was used and ended after the run has one that is."""
    records: list[Record] = [
        a_round(0, 0, 2),
        work("a", 0, 2),
        work("late", 0, 9, outcome=Outcome.LATE),
        work("ahead", 0, 9),
    ]
    profile = profiled(tmp_path, records, end=2)
    assert [note for note in profile.notes if "outside" in note] == [
        "outside of the run, by their own clocks: 1 participation, cut to it"
    ]
    assert {one.client: one.busy_s for one in profile.clients} == pytest.approx({"a": 2, "late": 9, "ahead": 2})


def test_an_empty_run_has_nothing_to_profile(tmp_path: Path) -> None:
    """No round, no client, no time: no bottleneck either, and it says why."""
    profile = profiled(tmp_path, [], end=0)
    assert (profile.wall_s, profile.bottleneck) == (0, None)
    assert profile.notes == ("no round and no client was recorded: there is nothing to profile",)


def test_zero_length_rounds_are_rounds(tmp_path: Path) -> None:
    """They take no time and break nothing."""
    records: list[Record] = [
        a_round(0, 1, 1),
        a_round(1, 1, 3),
        work("a", 1, 1, {"train": 0}),
        work("a", 1, 3, attempt=1, round=1),
    ]
    profile = profiled(tmp_path, records, end=3)
    assert [one.wall_s for one in profile.rounds] == pytest.approx([0, 2])
    assert _parts(profile) == _near(unexplained=1, train=2)
    assert "1 round took no time at all" in profile.notes


_instant = st.integers(0, 50).map(lambda tenths: tenths / 10)
_phase = st.sampled_from(["download", "load", "train", "upload", "wait"])
_work = st.tuples(_instant, _instant, st.dictionaries(_phase, _instant, max_size=3))
_span = st.tuples(st.sampled_from(["select", "aggregate", "evaluate", "wait", "other", "own"]), _instant, _instant)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_work, max_size=8), st.lists(_span, max_size=6), st.lists(st.tuples(_instant, _instant), max_size=3))
def test_every_instant_belongs_to_exactly_one_phase(
    works: list[tuple[float, float, dict[str, float]]],
    spans: list[tuple[str, float, float]],
    rounds: list[tuple[float, float]],
) -> None:
    """Whatever overlaps whatever: the path has no hole, the breakdown adds up, and so does each round's."""
    records: list[Record] = [
        *(a_round(number, min(edges), max(edges)) for number, edges in enumerate(rounds)),
        *(work(f"c{n}", min(a, b), max(a, b), phases) for n, (a, b, phases) in enumerate(works)),
        *(span(n + 1, name, min(a, b), max(a, b)) for n, (name, a, b) in enumerate(spans)),
    ]
    with tempfile.TemporaryDirectory() as folder:
        profile = profiled(Path(folder), records, end=5.5)
    edges = [profile.path.pieces[0].start_ns, *(piece.end_ns for piece in profile.path.pieces)]
    assert edges[0] == 0
    assert edges[-1] == profile.timeline.end_ns
    assert all(piece.start_ns == edge for piece, edge in zip(profile.path.pieces, edges, strict=False))
    assert all(piece.start_ns < piece.end_ns for piece in profile.path.pieces)
    assert min(profile.breakdown_s.values()) >= 0
    assert sum(profile.breakdown_s.values()) == pytest.approx(profile.wall_s, abs=1e-6)
    apart = [one for one in profile.rounds if one.wall_s > 0]
    for one in apart:
        assert sum(one.breakdown_s.values()) == pytest.approx(one.wall_s, abs=1e-6)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_work, min_size=1, max_size=8), st.lists(st.tuples(_phase, _instant, _instant), max_size=4))
def test_the_phases_of_all_works_are_those_of_each(
    works: list[tuple[float, float, dict[str, float]]], spans: list[tuple[str, float, float]]
) -> None:
    """Whether or not a client made spans, timed its training, or came back; to the nanosecond, without a hole."""
    outcomes = (Outcome.USED, Outcome.DROPPED)
    records: list[Record] = [
        a_round(0, 0, 5),
        *(
            work(f"c{n}", min(a, b), max(a, b) + 3e-9 * n, phases, outcome=outcomes[n % 2])
            for n, (a, b, phases) in enumerate(works)
        ),
        *(span(n + 1, name, min(a, b), max(a, b), client="c0", attempt=0) for n, (name, a, b) in enumerate(spans)),
    ]
    with tempfile.TemporaryDirectory() as folder:
        timeline = profiled(Path(folder), records, end=5.5).timeline
    found = phases_of_all(timeline)
    assert len(found) == len(works)
    for row, stretches in enumerate(found):
        assert stretches == phases_of(timeline, row)
        lengths = sum(one.end_ns - one.start_ns for one in stretches)
        assert lengths == timeline.works.end_ns[row] - timeline.works.start_ns[row]
