"""Every fault on every executor: the same effect, on the client it was meant for and on nobody else."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from small_jobs import EXECUTORS, Spy, carried_out, recorded, run, small, weights
from torch import Tensor

from fedvitals.faults.registry import kinds
from fedvitals.faults.work import LocalWork
from fedvitals.train import local
from fedvitals.train.engine import Training
from fedvitals.train.orders import batch_orders
from fedvitals.train.trained import Executor, Failed, Trained
from fedvitals.vocabulary import Participation

Changes = dict[str, Any]
ALL = {"train.clients_per_round": 6, "train.rounds": 3, "train.weight_decay": 0.01}
STRENGTH = {
    "timeout": 0.001,
    "slow-aggregation": 0.02,
    "slow-link": 1.5,
    "memory-leak": 1.0,
    "exploding-lr": 10.0,
    "unnormalised-input": 3.0,
}
HARMLESS = {"slow-compute", "slow-link", "slow-loader", "slow-aggregation", "memory-leak"}
LEFT_OUT = {"crash", "timeout"}
NOT_A_NUMBER = {"nan-update", "nan-batch"}
FIRST_TIME_HONEST = {"stale-update"}  # it has nothing to send again


def _fault(kind: str, *clients: int) -> Changes:
    fault: Changes = {"kind": kind}
    if kind != "slow-aggregation":
        fault["clients"] = list(clients)
    if kind in STRENGTH:
        fault["strength"] = STRENGTH[kind]
    return fault


@pytest.fixture(autouse=True)
def no_leak() -> Iterator[None]:
    """The memory that a test leaked on purpose."""
    yield
    local._leaked.clear()


@pytest.fixture(scope="module")
def honest() -> list[dict[str, Tensor]]:
    """Every client's updates of every round, when nothing goes wrong."""
    spy = Spy()
    run(small(ALL), hook=spy)
    return spy.updates


@pytest.mark.parametrize("kind", kinds())
def test_a_fault_is_the_same_on_every_executor(kind: str, honest: list[dict[str, Tensor]]) -> None:
    """Two culprits; in the first round all others send what they send without the fault, bit for bit or nearly."""
    results, spies = [], []
    for executor in EXECUTORS:
        spies.append(Spy())
        results.append(run(small({**ALL, "faults": [_fault(kind, 1, 4)]}, executor=executor), hook=spies[-1]))
    assert [result.executor for result in results] == list(EXECUTORS)
    assert results[0].weights_sha256 == results[1].weights_sha256
    _same_updates(spies[0], spies[2])
    for spy, tolerance in zip(spies, (0.0, 0.0, 1e-6), strict=True):
        first = spy.updates[0]
        for client in ("0", "2", "3", "5"):
            torch.testing.assert_close(first[client], honest[0][client], rtol=0, atol=tolerance)
        if kind in LEFT_OUT:
            assert first.keys() == {"0", "2", "3", "5"}
        else:
            harmless = kind in HARMLESS | FIRST_TIME_HONEST
            assert all(torch.allclose(first[one], honest[0][one], atol=1e-6) == harmless for one in ("1", "4"))
    assert results[0].failed == (6 if kind in LEFT_OUT else 0)
    assert weights(results[0]).isnan().any() == (kind in NOT_A_NUMBER)


def _same_updates(one: Spy, other: Spy) -> None:
    for mine, theirs in zip(one.updates, other.updates, strict=True):
        assert mine.keys() == theirs.keys()
        for client, update in mine.items():
            scale = float(update.nan_to_num().abs().max())
            torch.testing.assert_close(theirs[client], update, rtol=1e-4, atol=1e-5 * scale + 1e-7, equal_nan=True)


def test_what_faults_make_of_an_update(honest: list[dict[str, Tensor]]) -> None:
    """Turned, scaled, blank, copied and repeated: as each says of itself."""
    own = honest[0]
    for kind, expected in {
        "sign-flip": -own["1"],
        "scaled-update": 5.0 * own["1"],
        "zero-update": torch.zeros_like(own["1"]),
    }.items():
        assert torch.equal(_updates([_fault(kind, 1)])[0]["1"], expected)
    copied = _updates([_fault("duplicate", 1)])[0]
    assert any(torch.equal(copied["1"], copied[other]) for other in ("0", "2", "3", "4", "5"))
    frozen = _updates([_fault("frozen-layer", 1)])[0]["1"]
    assert bool((frozen[: 12 * 8] == 0).all())  # the first matrix, in spite of weight decay
    assert bool((frozen[12 * 8 :] != 0).any())


def _updates(faults: list[Changes], executor: str = "sequential", **changes: Any) -> list[dict[str, Tensor]]:
    spy = Spy()
    run(small({**ALL, "faults": faults, **changes}, executor=executor), hook=spy)
    return spy.updates


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_stale_update_is_an_honest_one(executor: str) -> None:
    """With a second culprit in the batch, what is remembered is still what was trained, not what was sent."""
    faults: list[Changes] = [
        {"kind": "stale-update", "clients": [1, 4], "strength": 1, "from_round": 1},
        {"kind": "sign-flip", "clients": [0]},
    ]
    sent = _updates(faults, executor)
    for client in ("1", "4"):
        assert torch.equal(sent[1][client], sent[0][client])
        assert not torch.equal(sent[2][client], sent[1][client])


@pytest.mark.parametrize("kind", ["gaussian-update", "duplicate"])
def test_who_comes_first_does_not_matter(kind: str) -> None:
    """A fault that looks at the others waits for all of them, in whatever order they arrive."""
    job = small({**ALL, "train.rounds": 1, "faults": [_fault(kind, 1, 4)]})
    plain, other = Training.prepare(job), Training.prepare(job)
    other.executor = Turned(other.executor)
    forth, back = carried_out(plain).updates[0], carried_out(other).updates[0]
    assert forth.keys() == back.keys()
    assert all(torch.equal(update, back[client]) for client, update in forth.items())


