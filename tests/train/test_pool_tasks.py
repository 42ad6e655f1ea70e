"""Worker processes: in which order clients go to them, on which models, and what they may take."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from pool_parts import SIZE, attempt, round_of, updates_of, work_of
from small_jobs import recorded, run, small
from torch import Tensor

from fedvitals.errors import JobError
from fedvitals.faults.work import LocalWork
from fedvitals.train.pool import PoolExecutor
from fedvitals.train.trained import Failed, Trained
from fedvitals.train.workers import Limits
from fedvitals.vocabulary import Outcome


@pytest.fixture
def pool() -> Iterator[PoolExecutor]:
    made = PoolExecutor("processes", attempt, workers=2, chunk=1, size=SIZE, most=8)
    yield made
    made.close()


def _attempt_in_order(
    works: Sequence[LocalWork], weights: Tensor, integers: Mapping[str, Tensor], row: int
) -> Iterator[Trained | Failed]:
    """As above; when it began is told by the clock."""
    for result in attempt(works, weights, integers, row):
        if isinstance(result, Trained):
            result.start_ns = result.end_ns = [time.perf_counter_ns()]
        yield result


def test_who_is_expected_to_take_longest_goes_first() -> None:
    """And each update still lies in its own row."""
    expected = {0: 2.0, 1: 9.0, 2: 1.0, 3: 5.0, 4: 9.0}
    pool = PoolExecutor(
        "processes",
        _attempt_in_order,
        workers=1,
        chunk=1,
        size=SIZE,
        most=5,
        expected=lambda work: expected[work.client],
    )
    try:
        works = [work_of(client) for client in range(5)]
        came = [
            int(one.works[0].name)
            for one in pool.run(works, torch.zeros(SIZE), {"count": torch.tensor(0)})
            if isinstance(one, Trained)
        ]
        assert [expected[client] for client in came] == [9.0, 9.0, 5.0, 2.0, 1.0]
        assert updates_of(round_of(pool, works, 7.0)) == {str(client): 7.0 + client for client in range(5)}
    finally:
        pool.close()


def test_single_clients_have_models_of_their_own(pool: PoolExecutor) -> None:
    """Handed out one by one from different weights, taken back as they are done; who dies is told of and replaced."""
    found: dict[str, Trained | Failed] = {}
    starts = {"1": 10.0, "2": 20.0, "3": 30.0, "4": 40.0}
    waiting = [work_of(1), work_of(2, error="die"), work_of(3), work_of(4)]
    at_work = 0
    while waiting or at_work:
        while waiting and at_work < pool.workers:
            work = waiting.pop(0)
            pool.hand_out(work, torch.full((SIZE,), starts[work.name]), {"count": torch.tensor(1)})
            at_work += 1
        for one in pool.take():
            found[one.work.name if isinstance(one, Failed) else one.works[0].name] = one
            at_work -= 1
    assert updates_of(found) == {"1": 11.0, "3": 33.0, "4": 44.0}
    assert isinstance(found["2"], Failed)
    assert found["2"].kind == "worker died"
    assert updates_of(round_of(pool, [work_of(5)])) == {"5": 5.0}


def _hungry(
    works: Sequence[LocalWork], weights: Tensor, integers: Mapping[str, Tensor], row: int
) -> Iterator[Trained | Failed]:
    """A client that needs as many MB as its number says; and how many threads it has."""
    for work in works:
        try:
            held = np.ones(work.client * 2**20, np.uint8)
        except MemoryError as error:
            yield Failed(work, "train", type(error).__name__, str(error), None, 1, 2)
            continue
        for result in attempt([work], weights, integers, row):
            assert isinstance(result, Trained)
            result.samples = np.array([torch.get_num_threads() + 0 * held[0]])
            yield result


def test_a_worker_takes_no_more_than_it_may() -> None:
    """A client that needs more than the bound fails, and the worker lives; threads are as many as asked for."""
    limits = Limits(threads=2, memory_mb=200)
    pool = PoolExecutor("processes", _hungry, workers=1, chunk=1, size=SIZE, most=3, limits=limits)
    try:
        found = round_of(pool, [work_of(10), work_of(1000), work_of(11)])
    finally:
        pool.close()
    assert set(updates_of(found)) == {"10", "11"}
    hungry, modest = found["1000"], found["10"]
    assert isinstance(hungry, Failed)
    assert "MemoryError" in hungry.kind
    assert hungry.message.startswith("execute.worker_mb = 200 is all")
    assert isinstance(modest, Trained)
    assert int(modest.samples[0]) == 2


@pytest.mark.parametrize(
    ("executor", "more"),
    [
        ("processes", {"execute.threads": 2}),
        ("auto", {}),
        ("auto", {"execute.workers": 1}),
        ("auto", {"model.dropout": 0.1, "execute.workers": 1}),
        ("vectorised", {"execute.compiled": False, "execute.workers": 1}),
    ],
)
def test_a_client_that_takes_too_much_memory_fails_in_its_job(
    executor: str, more: dict[str, object], tmp_path: Path
) -> None:
    """And it alone, each time, whatever trains it: its worker goes on with the others."""
    faults = [{"kind": "memory-leak", "clients": [2], "strength": 600.0}]
    job = {"train.clients_per_round": 6, "execute.worker_mb": 300, "faults": faults, **more}
    result = run(small(job, executor=executor), tmp_path)
    assert result.failed == 2
    with recorded(tmp_path) as reader:
        failures = reader.failures()
        others = {one.outcome for one in reader.participations() if one.client != "2"}
    assert {one.client for one in failures} == {"2"}
    assert all("memory" in one.message for one in failures)
    assert others == {Outcome.USED}


def test_a_bound_without_workers_is_refused() -> None:
    """One by one in this process, nothing could be bounded."""
    with pytest.raises(JobError, match=r'execute\.worker_mb = 300 bounds .*"sequential" has none'):
        run(small({"execute.worker_mb": 300}))


TOO_LARGE = """
from small_jobs import run, small
from fedvitals.errors import TrainingError

try:
    run(small({"model.hidden": [3000, 3000], "execute.worker_mb": 4}, executor="processes"))
except TrainingError as error:
    print(error)
"""


def test_a_bound_that_does_not_hold_the_model_is_named() -> None:
    """Every client fails with the setting in its message, and no worker dies with a traceback of its own. In a process
    that is new: one that has done much has freed memory to begin with, which may hold the model."""
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", TOO_LARGE],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert re.search(r"all 4 clients failed; .*execute\.worker_mb = 4 is all that its worker may", done.stdout)
    assert "Traceback" not in done.stderr
