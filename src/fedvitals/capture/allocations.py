"""Which operations allocate memory: on request, for the lines inside `with run.allocations():`, by torch's profiler.

It records every operation while it runs, so it slows these lines down and is no part of the budget: a few steps tell
what there is to know. Of its findings a short table is kept, as the attributes of a span `fl.allocations`.
"""

from __future__ import annotations

import functools
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import torch
from torch.profiler import ProfilerActivity, profile

from fedvitals.capture.attributes import as_json
from fedvitals.capture.failures import in_words
from fedvitals.capture.spans import LONGEST_ERROR, C
from fedvitals.vocabulary import Span

if TYPE_CHECKING:
    from fedvitals.capture.recorder import Recorder

SPAN = "fl.allocations"
MOST_OPERATIONS = 32  # so that the table fits into the attributes of a span
LONGEST_NAME = 60
OUTSIDE = "[memory]"  # torch's name for what no operation did: mostly frees


class Operation(NamedTuple):
    """What one kind of operation allocated itself, less what it freed: not what operations inside it did."""

    name: str
    calls: int
    cpu_bytes: int
    device_bytes: int


class AllocationSession:
    """Profiles what is inside it. Where that cannot be done, it says why in the span and does nothing."""

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        *,
        most: int = MOST_OPERATIONS,
        round: int | None = None,
        client: str | None = None,
        attempt: int | None = None,
    ) -> None:
        self.recorder = recorder
        self._attributes: dict[str, Any] = {"name": str(name)[:LONGEST_NAME]}
        self._most = max(1, min(int(most), MOST_OPERATIONS))
        self._where: dict[str, Any] = {"round": round, "client": client, "attempt": attempt}
        self._profile: profile | None = None
        self._start_ns = 0
        self._called = False

    def note(self, **attributes: Any) -> None:
        """Add to what is kept of this span."""
        self._attributes.update(attributes)

    def __enter__(self) -> Self:
        began_ns = self.recorder.now()
        try:
            self._profile = self._begun() if self.recorder.alive else None
        except Exception as error:
            self._attributes["not_profiled"] = in_words(error, LONGEST_ERROR)
            self.recorder.trouble("allocations", error)
        self.recorder.recorded_since(began_ns)  # starting the profiler takes longer than many a phase
        self._start_ns = self.recorder.now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            end_ns = self.recorder.now()
            self._finish()
            self._record(end_ns, error)
            self.recorder.recorded_since(end_ns)
        except Exception as own:
            self.recorder.trouble("allocations", own)

    def __call__(self, function: C) -> C:
        """As a decorator it profiles the first call only: a profile of all would be as slow as it would be long."""

        @functools.wraps(function)
        def profiled(*args: Any, **kwargs: Any) -> Any:
            if self._called:
                return function(*args, **kwargs)
            self._called = True
            with self:
                return function(*args, **kwargs)

        return cast(C, profiled)

    def _begun(self) -> profile:
        if torch._C._autograd._profiler_enabled():
            raise RuntimeError("another profiler is running, and torch has room for one")
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        begun = profile(activities=activities, profile_memory=True)
        begun.start()
        return begun

    def _finish(self) -> None:
        running, self._profile = self._profile, None
        if running is None:
            return
        running.stop()
        if self.recorder.alive:
            self._attributes = table(running.key_averages(), self._most) | self._attributes

    def _record(self, end_ns: int, error: BaseException | None) -> None:
        span = Span(
            id=self.recorder.next_id(),
            parent=None,
            name=SPAN,
            start_ns=self._start_ns,
            end_ns=end_ns,
            thread=threading.current_thread().name,
            error=in_words(error, LONGEST_ERROR) if error is not None else None,
            attributes=as_json(self._attributes),
            **self._where,
        )
        self.recorder.emit([span], 4_096)


def table(averages: Any, most: int) -> dict[str, Any]:
    """The operations that moved most memory, the most first: [name, calls, bytes on the CPU, bytes on devices]."""
    found = [_operation(one) for one in averages]
    moving = [one for one in found if (one.cpu_bytes or one.device_bytes) and one.name != OUTSIDE]
    moving.sort(key=lambda one: (-max(abs(one.cpu_bytes), abs(one.device_bytes)), one.name))
    return {
        "operations": [list(one) for one in moving[:most]],
        "operations_left_out": max(len(moving) - most, 0),
        "total_cpu_bytes": sum(one.cpu_bytes for one in moving),
        "total_device_bytes": sum(one.device_bytes for one in moving),
    }


def _operation(one: Any) -> Operation:
    cpu, device = int(one.self_cpu_memory_usage), int(getattr(one, "self_device_memory_usage", 0) or 0)
    return Operation(str(one.key)[:LONGEST_NAME], int(one.count), cpu, device)
