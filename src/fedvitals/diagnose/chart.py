"""What is known of a run, as columns: the one thing that rules look at.

Everything is aligned to the participations: row i of `updates` belongs to row i of `participations`, whether or not
that client sent an update. Missing numbers are NaN. Arrays are read-only by custom: rules share them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fedvitals.diagnose.rule import Sight
from fedvitals.store.table import Bools, Ints, ParticipationTable
from fedvitals.vocabulary import (
    STATISTICS,
    Evaluation,
    Failure,
    Layout,
    Level,
    LogEntry,
    ModelBlock,
    ResourceSample,
    Round,
    Run,
    Span,
    Status,
)

Singles = NDArray[np.float32]
Result = TypeVar("Result")

NORM, MEAN, STD, MIN, MAX, ZEROS = range(len(STATISTICS))


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """Statistics and sketches of the updates of one layout, a row a participation; NaN where there is none."""

    layout: Layout
    present: Bools  # [rows]: an update of this layout was summarised
    stats: Singles  # [rows, layers, STATISTICS]
    nonfinite: Ints  # [rows, layers]
    sketches: Singles | None  # [rows, buckets], of the update divided by its norm
    unit_norms: Singles | None  # [rows, units], as shares of the last matrix's norm
    unit_sums: Singles | None  # [rows, units], as shares of norm * sqrt(columns)
    unit_sketches: Singles | None  # [rows, units, 8], as shares of the unit's norm
    losses: Singles  # [rows, kept steps]
    loss_steps: Ints  # [rows, kept steps], -1: padding

    @property
    def norms(self) -> Singles:
        """Of each layer, [rows, layers]."""
        return self.stats[:, :, NORM]


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """Norms a layer of the sampled steps' gradients."""

    layout: Layout
    row: Ints  # of the participation; -1: of none that is known
    step: Ints
    norms: Singles  # [samples, layers]


Table = TypeVar("Table", ParticipationTable, Updates, Gradients)


