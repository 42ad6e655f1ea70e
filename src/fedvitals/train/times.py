"""How long clients took: as measured, or on the virtual clock as a nominal device would have needed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedvitals.faults.work import LocalWork
from fedvitals.train.clock import NominalDevice, RealClock, VirtualClock
from fedvitals.train.trained import Failed, Trained

NOW = 1e-9  # seconds of silence that nobody notices


class RoundTimes:
    """The times of one round's clients, as columns of their participations."""

    def __init__(self, clock: RealClock | VirtualClock, origin_ns: int, epochs: int, parameters: int) -> None:
        self._clock = clock
        self._origin_ns = origin_ns
        self._epochs = epochs
        self._parameters = parameters
        self.virtual = isinstance(clock, VirtualClock)
        self._device = NominalDevice()
        self._longest_s = 0.0

    def handed_out(self, works: Sequence[LocalWork]) -> Sequence[LocalWork]:
        """The plans as executors get them: on the virtual clock slowness is reckoned, not waited for."""
        if not self.virtual:
            return works
        return [replace(w, compute_factor=1.0, load_factor=1.0, silent_s=min(w.silent_s, NOW)) for w in works]

    def pass_round(self) -> None:
        """Clients work side by side: on the virtual clock their part of a round takes as long as the slowest."""
        if self.virtual:
            self._clock.sleep(self._longest_s)

    def of_trained(self, trained: Trained, sizes: Sequence[int], down: Sequence[int]) -> dict[str, Any]:
        """Start, end and phases of clients that finished, `sizes` bytes up and `down` bytes down."""
        return self._reckoned(trained, sizes, down) if self.virtual else self._measured(trained, sizes)

    def of_failed(self, failed: Failed) -> dict[str, Any]:
        """The same of one that did not; a client that never answered is waited for."""
        silent_s = failed.work.silent_s if failed.kind == "timeout" else 0.0
        phases_s = {"wait": silent_s} if silent_s else {}
        if not self.virtual:
            return {
                "start_ns": failed.start_ns - self._origin_ns,
                "end_ns": failed.end_ns - self._origin_ns,
                "phases_s": phases_s,
            }
        self._longest_s = max(self._longest_s, silent_s)
        return {"start_ns": self._now(), "end_ns": self._now() + round(silent_s * 1e9), "phases_s": phases_s}

    def _measured(self, trained: Trained, sizes: Sequence[int]) -> dict[str, Any]:
        ends = list(trained.end_ns)
        phases_s: dict[str, Any] = {"train": trained.train_s, "load": trained.load_s}
        slow = {slot: work for slot, work in enumerate(trained.works) if work.link_factor > 1.0}
        if slow:
            uploads: list[float | None] = [None] * len(ends)
            for slot, work in slow.items():
                uploads[slot] = self._wait_for_link(work, sizes[slot])
                ends[slot] = time.perf_counter_ns()
            phases_s["upload"] = uploads
        return {
            "start_ns": [ns - self._origin_ns for ns in trained.start_ns],
            "end_ns": [ns - self._origin_ns for ns in ends],
            "phases_s": phases_s,
        }

    def _wait_for_link(self, work: LocalWork, size: int) -> float:
        """On the real clock a link is slow by waiting for what it adds to a nominal one."""
        more = self._device.upload_s(size, work.link_factor) - self._device.upload_s(size)
        self._clock.sleep(more)
        return more

    def _reckoned(self, trained: Trained, sizes: Sequence[int], down: Sequence[int]) -> dict[str, Any]:
        phases = [self._nominal(trained, i, sizes[i], down[i]) for i in range(len(trained.works))]
        totals = [sum(one.values()) for one in phases]
        self._longest_s = max([self._longest_s, *totals])
        return {
            "start_ns": self._now(),
            "end_ns": [self._now() + round(total * 1e9) for total in totals],
            "phases_s": {name: [one[name] for one in phases] for name in phases[0]},
        }

    def _nominal(self, trained: Trained, slot: int, size: int, down: int) -> dict[str, float]:
        work, steps = trained.works[slot], int(trained.steps[slot])
        rows = float(trained.samples[slot]) * self._epochs / max(steps, 1)
        alone = self._device.train_s(steps, rows, self._parameters)
        return {
            "download": self._device.download_s(down, work.link_factor),
            "load": (work.load_factor - 1.0) * alone,
            "train": alone * work.compute_factor,
            "upload": self._device.upload_s(size, work.link_factor),
        }

    def _now(self) -> int:
        return self._clock.now_ns() - self._origin_ns
