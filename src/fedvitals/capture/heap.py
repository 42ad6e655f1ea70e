"""Bytes that the C library has handed out and not got back: what a leak adds to, and nothing else does.

Resident memory rises and falls by megabytes with what the allocator keeps for later; this does not: of a training that
keeps nothing it is the same to some kilobytes after every round. torch and numpy take their memory there; small Python
objects have arenas of their own, which only the resident memory shows. Taken at the end of rounds, without what the
recorder itself holds; a span of no duration, `fl.heap`, keeps it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedvitals.capture.recorder import Recorder

SPAN = "fl.heap"
FIRST = 16  # samples are taken at the end of every round, then not sooner than
SOONEST_NS = 25_000_000
MOST_PASSED = 2  # rounds in a row that are passed over because the recorder is busy
SHARE = 1000  # asking takes some 0.1 ms: so many times that must pass until the next
MOST_COST_NS = 2_000_000  # more than that was another process's turn
_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class Heap:
    """Of this process, at the end of the rounds of one run."""

    def __init__(self, recorder: Recorder, *, wanted: bool = True) -> None:
        self._recorder = recorder
        self._ask = _mallinfo() if wanted else None
        self._due_ns = 0
        self._taken = self._passed = 0

    def round_over(self, number: int) -> None:
        began = time.perf_counter_ns()
        if self._ask is None or began < self._due_ns:
            return
        if self._recorder.busy and self._passed < MOST_PASSED:
            self._passed += 1
            return
        held = self._recorder.held_bytes()
        found = self._ask()
        used = int(found.uordblks) + int(found.hblkhd) - held
        cost = min(time.perf_counter_ns() - began, MOST_COST_NS)
        self._taken, self._passed = self._taken + 1, 0
        if self._taken > FIRST:  # a leak of the first rounds is found in the first rounds
            share = SHARE * 5 if self._recorder.governor.tight else SHARE
            self._due_ns = began + max(SOONEST_NS, share * cost)
        now = self._recorder.now()
        told = f'{{"round": {number}, "heap_bytes": {max(used, 0)}}}'
        self._recorder.noted(SPAN, now, now, attributes=told)


def _mallinfo() -> Any:
    """glibc's mallinfo2; None where there is none."""
    try:
        import ctypes

        class Info(ctypes.Structure):
            _fields_ = tuple((name, ctypes.c_size_t) for name in _FIELDS)

        ask = ctypes.PyDLL(None).mallinfo2
        ask.restype = Info
    except (ImportError, AttributeError, OSError):
        return None
    return ask