class Turned:
    """An executor whose results come in the opposite order."""

    def __init__(self, executor: Executor) -> None:
        self.name = executor.name
        self._executor = executor

    def run(
        self, works: Sequence[LocalWork], weights: Tensor, integers: Mapping[str, Tensor]
    ) -> Iterator[Trained | Failed]:
        yield from list(self._executor.run(works, weights, integers))[::-1]

    def close(self) -> None:
        self._executor.close()


def _first_round(folder: Path, faults: list[Changes], executor: str) -> dict[str, Participation]:
    run(small({**ALL, "data.partition": "iid", "faults": faults}, executor=executor), folder)
    with recorded(folder) as reader:
        return {one.client: one for one in reader.participations(round=0)}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_slowness_is_in_the_phases_of_who_is_slow(executor: str, tmp_path: Path) -> None:
    """On the real clock, by the factor said; the others' times and ends are their own."""
    faults = [
        {"kind": "slow-compute", "clients": [0], "strength": 50},
        {"kind": "slow-loader", "clients": [1], "strength": 50},
        {"kind": "slow-link", "clients": [2], "strength": 2},
    ]
    found = _first_round(tmp_path, faults, executor)
    others = [found[name] for name in ("3", "4", "5")]
    usual_s = min(one.train_s or math.inf for one in others)  # a busy machine may hold up any of them
    assert (found["0"].train_s or 0) > 2 * usual_s
    assert (found["1"].load_s or 0) > 40 * (found["1"].train_s or math.inf)
    assert found["2"].upload_s == pytest.approx(0.02, rel=0.1)
    assert all(one.upload_s is None for name, one in found.items() if name != "2")
    assert min(one.load_s or 0 for one in others) < (found["1"].load_s or 0) / 5
    for one in found.values():
        assert one.attributed or one.duration_s >= 0.99 * sum(one.phases_s.values())
    slowest = max(found["0"].end_ns, found["1"].end_ns)
    assert executor != "vectorised" or all(one.end_ns < slowest for one in others)


def test_slow_aggregation_is_a_span_of_the_server(tmp_path: Path) -> None:
    """As long as said, in every round."""
    run(small({**ALL, "faults": [{"kind": "slow-aggregation", "strength": 0.05}]}), tmp_path)
    with recorded(tmp_path) as reader:
        spans = [one for one in reader.spans() if one.name == "aggregate"]
    assert len(spans) == 3
    assert all((one.end_ns or 0) - one.start_ns >= 0.05 * 1e9 for one in spans)


LEAK = {**ALL, "train.rounds": 4, "faults": [{"kind": "memory-leak", "clients": [1], "strength": 30}]}


@pytest.mark.parametrize("executor", ["sequential", "vectorised"])
def test_a_leak_is_as_large_as_it_says(executor: str) -> None:
    """A participation; in this process, where nothing else is so steady that its size could be compared."""
    run(small(LEAK, executor=executor))
    assert [held.numel() for held in local._leaked] == [30_000_000] * 4


FRESH = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from small_jobs import recorded, run, small
from test_engine_faults import LEAK
folder = Path(sys.argv[2])
run(small({**LEAK, "execute.workers": 1}, executor="processes"), folder)
with recorded(folder) as reader:
    print(*(one.peak_memory_bytes for one in reader.participations(client="1")))
"""


def test_a_leak_grows_the_worker_that_has_the_client(tmp_path: Path) -> None:
    """In a fresh process, since a fork takes over its parent's peak: the recorded peak is the worker's."""
    command = [sys.executable, "-c", FRESH, str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peaks = [int(word) for word in done.stdout.split()]
    assert len(peaks) == 4
    assert peaks[-1] - peaks[0] > 2 * 30e6


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_first_bad_step_is_exact(executor: str, tmp_path: Path) -> None:
    """The step whose batch holds the row with the NaN, as the order of batches has it."""
    job = small({**ALL, "faults": [{"kind": "nan-batch", "clients": [3]}]}, executor=executor)
    run(job, tmp_path)
    training = Training.prepare(small({**ALL, "faults": [{"kind": "nan-batch", "clients": [3]}]}))
    rows = training.federation.train_rows[3]
    spoilt = training.injector.plan(_work(0), lambda: (training.federation.x[rows], training.federation.y[rows]))
    assert spoilt.x is not None
    bad_row = int(spoilt.x.isnan().any(dim=1).nonzero()[0])
    order = batch_orders(job.seed, [_work(0)], [len(rows)], 2)[0, 0].tolist()
    with recorded(tmp_path) as reader:
        (first,) = reader.participations(client="3", round=0)
        honest = reader.participations(client="2", round=0)
    assert first.bad_step == order.index(bad_row) // 8
    assert first.good_step is None
    assert first.nonfinite == 12 * 8 + 8 + 8 * 4 + 4
    assert first.loss is None or math.isnan(first.loss)
    assert [(one.bad_step, one.nonfinite) for one in honest] == [(None, 0)]


def _work(attempt: int) -> LocalWork:
    return LocalWork(client=3, name="3", attempt=attempt, round=0, lr=0.1)


def test_a_fault_that_begins_after_the_last_round_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Rounds count from 0: in a job of two, a fault from round 2 on strikes nobody."""
    for first, told in ((1, []), (2, ["sign-flip begins in round 2 and the last is 1: it strikes nobody"])):
        caplog.clear()
        run(small({"train.rounds": 2, "faults": [{"kind": "sign-flip", "clients": [0], "from_round": first}]}))
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == told
