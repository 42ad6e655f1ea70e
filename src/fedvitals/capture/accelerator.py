"""Accelerators, seen through one small interface: memory by torch's own counters, business by NVML.

Nothing here imports torch or NVML of its own accord: it looks only at what the training has loaded already. Tests use
`fedvitals.testing.FakeAccelerator` behind the same interface.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

MOST_DEVICES = 16  # whose memory is kept with a phase


class DeviceSample(NamedTuple):
    device: str
    used_bytes: int | None
    peak_bytes: int | None
    total_bytes: int | None
    busy_ratio: float | None


class DeviceMemory(NamedTuple):
    device: str
    used_bytes: int
    peak_bytes: int  # so far


class Accelerator(Protocol):
    def samples(self) -> list[DeviceSample]:
        """One sample a device that is in use; never waits for a device."""

    def memory(self) -> list[DeviceMemory]:
        """The same of memory alone, as quickly as can be: phases ask for it."""


class CudaAccelerator:
    """CUDA devices that this process uses."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._nvml_tried = False

    def samples(self) -> list[DeviceSample]:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return []
        return [self._sample(torch, index) for index in range(torch.cuda.device_count())]

    def memory(self) -> list[DeviceMemory]:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return []
        found = []
        for index in range(torch.cuda.device_count()):
            counts = torch.cuda.memory_stats(index)
            used, peak = (int(counts.get(f"allocated_bytes.all.{which}", 0)) for which in ("current", "peak"))
            if peak:
                found.append(DeviceMemory(f"cuda:{index}", used, peak))
        return found

    def _sample(self, torch: Any, index: int) -> DeviceSample:
        return DeviceSample(
            device=f"cuda:{index}",
            used_bytes=torch.cuda.memory_allocated(index),
            peak_bytes=torch.cuda.max_memory_allocated(index),
            total_bytes=torch.cuda.get_device_properties(index).total_memory,
            busy_ratio=self._busy(index),
        )

    def _busy(self, index: int) -> float | None:
        if not self._nvml_tried:
            self._nvml_tried = True
            self._nvml = _load_nvml()
        if self._nvml is None:
            return None
        handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        return float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100.0


def over(before: Sequence[DeviceMemory], after: Sequence[DeviceMemory]) -> dict[str, list[int]]:
    """By device, what was used at the start, at the highest and at the end. torch's own peak is left to the training,
    which may set it back itself: where it did not rise, the highest is that of the two ends."""
    known = {one.device: one for one in before}
    found: dict[str, list[int]] = {}
    for end in after[:MOST_DEVICES]:
        start = known.get(end.device, DeviceMemory(end.device, 0, 0))
        risen = end.peak_bytes if end.peak_bytes > start.peak_bytes else 0
        found[end.device] = [start.used_bytes, max(risen, start.used_bytes, end.used_bytes), end.used_bytes]
    return found


def _load_nvml() -> Any:
    """NVML when the extra `gpu` is installed and a driver answers; a machine without either is no error."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return None
    return pynvml
