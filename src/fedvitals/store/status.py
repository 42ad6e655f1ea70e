"""How a run stands: what its record says, unless the process that wrote it is gone."""

from __future__ import annotations

import platform
import time
from dataclasses import replace
from typing import Any

from fedvitals.vocabulary import Run, Status

SILENT_S = 10.0  # a writer on another machine that has not been heard of for so long is taken for dead
_CLOCK_SLACK_S = 2.0  # the kernel's start of a process moves a little when the clock is set


def settled(run: Run, heartbeat_unix_ns: int | None, now_unix_ns: int | None = None) -> Run:
    """The run, `CUT_OFF` where its record says it is going on but nobody is writing it any more."""
    if run.status is not Status.RUNNING:
        return run
    environment = run.environment
    pid, started = environment.get("pid"), environment.get("process_started")
    if environment.get("host") == platform.node() and isinstance(pid, int):
        alive = _is_alive(pid, started)
    else:
        now = time.time_ns() if now_unix_ns is None else now_unix_ns
        alive = heartbeat_unix_ns is not None and now - heartbeat_unix_ns <= SILENT_S * 1e9
    return run if alive else replace(run, status=Status.CUT_OFF)


def _is_alive(pid: int, started: Any) -> bool:
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:  # killed, and its parent has not looked yet
            return False
        return not isinstance(started, int | float) or abs(process.create_time() - started) <= _CLOCK_SLACK_S
    except psutil.AccessDenied:
        return True
    except (psutil.Error, ValueError, OverflowError):
        return False
