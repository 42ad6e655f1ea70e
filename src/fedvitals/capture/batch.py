"""Participations that are summarised together, and how they become records.

`DraftBatch` holds the session of a single client. `CohortBatch` holds a cohort trained as one, column by column: with a
hundred clients in 40 ms there is no time for an object each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import isfinite
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedvitals.capture.draft import FIRST_STEPS, Draft
from fedvitals.vocabulary import CLIENT_PHASES, Outcome, Participation

PLACES = {name: place for place, name in enumerate(Participation._fields)}
_NOTHING: Iterable[Any] = repeat(None)


class Findings(NamedTuple):
    """What the statistics say of some rows, a list each: the columns that a batch fills in."""

    update_norm: list[float]
    cosine: Sequence[float | None]
    nonfinite: Sequence[int]
    block: int
    first_row: int = 0  # of these rows in the block

    def cut(self, part: slice) -> Findings:
        columns = (self.update_norm[part], self.cosine[part], self.nonfinite[part])
        return Findings(*columns, self.block, self.first_row + part.start)


class GradientRows(NamedTuple):
    """Statistics of sampled steps: one row a client and step."""

    clients: list[str]
    attempts: list[int]
    steps: list[int]
    layers: list[str] | None  # names, or None when `stats` has the round's layers in their order
    stats: np.ndarray  # [rows, layers, fields]


class Batch(Protocol):
    def __len__(self) -> int: ...
    def records(self, part: slice, findings: Findings | None) -> list[Participation]: ...
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

    def records(self, part: slice, findings: Findings | None) -> list[Participation]:
        if findings is not None:
            self.draft.statistics = {
                "update_norm": findings.update_norm[0],
                "cosine": findings.cosine[0],
                "nonfinite": findings.nonfinite[0],
                "block": findings.block,
                "block_row": findings.first_row,
            }
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

    def records(self, part: slice, findings: Findings | None) -> list[Participation]:
        records: list[Participation] = []
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


@dataclass(slots=True, eq=False)
class CohortBatch:
    """A cohort trained as one, in columns. A value that is no list holds for every client."""

    clients: Sequence[str]
    attempts: Sequence[int]
    round: int
    base_version: int
    columns: Mapping[str, Any] = field(default_factory=dict)  # fields of Participation
    step_losses: np.ndarray | None = None  # [clients, steps], NaN where a client had no more steps
    steps: np.ndarray | None = None  # [clients]
    sampled: list[GradientRows] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.clients)

    def records(self, part: slice, findings: Findings | None) -> list[Participation]:
        count = len(self.clients[part])
        if len(self.clients) == count == 1:
            return [self._only(findings)]
        values: dict[str, Any] = {"outcome": Outcome.USED.value, "attributed": 0}
        values |= {name: _part(column, part) for name, column in self.columns.items()}
        values |= {"client": self.clients[part], "attempt": self.attempts[part], "round": self.round}
        values |= {"base_version": self.base_version}
        values = self._loss_columns(part) | values  # a loss that was told goes before the mean of its steps
        if findings is not None:
            values |= findings._asdict() | {"block_row": range(findings.first_row, findings.first_row + count)}
        columns: list[Iterable[Any]] = [_NOTHING] * len(PLACES)
        for name, value in values.items():
            if name in PLACES:
                columns[PLACES[name]] = _spread(value)
        return list(map(Participation._make, zip(*columns, strict=False)))

    def _only(self, findings: Findings | None) -> Participation:
        """A cohort of one, without the machinery of columns: executors that train one by one report like this."""
        values = {name: _first(column) for name, column in self.columns.items()}
        losses = [] if self.step_losses is None else self.step_losses_of(slice(0, 1))[0].tolist()
        if losses:
            first = losses[:FIRST_STEPS]
            values["steps"], values["last_loss"] = len(losses), losses[-1]
            values["first_loss"] = sum(first) / len(first)
            values.setdefault("loss", sum(losses) / len(losses))
            values["bad_step"] = next((i for i, loss in enumerate(losses) if not isfinite(loss)), None)
        if findings is not None:
            values["update_norm"], values["cosine"] = findings.update_norm[0], findings.cosine[0]
            values["nonfinite"], values["block"] = findings.nonfinite[0], findings.block
            values["block_row"] = findings.first_row
        values.setdefault("outcome", Outcome.USED.value)
        values["client"], values["attempt"], values["round"] = self.clients[0], self.attempts[0], self.round
        values["base_version"] = self.base_version
        return Participation._make(map(values.get, Participation._fields))

    def _loss_columns(self, part: slice) -> dict[str, Any]:
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
            "steps": steps.tolist(),
            "loss": _but(idle, present.sum(1) / counts),
            "first_loss": _but(idle, present[:, :FIRST_STEPS].sum(1) / first),
            "last_loss": _but(idle, losses[np.arange(len(steps)), counts - 1]),
            "bad_step": [int(row.argmax()) if row.any() else None for row in bad] if bad.any() else None,
        }

    def step_losses_of(self, part: slice) -> Any:
        if self.step_losses is None or self.steps is None:
            return [None] * len(self.clients[part])
        losses, steps = self.step_losses[part], self.steps[part]
        if (steps == losses.shape[1]).all():
            return losses
        return [row[:count] for row, count in zip(losses, steps.tolist(), strict=True)]

    def gradients(self) -> Iterable[GradientRows]:
        taken, self.sampled = self.sampled, []
        return taken


def _but(idle: np.ndarray, values: np.ndarray) -> list[Any]:
    """The values, None for clients that took no step."""
    found: list[Any] = values.tolist()
    return [None if none else value for none, value in zip(idle, found, strict=True)] if idle.any() else found


def _first(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        return column[0].item()
    return column[0] if isinstance(column, list | tuple | range) else column


def _part(column: Any, part: slice) -> Any:
    return column[part] if isinstance(column, list | tuple | np.ndarray) else column


def _spread(column: Any) -> Iterable[Any]:
    """A column as it is, or one value for all: `zip` ends with the first column that does."""
    if isinstance(column, np.ndarray):
        return column.tolist()  # type: ignore[no-any-return]  # numpy types tolist as Any
    return column if isinstance(column, list | tuple | range) else repeat(column)


PHASE_COLUMNS = {phase: f"{phase}_s" for phase in CLIENT_PHASES}
