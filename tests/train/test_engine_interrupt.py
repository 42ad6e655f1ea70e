"""Ctrl-C in the middle of a round: the command ends at once with 130, the run says so, and no worker stays behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from small_jobs import SMALL

from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import Status


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """`fedvitals run` of a job whose two workers train for ever, and the workers' process ids."""
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDWR)  # for writing too, so that it never ends
    (tmp_path / "job.toml").write_text('name = "small"\n', encoding="utf-8")
    changes = {**SMALL, "model.kind": "own_models:stuck", "execute.executor": "processes"}
    del changes["model.hidden"]  # which a model of one's own has no use for, as a warning would say
    command = [sys.executable, "-m", "fedvitals", "run", str(tmp_path / "job.toml"), "--quiet"]
    for name, value in changes.items():
        command += ["--set", f"{name}={value}"]
    environment = {**os.environ, "STUCK_PIPE": str(tmp_path / "pipe"), "PYTHONPATH": str(Path(__file__).parent)}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process, _two_lines(pipe)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        os.close(pipe)


def _two_lines(pipe: int) -> list[int]:
    """The numbers of both workers, as soon as they have written them."""
    text = b""
    while text.count(b"\n") < 2:
        ready, _, _ = select.select([pipe], [], [], 60)
        assert ready, "the workers never came to train"
        text += os.read(pipe, 100)
    return [int(line) for line in text.split()]


@pytest.mark.parametrize("whole_group", [True, False], ids=["as a terminal does", "the engine alone"])
def test_an_interrupt_ends_a_run_in_order(
    stuck: tuple[subprocess.Popen[str], list[int]], whole_group: bool, tmp_path: Path
) -> None:
    """Exit code 130, one line and no traceback; the run is marked failed; its workers are gone."""
    process, workers = stuck
    if whole_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "fedvitals: interrupted\n"
    assert not any(psutil.pid_exists(pid) for pid in workers)
    (record,) = SQLiteStore(tmp_path / "runs").runs()
    assert record.status == Status.FAILED
    assert "KeyboardInterrupt" in record.health["error"]
