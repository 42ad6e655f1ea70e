"""Every fault of what a federation runs on, on every executor: its finding with the right client, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from charted import SYSTEM, alarms, found, trained

from fedvitals.faults.registry import BY_KIND
from fedvitals.vocabulary import Severity

EXECUTORS = ("sequential", "processes", "vectorised")
FAULTS = ("crash", "timeout", "slow-compute", "slow-link", "slow-loader", "slow-aggregation")


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_gives_its_finding_and_no_other(kind: str, executor: str, tmp_path: Path) -> None:
    """From round 5 of 20 on, it is found in the rounds in which it struck, and nobody else is accused."""
    struck = {} if kind == "slow-aggregation" else {"clients": [3]}
    chart = trained(tmp_path, {"execute.executor": executor}, [{"kind": kind, "from_round": 5, **struck}])
    grave = [one for one in found(chart, *SYSTEM) if one.severity is not Severity.INFO]
    assert [one.code for one in grave] == [BY_KIND[kind].finding]
    assert grave[0].clients == (("3",) if struck else ())
    there = [int(n) for n, rows in chart.cohorts if "3" in chart.names(chart.participations.client[rows])]
    assert list(grave[0].rounds) == ([n for n in there if n >= 5] if struck else list(range(5, 20)))


LEAK = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from charted import SYSTEM, found, trained
leak = {"kind": "memory-leak", "from_round": 5, "clients": [3]}
for executor in sys.argv[3:]:
    chart = trained(Path(sys.argv[2]), {"execute.executor": executor}, [leak])
    for one in found(chart, *SYSTEM):
        if one.severity != "info":
            print(executor, one.code, ",".join(one.clients), *one.rounds)
"""


def test_a_leak_is_found_in_a_process_that_leaks_for_one_client(tmp_path: Path) -> None:
    """In a fresh process, as a run has: a peak from before would hide what grows below it, and the kernel lets a child
    begin with its parent's peak, so a shell stands between."""
    python = [sys.executable, "-c", LEAK, str(Path(__file__).parent), str(tmp_path), *EXECUTORS]
    command = ["sh", "-c", '"$@"; exit $?', "sh", *python]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    lines = [line.split() for line in told]
    assert [line[:3] for line in lines] == [[executor, "FL801", "3"] for executor in EXECUTORS]
    assert all(int(line[3]) >= 5 for line in lines)


CLEAN = [
    ("sequential", "real", {"data.partition": "iid"}),
    ("sequential", "virtual", {"data.alpha": 0.1, "data.min_rows": 2, "train.clients_per_round": 20}),
    ("vectorised", "real", {"data.alpha": 0.1, "data.min_rows": 2}),
    ("vectorised", "virtual", {"data.clients": 100, "train.clients_per_round": 50, "train.rounds": 8}),
    ("processes", "real", {"data.clients": 10, "train.clients_per_round": 10}),
    ("processes", "virtual", {"data.partition": "quantity", "data.clients": 30}),
]


@pytest.mark.parametrize(("executor", "clock", "changes"), CLEAN)
def test_a_healthy_run_raises_no_alarm(executor: str, clock: str, changes: dict[str, object], tmp_path: Path) -> None:
    """Whatever the data, the clock and the executor: at most something worth knowing."""
    chart = trained(tmp_path, {"execute.executor": executor, "execute.clock": clock, **changes})
    assert len(chart.rounds) >= 8
    assert alarms(chart, *SYSTEM) == []
