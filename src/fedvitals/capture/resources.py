"""What the process uses: resident memory, its peak, CPU time, threads, and devices."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from fedvitals.capture.accelerator import Accelerator, CudaAccelerator, DeviceMemory, DeviceSample
from fedvitals.capture.meter import METER
from fedvitals.vocabulary import ResourceSample

D = TypeVar("D")

THREADS_EVERY_S = 0.5


def peak_rss_bytes() -> int:
    """The process's peak so far, by the kernel's count; that the mark is set back for phases changes nothing."""
    return METER.peak_bytes()


def rss_bytes() -> int:
    return METER.look().rss_bytes


class ResourceProbe:
    """Takes samples of this process. One of its own would cost 40 us with psutil; this costs a tenth."""

    def __init__(
        self, accelerator: Accelerator | None = None, blame: Callable[[str, Exception], None] | None = None
    ) -> None:
        self._accelerator = accelerator or CudaAccelerator()
        self._blame = blame
        self._threads = 0
        self._threads_due_s = 0.0

    def host(self, at_ns: int) -> ResourceSample:
        times, memory = os.times(), METER.look()
        return ResourceSample(
            at_ns=at_ns,
            pid=os.getpid(),
            rss_bytes=memory.rss_bytes,
            peak_rss_bytes=memory.peak_bytes,
            cpu_s=times.user + times.system,
            threads=self._threads_now(),
        )

    def _threads_now(self) -> int:
        """Looked at now and then: asking takes longer than all the rest, and they hardly change."""
        now = time.monotonic()
        if now >= self._threads_due_s:
            self._threads_due_s = now + THREADS_EVERY_S
            self._threads = _threads() or threading.active_count()
        return self._threads

    def samples(self, at_ns: int) -> Iterator[ResourceSample]:
        host = self.host(at_ns)
        yield host
        for device in self._devices():
            yield host._replace(
                device=device.device,
                device_used_bytes=device.used_bytes,
                device_peak_bytes=device.peak_bytes,
                device_total_bytes=device.total_bytes,
                device_busy_ratio=device.busy_ratio,
            )

    def device_memory(self) -> list[DeviceMemory]:
        return self._asked(lambda: self._accelerator.memory())

    def _devices(self) -> list[DeviceSample]:
        return self._asked(lambda: self._accelerator.samples())

    def _asked(self, ask: Callable[[], list[D]]) -> list[D]:
        """A device that cannot be asked must not cost what is known of the host."""
        try:
            return ask()
        except Exception as error:
            if self._blame is not None:
                self._blame("accelerator", error)
            return []


def _threads() -> int:
    """All threads, the ones Python does not know included."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0
