"""What it costs to start: `import fedvitals` and `fedvitals --help`, over a bare interpreter.

Each start is a process of its own, interleaved with bare ones, after one warm-up that writes the bytecode. Bytecode is
switched on whatever the environment says: compiling at every start is not what a user pays.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from fedvitals.bench.table import Row, spread

CASES = (  # the goals are absolute: what a person feels is the wait itself
    ("import fedvitals", ("-c", "import fedvitals"), 100.0),
    ("fedvitals --help", ("-m", "fedvitals", "--help"), 300.0),
    ("fedvitals run --help", ("-m", "fedvitals", "run", "--help"), None),
)
BARE = ("-c", "pass")


def run(quick: bool = False) -> list[Row]:
    """Milliseconds over a bare interpreter: paired differences."""
    repeats = 5 if quick else 31
    rows = []
    for case, arguments, goal in CASES:
        _started_ms(arguments)
        middle, low, high = spread([_started_ms(arguments) - _started_ms(BARE) for _ in range(repeats)])
        rows.append(Row(case, "over bare Python", middle, low, high, "ms", goal=goal, at_least=False))
    return rows


def _started_ms(arguments: tuple[str, ...]) -> float:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter_ns()
    subprocess.run((sys.executable, *arguments), env=environment, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter_ns() - began) / 1e6
