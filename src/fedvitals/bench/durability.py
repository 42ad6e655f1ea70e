"""What a killed training loses: `kill -9` at random moments, and what its run still knows.

The whole way is in it, from `c.submit` to the disk. The training says on its standard output when each participation
ended; what is missing from the run afterwards is counted from the first missing one to the kill.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import IO, NamedTuple

from fedvitals.bench.table import Row
from fedvitals.store import SQLiteStore
from fedvitals.vocabulary import Status

LOST_GOAL_S = 0.5
LONGEST_S = 2.0  # of a training before it is killed
CLIENTS, STEPS = 8, 4


class Left(NamedTuple):
    """What a killed training left behind."""

    told: int  # participations it said had ended
    lost_s: float
    status: Status
    judged: bool  # every participation that is there has its statistics


def run(quick: bool = False) -> list[Row]:
    """Fifty kills; `quick` two."""
    moments = 2 if quick else 50
    moment = random.Random(11)  # noqa: S311  # moments, not secrets
    left = [kill_after(moment.uniform(0.1, LONGEST_S)) for _ in range(moments)]
    whole = sum(one.judged and one.status is Status.CUT_OFF for one in left) / moments
    lost = [one.lost_s for one in left]
    case = f"training killed at {moments} moments"
    return [
        Row(case, "opened, judged, said to be cut off", whole, whole, whole, "share", 1.0),
        Row(case, "longest stretch lost", max(lost), min(lost), max(lost), "s", LOST_GOAL_S, at_least=False),
    ]


def kill_after(delay_s: float) -> Left:
    """Start a training, kill it so long after its first participation, and read its run."""
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-m", "fedvitals.bench.durability", folder]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = [process.stdout.readline()]
            time.sleep(delay_s)
            killed_at = time.monotonic()
            os.kill(process.pid, signal.SIGKILL)
            told += _whole_lines(process.stdout)
        return _left_behind(Path(folder), told, killed_at)


def _whole_lines(lines: IO[str]) -> list[str]:
    return [line for line in lines if line.endswith("\n")]


def _left_behind(folder: Path, told: list[str], killed_at: float) -> Left:
    with closing(SQLiteStore(folder).open("last")) as reader:
        found = reader.participations()
        status = reader.run().status
        judged = all(one.update_norm is not None and reader.update_stats(one) for one in found)
    there = {(one.client, one.attempt) for one in found}
    missing = [float(at) for at, client, attempt in map(str.split, told) if (client, int(attempt)) not in there]
    return Left(len(told), max(0.0, killed_at - min(missing)) if missing else 0.0, status, judged)


def train_for_ever(folder: str) -> None:
    """A loop as a user writes it, on small made-up data."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    import fedvitals

    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    x, y = torch.randn(STEPS, 32, 32), torch.randint(0, 10, (STEPS, 32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with fedvitals.start("killed", dir=folder) as run:
        for number in range(1_000_000):
            with run.round(number, model=model) as rnd:
                for client in range(CLIENTS):
                    with rnd.client(client) as c:
                        for step in range(STEPS):
                            optimizer.zero_grad()
                            F.cross_entropy(model(x[step]), y[step]).backward()  # type: ignore[no-untyped-call]
                            optimizer.step()
                        c.submit(model.state_dict())
                    os.write(1, f"{time.monotonic()!r} {client} {number}\n".encode())


if __name__ == "__main__":
    train_for_ever(sys.argv[1])
