"""Oversubscribed CPU.

Sees: more threads that compute at once than there are cores for the process: workers times their threads in the engine,
or torch's threads in a loop of one's own.

Matters: threads that share a core wait for each other; with small tensors the same training runs many times slower
than with one thread.

Evidence: workers, threads and cores, and the CPU seconds that were had in a second.

False alarms: the count is exact; whether it hurts depends on the size of the tensors. Cores are those that the process
may use, which a container's quota can make fewer still.

Do: one thread a worker (`torch.set_num_threads(1)`, OMP_NUM_THREADS=1) and as many workers as cores.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.rule import CannotSee, WrittenRule
from fedvitals.diagnose.writing import write
from fedvitals.vocabulary import Action, Finding, Severity


def _look(chart: Chart) -> Iterator[Finding]:
    environment = chart.run.environment
    cores = _count(environment.get("cpus_usable")) or _count(environment.get("cpus"))
    threads = _count(environment.get("engine_threads")) or _count(environment.get("threads"))
    if cores is None or threads is None:
        raise CannotSee("the cores or the threads of the run are not known")
    workers = _workers(chart)
    if workers * threads <= cores:
        return
    had = _cpu_per_s(chart)
    rate = f"; it had {had:.1f} CPU seconds a second" if had is not None else ""
    yield write(
        RULE,
        Severity.WARNING,
        f"{workers} {'process' if workers == 1 else 'workers'} with {threads} thread{'s' * (threads > 1)} each want "
        f"{workers * threads} cores, and there {'is' if cores == 1 else 'are'} {cores}{rate}",
        evidence={"workers": workers, "threads": threads, "cores": cores, "cpu_per_s": had},
        next=[
            "set OMP_NUM_THREADS=1 or torch.set_num_threads(1)",
            Action(f"set execute.workers = {max(cores // threads, 1)}"),
        ],
    )


def _workers(chart: Chart) -> int:
    """Processes that train at the same time; 0 in a job means that the engine picks, which it does by the cores."""
    execute = chart.run.config.get("execute")
    asked = _count(execute.get("workers")) if isinstance(execute, Mapping) else None
    parallel = chart.run.environment.get("executor") in ("processes", "vectorised")
    cohort = max((one.selected for one in chart.rounds), default=1)
    return min(asked, max(cohort, 1)) if asked and parallel else 1


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None


def _cpu_per_s(chart: Chart) -> float | None:
    """Of the recording process, on the real clock."""
    host = [one for one in chart.resources if one.device is None]
    if len(host) < 2 or chart.run.environment.get("clock") == "virtual" or host[-1].at_ns <= host[0].at_ns:
        return None
    return (host[-1].cpu_s - host[0].cpu_s) / ((host[-1].at_ns - host[0].at_ns) / 1e9)


RULE = WrittenRule(
    code="FL803", name="oversubscribed cpu", page=__doc__ or "", look=_look, explains=frozenset({"FL205"})
)
