"""Participations that are summarised together, and how they become records.

`DraftBatch` holds the session of a single client. `CohortBatch` holds a cohort trained as one, column by column: with a
hundred clients in 35 ms there is no time for an object each, neither here nor in the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedvitals.capture.draft import FIRST_STEPS, Draft
from fedvitals.vocabulary import CLIENT_PHASES, Outcome, Participation, Participations

FIELDS = frozenset(Participation._fields)


class Findings(NamedTuple):
    """What the statistics say of some rows: the columns that a batch fills in."""

    update_norm: np.ndarray
    cosine: np.ndarray | list[float | None]
    nonfinite: np.ndarray
    block: int
    first_row: int = 0  # of these rows in the block

    def cut(self, part: slice) -> Findings:
        columns = (self.update_norm[part], self.cosine[part], self.nonfinite[part])
        return Findings(*columns, self.block, self.first_row + part.start)

    def columns(self, count: int) -> dict[str, Any]:
        """As fields of Participation."""
        rows = range(self.first_row, self.first_row + count)
        found = {"update_norm": self.update_norm, "cosine": self.cosine, "nonfinite": self.nonfinite}
        return found | {"block": self.block, "block_row": rows}

    def of_only(self) -> dict[str, Any]:
        """The same of a single row."""
        return {name: _first(column) for name, column in self.columns(1).items()}


class GradientRows(NamedTuple):
    """Statistics of sampled steps: one row a client and step."""

    clients: list[str]
    attempts: list[int]
    steps: list[int]
    layers: list[str] | None  # names, or None when `stats` has the round's layers in their order
    stats: np.ndarray  # [rows, layers, fields]


Told = Participation | Participations


class Batch(Protocol):
    def __len__(self) -> int: ...
    def records(self, part: slice, findings: Findings | None) -> list[Told]: ...
    def step_losses_of(self, part: slice) -> Sequence[Any]:
        """Losses of single steps, a row a client, as one matrix where all have equally many; None for a client that
        told of none."""

    def gradients(self) -> Iterable[GradientRows]:
        """Handed out once."""


class DraftBatch:
    """A client that was trained, and reported, by itself."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    def __len__(self) -> int:
        return 1

    def records(self, part: slice, findings: Findings | None) -> list[Told]:
        if findings is not None:
            self.draft.statistics = findings.of_only()
        return [self.draft.record()]

    def step_losses_of(self, part: slice) -> list[Any]:
        return [self.draft.settle_losses()]

    def gradients(self) -> Iterable[GradientRows]:
        draft = self.draft
        if draft.probe is not None:
            names, steps, stats = draft.take_gradients()
            if stats is not None:
                yield GradientRows([draft.client] * len(steps), [draft.attempt] * len(steps), steps, names, stats)


class JoinedBatch:
    """Small batches that waited for each other, as one."""

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return sum(map(len, self._batches))

    def records(self, part: slice, findings: Findings | None) -> list[Told]:
        records: list[Told] = []
        for batch, own, place in self._inside(part):
            records += batch.records(own, None if findings is None else findings.cut(place))
        return records

    def step_losses_of(self, part: slice) -> list[Any]:
        return [losses for batch, own, _ in self._inside(part) for losses in batch.step_losses_of(own)]

    def gradients(self) -> Iterable[GradientRows]:
        return (rows for batch in self._batches for rows in batch.gradients())

    def _inside(self, part: slice) -> Iterable[tuple[Batch, slice, slice]]:
        """The batches that a slice of all rows meets: which of their rows, and where these lie in the slice."""
        begin, end, _ = part.indices(len(self))
        offset = 0
        for batch in self._batches:
            low, high = max(begin, offset), min(end, offset + len(batch))
            if low < high:
                yield batch, slice(low - offset, high - offset), slice(low - begin, high - begin)
            offset += len(batch)


class Origin(Protocol):
    """The model that a cohort received."""

    version: int

    @property
    def fingerprint(self) -> str: ...


