"""Accelerators, seen through one small interface: memory by torch's own counters, business by NVML.

Nothing here imports torch or NVML of its own accord: it looks only at what the training has loaded already. Tests use
`fedvitals.testing.FakeAccelerator` behind the same interface.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Protocol


class DeviceSample(NamedTuple):
    device: str
    used_bytes: int | None
    peak_bytes: int | None
    total_bytes: int | None
    busy_ratio: float | None


class Accelerator(Protocol):
    def samples(self) -> list[DeviceSample]:
        """One sample a device that is in use; never waits for a device."""


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


def _load_nvml() -> Any:
    """NVML when the extra `gpu` is installed and a driver answers; a machine without either is no error."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return None
    return pynvml
