"""A participation while it is going on: filled in by its session, turned into a record when it is over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, SupportsInt

from fedvitals.capture.attributes import MOST_ITEMS, as_json, plain
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
    samples: SupportsInt | None = None
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
    explained_s: float = 0.0  # the sum of them
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
    memory: str = ""  # what it used, as entries of JSON
    explicit_epochs: bool = False
    batches: int = 0  # that `batches` handed out in loops that are over
    own_steps: int = 0
    losses: list[Any] = field(default_factory=list)  # of steps the training told of; may be on a device
    watched: bool = False
    probe: Any = None  # the GradientProbe that watched, until its samples are written
    statistics: dict[str, Any] = field(default_factory=dict)  # what the buffer found out about the update
    nonfinite: Any = None  # values of an update that nobody could judge; may be on a device
    written: bool = False  # a record of it is with the store already

    def add_phase(self, phase: str, seconds: float) -> None:
        """Count time to a phase, without what phases inside it have explained. One that only servers have is something
        else here."""
        if phase not in CLIENT_PHASES:
            phase = "other"
        seconds = max(seconds, 0.0)
        self.phases_s[phase] = self.phases_s.get(phase, 0.0) + seconds
        self.explained_s += seconds

    def take_gradients(self) -> tuple[list[str], list[int], Any]:
        """The sampled steps, once; and with them what they say of the first bad step."""
        names, steps, stats = self.probe.results()
        self.probe = None
        if stats is not None and self.bad_step is None:
            self.good_step, self.bad_step = bracket(steps, stats[..., 0])
        return names, steps, stats

    def settle_losses(self) -> Any:
        """The losses of single steps as numbers, None where no step was told of; they cross to the host once."""
        if self.losses and self.step_losses is None:
            self.step_losses = numbers(self.losses)
            self._find_bad_loss()
        return self.step_losses

    def _find_bad_loss(self) -> None:
        """Where every step was told of, the first bad one is known exactly: it has no bracket."""
        if len(self.losses) != self.own_steps:
            return
        first = next((step for step, loss in enumerate(self.step_losses) if not math.isfinite(loss)), None)
        if first is not None and (self.bad_step is None or first <= self.bad_step):
            self.bad_step, self.good_step = first, None

    def record(self) -> Participation:
        """The record as things stand; written again with the same key, it replaces the earlier one."""
        seconds: dict[str, Any] = {f"{phase}_s": self.phases_s.get(phase) for phase in CLIENT_PHASES}
        first, last, mean = _losses(self.settle_losses())
        applied = self.outcome in (Outcome.USED, Outcome.LATE)
        self.written = True
        if self.nonfinite is not None and not self.statistics:
            self.statistics = {"nonfinite": whole(self.nonfinite)}
        return Participation(
            client=self.client,
            attempt=self.attempt,
            round=self.round,
            base_version=self.base_version,
            applied_version=self.applied_version if applied else None,
            staleness=self.staleness if applied else None,
            outcome=self.outcome.value,
            samples=whole(self.samples),
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
            metrics=as_json(self.metrics, self.memory) if self.metrics or self.memory else None,
            **seconds,
            **self.statistics,
        )


def number(value: Any) -> float | None:
    """A float of whatever a user calls a loss: a number, a tensor, a numpy scalar. None when it is none of these."""
    if value is None:
        return None
    try:
        return float(value)
    except Exception:  # a tensor of many values raises RuntimeError, a user's object anything
        return None


def whole(value: Any) -> int | None:
    """A count of whatever a user calls a number of rows or bytes; None when it is none."""
    if value is None or type(value) is int:
        return value
    try:
        return int(value)
    except Exception:
        return None


def numbers(values: list[Any]) -> list[float]:
    """Floats of many losses, NaN for what is none. Tensors cross together: one wait for the device, not one each."""
    if all(hasattr(value, "detach") for value in values):
        from fedvitals.capture.tensors.scalars import host_numbers

        together = host_numbers(values)
        if together is not None:
            return together
    return [math.nan if (found := number(value)) is None else found for value in values]


def kept_apart(value: Any) -> Any:
    """A tensor or array as it is now, without its graph: the training may go on to add to it in place. One value that
    lies on the host is a number at once, which costs a tenth of a copy."""
    if not hasattr(value, "detach"):
        return value.copy() if hasattr(value, "dtype") else value
    if value.is_cpu and value.ndim == 0:
        with suppress(RuntimeError):  # a tensor that only pretends has no value
            return value.item()
    return value.detach().clone()


def kept_metric(value: Any) -> Any:
    """What is kept of a metric, as it is now: of tensors of more than one value, which would keep a model and its
    gradients alive, that is their shape."""
    if isinstance(value, Mapping):
        return {name: kept_metric(one) for name, one in islice(value.items(), MOST_ITEMS)}
    if isinstance(value, list | tuple | set | frozenset):
        return [kept_metric(one) for one in islice(value, MOST_ITEMS)]
    shape = getattr(value, "shape", None)
    many = shape is not None and hasattr(value, "dtype") and math.prod(shape) != 1
    return plain(value) if many else kept_apart(value)


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