@dataclass(slots=True, eq=False)
class CohortBatch:
    """A cohort trained as one, in columns. A value that is no list holds for every client."""

    clients: Sequence[str]
    attempts: Sequence[int]
    round: int
    reference: Origin  # the model that they received, where the columns say nothing else
    columns: Mapping[str, Any] = field(default_factory=dict)  # fields of Participation
    step_losses: np.ndarray | None = None  # [clients, steps], NaN where a client had no more steps
    steps: np.ndarray | None = None  # [clients]
    sampled: list[GradientRows] = field(default_factory=list)
    loss_columns: Mapping[str, Any] | None = None  # where they are known already: see `sum_up`

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def even(self) -> bool:
        """Whether all clients took, and told of, every step: the common case."""
        losses = self.step_losses
        if losses is None or losses.size == 0 or self.steps is None or len(losses) != len(self):
            return False
        return bool((self.steps == losses.shape[1]).all())

    def records(self, part: slice, findings: Findings | None) -> list[Told]:
        clients = self.clients[part]
        count = len(clients)
        if len(self.clients) == count == 1:
            return [self._only(findings)]
        values: dict[str, Any] = {"outcome": Outcome.USED.value, "attributed": 0, **self._origin()}
        values |= self._loss_columns(part)
        known = self.columns if self.columns.keys() <= FIELDS else _fields(self.columns)
        values |= known if count == len(self.clients) else {name: _part(one, part) for name, one in known.items()}
        values |= {"client": clients, "attempt": self.attempts[part], "round": self.round}
        if findings is not None:
            values |= findings.columns(count)
        return [Participations(count, values)]

    def _only(self, findings: Findings | None) -> Participation:
        """A cohort of one, without the machinery of columns: executors that train one by one report like this."""
        values = self._origin() | {name: _first(column) for name, column in self.columns.items()}
        losses = [] if self.step_losses is None else self.step_losses_of(slice(0, 1))[0].tolist()
        if losses:
            first = losses[:FIRST_STEPS]
            values["steps"], values["last_loss"] = len(losses), losses[-1]
            values["first_loss"] = sum(first) / len(first)
            values.setdefault("loss", sum(losses) / len(losses))
            values["bad_step"] = next((i for i, loss in enumerate(losses) if not isfinite(loss)), None)
        if findings is not None:
            values |= findings.of_only()
        values.setdefault("outcome", Outcome.USED.value)
        values["client"], values["attempt"], values["round"] = self.clients[0], self.attempts[0], self.round
        return Participation._make(map(values.get, Participation._fields))

    def _origin(self) -> dict[str, Any]:
        return {"base_version": self.reference.version, "received": self.reference.fingerprint}

    def _loss_columns(self, part: slice) -> Mapping[str, Any]:
        if self.loss_columns is not None:
            return {name: _part(column, part) for name, column in self.loss_columns.items()}
        if self.step_losses is None or self.steps is None or self.step_losses.shape[1] == 0:
            return {}
        losses, steps = self.step_losses[part], self.steps[part]
        taken = np.arange(losses.shape[1]) < steps[:, None]
        present = np.where(taken, losses, 0.0)
        counts = np.maximum(steps, 1)
        first = np.minimum(counts, FIRST_STEPS)
        bad = taken & ~np.isfinite(losses)
        idle = steps == 0
        return {
            "steps": steps,
            "loss": _but(idle, present.sum(1) / counts),
            "first_loss": _but(idle, present[:, :FIRST_STEPS].sum(1) / first),
            "last_loss": _but(idle, losses[np.arange(len(steps)), counts - 1]),
            "bad_step": [int(row.argmax()) if row.any() else None for row in bad] if bad.any() else None,
        }

    def step_losses_of(self, part: slice) -> Any:
        if self.step_losses is None or self.steps is None:
            return [None] * len(self.clients[part])
        losses, steps = self.step_losses[part], self.steps[part]
        if self.loss_columns is not None or (steps == losses.shape[1]).all():
            return losses
        return [row[:count] for row, count in zip(losses, steps.tolist(), strict=True)]

    def gradients(self) -> Iterable[GradientRows]:
        taken, self.sampled = self.sampled, []
        return taken


def sum_up(batches: Iterable[Batch]) -> None:
    """Work out the columns of losses of many cohorts in a few operations, of those that took equally many steps."""
    alike: dict[int, list[CohortBatch]] = {}
    for batch in batches:
        if isinstance(batch, CohortBatch) and batch.step_losses is not None and len(batch) > 1 and batch.even:
            alike.setdefault(batch.step_losses.shape[1], []).append(batch)
    for some in alike.values():
        losses = np.concatenate([batch.step_losses for batch in some if batch.step_losses is not None])
        found = {"loss": losses, "first_loss": losses[:, :FIRST_STEPS]}
        means = {name: values.mean(1, np.float64) for name, values in found.items()}
        means["last_loss"] = losses[:, -1].astype(np.float64)
        end = 0
        for batch, finite in zip(some, _each_finite(means["loss"], list(map(len, some))), strict=True):
            own = slice(end, end := end + len(batch))
            if finite:  # where a mean is finite, so are all
                columns = {name: values[own] for name, values in means.items()}
                batch.loss_columns = {"steps": batch.steps, **columns, "bad_step": None}


def _each_finite(values: np.ndarray, counts: Sequence[int]) -> Sequence[bool]:
    """Whether all values are, of so many each."""
    good = np.isfinite(values)
    if good.all():
        return [True] * len(counts)
    ends = np.cumsum(counts)
    return [bool(good[end - count : end].all()) for end, count in zip(ends, counts, strict=True)]


def _but(idle: np.ndarray, values: np.ndarray) -> Any:
    """The values, None for clients that took no step."""
    if not idle.any():
        return values.astype(np.float64, copy=False)
    return [None if none else value for none, value in zip(idle, values.tolist(), strict=True)]


def _first(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        return column[0].item()
    return column[0] if isinstance(column, list | tuple | range) else column


def _fields(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: column for name, column in columns.items() if name in FIELDS}


def _part(column: Any, part: slice) -> Any:
    return column[part] if isinstance(column, list | tuple | range | np.ndarray) else column


PHASE_COLUMNS = {phase: f"{phase}_s" for phase in CLIENT_PHASES}
