"""Worker processes: killed, stuck, orphaned or left alone, they cost what they must and are gone when it is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from small_jobs import recorded, run, small
from torch import Tensor

from fedvitals.errors import TrainingError
from fedvitals.faults.work import LocalWork
from fedvitals.train import workers
from fedvitals.train.pool import PoolExecutor
from fedvitals.train.trained import Failed, Trained
from fedvitals.train.workers import Limits
from fedvitals.vocabulary import Outcome

SIZE = 3


def _children() -> set[int]:
    """Workers, not what Python itself keeps for processes that other tests spawned."""
    return {child.pid for child in psutil.Process().children(recursive=True) if not _keeps_track(child)}


def _keeps_track(child: psutil.Process) -> bool:
    try:
        return any("resource_tracker" in word for word in child.cmdline())
    except psutil.Error:  # it has just ended
        return False


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    """Neither running nor waiting to be buried."""
    before = _children()
    yield
    assert _children() <= before


def _work(client: int, **plan: Any) -> LocalWork:
    return LocalWork(client=client, name=str(client), attempt=0, round=0, lr=0.1, **plan)


def _attempt(
    works: Sequence[LocalWork], weights: Tensor, integers: Mapping[str, Tensor], row: int
) -> Iterator[Trained | Failed]:
    """A client's update is the weights plus its number; a plan's `error` says how to go wrong."""
    for work in works:
        if work.error == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if work.error == "leave":
            os._exit(3)
        if work.error == "hang":
            signal.pause()
        if work.error == "raise":
            raise ArithmeticError("not caught by whoever attempts")
        if work.error == "fail":
            yield Failed(work, "train", "ValueError", "as told", "trace", 1, 2)
            continue
        yield Trained(
            works=(work,),
            updates=(weights + work.client).unsqueeze(0),
            losses=np.zeros((1, 2), np.float32),
            steps=np.array([2]),
            samples=np.array([os.getpid()]),
            phases_s={phase: np.zeros(1) for phase in ("train", "load", "upload")},
            start_ns=[0],
            end_ns=[0],
            integers=({"count": integers["count"] + work.client},),
            slots=[0],
        )


@pytest.fixture
def pool() -> Iterator[PoolExecutor]:
    made = PoolExecutor("processes", _attempt, workers=2, chunk=1, size=SIZE, most=8)
    yield made
    made.close()


def _round(pool: PoolExecutor, works: Sequence[LocalWork], start: float = 0.0) -> dict[str, Trained | Failed]:
    found: dict[str, Trained | Failed] = {}
    for result in pool.run(works, torch.full((SIZE,), start), {"count": torch.tensor(10)}):
        some = result.works if isinstance(result, Trained) else (result.work,)
        found |= {work.name: result for work in some}
    return found


def _updates(found: Mapping[str, Trained | Failed]) -> dict[str, float]:
    return {name: float(one.updates[0, 0]) for name, one in found.items() if isinstance(one, Trained)}


def test_clients_go_out_and_updates_come_back(pool: PoolExecutor) -> None:
    """Round after round from other weights, more clients than workers, integer buffers both ways."""
    for start in (0.0, 100.0):
        found = _round(pool, [_work(client) for client in range(8)], start)
        assert _updates(found) == {str(client): start + client for client in range(8)}
        counts = {name: int(one.integers[0]["count"]) for name, one in found.items() if isinstance(one, Trained)}
        assert counts == {str(client): 10 + client for client in range(8)}


def test_both_workers_work(pool: PoolExecutor) -> None:
    """Two clients at once are in two processes, neither of them this one."""
    found = _round(pool, [_work(0), _work(1)])
    pids = {int(one.samples[0]) for one in found.values() if isinstance(one, Trained)}
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_a_plan_may_bring_rows(pool: PoolExecutor) -> None:
    """Tensors in a plan arrive; they do not travel back, nor do they end up in shared memory."""
    x = torch.randn(50, 4)
    found = _round(pool, [_work(2, x=x, y=torch.zeros(50, dtype=torch.int64))])["2"]
    assert isinstance(found, Trained)
    assert found.works[0].x is None
    assert not x.is_shared()  # type: ignore[no-untyped-call]  # torch leaves it untyped


@pytest.mark.parametrize(("how", "code"), [("die", -9), ("leave", 3), ("raise", 1)])
def test_a_dead_worker_costs_its_client_and_is_replaced(pool: PoolExecutor, how: str, code: int) -> None:
    """Killed, gone by itself or fallen over: the others of the round are trained, and in the next round all are."""
    works = [_work(0), _work(1, error=how), _work(2), _work(3)]
    found = _round(pool, works)
    failed = found["1"]
    assert isinstance(failed, Failed)
    assert (failed.stage, failed.kind) == ("train", "worker died")
    assert f"ended with code {code}" in failed.message
    assert _updates(found) == {"0": 0.0, "2": 2.0, "3": 3.0}
    assert _updates(_round(pool, [_work(client) for client in range(4)])) == {str(n): float(n) for n in range(4)}
    assert len(_children()) == 2


def test_a_worker_that_died_between_rounds_costs_nobody(pool: PoolExecutor) -> None:
    """It is replaced before the next round's plans are handed out."""
    for worker in pool._workers:
        worker.process.kill()
        worker.process.join()
    assert len(_updates(_round(pool, [_work(client) for client in range(4)]))) == 4


