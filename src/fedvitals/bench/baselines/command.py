"""One contestant from the command line, and the same in another interpreter: frameworks need not share an environment.

python -m fedvitals.bench.baselines.plain_loop --problem digits --rounds 5
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from fedvitals.bench.baselines.problem import NAMES, named
from fedvitals.bench.baselines.protocol import Baseline
from fedvitals.errors import MissingExtraError, TrainingError

MODULES = ("dataloader_loop", "plain_loop", "pfl_research", "flower_simulation")
SOURCE = Path(__file__).resolve().parents[3]  # the folder that holds the package
LONGEST_S = 3600.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of one run."""

    baseline: str
    problem: str
    rounds: int
    seconds: float  # of these rounds
    clients: int  # trained in them
    accuracy: float

    @property
    def clients_per_s(self) -> float:
        return self.clients / self.seconds


def measure(baseline: Baseline, problem: str, rounds: int) -> Measured:
    """Run a contestant here."""
    asked = named(problem)
    baseline.prepare(asked)
    seconds = baseline.run(rounds)
    return Measured(baseline.name, problem, rounds, seconds, rounds * len(asked.clients), baseline.accuracy())


def measure_elsewhere(python: str, module: str, problem: str, rounds: int, threads: int = 1) -> Measured:
    """Run one of MODULES in another interpreter, which needs its framework, torch and numpy but not fedvitals."""
    command = [python, "-m", f"fedvitals.bench.baselines.{module}", "--problem", problem, "--rounds", str(rounds)]
    command += ["--threads", str(threads)]
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        last = "\n".join(done.stderr.splitlines()[-5:])
        raise TrainingError(f"{module} on {problem} by {python} ended with {done.returncode}:\n{last}")
    return Measured(**json.loads(lines[-1]))


def main(baseline: Baseline) -> None:
    """Run a contestant as the command line says and print one line of JSON."""
    parser = argparse.ArgumentParser(description=f"Time {baseline.name} on one of the engine bench's problems.")
    parser.add_argument("--problem", choices=NAMES, default="digits")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds, after one that is not (default 5)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch in each process (default 1)")
    given = parser.parse_args()
    if given.rounds < 1 or given.threads < 1:
        parser.error("--rounds and --threads are at least 1")
    missing = baseline.available()
    if missing is not None:
        print(missing, file=sys.stderr)
        raise SystemExit(MissingExtraError.exit_code)
    import torch

    torch.set_num_threads(given.threads)
    print(json.dumps(asdict(measure(baseline, given.problem, given.rounds))))
