"""Each kind of change, against runs whose truth is reckoned by hand."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from federations import JOB, known, model_of, one_by_one, side_by_side
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted import a_round, profiled, span, work

from fedvitals.profile.whatif.changes import (
    asynchronous,
    batch,
    bf16,
    compress,
    deadline,
    drop,
    evaluate,
    first,
    processes,
)
from fedvitals.profile.whatif.messages import SPARSE
from fedvitals.profile.whatif.model import Model, Tried
from fedvitals.profile.whatif.prediction import Declined, Prediction
from fedvitals.profile.whatif.registry import KINDS, what_if
from fedvitals.profile.whatif.telling import NOT_OURS
from fedvitals.vocabulary import Outcome, Participation, Record

ROUNDS = [{"a": 2.0, "b": 3.0, "slow": 8.0}, {"a": 2.0, "b": 4.0, "slow": 6.0}]
STORED = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _made(found: Prediction | Declined | None) -> Prediction:
    assert isinstance(found, Prediction)
    return found


def test_dropping_the_slowest_leaves_the_next(tmp_path: Path) -> None:
    """Of 17 s, 8 - 3 and 6 - 4 are saved; everybody is asked, so nobody comes instead."""
    model = model_of(tmp_path, side_by_side(ROUNDS))
    found = _made(drop.without(model, ("slow",)))
    assert model.profile.wall_s == pytest.approx(17.0)
    assert found.predicted_s == pytest.approx(17.0 - 5.0 - 2.0)
    assert found.round_s == pytest.approx((4.5 + 5.5) / 2)
    assert found.saves == pytest.approx(7 / 17)
    assert [one.change for one in drop.changes(model)] == ["drop client slow"]
    assert drop.without(model, ("a", "b", "slow")) is None


def test_nobody_is_dropped_without_whom_nothing_comes(tmp_path: Path) -> None:
    """The others never came back: a round without this one has no update."""
    records: list[Record] = [
        a_round(0, 0, 4),
        work("only", 0, 3, {"train": 3}),
        work("gone", 0, 4, {"wait": 4}, outcome=Outcome.DROPPED),
    ]
    model = model_of(tmp_path, (records, 4.0))
    assert drop.without(model, ("only",)) is None
    assert [one.change for one in drop.changes(model)] == ["drop client gone"]


def test_a_deadline_and_the_first_few_go_on_earlier(tmp_path: Path) -> None:
    """The slow client is still busy in the second round, so that one waits for b alone."""
    model = model_of(tmp_path, side_by_side(ROUNDS), clock="virtual")
    by_deadline = _made(deadline.with_deadline(model, 5.0))
    assert by_deadline.predicted_s == pytest.approx(17.0 - (8 - 5) - (6 - 4))
    by_first = _made(first.first(model, 2))
    assert by_first.predicted_s == pytest.approx(17.0 - (8 - 3) - (6 - 4))
    assert first.first(model, 3) is None
    assert deadline.with_deadline(model, 1.0) is None, "nobody would be left"


def test_with_a_worker_each_the_late_are_stopped(tmp_path: Path) -> None:
    """The slow client is asked again in the second round, which waits until its deadline; two workers have turns."""
    told = {"executor": "processes", "cpus_usable": 2}
    model = model_of(tmp_path, side_by_side(ROUNDS), {**JOB, "execute": {"workers": 3}}, clock="real", **told)
    found = _made(deadline.with_deadline(model, 5.0))
    assert found.predicted_s == pytest.approx(17.0 - (8 - 5) - (6 - 5))
    assert (found.unverified, found.job) == (None, {"server.deadline_s": 5.0})
    assert _made(first.first(model, 2)).predicted_s == pytest.approx(17.0 - (8 - 3) - (6 - 4))
    slower = replace(model, told=replace(model.told, environment={**model.told.environment, "worker_start_s": 0.1}))
    assert _made(deadline.with_deadline(slower, 5.0)).predicted_s == pytest.approx(found.predicted_s + 2 * 0.2)
    fewer = model_of(tmp_path / "2", side_by_side(ROUNDS), {**JOB, "execute": {"workers": 2}}, clock="real", **told)
    assert deadline.with_deadline(fewer, 5.0) is None


def test_encoding_counts_where_one_process_does_it_all(tmp_path: Path) -> None:
    """Two clients a round, 0.1 s for each message of theirs."""
    rounds = [{"a": 2.0, "b": 3.0}] * 2
    records, end = one_by_one(rounds)
    told = [
        one._replace(train_s=0.5, upload_s=1.0, wire_bytes_up=400) if isinstance(one, Participation) else one
        for one in records
    ]
    model = model_of(tmp_path, (told, end), JOB, clock="real", executor="sequential")
    tried = replace(model, tried={"fp16": Tried(200.0, 0.1)})
    without, counted = (_made(compress.compressed(one, "fp16")).predicted_s for one in (model, tried))
    assert counted - without == pytest.approx(2 * 2 * 0.1)


def test_what_cannot_be_stopped_is_not_predicted(tmp_path: Path) -> None:
    """Clients that follow each other have no slowest to wait for."""
    model = model_of(tmp_path, one_by_one(ROUNDS))
    assert deadline.with_deadline(model, 5.0) is None
    assert first.first(model, 2) is None
    assert asynchronous.with_buffer(model, 1) is None


def test_compression_shortens_uploads_alone(tmp_path: Path) -> None:
    """Of a round that waits for an upload of 4 s, 3 s are saved 4-fold; the other client is never waited for."""
    records: list[Record] = [
        a_round(0, 0, 10),
        work("a", 0, 8, {"download": 1, "train": 3, "upload": 4})._replace(wire_bytes_up=1000),
        work("b", 0, 3, {"train": 3}),
        span(1, "aggregate", 8, 10),
    ]
    model = model_of(tmp_path, (records, 10.0))
    assert _made(compress.compressed(model, "quantize:8")).predicted_s == pytest.approx(10 - 3)
    assert _made(compress.compressed(model, "quantize:8", down=True)).predicted_s == pytest.approx(10 - 3 - 0.75)
    assert _made(compress.compressed(model, SPARSE)).predicted_s == pytest.approx(10 - 4 * (1 - 1 / 200))
    assert compress.compressed(model, "randomk:0.1") is None, "nobody has tried what it comes to"
    tried = replace(model, tried={"randomk:0.1": Tried(100.0, 0.1)})
    assert compress.compressed(tried, "randomk:0.1") is None, "nor how large the model is"
    assert [_made(one).unverified for one in compress.changes(model)] == [NOT_OURS] * 4


def test_latency_stays_where_the_device_is_known() -> None:
    """Of a transfer of 100 ms latency and 300 ms of bytes, 4-fold leaves 175 ms."""
    device = {"up_mbps": 8.0, "latency_ms": 100.0}
    sizes = np.array([300_000.0, np.nan])
    left = compress.remaining(device, "up", sizes, sizes / 4, 4.0)
    assert left.tolist() == pytest.approx([0.175 / 0.4, 0.25])
    assert compress.remaining(None, "up", sizes, sizes / 4, 4.0).tolist() == [0.25, 0.25]


def test_fewer_evaluations_save_what_they_took(tmp_path: Path) -> None:
    """Of six, every third and the last remain: the second as long as the second was, the last as the last."""
    took = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    model = model_of(tmp_path, side_by_side([{"a": 1.0}] * 6, evaluate_s=took), JOB, executor="x")
    found = _made(evaluate.less_often(model, 3))
    assert model.profile.wall_s - found.predicted_s == pytest.approx(sum(took) - 1.0 - 6.0)
    assert found.job == {"train.evaluate_every": 3}
    assert evaluate.less_often(model, 7) is None
    assert evaluate.less_often(model_of(tmp_path / "2", side_by_side([{"a": 1.0}] * 6)), 3) is None


def test_two_processes_share_the_clients(tmp_path: Path) -> None:
    """Four clients of 1 s and the 0.3 s between them: 4.3 s become 2.15 s on two cores, 2 s on four."""
    rounds = [{"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}] * 2
    made = one_by_one(rounds, gap_s=0.1)
    two = model_of(tmp_path / "1", made, JOB, cpus_usable=2, executor="sequential")
    found = _made(processes.on_workers(two, 2))
    assert two.profile.wall_s - found.predicted_s == pytest.approx(2 * (4.3 - 2.15))
    assert found.job == {"execute.workers": 2, "execute.executor": "processes"}
    four = model_of(tmp_path / "2", made, cpus_usable=4)
    assert four.profile.wall_s - _made(processes.on_workers(four, 2)).predicted_s == pytest.approx(2 * 2.3)
    assert processes.on_workers(two, 3) is None, "there are two cores"
    assert isinstance(processes.on_workers(model_of(tmp_path / "3", made, cpus_usable=2, threads=2), 2), Declined)


def _trained(rows: list[int], a: float, b: float, size: int) -> tuple[list[Record], float]:
    """Clients one after the other whose steps take a and b a row."""
    records: list[Record] = []
    now = 0.0
    for client, count in enumerate(rows):
        steps = math.ceil(count / size)
        took = a * steps + b * count
        one = work(str(client), now, now + took, {"train": took})
        records.append(one._replace(samples=count, steps=steps))
        now += took
    return [*records, a_round(0, 0, now)], now


def test_a_larger_batch_saves_steps(tmp_path: Path) -> None:
    """What a step and a row take is found from clients of unequal sizes."""
    rows, a, b = [5, 9, 16, 20, 33, 40, 57, 64], 0.1, 0.01
    model = model_of(tmp_path, _trained(rows, a, b, 8), {"batch_size": 8})
    found = _made(batch.with_batches_of(model, 16))
    assert found.predicted_s == pytest.approx(sum(a * math.ceil(one / 16) + b * one for one in rows), rel=1e-4)
    assert "100 ms" in found.assumes[0]


def test_a_larger_batch_is_declined_where_sizes_do_not_tell(tmp_path: Path) -> None:
    """All clients have full batches: a step cannot be told from its rows."""
    model = model_of(tmp_path, _trained([16, 32, 48, 64], 0.1, 0.01, 8), {"batch_size": 8})
    assert isinstance(batch.with_batches_of(model, 16), Declined)
    assert isinstance(next(iter(batch.changes(model))), Declined)
    assert list(batch.changes(model_of(tmp_path / "2", _trained([16, 32], 0.1, 0.01, 8)))) == []


def test_bf16_needs_to_be_measured(tmp_path: Path) -> None:
    """Without it it is declined; with it each of a client's ten steps takes as much more or less."""
    model = model_of(tmp_path, one_by_one([{"a": 2.0, "b": 4.0}]))
    assert [type(one) for one in bf16.changes(model)] == [Declined]
    assert _made(bf16.in_bf16(model, 0.15)).predicted_s == pytest.approx(7.0 + 3.0)
    assert _made(bf16.in_bf16(model, -0.3)).predicted_s == pytest.approx(7.0 - 2.0 - 3.0), "no client takes less than 0"
    assert bf16.in_bf16(model_of(tmp_path / "2", one_by_one([{"a": 2.0}]), clock="virtual"), 0.1) is None