def test_a_client_that_fails_is_told_as_it_was(pool: PoolExecutor) -> None:
    """The worker lives on."""
    before = _children()
    failed = _round(pool, [_work(4, error="fail")])["4"]
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.message, failed.traceback) == ("ValueError", "as told", "trace")
    assert _children() == before


def test_closing_ends_idle_workers_at_once() -> None:
    """They hear that the pipe is closed: nobody has to be killed, and a second close does nothing."""
    pool = PoolExecutor("processes", _attempt, workers=3, chunk=1, size=SIZE, most=8)
    processes = [psutil.Process(worker.process.pid) for worker in pool._workers]
    sentinels = [worker.process for worker in pool._workers]
    for worker in pool._workers:  # one after the other: none may hold on to another one's pipe
        worker.connection.close()
        worker.process.join(timeout=60)
    assert [process.exitcode for process in sentinels] == [0, 0, 0]
    pool.close()
    pool.close()
    assert not any(process.is_running() for process in processes)


def test_closing_kills_who_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a round, with both workers waiting for ever."""
    monkeypatch.setattr(workers, "STOPPING_S", 0.05)
    before = _children()
    pool = PoolExecutor("processes", _attempt, workers=2, chunk=1, size=SIZE, most=3)
    plans = [_work(0), _work(1, error="hang"), _work(2, error="hang")]
    results = pool.run(plans, torch.zeros(SIZE), {"count": torch.tensor(1)})
    assert isinstance(next(results), Trained)
    assert len(_children() - before) == 2
    pool.close()
    assert _children() == before


def test_interrupts_are_the_engines_business(pool: PoolExecutor) -> None:
    """Ctrl-C reaches every process of the terminal; workers go on as if nothing had been."""
    for worker in pool._workers:
        assert worker.process.pid is not None
        os.kill(worker.process.pid, signal.SIGINT)
    assert len(_updates(_round(pool, [_work(0), _work(1)]))) == 2


def test_fewer_clients_than_workers() -> None:
    """No worker is started that could never get a client."""
    pool = PoolExecutor("processes", _attempt, workers=9, chunk=2, size=SIZE, most=5)
    try:
        assert len(pool._workers) == 3
        assert len(_updates(_round(pool, [_work(client) for client in range(5)]))) == 5
    finally:
        pool.close()


def test_a_killed_worker_in_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One client of the run is a failure with the reason; every round is finished; nothing is left running."""
    flag = tmp_path / "flag"
    flag.touch()
    monkeypatch.setenv("DYING_FLAG", str(flag))
    result = run(small({"model.kind": "own_models:dying", "train.rounds": 3}, executor="processes"), tmp_path)
    assert (result.failed, result.rounds) == (1, 3)
    with recorded(tmp_path) as reader:
        (failure,) = reader.failures()
        outcomes = {(one.client, one.attempt): one.outcome for one in reader.participations()}
    assert failure.kind == "worker died"
    assert "code -9" in failure.message
    assert [key for key, outcome in outcomes.items() if outcome != Outcome.USED] == [(failure.client, failure.attempt)]
    assert len(outcomes) == 12


