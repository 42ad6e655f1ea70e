"""Which phases have their memory measured: as many as the budget allows, those first that last long enough to pay.

Measuring costs some 20 us. A phase that usually lasts thousands of times longer is always measured; shorter ones share
what is left of a twentieth of the budget. When that is spent they are only glanced at, which costs a quarter: one that
then lasts long after all is told, exactly if it reached a height that was not there before. What is skipped is counted.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from fedvitals.capture.accelerator import DeviceMemory, over
from fedvitals.capture.governor import Governor
from fedvitals.capture.meter import METER, MemoryMeter, Stretch, Used

SHARE = 0.05  # of the budget
SHORT = 0.5  # of that share, for measuring phases that do not pay for themselves; the rest is for glances
WHEN_TIGHT = 0.125  # of that share, while the whole recording is at its limit
FIRST_NS = 1_000_000  # spent before anything is skipped: a short run is measured whole
TYPICAL_COST_NS = 25_000.0
MOST_COST_NS = 100_000  # more than that was another process's turn
MOST_NAMES = 64


class Held:
    """A phase that is going on, whether or not it is measured."""

    __slots__ = ("began_ns", "devices", "name", "stretch", "whole")

    def __init__(
        self,
        name: str,
        began_ns: int,
        stretch: Stretch | None = None,
        devices: Sequence[DeviceMemory] = (),
        *,
        whole: bool = False,
    ) -> None:
        self.name = name
        self.began_ns = began_ns
        self.whole = whole
        self.stretch = stretch
        self.devices = devices


class PhaseMemory:
    """Of one recorder. `how` is the setting `memory`: exact, sampled or off."""

    def __init__(
        self,
        governor: Governor,
        how: str = "exact",
        *,
        blame: Callable[[str, Exception], None],
        devices: Callable[[], Sequence[DeviceMemory]] = lambda: (),
        meter: MemoryMeter = METER,
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.how = how
        self.measured = self.skipped = 0
        self.meter = meter
        self._governor = governor
        self._blame = blame
        self._devices = devices
        self._now_ns = now_ns
        self._began_ns = now_ns()
        self._spent_ns = 0
        self._sampler_ns = meter.sampler_ns
        self._cost_ns = TYPICAL_COST_NS
        self._usual_ns: dict[str, float] = {}
        self._too_short: set[str] = set()
        meter.take(self)

    def close(self) -> None:
        self.how = "off"
        self.meter.give_back(self)

    def health(self) -> dict[str, Any]:
        return {"how": self.how, "measured": self.measured, "skipped": self.skipped}

    def wants(self, name: str) -> bool:
        """Whether to begin with a phase of this name at all. False costs a look-up: just now it was too short."""
        if name in self._too_short:
            self.skipped += 1
            return False
        return True

    @property
    def long_ns(self) -> float:
        """A phase that lasts so long pays for its measuring."""
        share = self._share()
        return self._cost_ns / share if share else math.inf

    def lasted(self, name: str, lasted_ns: int) -> None:
        """A phase that was not wanted lasted long after all: the next is wanted."""
        self._too_short.discard(name)
        self._learn(name, lasted_ns)

    def reconsider(self) -> None:
        """Time has passed, and there is budget again for phases that were too short."""
        if self._too_short:
            self._too_short = set()

    def begin(self, name: str) -> Held | None:
        """None when nothing is measured at all."""
        if self.how == "off":
            return None
        began = self._now_ns()
        whole = self.affords(name, began)
        if not whole and self._spent_ns > 2 * FIRST_NS + self._share() * (began - self._began_ns):
            self.skipped += 1
            self._too_short.add(name)
            return Held(name, began)
        try:
            devices = self._devices() if whole else ()
            stretch = self.meter.begin(exact=whole and self.how == "exact", sampled=whole)
        except Exception as error:  # a /proc that is gone will not come back
            self._give_up(error)
            return None
        now = self._now_ns()
        self._spend(now - began)
        return Held(name, now, stretch, devices, whole=whole)

    def end(self, held: Held | None) -> str:
        """What it used, as entries of JSON: for the attributes of a span, or the metrics of a participation. Nothing
        where that was not measured."""
        if held is None:
            return ""
        now = self._now_ns()
        lasted_ns = now - held.began_ns
        self._learn(held.name, lasted_ns)
        if held.stretch is None:
            return ""
        if not held.whole and lasted_ns * self._share() < self._cost_ns:
            self.meter.drop(held.stretch)
            self.skipped += 1
            return ""
        try:
            used = self._ended(held, held.stretch)
        except Exception as error:
            self._give_up(error)
            return ""
        self.measured += 1
        spent = min(self._now_ns() - now, MOST_COST_NS)
        self._cost_ns += (2.0 * spent - self._cost_ns) / 8  # beginning and ending cost about the same
        self._spend(spent + self._of_sampler())
        return used

    def _ended(self, held: Held, stretch: Stretch) -> str:
        used = told(self.meter.end(stretch))
        devices = self._devices() if held.whole else ()
        return f'{used}, "device_bytes": {json.dumps(over(held.devices, devices))}' if devices else used

    def affords(self, name: str, now_ns: int) -> bool:
        """Whether measuring this is inside the budget."""
        share = self._share()
        usual_ns = self._usual_ns.get(name)
        if usual_ns is None:
            if len(self._usual_ns) < MOST_NAMES:
                return True
        elif usual_ns * share >= self._cost_ns:
            return True
        return self._spent_ns <= FIRST_NS + SHORT * share * (now_ns - self._began_ns)

    def _share(self) -> float:
        return SHARE * self._governor.budget * (WHEN_TIGHT if self._governor.tight else 1.0)

    def _learn(self, name: str, lasted_ns: int) -> None:
        usual_ns = self._usual_ns.get(name)
        if usual_ns is not None:
            self._usual_ns[name] = usual_ns + (lasted_ns - usual_ns) / 4
        elif len(self._usual_ns) < MOST_NAMES:
            self._usual_ns[name] = float(lasted_ns)

    def _of_sampler(self) -> int:
        before, self._sampler_ns = self._sampler_ns, self.meter.sampler_ns
        return max(self._sampler_ns - before, 0)

    def _spend(self, ns: int) -> None:
        counted = min(ns, MOST_COST_NS)
        self._spent_ns += counted
        self._governor.spent_ns += counted

    def _give_up(self, error: Exception) -> None:
        self.how = "off"
        self._blame("the memory of phases", error)


def told(used: Used) -> str:
    """`rss_bytes` is [at the start, highest, at the end]. By hand: writing it is a third of what measuring costs."""
    found = f'"rss_bytes": [{used.start_bytes}, {used.peak_bytes}, {used.end_bytes}]'
    if used.sampled:
        found += ', "rss_sampled": true'
    if used.shared:
        found += ', "rss_shared": true'
    return found
