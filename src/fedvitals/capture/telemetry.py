"""What one participation recorded, on its way through a message: gathered on the client, checked on the server."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedvitals.capture.losses import MOST_KEPT
from fedvitals.errors import TelemetryError
from fedvitals.vocabulary import (
    CLIENT_PHASES,
    STATISTICS,
    Failure,
    Layout,
    LogEntry,
    Outcome,
    Participation,
    Record,
    Span,
    StepBlock,
    UpdateBlock,
)

# What a client may say of itself. Its id, attempt, round and versions are the server's.
MEASURED = (
    *("samples", "steps", "epochs", "loss", "first_loss", "last_loss", "accuracy", "bad_step", "good_step"),
    *("update_norm", "nonfinite", "raw_bytes_down", "wire_bytes_down", "raw_bytes_up", "wire_bytes_up"),
    *("peak_memory_bytes", "received", "metrics"),
    *(f"{phase}_s" for phase in CLIENT_PHASES),
)
WHOLE = {"samples", "steps", "epochs", "bad_step", "good_step", "nonfinite", "peak_memory_bytes"} | {
    name for name in MEASURED if "_bytes_" in name
}
TEXT = {"received": 64, "metrics": 4_096}
MOST = {"spans": 500, "failures": 20, "logs": 200}
LONGEST_TEXT = 32_768


@dataclass(frozen=True, slots=True, eq=False)
class Telemetry:
    """The records of one participation; `duration_ns` is on the client's own clock."""

    measured: Mapping[str, Any]
    outcome: str
    duration_ns: int
    block: UpdateBlock | None = None
    steps: StepBlock | None = None
    spans: tuple[Span, ...] = ()
    failures: tuple[Failure, ...] = ()
    logs: tuple[LogEntry, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def gather(participation: Participation, records: Iterable[Record]) -> Telemetry:
        """From what a client's recorder kept."""
        kept = list(records)
        own = [r for r in kept if isinstance(r, Participation)]
        final = own[-1] if own else participation
        return Telemetry(
            measured={name: getattr(final, name) for name in MEASURED},
            outcome=final.outcome,
            duration_ns=final.end_ns - final.start_ns,
            block=next((r for r in reversed(kept) if isinstance(r, UpdateBlock)), None),
            steps=next((r for r in reversed(kept) if isinstance(r, StepBlock)), None),
            spans=tuple(r for r in kept if isinstance(r, Span))[: MOST["spans"]],
            failures=tuple(r for r in kept if isinstance(r, Failure))[: MOST["failures"]],
            logs=tuple(r for r in kept if isinstance(r, LogEntry))[: MOST["logs"]],
        )

    def header(self) -> dict[str, Any]:
        return {
            "measured": dict(self.measured),
            "outcome": self.outcome,
            "duration": self.duration_ns,
            "steps": list(self.steps.steps) if self.steps is not None else [],
            "spans": [[s.name, s.start_ns, s.end_ns, s.error, s.attributes] for s in self.spans],
            "failures": [[f.at_ns, f.stage, f.kind, f.message, f.traceback, f.shapes] for f in self.failures],
            "logs": [[e.at_ns, e.level, e.logger, e.message, e.traceback] for e in self.logs],
        }

    def arrays(self) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        if self.block is not None:
            for name in BLOCK_ARRAYS:
                array = getattr(self.block, name)
                if array is not None:
                    found[name] = np.asarray(array)
        if self.steps is not None:
            found["gradients"] = self.steps.stats
        return found

    def placed(
        self,
        *,
        client: str,
        attempt: int,
        round: int,
        version: int,
        start_ns: int,
        skew_s: float,
        layout: int,
        next_block: Callable[[], int],
        next_id: Callable[[], int],
    ) -> list[Record]:
        """The same records under the server's names and on the server's clock."""
        records: list[Record] = []
        block = None
        if self.block is not None:
            block = replace(self.block, id=next_block(), round=round, layout=layout)
            records.append(block)
        if self.steps is not None:
            count = len(self.steps.steps)
            records.append(
                replace(self.steps, round=round, layout=layout, clients=(client,) * count, attempts=(attempt,) * count)
            )
        records += [
            s._replace(
                id=next_id(),
                start_ns=s.start_ns + start_ns,
                end_ns=(s.end_ns or s.start_ns) + start_ns,
                round=round,
                client=client,
                attempt=attempt,
            )
            for s in self.spans
        ]
        records += [
            f._replace(at_ns=f.at_ns + start_ns, round=round, client=client, attempt=attempt) for f in self.failures
        ]
        records += [e._replace(at_ns=e.at_ns + start_ns, round=round, client=client) for e in self.logs]
        records.append(
            Participation(
                client=client,
                attempt=attempt,
                round=round,
                base_version=version,
                applied_version=version + 1,
                staleness=0,
                outcome=self.outcome,
                start_ns=start_ns,
                end_ns=start_ns + self.duration_ns,
                executor="remote",
                slot=None,
                block=block.id if block is not None else None,
                block_row=0 if block is not None else None,
                **dict(self.measured),
            )._replace(metrics=_with_skew(self.measured.get("metrics"), skew_s))
        )
        return records


BLOCK_ARRAYS = ("stats", "nonfinite", "sketches", "unit_norms", "unit_sums", "unit_sketches", "losses", "loss_steps")


def read_telemetry(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], layout: Layout | None) -> Telemetry:
    """Check everything against what the server knows; TelemetryError names the first thing that does not fit."""
    if header.get("v") != 1:
        raise TelemetryError(f"it is of version {str(header.get('v'))[:20]}, this server reads version 1")
    duration = header.get("duration")
    if type(duration) is not int or not 0 <= duration < 10**18:
        raise TelemetryError("its duration is not a duration")
    outcome = header.get("outcome")
    return Telemetry(
        measured=_measured(header.get("measured")),
        outcome=outcome if outcome in (Outcome.USED, Outcome.FAILED) else Outcome.USED.value,
        duration_ns=duration,
        block=_block(arrays, layout, header.get("layers")),
        steps=_steps(header.get("steps"), arrays.get("gradients"), layout),
        spans=tuple(_span(row, duration) for row in _rows(header, "spans", 5)),
        failures=tuple(_failure(row, duration) for row in _rows(header, "failures", 6)),
        logs=tuple(_log(row, duration) for row in _rows(header, "logs", 5)),
    )


