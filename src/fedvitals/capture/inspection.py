"""Bytes from a client -> Telemetry, checked against what the server knows. Nothing in them is trusted.

TelemetryError names the first thing that does not fit. An update of other layers than the round's model costs what was
told of the layers, as in one process, and nothing else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedvitals.capture.attributes import as_json
from fedvitals.capture.failures import LONGEST_MESSAGE, LONGEST_TRACEBACK
from fedvitals.capture.losses import MOST_KEPT
from fedvitals.capture.memory import MOST
from fedvitals.capture.telemetry import MEASURED, Telemetry
from fedvitals.errors import TelemetryError
from fedvitals.vocabulary import (
    STATISTICS,
    Failure,
    Layout,
    LogEntry,
    Outcome,
    Span,
    StepBlock,
    UpdateBlock,
)

WHOLE = {"samples", "steps", "epochs", "bad_step", "good_step", "nonfinite", "peak_memory_bytes"} | {
    name for name in MEASURED if "_bytes_" in name
}
OF_LAYERS = {"stats", "gradients"}  # arrays
OF_UPDATES = ("update_norm", "nonfinite")
POSITIONAL = "array."  # names of layers that came as a list of arrays
LONGEST_JSON = 8_192
LATEST_NS = 10**18  # 31 years
AFTERWARDS_NS = 60 * 10**9


def read_telemetry(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], layout: Layout | None) -> Telemetry:
    """Check everything; `layout` is that of the round's model, None where the server judges no updates."""
    if header.get("v") != 1:
        raise TelemetryError(f"it is of version {str(header.get('v'))[:20]}, this server reads version 1")
    duration = header.get("duration")
    if type(duration) is not int or not 0 <= duration < LATEST_NS:
        raise TelemetryError("its duration is not a duration")
    measured = _measured(header.get("measured"))
    failures = [_failure(row, duration) for row in _rows(header, "failures", MOST[Failure], 6)]
    differing = _differing(header.get("layers"), layout) if layout is not None and OF_LAYERS & arrays.keys() else None
    if differing is not None:
        failures.append(Failure(duration, "submit", "shape mismatch", differing))
        measured |= dict.fromkeys(OF_UPDATES)
        layout = None
    block = _block(arrays, layout)
    if block is not None:  # one truth: what its layers say
        measured["update_norm"] = math.sqrt(float(np.square(block.stats[..., 0], dtype=np.float64).sum()))
    return Telemetry(
        measured=measured,
        outcome=Outcome.FAILED.value if header.get("outcome") == Outcome.FAILED else Outcome.USED.value,
        duration_ns=duration,
        block=block,
        steps=_steps(header.get("steps"), arrays.get("gradients"), layout),
        spans=tuple(_span(row, duration) for row in _rows(header, "spans", MOST[Span], 5)),
        failures=tuple(failures),
        logs=tuple(_log(row, duration) for row in _rows(header, "logs", MOST[LogEntry], 5)),
    )


def _measured(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise TelemetryError("it has no measurements")
    return {name: None if values.get(name) is None else _measurement(name, values[name]) for name in MEASURED}


def _measurement(name: str, value: Any) -> Any:
    if name == "received":
        return _text(value, 64)
    if name == "metrics":
        return _object(value)
    if name in WHOLE:
        if type(value) is not int or not -1 <= value < 2**62:
            raise TelemetryError(f"its {name} is not a count")
        return value
    if type(value) not in (int, float) or (type(value) is int and abs(value) >= 2**62):
        raise TelemetryError(f"its {name} is not a number")
    return float(value)


def _block(arrays: Mapping[str, np.ndarray], layout: Layout | None) -> UpdateBlock | None:
    if "stats" not in arrays or layout is None:
        return None
    fields = {name: _shaped(arrays[name], name, *kind) for name, kind in _kinds(layout).items() if name in arrays}
    if "sketches" in fields and not np.isfinite(fields["sketches"]).all():
        raise TelemetryError("its sketch is not finite")
    if ("losses" in arrays) != ("loss_steps" in arrays):
        raise TelemetryError("it has losses of steps without their numbers, or the other way round")
    if "losses" in arrays:
        kept = arrays["losses"].shape[-1] if arrays["losses"].ndim == 2 else 0
        if not 0 < kept <= MOST_KEPT:
            raise TelemetryError(f"its losses have shape {arrays['losses'].shape}, at most {MOST_KEPT} steps are kept")
        fields["losses"] = _shaped(arrays["losses"], "losses", "f4", (1, kept))
        fields["loss_steps"] = _shaped(arrays["loss_steps"], "loss_steps", "i4", (1, kept))
    return UpdateBlock(id=0, round=0, layout=layout.id, **fields)


def _kinds(layout: Layout) -> dict[str, tuple[str, tuple[int, ...]]]:
    layers, units = len(layout.layers), layout.units
    return {
        "stats": ("f4", (1, layers, len(STATISTICS))),
        "nonfinite": ("u4", (1, layers)),
        "sketches": ("f2", (1, sum(layout.sketch_buckets))),
        "unit_norms": ("f2", (1, units)),
        "unit_sums": ("f2", (1, units)),
        "unit_sketches": ("i1", (1, units, 8)),
    }


def _differing(described: Any, layout: Layout) -> str | None:
    """Where layers are not the model's: the same shapes in the same order, and the same names where both have names."""
    if not isinstance(described, list):
        raise TelemetryError("it does not describe its layers")
    if len(described) != len(layout.layers):
        return f"its update has {len(described)} layers, the model of the round {len(layout.layers)}"
    for entry, layer in zip(described, layout.layers, strict=True):
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str)):
            raise TelemetryError("it describes a layer as something else than [name, shape]")
        name, shape = entry
        if shape != list(layer.shape):
            return f"its layer {name[:100]} has another shape than {layer.name} of the round's model"
        unnamed = name.startswith(POSITIONAL) or layer.name.startswith(POSITIONAL)
        if name != layer.name and not unnamed:
            return f"its layer {name[:100]} stands where the round's model has {layer.name}"
    return None


