"""Participations as columns of numbers: what diagnosis and profile look at, read without making a record of each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedvitals.store.column_arrays import TEXT, kinds_of
from fedvitals.store.protocol import RunReader
from fedvitals.vocabulary import CLIENT_PHASES, Participation

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_PLAIN = (
    "samples",
    "steps",
    "epochs",
    "loss",
    "first_loss",
    "last_loss",
    "accuracy",
    "bad_step",
    "good_step",
    "update_norm",
    "cosine",
    "nonfinite",
    "staleness",
    "raw_bytes_down",
    "wire_bytes_down",
    "raw_bytes_up",
    "wire_bytes_up",
    "peak_memory_bytes",
)
_WHOLE = ("attempt", "round", "base_version", "start_ns", "end_ns")


@dataclass(frozen=True, slots=True, eq=False)
class ParticipationTable:
    """A row a participation, in the order (round, arrival). Missing numbers are NaN, or -1 among whole ones."""

    client: Ints  # counts into the clients' names, in the order in which they appear here
    attempt: Ints
    round: Ints
    base_version: Ints
    outcome: NDArray[np.str_]
    samples: Floats
    steps: Floats
    epochs: Floats
    start_ns: Ints
    end_ns: Ints
    loss: Floats
    first_loss: Floats
    last_loss: Floats
    accuracy: Floats
    bad_step: Floats
    good_step: Floats
    update_norm: Floats
    cosine: Floats
    nonfinite: Floats
    phases_s: Floats  # [rows, CLIENT_PHASES]
    staleness: Floats
    raw_bytes_down: Floats
    wire_bytes_down: Floats
    raw_bytes_up: Floats
    wire_bytes_up: Floats
    peak_memory_bytes: Floats
    received: Ints  # equal numbers: the same model was received; -1: unknown
    attributed: Bools
    executor: NDArray[np.str_]  # what trained it; "remote": a process of its own, "": nobody said
    chunk: Ints  # of those trained as one batch
    block: Ints  # where its update's statistics are; -1: nowhere
    block_row: Ints
    clock_skew_s: Floats  # how far a remote client's clock was ahead of the server's
    share: Floats  # of its values that a codec sent, where that was chosen for it alone
    residual_norm: Floats  # of what a codec with feedback still owed after its update

    def __len__(self) -> int:
        return len(self.client)

    @staticmethod
    def empty() -> ParticipationTable:
        """Of no participation."""
        kinds = {name: np.empty(0, np.int64) for name in _WHOLE} | {name: np.empty(0) for name in _PLAIN}
        texts = dict.fromkeys(("client", "outcome", "received", "executor", "metrics"), np.empty(0, object))
        phases = {f"{phase}_s": np.empty(0) for phase in CLIENT_PHASES}
        numbers = dict.fromkeys(("attributed", "chunk", "block", "block_row"), np.empty(0))
        return _tabled({**kinds, **texts, **phases, **numbers})[1]

    @property
    def start_s(self) -> Floats:
        return self.start_ns / 1e9

    @property
    def end_s(self) -> Floats:
        return self.end_ns / 1e9


def read_table(reader: RunReader) -> tuple[tuple[str, ...], ParticipationTable]:
    """The clients' names, and all participations."""
    return _tabled(reader.participation_columns())


def table_of(participations: Sequence[Participation]) -> tuple[tuple[str, ...], ParticipationTable]:
    """The same of some that are at hand."""
    if not participations:
        return (), ParticipationTable.empty()
    fields = zip(Participation._fields, kinds_of(Participation), zip(*participations, strict=True), strict=True)
    return _tabled({name: _column(values, kind) for name, kind, values in fields})


def _column(values: Sequence[Any], kind: str) -> NDArray[Any]:
    missing = None if kind == TEXT else np.nan
    column = np.empty(len(values), kind)
    column[:] = [missing if one is None else one for one in values]
    return column


def _tabled(columns: Mapping[str, NDArray[Any]]) -> tuple[tuple[str, ...], ParticipationTable]:
    names, client = _numbered(columns["client"])
    table = ParticipationTable(
        client=client,
        outcome=columns["outcome"].astype("U8"),
        phases_s=np.stack([columns[f"{phase}_s"] for phase in CLIENT_PHASES], axis=1),
        received=_numbered(columns["received"])[1],
        attributed=columns["attributed"] > 0,
        executor=_texts(columns["executor"], "U16"),
        chunk=_or_missing(columns["chunk"]),
        block=_or_missing(columns["block"]),
        block_row=_or_missing(columns["block_row"]),
        clock_skew_s=_told("clock_skew_s", columns["metrics"]),
        share=_told("share", columns["metrics"]),
        residual_norm=_told("residual_norm", columns["metrics"]),
        **{name: columns[name] for name in (*_PLAIN, *_WHOLE)},
    )
    return tuple(names), table


def _numbered(values: Iterable[Any]) -> tuple[list[str], Ints]:
    """Each text that there is, and for each value its place among them; -1 for none."""
    places: dict[Any, int] = {}
    numbers = [-1 if one is None else places.setdefault(one, len(places)) for one in values]
    return list(places), np.array(numbers, dtype=np.int64)


def _texts(values: NDArray[Any], kind: str) -> NDArray[np.str_]:
    names, numbers = _numbered(values)
    return np.array([*names, ""], dtype=kind)[numbers]  # -1 takes the last


def _or_missing(values: Floats) -> Ints:
    return np.where(np.isnan(values), -1, np.clip(values, -(2.0**62), 2.0**62)).astype(np.int64)


def _told(name: str, metrics: NDArray[Any]) -> Floats:
    """One of the numbers among what else was kept of participations."""
    found = np.full(len(metrics), np.nan)
    for row in np.flatnonzero(metrics != None):  # noqa: E711  # value by value
        found[row] = _number(name, metrics[row])
    return found


def _number(name: str, metrics: str) -> float:
    if f'"{name}"' not in metrics:
        return np.nan
    document = json.loads(metrics)
    found = document.get(name) if isinstance(document, Mapping) else None
    return float(found) if isinstance(found, int | float) else np.nan
