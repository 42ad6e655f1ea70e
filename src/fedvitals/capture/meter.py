"""How much memory the process used over a stretch of time: at its beginning, at its highest, at its end.

Memory is the process's, so there is one meter a process, whatever number of recorders it has. Where the kernel's mark
can be set back, that is done when a stretch begins, and the peak is exact; what the mark had shown until then is handed
to the stretches around it and to the peak of the whole process. Where it cannot, a thread looks every few milliseconds
while a stretch is open, and the peak is `sampled`, unless the process reached a new height, which the kernel tells.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import NamedTuple

from fedvitals.capture.watermark import Reading, Watermark, find_watermark

SAMPLE_EVERY_S = 0.008  # of a tensor held for 50 ms, several samples
IDLE_S = 1.0  # without an open stretch, after which the thread sleeps
MOST_OPEN = 256  # stretches that nobody ends are forgotten, the oldest first


class Used(NamedTuple):
    """What a stretch used."""

    start_bytes: int
    peak_bytes: int
    end_bytes: int
    sampled: bool = False  # the peak may have been higher between two samples
    shared: bool = False  # stretches of other threads or tasks overlapped: what is told is the process's


class Stretch:
    """One that is going on."""

    __slots__ = ("_mark_bytes", "exact", "highest_bytes", "sampled", "shared", "start_bytes", "thread")

    def __init__(self, start: Reading, exact: bool) -> None:
        self.start_bytes = self.highest_bytes = start.rss_bytes
        self.exact = exact
        self.sampled = not exact
        self.shared = False
        self.thread = threading.get_ident()
        self._mark_bytes = start.peak_bytes

    def saw(self, now: Reading) -> None:
        """The mark tells of this stretch when it was set back in it, or when it is higher than at its beginning."""
        told = self.exact or now.peak_bytes > self._mark_bytes
        height = now.peak_bytes if told else now.rss_bytes
        if height > self.highest_bytes:
            self.highest_bytes, self.sampled = height, not told


class MemoryMeter:
    """Of this process. Every call costs some microseconds; none of them waits."""

    def __init__(self, mark: Watermark | None = None, *, sample_every_s: float = SAMPLE_EVERY_S) -> None:
        self._mark = mark  # None: found when it is first needed
        self._every_s = sample_every_s
        self._highest = 0
        self._fresh()

    def _fresh(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal handler or a destructor may open a phase
        self._open: list[Stretch] = []
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self._sampler: threading.Thread | None = None
        self._wanted, self._stop = threading.Event(), threading.Event()
        self.sampler_ns = 0  # CPU time of the thread

    def after_fork(self) -> None:
        """In the child there is no thread, nobody's stretches are ours, and its memory begins as it is."""
        self._highest = 0
        if self._mark is not None:
            self._mark.close()
        self._fresh()

    @property
    def known_peak_bytes(self) -> int:
        """The process's peak as far as anybody looked."""
        return self._highest

    def peak_bytes(self) -> int:
        """The most that ever was resident, as of now."""
        with self._lock:
            self._highest = max(self._highest, (self._mark or self._known()).highest())
            return self._highest

    def look(self) -> Reading:
        """What is resident now, and the most that ever was, whoever set the mark back meanwhile."""
        with self._lock:
            return Reading(self._look().rss_bytes, self._highest)

    def begin(self, *, exact: bool = True, sampled: bool = True) -> Stretch:
        """With neither, the end tells of a peak that is higher than any before, and else of no more than the ends."""
        with self._lock:
            now = self._look()
            stretch = Stretch(now, exact and self._known().reset())
            for other in self._open:
                if other.thread != stretch.thread:
                    other.shared = stretch.shared = True
            self._open.append(stretch)
            if len(self._open) > MOST_OPEN:
                self._open.pop(0).sampled = True  # nobody looks at it from here on
            if sampled and not stretch.exact:
                self._sample()
        return stretch

    def end(self, stretch: Stretch) -> Used:
        with self._lock:
            now = self._look()
            if stretch in self._open:
                self._overlapping(stretch)
                self._open.remove(stretch)
        return Used(stretch.start_bytes, stretch.highest_bytes, now.rss_bytes, stretch.sampled, stretch.shared)

    def drop(self, stretch: Stretch) -> None:
        """Nobody wants to know."""
        with self._lock:
            if stretch in self._open:
                self._open.remove(stretch)

    def _overlapping(self, stretch: Stretch) -> None:
        """Of one thread, what began later ends earlier; tasks that take turns do not."""
        for later in self._open[self._open.index(stretch) + 1 :]:
            if later.thread == stretch.thread:
                later.shared = stretch.shared = True

    def _known(self) -> Watermark:
        if self._mark is None:
            self._mark = find_watermark()
        return self._mark

    def _look(self) -> Reading:
        now = (self._mark or self._known()).read()
        self._highest = max(self._highest, now.peak_bytes, now.rss_bytes)
        for one in self._open:
            one.saw(now)
        return now

    # -- the thread, where the mark cannot be set back

    def take(self, user: object) -> None:
        """Somebody uses the meter, until `give_back`; the thread ends with the last of them."""
        with self._lock:
            self._users.add(user)

    def give_back(self, user: object) -> None:
        with self._lock:
            self._users.discard(user)
            sampler = self._sampler if not self._users else None
            if sampler is None:
                return
            self._sampler = None
            self._stop.set()
            self._wanted.set()
        sampler.join(timeout=1.0)

    def _sample(self) -> None:
        if self._sampler is None and self._users:
            self._stop, self._wanted = threading.Event(), threading.Event()
            arguments = (self._stop, self._wanted)
            self._sampler = threading.Thread(target=self._go, args=arguments, name="fedvitals-memory", daemon=True)
            self._sampler.start()
        self._wanted.set()

    def _go(self, stop: threading.Event, wanted: threading.Event) -> None:
        idle_s = 0.0
        while not stop.wait(self._every_s):
            with self._lock:
                busy = any(not one.exact for one in self._open)
                if busy:
                    self._look()
                idle_s = 0.0 if busy else idle_s + self._every_s
                if idle_s >= IDLE_S:
                    wanted.clear()
            self.sampler_ns = time.thread_time_ns()
            wanted.wait()


METER = MemoryMeter()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=METER.after_fork)
