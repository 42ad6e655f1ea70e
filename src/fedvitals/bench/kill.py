"""Kill a process that records, at some moment, and see what is left: `python -m fedvitals.bench.kill FOLDER` is the one
that gets killed; it says on its standard output what it put, and when."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fedvitals.bench import made_up
from fedvitals.store import BackgroundWriter, SQLiteStore
from fedvitals.vocabulary import Participation, Run, Status

PAUSE_S = 0.002  # between two participations


@dataclass(frozen=True, slots=True)
class Killed:
    """What a killed process left behind."""

    put: int  # participations it had put in
    found: int  # of those, on disk
    missing_s: float  # from the first that is missing to the kill
    status: Status
    whole: bool  # what is there is the beginning of what was put, with nothing changed


def kill_after(delay_s: float) -> Killed:
    """Start a recording process, kill it so long after its first record, and read the run."""
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-m", "fedvitals.bench.kill", folder]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            put = [float(process.stdout.readline())]
            time.sleep(delay_s)
            killed_at = time.monotonic()
            os.kill(process.pid, signal.SIGKILL)
            put += _moments(process.stdout)
        return _left_behind(Path(folder), put, killed_at)


def _moments(lines: IO[str]) -> list[float]:
    return [float(line) for line in lines if line.endswith("\n")]


def _left_behind(folder: Path, put: list[float], killed_at: float) -> Killed:
    with closing(SQLiteStore(folder).open("last")) as reader:
        found = reader.participations()
        status = reader.run().status
    count = len(found)
    missing_s = max(0.0, killed_at - put[count]) if count < len(put) else 0.0
    return Killed(len(put), count, missing_s, status, found == [_participation(index) for index in range(count)])


def _participation(index: int) -> Participation:
    return Participation("a", index, 0, 0, 1, 0, "used", 10, 2, 1, index, index + 1, loss=index / 7)


def record_for_ever(folder: Path) -> None:
    """One participation every 2 ms, a block of statistics every 64."""
    import psutil

    environment = {
        "host": platform.node(),
        "pid": os.getpid(),
        "process_started": psutil.Process().create_time(),
    }
    journal = SQLiteStore(folder).create(
        Run("killed", "killed", Status.RUNNING, time.time_ns(), environment=environment)
    )
    writer = BackgroundWriter(journal, queue_bytes=64 << 20, on_trouble=lambda message: sys.exit(message))
    writer.put([made_up.layout(10)], 1000)
    block = made_up.update_block(1, 10, 8)
    index = 0
    while True:
        writer.put([_participation(index)], 512)
        os.write(1, f"{time.monotonic()!r}\n".encode())
        if index % made_up.BLOCK == 0:
            writer.put([block], made_up.block_bytes(block))
        index += 1
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    record_for_ever(Path(sys.argv[1]))