def test_dropping_one_of_a_batch_saves_its_part(tmp_path: Path) -> None:
    """Batches take 10 ms a step of the longest and 1 ms a client's step, fitted to batches of other shapes."""
    size = {"a": 10, "b": 20, "c": 5, "d": 40, "e": 7}
    shapes = [{client: size[client] for client in some} for some in ("abc", "adc", "bde", "aec", "bec", "abd")]
    records: list[Record] = []
    now = 0.0
    for number, shape in enumerate(shapes):
        end = now + 0.010 * max(shape.values()) + 0.001 * sum(shape.values())
        for client, steps in shape.items():
            one = work(client, now, end, {"train": (end - now) / 3}, round=number, attempt=number)
            records.append(one._replace(steps=steps, attributed=1, chunk=0))
        records.append(a_round(number, now, end))
        now = end
    model = model_of(tmp_path, (records, now))
    assert model.batched
    found = _made(drop.without(model, ("d",)))
    cohorts = [model.draw.asked(place, {"d"}) for place in range(len(shapes))]
    truth = sum(0.010 * max(size[c] for c in some) + 0.001 * sum(size[c] for c in some) for some in cohorts)
    assert found.predicted_s == pytest.approx(truth, abs=2e-3)


def test_a_slow_one_of_equal_batches_is_known_by_its_waiting(tmp_path: Path) -> None:
    """Three batches of 1 s in which one client comes 2 s after the others; all have as many steps."""
    records: list[Record] = []
    for number in range(3):
        start = 3.0 * number
        for client in ("a", "b", "c", "slow"):
            end = start + (3.0 if client == "slow" else 1.0)
            one = work(client, start, end, {"train": 0.25}, round=number, attempt=number)
            records.append(one._replace(attributed=1, chunk=0))
        records.append(a_round(number, start, start + 3.0))
    model = model_of(tmp_path, (records, 9.0))
    assert _made(drop.without(model, ("slow",))).predicted_s == pytest.approx(3 * 0.75)
    assert _made(drop.without(model, ("a",))).predicted_s == pytest.approx(3 * 2.75)