def test_busy_threads_in_the_parent_do_not_hang_the_workers() -> None:
    """Torch had several threads at work before the fork: the children must not wait for threads they do not have."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.randn(600, 600) @ torch.randn(600, 600)
        result = run(small({"train.rounds": 1}, executor="processes"))
    finally:
        torch.set_num_threads(threads)
    assert result.failed == 0


def test_a_training_may_run_in_a_thread() -> None:
    """As a notebook or a server would have it: forks and signal masks work there too."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(run(small(executor="processes")).weights_sha256))
    thread.start()
    thread.join()
    assert found == [run(small(executor="sequential")).weights_sha256]


ORPHANS = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from small_jobs import small
from fedvitals.train.engine import Training
training = Training.prepare(small(executor="processes"))
print(*(worker.process.pid for worker in training.executor._workers), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_go_when_the_engine_is_killed() -> None:
    """They find their pipe closed, one after the other, and end."""
    done = subprocess.run(
        [sys.executable, "-c", ORPHANS, str(Path(__file__).parent)], capture_output=True, text=True, check=False
    )
    assert done.returncode == -9
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    # The workers held the pipe of this test's stdout: since `run` saw its end, they are gone or about to be.
    left = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    _, alive = psutil.wait_procs(left, timeout=30)
    assert not alive


def test_all_workers_dying_is_an_error_of_the_training(tmp_path: Path) -> None:
    """When no client of a round is left, the first one's reason is given."""
    with pytest.raises(TrainingError, match=r"round 0: all 4 clients failed; the first, .*ArithmeticError: cannot be"):
        run(small({"model.kind": "own_models:failing"}, executor="processes"), tmp_path)


def _attempt_in_order(
    works: Sequence[LocalWork], weights: Tensor, integers: Mapping[str, Tensor], row: int
) -> Iterator[Trained | Failed]:
    """As above; when it began is told by the clock."""
    for result in _attempt(works, weights, integers, row):
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
        works = [_work(client) for client in range(5)]
        came = [
            int(one.works[0].name)
            for one in pool.run(works, torch.zeros(SIZE), {"count": torch.tensor(0)})
            if isinstance(one, Trained)
        ]
        assert [expected[client] for client in came] == [9.0, 9.0, 5.0, 2.0, 1.0]
        assert _updates(_round(pool, works, 7.0)) == {str(client): 7.0 + client for client in range(5)}
    finally:
        pool.close()


def test_single_clients_have_models_of_their_own(pool: PoolExecutor) -> None:
    """Handed out one by one from different weights, taken back as they are done; who dies is told of and replaced."""
    found: dict[str, Trained | Failed] = {}
    starts = {"1": 10.0, "2": 20.0, "3": 30.0, "4": 40.0}
    waiting = [_work(1), _work(2, error="die"), _work(3), _work(4)]
    at_work = 0
    while waiting or at_work:
        while waiting and at_work < pool.workers:
            work = waiting.pop(0)
            pool.hand_out(work, torch.full((SIZE,), starts[work.name]), {"count": torch.tensor(1)})
            at_work += 1
        for one in pool.take():
            found[one.work.name if isinstance(one, Failed) else one.works[0].name] = one
            at_work -= 1
    assert _updates(found) == {"1": 11.0, "3": 33.0, "4": 44.0}
    assert isinstance(found["2"], Failed)
    assert found["2"].kind == "worker died"
    assert _updates(_round(pool, [_work(5)])) == {"5": 5.0}


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
        for result in _attempt([work], weights, integers, row):
            assert isinstance(result, Trained)
            result.samples = np.array([torch.get_num_threads() + 0 * held[0]])
            yield result


def test_a_worker_takes_no_more_than_it_may() -> None:
    """A client that needs more than the bound fails, and the worker lives; threads are as many as asked for."""
    limits = Limits(threads=2, memory_mb=200)
    pool = PoolExecutor("processes", _hungry, workers=1, chunk=1, size=SIZE, most=3, limits=limits)
    try:
        found = _round(pool, [_work(10), _work(1000), _work(11)])
    finally:
        pool.close()
    assert set(_updates(found)) == {"10", "11"}
    hungry, modest = found["1000"], found["10"]
    assert isinstance(hungry, Failed)
    assert "MemoryError" in hungry.kind
    assert isinstance(modest, Trained)
    assert int(modest.samples[0]) == 2