def _measured(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise TelemetryError("it has no measurements")
    checked: dict[str, Any] = {}
    for name in MEASURED:
        value = values.get(name)
        if value is None:
            checked[name] = None
        elif name in TEXT:
            checked[name] = _text(value, TEXT[name])
        elif name in WHOLE:
            if type(value) is not int or not -1 <= value < 2**62:
                raise TelemetryError(f"its {name} is not a count")
            checked[name] = value
        else:
            if type(value) not in (int, float):
                raise TelemetryError(f"its {name} is not a number")
            checked[name] = float(value) if abs(value) < 1e300 or not math.isfinite(value) else None
    return checked


def _block(arrays: Mapping[str, np.ndarray], layout: Layout | None, names: Any) -> UpdateBlock | None:
    if "stats" not in arrays:
        return None
    if layout is None:
        raise TelemetryError("it describes an update, but the round has no model to judge it by")
    if names != [layer.name for layer in layout.layers]:
        raise TelemetryError("its layers are not those of the model of the round")
    layers, buckets, units = len(layout.layers), sum(layout.sketch_buckets), layout.units
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "stats": ("f4", (1, layers, len(STATISTICS))),
        "nonfinite": ("u4", (1, layers)),
        "sketches": ("f2", (1, buckets)),
        "unit_norms": ("f2", (1, units)),
        "unit_sums": ("f2", (1, units)),
        "unit_sketches": ("i1", (1, units, 8)),
    }
    fields: dict[str, np.ndarray] = {}
    for name, (code, shape) in shapes.items():
        if name in arrays:
            fields[name] = _shaped(arrays[name], name, code, shape)
    for name, code in (("losses", "f4"), ("loss_steps", "i4")):
        if name in arrays:
            width = arrays[name].shape[-1] if arrays[name].ndim == 2 else -1
            fields[name] = _shaped(arrays[name], name, code, (1, width if 0 < width <= MOST_KEPT else -1))
    return UpdateBlock(id=0, round=0, layout=layout.id, **fields)