def _shaped(array: np.ndarray, name: str, code: str, shape: tuple[int, ...]) -> np.ndarray:
    if array.shape != shape or array.dtype.str.lstrip("<>|=") != code:
        raise TelemetryError(f"its {name} has shape {array.shape} and type {array.dtype}, expected {shape} {code}")
    return array


def _steps(numbers: Any, stats: np.ndarray | None, layout: Layout | None) -> StepBlock | None:
    if stats is None or layout is None:
        return None
    if not isinstance(numbers, list) or not all(type(n) is int and 0 <= n < 2**31 for n in numbers):
        raise TelemetryError("its sampled steps are not step numbers")
    fields = (1, len(STATISTICS))
    if stats.ndim != 3 or stats.shape[:2] != (len(numbers), len(layout.layers)) or stats.shape[2] not in fields:
        raise TelemetryError(f"its gradients have shape {stats.shape}")
    if stats.dtype != np.float32:
        raise TelemetryError(f"its gradients are {stats.dtype}, not float32")
    return StepBlock(0, layout.id, ("",) * len(numbers), (0,) * len(numbers), tuple(numbers), stats)


def _rows(header: Mapping[str, Any], name: str, most: int, width: int) -> list[list[Any]]:
    rows = header.get(name, [])
    if not isinstance(rows, list) or len(rows) > most:
        raise TelemetryError(f"its {name} are not a list of at most {most}")
    if not all(isinstance(row, list) and len(row) == width for row in rows):
        raise TelemetryError(f"its {name} do not have {width} fields each")
    return rows


def _span(row: list[Any], duration: int) -> Span:
    start, end = _instant(row[1], duration), _instant(row[2], duration)
    if end < start:
        raise TelemetryError("one of its spans ends before it begins")
    attributes = None if row[4] is None else _object(row[4])
    return Span(0, None, _text(row[0], 100), start, end, error=_optional(row[3], 500), attributes=attributes)


def _failure(row: list[Any], duration: int) -> Failure:
    at, stage, kind = _instant(row[0], duration), _text(row[1], 100), _text(row[2], 200)
    shapes = None if row[5] is None else _object(row[5])
    trace = _optional(row[4], LONGEST_TRACEBACK)
    return Failure(at, stage, kind, _text(row[3], LONGEST_MESSAGE), traceback=trace, shapes=shapes)


def _log(row: list[Any], duration: int) -> LogEntry:
    level, logger, message = _text(row[1], 20), _text(row[2], 200), _text(row[3], 8_192)
    return LogEntry(_instant(row[0], duration), level, logger, message, traceback=_optional(row[4], LONGEST_TRACEBACK))


def _instant(value: Any, duration: int) -> int:
    # A client may tell a little more after its session closed; nothing it tells lies a minute beyond.
    if type(value) is not int or not 0 <= value <= duration + AFTERWARDS_NS:
        raise TelemetryError("one of its times lies outside of its own duration")
    return value


def _text(value: Any, longest: int) -> str:
    if not isinstance(value, str):
        raise TelemetryError("a text in it is not text")
    return value[:longest]


def _optional(value: Any, longest: int) -> str | None:
    return None if value is None else _text(value, longest)


def _object(value: Any) -> str:
    """JSON within JSON: readers will parse it, so it is parsed here first, and written anew within its bounds."""
    if not isinstance(value, str) or len(value) > LONGEST_JSON:
        raise TelemetryError(f"attributes in it are not JSON of at most {LONGEST_JSON} characters")
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise TelemetryError("attributes in it are not JSON") from error
    if not isinstance(found, dict):
        raise TelemetryError("attributes in it are not a JSON object")
    return as_json(found)
