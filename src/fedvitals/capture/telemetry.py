"""What one participation recorded, on its way through a message: gathered on the client, placed on the server.

`inspection` stands between the two: it makes a Telemetry of bytes that nobody trusts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedvitals.capture.attributes import as_json
from fedvitals.vocabulary import (
    CLIENT_PHASES,
    Failure,
    LogEntry,
    Outcome,
    Participation,
    Record,
    Span,
    StepBlock,
    UpdateBlock,
)

if TYPE_CHECKING:
    from fedvitals.capture.memory import MemorySink

# What a client may say of itself. Its id, attempt, round and versions are the server's.
MEASURED = (
    *("samples", "steps", "epochs", "loss", "first_loss", "last_loss", "accuracy", "bad_step", "good_step"),
    *("update_norm", "nonfinite", "raw_bytes_down", "wire_bytes_down", "raw_bytes_up", "wire_bytes_up"),
    *("peak_memory_bytes", "received", "metrics"),
    *(f"{phase}_s" for phase in CLIENT_PHASES),
)
BLOCK_ARRAYS = ("stats", "nonfinite", "sketches", "unit_norms", "unit_sums", "unit_sketches", "losses", "loss_steps")
MOST_STEP_BYTES = 4 * 2**20
ROOM = {"failures": 768 * 1024, "spans": 384 * 1024, "logs": 384 * 1024}  # characters of the header


class Place(NamedTuple):
    """Where on the server a participation belongs, and who it is: the server's word."""

    client: str
    attempt: int
    round: int
    version: int
    start_ns: int
    skew_s: float
    layout: int
    next_block: Callable[[], int]
    next_id: Callable[[], int]


@dataclass(frozen=True, slots=True, eq=False)
class Telemetry:
    """The records of one participation; times count from its beginning, on the client's own clock."""

    measured: dict[str, Any]
    outcome: str
    duration_ns: int
    block: UpdateBlock | None = None
    steps: StepBlock | None = None
    spans: tuple[Span, ...] = ()
    failures: tuple[Failure, ...] = ()
    logs: tuple[LogEntry, ...] = ()

    @staticmethod
    def gather(final: Participation, kept: MemorySink) -> Telemetry:
        """From what a client's recorder kept."""
        start_ns, records = final.start_ns, kept.kept
        return Telemetry(
            measured={name: getattr(final, name) for name in MEASURED},
            outcome=final.outcome,
            duration_ns=final.end_ns - start_ns,
            block=records[UpdateBlock][-1] if records[UpdateBlock] else None,
            steps=_joined(records[StepBlock]),
            spans=tuple(_shifted(s, -start_ns) for s in records[Span]),
            failures=tuple(f._replace(at_ns=max(f.at_ns - start_ns, 0)) for f in records[Failure]),
            logs=tuple(e._replace(at_ns=max(e.at_ns - start_ns, 0)) for e in records[LogEntry]),
        )

    def header(self) -> dict[str, Any]:
        """What is not an array; of what could be long, as much as the server will take."""
        lists = {
            "spans": [[s.name, s.start_ns, s.end_ns, s.error, s.attributes] for s in self.spans],
            "failures": [[f.at_ns, f.stage, f.kind, f.message, f.traceback, f.shapes] for f in self.failures],
            "logs": [[e.at_ns, e.level, e.logger, e.message, e.traceback] for e in self.logs],
        }
        return {
            "measured": dict(self.measured),
            "outcome": self.outcome,
            "duration": self.duration_ns,
            "steps": list(self.steps.steps) if self.steps is not None else [],
            **{name: _fitting(rows, ROOM[name]) for name, rows in lists.items()},
        }

    def arrays(self) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        if self.block is not None:
            arrays = {name: getattr(self.block, name) for name in BLOCK_ARRAYS}
            found |= {name: np.asarray(array) for name, array in arrays.items() if array is not None}
        if self.steps is not None:
            found["gradients"] = self.steps.stats
        return found

    def placed(self, at: Place) -> list[Record]:
        """The same records under the server's names and on the server's clock."""
        records: list[Record] = []
        block = None
        if self.block is not None:
            block = replace(self.block, id=at.next_block(), round=at.round, layout=at.layout)
            records.append(block)
        if self.steps is not None:
            count = len(self.steps.steps)
            clients, attempts = (at.client,) * count, (at.attempt,) * count
            records.append(replace(self.steps, round=at.round, layout=at.layout, clients=clients, attempts=attempts))
        whose: dict[str, Any] = {"round": at.round, "client": at.client}
        records += [_shifted(s, at.start_ns)._replace(id=at.next_id(), attempt=at.attempt, **whose) for s in self.spans]
        records += [f._replace(at_ns=f.at_ns + at.start_ns, attempt=at.attempt, **whose) for f in self.failures]
        records += [e._replace(at_ns=e.at_ns + at.start_ns, **whose) for e in self.logs]
        records.append(self._participation(at, block.id if block is not None else None))
        return records

    def _participation(self, at: Place, block: int | None) -> Participation:
        used = self.outcome in (Outcome.USED, Outcome.LATE)
        measured = dict(self.measured)
        own = json.loads(measured.pop("metrics", None) or "{}")
        return Participation(
            client=at.client,
            attempt=at.attempt,
            round=at.round,
            base_version=at.version,
            applied_version=at.version + 1 if used else None,
            staleness=0 if used else None,
            outcome=self.outcome,
            start_ns=at.start_ns,
            end_ns=at.start_ns + self.duration_ns,
            executor="remote",
            block=block,
            block_row=0 if block is not None else None,
            metrics=as_json({"clock_skew_s": round(at.skew_s, 6), "self_reported": True} | _others(own)),
            **measured,
        )


def _others(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if name not in ("clock_skew_s", "self_reported")}


def _shifted(span: Span, by_ns: int) -> Span:
    start = max(span.start_ns + by_ns, 0)
    return span._replace(start_ns=start, end_ns=max((span.end_ns or span.start_ns) + by_ns, start))


def _joined(blocks: list[StepBlock]) -> StepBlock | None:
    """One block of all sampled steps; of too many, an even choice with the first and the last."""
    if not blocks:
        return None
    steps = [step for block in blocks for step in block.steps]
    stats = np.concatenate([block.stats for block in blocks])
    most = max(2, MOST_STEP_BYTES // max(stats[0].nbytes, 1)) if len(stats) else 0
    if len(stats) > most:
        chosen = np.unique(np.linspace(0, len(stats) - 1, most).astype(int))
        steps, stats = [steps[i] for i in chosen], stats[chosen]
    count = len(steps)
    return replace(blocks[0], clients=("",) * count, attempts=(0,) * count, steps=tuple(steps), stats=stats)


def _fitting(rows: list[list[Any]], room: int) -> list[list[Any]]:
    kept: list[list[Any]] = []
    for row in rows:
        room -= len(json.dumps(row)) + 2
        if room < 0:
            break
        kept.append(row)
    return kept