def _shaped(array: np.ndarray, name: str, code: str, shape: tuple[int, ...]) -> np.ndarray:
    if array.shape != shape or array.dtype.str.lstrip("<>|=") != code:
        raise TelemetryError(f"its {name} has shape {array.shape} and type {array.dtype}, expected {shape} {code}")
    return array


def _steps(numbers: Any, stats: np.ndarray | None, layout: Layout | None) -> StepBlock | None:
    if stats is None or layout is None:
        return None
    if not isinstance(numbers, list) or not all(type(n) is int and 0 <= n < 2**40 for n in numbers):
        raise TelemetryError("its sampled steps are not step numbers")
    if (
        stats.ndim != 3
        or stats.shape[:2] != (len(numbers), len(layout.layers))
        or stats.shape[2] not in (1, len(STATISTICS))
    ):
        raise TelemetryError(f"its gradients have shape {stats.shape}")
    return StepBlock(0, layout.id, ("",) * len(numbers), (0,) * len(numbers), tuple(numbers), stats)


def _rows(header: Mapping[str, Any], name: str, width: int) -> list[list[Any]]:
    rows = header.get(name, [])
    if not isinstance(rows, list) or len(rows) > MOST[name]:
        raise TelemetryError(f"its {name} are not a list of at most {MOST[name]}")
    if not all(isinstance(row, list) and len(row) == width for row in rows):
        raise TelemetryError(f"its {name} do not have {width} fields each")
    return rows


def _span(row: list[Any], duration: int) -> Span:
    start, end = _instant(row[1], duration), _instant(row[2], duration)
    if end < start:
        raise TelemetryError("one of its spans ends before it begins")
    return Span(
        0, None, _text(row[0], 100), start, end, error=_optional(row[3], 500), attributes=_optional(row[4], 5_000)
    )


def _failure(row: list[Any], duration: int) -> Failure:
    at, (stage, kind, message) = _instant(row[0], duration), (_text(row[i], 2_000) for i in (1, 2, 3))
    return Failure(
        at, stage[:100], kind[:200], message, traceback=_optional(row[4], LONGEST_TEXT), shapes=_optional(row[5], 5_000)
    )


def _log(row: list[Any], duration: int) -> LogEntry:
    level, logger, message = _text(row[1], 20), _text(row[2], 200), _text(row[3], 8_192)
    return LogEntry(_instant(row[0], duration), level, logger, message, traceback=_optional(row[4], LONGEST_TEXT))


def _instant(value: Any, duration: int) -> int:
    # A client may tell a little more after its session closed; nothing it tells lies a minute beyond.
    if type(value) is not int or not 0 <= value <= duration + 60 * 10**9:
        raise TelemetryError("one of its times lies outside of its own duration")
    return value


def _text(value: Any, longest: int) -> str:
    if not isinstance(value, str):
        raise TelemetryError("a text in it is not text")
    return value[:longest]


def _optional(value: Any, longest: int) -> str | None:
    return None if value is None else _text(value, longest)


def _with_skew(metrics: str | None, skew_s: float) -> str:
    import json

    try:
        known = json.loads(metrics) if metrics else {}
    except ValueError:
        known = {}
    values = known if isinstance(known, dict) else {}
    return json.dumps(values | {"clock_skew_s": round(skew_s, 6), "self_reported": True})[:4_096]