@STORED
@given(st.lists(st.lists(st.floats(0.1, 20.0), min_size=3, max_size=3), min_size=1, max_size=4), st.integers(0, 2))
def test_nothing_that_should_help_hurts(rounds: list[list[float]], who: int) -> None:
    """Dropping one of those that are all asked never lengthens a round, and compressing 1-fold changes nothing."""
    names = ("a", "b", "c")
    with tempfile.TemporaryDirectory() as folder:
        records, end = side_by_side([dict(zip(names, some, strict=True)) for some in rounds])
        told = [
            one._replace(upload_s=0.05, wire_bytes_up=100) if isinstance(one, Participation) else one for one in records
        ]
        model = model_of(Path(folder), (told, end))
    wall_s = model.profile.wall_s
    assert _made(drop.without(model, (names[who],))).predicted_s <= wall_s + 1e-9
    assert _made(compress.compressed(model, "identity")).predicted_s == pytest.approx(wall_s, rel=1e-12)
    assert _made(compress.compressed(model, "fp16")).predicted_s <= wall_s + 1e-9


def test_the_best_comes_first_and_every_one_says_what_it_assumes(tmp_path: Path) -> None:
    """Ranked by what they save; the same for `run.profile()` and for programs."""
    model = model_of(tmp_path, side_by_side(ROUNDS * 4), clock="virtual")
    found = what_if(model.profile).predictions
    assert len(found) >= 4
    assert [one.predicted_s for one in found] == sorted(one.predicted_s for one in found)
    assert all(one.assumes and one.kind in KINDS and one.saves > 0 for one in found)
    assert all(one.unverified for one in found), "the run is no job"


