"""What a prediction says, and what is said where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Prediction:
    """One change to the run, and how long it would have taken with it."""

    change: str  # in words: "wait for the first 8 of 10"
    kind: str  # one word for programs: compress, deadline, first, drop, async, batch, processes, bf16, evaluate
    predicted_s: float  # the whole run
    round_s: float  # its median round
    saves: float  # share of the wall time; negative where it would take longer
    assumes: tuple[str, ...]
    job: Mapping[str, Any] | None = None  # the keys of the job that make it ("train.batch_size": 64)
    unverified: str | None = None  # why the engine cannot make it; None where it can


@dataclass(frozen=True, slots=True)
class Verified:
    """A prediction against what it was when the change was made."""

    change: str
    kind: str
    predicted_s: float
    measured_s: float | None  # None where the changed job failed
    machine: float = 1.0  # how long the job takes now as it was, to what was recorded
    run: str | None = None  # the id of the changed run
    why: str | None = None  # it failed

    @property
    def error(self) -> float | None:
        """Of the prediction, as a share of what was measured; positive where it promised too much time."""
        return self.predicted_s / self.measured_s - 1.0 if self.measured_s else None

    @property
    def error_apart(self) -> float | None:
        """The same without what the machine is faster or slower now."""
        return self.predicted_s * self.machine / self.measured_s - 1.0 if self.measured_s else None


@dataclass(frozen=True, slots=True)
class Declined:
    """A change that would make sense, but whose effect cannot be told from this run."""

    change: str
    kind: str
    why: str