@dataclass(frozen=True, eq=False)
class Chart:
    """One run at one instant."""

    run: Run
    clients: tuple[str, ...]
    rounds: tuple[Round, ...]
    participations: ParticipationTable
    update_layouts: Ints  # of each participation's update; -1: none was summarised
    layouts: tuple[Layout, ...] = ()
    updates: Updates | None = None
    gradients: Gradients | None = None
    models: tuple[ModelBlock, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    spans: tuple[Span, ...] = ()  # of rounds and of the run; clients' phases are in `participations`
    resources: tuple[ResourceSample, ...] = ()
    failures: tuple[Failure, ...] = ()
    logs: tuple[LogEntry, ...] = ()  # warnings and graver
    size_bytes: int = 0
    _shared: dict[object, object] = field(default_factory=dict, repr=False)

    @property
    def level(self) -> Level:
        return self.run.level

    @cached_property
    def cohorts(self) -> tuple[tuple[int, Ints], ...]:
        """Round number and the rows of its participations, in the order of the rounds."""
        return _grouped(self.participations.round)

    @cached_property
    def histories(self) -> tuple[Ints, ...]:
        """The rows of each client's participations in the order of its attempts; one entry a client."""
        table = self.participations
        order = np.lexsort((table.attempt, table.client))
        bounds = np.searchsorted(table.client[order], np.arange(len(self.clients) + 1))
        return tuple(order[bounds[i] : bounds[i + 1]] for i in range(len(self.clients)))

    @cached_property
    def judged(self) -> tuple[Evaluation, ...]:
        """The global model's evaluations, in the order of the rounds."""
        own = [one for one in self.evaluations if one.client is None]
        return tuple(sorted(own, key=lambda one: (one.round, one.at_ns)))

    def shared(self, work: Callable[[Chart], Result]) -> Result:
        """What this function makes of the chart: done once, whichever rule asks first."""
        if work not in self._shared:
            self._shared[work] = work(self)
        return cast(Result, self._shared[work])

    def until(self, round: int) -> Chart:
        """The run as it was when this round had ended: what a rule would have seen then, looking on. What the store
        took and what the recorder says of its own health are known only as they are now."""
        table, rounds = self.participations, tuple(one for one in self.rounds if one.number <= round)
        count = int(np.searchsorted(table.round, round, side="right"))  # the rows come sorted by round
        seen = slice(0, count)
        end_ns = max((one.end_ns or one.start_ns for one in rounds), default=0)
        return replace(
            self,
            run=replace(self.run, status=Status.RUNNING, ended_ns=None),
            clients=self.clients[: int(table.client[seen].max(initial=-1)) + 1],  # they are numbered as they appear
            rounds=rounds,
            participations=_cut(table, seen),
            update_layouts=self.update_layouts[seen],
            updates=None if self.updates is None else _cut(self.updates, seen),
            gradients=None if self.gradients is None else _cut(self.gradients, self.gradients.row < count),
            models=tuple(one for one in self.models if one.round <= round),
            evaluations=tuple(one for one in self.evaluations if one.round <= round),
            spans=tuple(one for one in self.spans if _by_then(one.round, one.start_ns, round, end_ns)),
            resources=tuple(one for one in self.resources if one.at_ns <= end_ns),
            failures=tuple(one for one in self.failures if _by_then(one.round, one.at_ns, round, end_ns)),
            logs=tuple(one for one in self.logs if _by_then(one.round, one.at_ns, round, end_ns)),
            _shared={},
        )

    def names(self, clients: Sequence[int] | Ints) -> tuple[str, ...]:
        """What these numbers are called."""
        return tuple(self.clients[int(one)] for one in clients)

    @cached_property
    def sights(self) -> frozenset[Sight]:
        """What this run shows."""
        table, updates = self.participations, self.updates
        seen = {
            Sight.PARTICIPATIONS: len(table) > 0,
            Sight.LOSSES: bool(np.any(~np.isnan(table.loss) | ~np.isnan(table.last_loss))),
            Sight.UPDATES: updates is not None and bool(updates.present.any()),
            Sight.SKETCHES: updates is not None and updates.sketches is not None,
            Sight.UNITS: updates is not None and updates.unit_norms is not None,
            Sight.GRADIENTS: self.gradients is not None and len(self.gradients.step) > 0,
            Sight.MODELS: bool(self.models),
            Sight.EVALUATIONS: bool(self.judged),
            Sight.CLIENT_EVALUATIONS: any(one.client is not None for one in self.evaluations),
            Sight.CLIENT_PHASES: bool(np.any(~np.isnan(table.phases_s))),
            Sight.ROUND_PHASES: any(span.client is None and span.round is not None for span in self.spans),
            Sight.BYTES: bool(np.any(~np.isnan(table.wire_bytes_up) | ~np.isnan(table.wire_bytes_down))),
            Sight.RESOURCES: bool(self.resources),
        }
        return frozenset(sight for sight, there in seen.items() if there)


def _by_then(own: int | None, at_ns: int, round: int, end_ns: int) -> bool:
    """What names a round goes by it, the rest by its time."""
    return own <= round if own is not None else at_ns <= end_ns


def _cut(table: Table, rows: slice | Bools) -> Table:
    """The same columns with these rows only."""
    values = {one.name: getattr(table, one.name) for one in fields(table)}
    kept: dict[str, Any] = {name: value[rows] for name, value in values.items() if isinstance(value, np.ndarray)}
    return replace(table, **kept)


def _grouped(numbers: Ints) -> tuple[tuple[int, Ints], ...]:
    values, starts = np.unique(numbers, return_index=True)  # the rows come sorted by round
    ends = [*starts[1:].tolist(), len(numbers)][: len(starts)]  # of no participations, no end either
    rows = np.arange(len(numbers))
    return tuple((int(value), rows[start:end]) for value, start, end in zip(values, starts.tolist(), ends, strict=True))
