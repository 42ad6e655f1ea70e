"""A participation while it is going on: filled in by its session, turned into a record when it is over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedvitals.capture.spans import as_json
from fedvitals.vocabulary import CLIENT_PHASES, Outcome, Participation

FIRST_STEPS = 2  # whose losses still tell of the received model


@dataclass(slots=True, eq=False)
class Draft:
    """What is known so far. Losses may be tensors on a device: they become numbers only in `record`."""

    client: str
    attempt: int
    round: int
    base_version: int
    start_ns: int
    samples: int | None = None
    end_ns: int = 0
    outcome: Outcome = Outcome.USED
    staleness: int | None = None
    applied_version: int | None = None
    steps: int | None = None
    epochs: int | None = None
    loss: Any = None
    accuracy: Any = None
    step_losses: Any = None  # [steps] numbers
    bad_step: int | None = None
    good_step: int | None = None
    phases_s: dict[str, float] = field(default_factory=dict)
    raw_bytes_down: int | None = None
    wire_bytes_down: int | None = None
    raw_bytes_up: int | None = None
    wire_bytes_up: int | None = None
    peak_memory_bytes: int | None = None
    received: str | None = None
    executor: str | None = None
    chunk: int | None = None
    slot: int | None = None
    attributed: int = 0
    metrics: dict[str, Any] = field(default_factory=dict)
    explicit_epochs: bool = False
    own_steps: int = 0
    losses: list[Any] = field(default_factory=list)  # of steps the training told of; may be on a device
    watched: bool = False
    probe: Any = None  # the GradientProbe that watched, until its samples are written
    statistics: dict[str, Any] = field(default_factory=dict)  # what the buffer found out about the update

    def add_phase(self, phase: str, seconds: float) -> None:
        self.phases_s[phase] = self.phases_s.get(phase, 0.0) + seconds

    def take_gradients(self) -> tuple[list[str], list[int], Any]:
        """The sampled steps, once; and with them what they say of the first bad step."""
        names, steps, stats = self.probe.results()
        self.probe = None
        if stats is not None and self.bad_step is None:
            self.good_step, self.bad_step = bracket(steps, stats[..., 0])
        return names, steps, stats

    def record(self) -> Participation:
        """The record as things stand; written again with the same key, it replaces the earlier one."""
        if self.losses and self.step_losses is None:
            self.step_losses = [number(loss) for loss in self.losses]
        seconds: dict[str, Any] = {f"{phase}_s": self.phases_s.get(phase) for phase in CLIENT_PHASES}
        first, last, mean = _losses(self.step_losses)
        return Participation(
            client=self.client,
            attempt=self.attempt,
            round=self.round,
            base_version=self.base_version,
            applied_version=self.applied_version,
            staleness=self.staleness,
            outcome=self.outcome.value,
            samples=self.samples,
            steps=self.steps,
            epochs=self.epochs,
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            loss=number(self.loss) if self.loss is not None else mean,
            first_loss=first,
            last_loss=last,
            accuracy=number(self.accuracy),
            bad_step=self.bad_step,
            good_step=self.good_step,
            raw_bytes_down=self.raw_bytes_down,
            wire_bytes_down=self.wire_bytes_down,
            raw_bytes_up=self.raw_bytes_up,
            wire_bytes_up=self.wire_bytes_up,
            peak_memory_bytes=self.peak_memory_bytes,
            received=self.received,
            executor=self.executor,
            chunk=self.chunk,
            slot=self.slot,
            attributed=self.attributed,
            metrics=as_json(self.metrics) if self.metrics else None,
            **seconds,
            **self.statistics,
        )


def number(value: Any) -> float | None:
    """A float of whatever a user calls a loss: a number, a tensor, a numpy scalar. None when it is none of these."""
    if value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _losses(values: Any) -> tuple[float | None, float | None, float | None]:
    """First (mean of the first steps), last and mean."""
    if values is None or len(values) == 0:
        return None, None, None
    first = values[:FIRST_STEPS]
    return sum(map(float, first)) / len(first), float(values[-1]), sum(map(float, values)) / len(values)


def bracket(steps: list[int], norms: Any) -> tuple[int | None, int | None]:
    """The last sampled step that was finite and the first that was not; (None, None) when all were."""
    good = None
    for step, row in zip(steps, norms.tolist(), strict=True):
        if not all(-float("inf") < value < float("inf") for value in row):
            return (good if good is not None else -1), step
        good = step
    return None, None
