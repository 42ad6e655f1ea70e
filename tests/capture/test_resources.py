"""What the process uses: samples come by themselves, devices through one small interface."""

from __future__ import annotations

import os
import threading

import pytest
from watching import read, started

from fedvitals.capture.accelerator import CudaAccelerator, DeviceSample
from fedvitals.capture.resources import peak_rss_bytes, rss_bytes
from fedvitals.testing import FakeAccelerator
from fedvitals.vocabulary import ResourceSample


def samples() -> list[ResourceSample]:
    with read() as reader:
        return reader.resources()


class Awaited(FakeAccelerator):
    """Tells when it was asked often enough, so that no test has to sleep."""

    def __init__(self, times: int, *readings: list[DeviceSample]) -> None:
        super().__init__(*readings)
        self.enough = threading.Event()
        self._times = times

    def samples(self) -> list[DeviceSample]:
        found = super().samples()
        if self.asked >= self._times:
            self.enough.set()
        return found


def test_samples_appear_while_the_run_goes_on_and_at_its_end() -> None:
    """Memory, its peak, CPU time and threads of this process."""
    accelerator = Awaited(3)
    with started(resources_every_s=0.01, accelerator=accelerator):
        assert accelerator.enough.wait(30)
    found = samples()
    assert len(found) >= 4
    assert all(one.pid == os.getpid() and one.device is None for one in found)
    assert all(10 * 2**20 < one.rss_bytes <= one.peak_rss_bytes * 1.05 for one in found)
    assert all(one.cpu_s > 0 and one.threads >= 2 for one in found)
    assert [one.at_ns for one in found] == sorted(one.at_ns for one in found)


def test_devices_are_sampled_through_the_accelerator() -> None:
    """Any that keeps the interface, here a pretended one."""
    first = [DeviceSample("cuda:0", 10, 20, 100, 0.5), DeviceSample("cuda:1", 1, 2, 100, None)]
    accelerator = Awaited(2, first, [DeviceSample("cuda:0", 30, 40, 100, 0.75)])
    with started(resources_every_s=0.01, accelerator=accelerator):
        assert accelerator.enough.wait(30)
    devices = [one for one in samples() if one.device is not None]
    assert [(one.device, one.device_used_bytes, one.device_busy_ratio) for one in devices[:3]] == [
        ("cuda:0", 10, 0.5),
        ("cuda:1", 1, None),
        ("cuda:0", 30, 0.75),
    ]
    assert devices[0].device_peak_bytes == 20
    assert devices[0].device_total_bytes == 100


def test_none_are_taken_when_none_are_wanted() -> None:
    """`resources_every_s = 0`, not even at the end."""
    accelerator = FakeAccelerator()
    with started(resources_every_s=0.0, accelerator=accelerator) as run, run.span("s"):
        pass
    assert samples() == []
    assert accelerator.asked == 0


def test_a_device_that_cannot_be_asked_does_not_cost_the_hosts_samples(caplog: pytest.LogCaptureFixture) -> None:
    """One warning, and the host goes on being sampled."""

    class Broken(Awaited):
        def samples(self) -> list[DeviceSample]:
            super().samples()
            raise RuntimeError("the driver is gone")

    accelerator = Broken(3)
    with started(resources_every_s=0.01, accelerator=accelerator):
        assert accelerator.enough.wait(30)
    assert len(samples()) >= 3
    assert [record.getMessage() for record in caplog.records if "driver is gone" in record.getMessage()] != []
    assert len(caplog.records) == 1


def test_memory_is_the_processs_own() -> None:
    """What is allocated and touched shows in the resident memory and in its peak."""
    before = rss_bytes()
    block = bytearray(64 * 2**20)
    block[::4096] = b"x" * len(block[::4096])
    assert rss_bytes() - before > 32 * 2**20
    assert peak_rss_bytes() >= before + 32 * 2**20
    del block


def test_without_cuda_there_are_no_devices() -> None:
    """Nothing is initialised by looking."""
    assert CudaAccelerator().samples() == []
