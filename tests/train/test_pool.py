"""Worker processes: killed, stuck, orphaned or left alone, they cost what they must and are gone when it is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from pool_parts import SIZE, attempt, round_of, updates_of, work_of
from small_jobs import recorded, run, small

from fedvitals.errors import TrainingError
from fedvitals.train import workers
from fedvitals.train.pool import PoolExecutor
from fedvitals.train.trained import Failed, Trained
from fedvitals.vocabulary import Outcome


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


@pytest.fixture
def pool() -> Iterator[PoolExecutor]:
    made = PoolExecutor("processes", attempt, workers=2, chunk=1, size=SIZE, most=8)
    yield made
    made.close()


def test_clients_go_out_and_updates_come_back(pool: PoolExecutor) -> None:
    """Round after round from other weights, more clients than workers, integer buffers both ways."""
    for start in (0.0, 100.0):
        found = round_of(pool, [work_of(client) for client in range(8)], start)
        assert updates_of(found) == {str(client): start + client for client in range(8)}
        counts = {name: int(one.integers[0]["count"]) for name, one in found.items() if isinstance(one, Trained)}
        assert counts == {str(client): 10 + client for client in range(8)}


def test_both_workers_work(pool: PoolExecutor) -> None:
    """Two clients at once are in two processes, neither of them this one."""
    found = round_of(pool, [work_of(0), work_of(1)])
    pids = {int(one.samples[0]) for one in found.values() if isinstance(one, Trained)}
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_a_plan_may_bring_rows(pool: PoolExecutor) -> None:
    """Tensors in a plan arrive; they do not travel back, nor do they end up in shared memory."""
    x = torch.randn(50, 4)
    found = round_of(pool, [work_of(2, x=x, y=torch.zeros(50, dtype=torch.int64))])["2"]
    assert isinstance(found, Trained)
    assert found.works[0].x is None
    assert not x.is_shared()  # type: ignore[no-untyped-call]  # torch leaves it untyped


@pytest.mark.parametrize(("how", "code"), [("die", -9), ("leave", 3), ("raise", 1)])
def test_a_dead_worker_costs_its_client_and_is_replaced(pool: PoolExecutor, how: str, code: int) -> None:
    """Killed, gone by itself or fallen over: the others of the round are trained, and in the next round all are."""
    works = [work_of(0), work_of(1, error=how), work_of(2), work_of(3)]
    found = round_of(pool, works)
    failed = found["1"]
    assert isinstance(failed, Failed)
    assert (failed.stage, failed.kind) == ("train", "worker died")
    assert f"ended with code {code}" in failed.message
    assert updates_of(found) == {"0": 0.0, "2": 2.0, "3": 3.0}
    assert updates_of(round_of(pool, [work_of(client) for client in range(4)])) == {str(n): float(n) for n in range(4)}
    assert len(_children()) == 2


def test_a_worker_that_died_between_rounds_costs_nobody(pool: PoolExecutor) -> None:
    """It is replaced before the next round's plans are handed out."""
    for worker in pool._workers:
        worker.process.kill()
        worker.process.join()
    assert len(updates_of(round_of(pool, [work_of(client) for client in range(4)]))) == 4


def test_a_client_that_fails_is_told_as_it_was(pool: PoolExecutor) -> None:
    """The worker lives on."""
    before = _children()
    failed = round_of(pool, [work_of(4, error="fail")])["4"]
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.message, failed.traceback) == ("ValueError", "as told", "trace")
    assert _children() == before


def test_closing_ends_idle_workers_at_once() -> None:
    """They hear that the pipe is closed: nobody has to be killed, and a second close does nothing."""
    pool = PoolExecutor("processes", attempt, workers=3, chunk=1, size=SIZE, most=8)
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
    pool = PoolExecutor("processes", attempt, workers=2, chunk=1, size=SIZE, most=3)
    plans = [work_of(0), work_of(1, error="hang"), work_of(2, error="hang")]
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
    assert len(updates_of(round_of(pool, [work_of(0), work_of(1)]))) == 2


def test_fewer_clients_than_workers() -> None:
    """No worker is started that could never get a client."""
    pool = PoolExecutor("processes", attempt, workers=9, chunk=2, size=SIZE, most=5)
    try:
        assert len(pool._workers) == 3
        assert len(updates_of(round_of(pool, [work_of(client) for client in range(5)]))) == 5
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