@pytest.mark.parametrize(
    "records",
    [
        [],
        [a_round(0, 0, 0)],
        [a_round(0, 0, None)],
        [work("a", 0, 5)],
        [a_round(0, 0, 5), work("a", 5, 0, {"train": 3})],
        [a_round(0, 0, 5), work("a", 0, 0), work("b", 0, 0)],
        [a_round(0, 0, 5), work("a", 0, 5, outcome=Outcome.DROPPED), work("b", 0, 9, outcome=Outcome.FAILED)],
        [
            a_round(0, 0, 5),
            a_round(1, 4, 9),
            work("a", 0, 7, outcome=Outcome.LATE),
            work("b", 0, 4, round=1, attempt=1),
        ],
        [a_round(0, 0, 5), work("a", 0, 5, {"train": 99}), span(1, "evaluate", 3, None), span(2, "evaluate", 4, 20)],
    ],
)
@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_odd_runs_give_no_nonsense(tmp_path: Path, records: list[Record], clock: str) -> None:
    """Whatever is predicted is finite, not negative, and never an error."""
    profile = known(profiled(tmp_path, records, end=10.0, clock=clock), {"batch_size": 4, "train": {"batch_size": "x"}})
    found = what_if(profile, least=-math.inf)
    assert all(math.isfinite(one.predicted_s) and one.predicted_s >= 0 for one in found.predictions)
    assert all(math.isfinite(one.round_s) and one.round_s >= 0 for one in found.predictions)


@pytest.mark.parametrize("value", [None, [], "no", -1, 1e300, float("nan"), {"a": 1}, True])
def test_odd_configurations_are_nothing(tmp_path: Path, value: object) -> None:
    """A configuration is the user's own: what it holds may be anything."""
    records, end = side_by_side(ROUNDS)
    job = {one: {"clients": value, "batch_size": value, "deadline_s": value, "exclude": value} for one in JOB}
    odd = known(
        profiled(tmp_path, records, end=end, clock="virtual"),
        {**job, "seed": value},
        executor=value,
        cpus_usable=value,
        network={"devices": value, "nominal": value, "clients": value},
    )
    found = what_if(odd, least=-math.inf)
    assert all(np.isfinite(one.predicted_s) for one in found.predictions)
    assert Model.of(replace(odd, run=replace(odd.run, config={"train": value}))).patience == (None, None)
