"""Bytes: what the clients' messages would take uncompressed and what they took, each way, by client and by layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fedvitals.profile.timeline import Timeline
from fedvitals.store.table import Floats
from fedvitals.vocabulary import CLIENT_PHASES, STATISTICS, Layout, UpdateBlock

_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}  # others: 1


@dataclass(frozen=True, slots=True)
class Way:
    """One direction, over the run or of one client."""

    raw_bytes: float | None
    wire_bytes: float | None
    ratio: float | None  # raw over wire
    seconds: float | None  # that the transfers took
    bytes_per_s: float | None  # over the wire, where transfers were timed


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """One layer of the model: uncompressed, and its part of what went each way in the whole run.

    A message holds all layers together. Up, what went over the wire is dealt out by the values of each layer that
    arrived as other than zero; all else by the layers' own bytes, as whole models have it.
    """

    name: str
    bytes: int
    ratio: float  # of the whole model
    raw_bytes_up: float | None
    wire_bytes_up: float | None  # None where updates were not looked at
    raw_bytes_down: float | None
    wire_bytes_down: float | None


@dataclass(frozen=True, slots=True)
class Communication:
    """Of the whole run."""

    up: Way
    down: Way
    clients: tuple[tuple[str, Way, Way], ...]  # name, up, down
    layers: tuple[LayerBytes, ...]  # of the layout that is used most


@dataclass(frozen=True, slots=True)
class Encoded:
    """What one codec makes of the updates."""

    codec: str
    updates: int  # that were tried
    raw_bytes: float  # an update, on average
    wire_bytes: float
    ratio: float
    bytes_per_s: float  # of raw update, encoding it and decoding it again


def communication(timeline: Timeline, layouts: Sequence[Layout], blocks: Iterable[UpdateBlock] = ()) -> Communication:
    """Of a run whose first layout is its model's; `blocks` are updates of some of its rounds."""
    table, count = timeline.participations, len(timeline.clients)

    def ways(direction: str, phase: str) -> tuple[Way, list[Way]]:
        raw, wire = getattr(table, f"raw_bytes_{direction}"), getattr(table, f"wire_bytes_{direction}")
        seconds = table.phases_s[:, CLIENT_PHASES.index(phase)]
        timed = np.where(np.isnan(seconds), np.nan, wire)  # bytes whose time is known
        columns = [_sums(column, table.client, count) for column in (raw, wire, seconds, timed)]
        whole = _way(*(_sum(column) for column in columns))
        return whole, [_way(*values) for values in zip(*columns, strict=True)]

    (up, ups), (down, downs) = ways("up", "upload"), ways("down", "download")
    layers = _layers(layouts[0], up, down, blocks) if layouts else ()
    return Communication(up, down, tuple(zip(timeline.clients, ups, downs, strict=True)), layers)


def _sums(column: Floats, client: np.ndarray, count: int) -> list[float | None]:
    """A sum a client; None where none is known."""
    known = ~np.isnan(column)
    sums = np.bincount(client[known], weights=column[known], minlength=count)
    seen = np.bincount(client[known], minlength=count)
    return [float(total) if some else None for total, some in zip(sums, seen, strict=True)]


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _way(raw: float | None, wire: float | None, seconds: float | None, timed: float | None) -> Way:
    ratio = raw / wire if raw is not None and wire else None
    return Way(raw, wire, ratio, seconds, timed / seconds if timed is not None and seconds else None)


def _layers(layout: Layout, up: Way, down: Way, blocks: Iterable[UpdateBlock]) -> tuple[LayerBytes, ...]:
    sizes = [layer.size * _BYTES.get(layer.dtype.removeprefix("torch."), 1) for layer in layout.layers]
    whole = max(sum(sizes), 1)
    shares = _travelled(layout, blocks)
    return tuple(
        LayerBytes(
            layer.name,
            size,
            size / whole,
            raw_bytes_up=_part(up.raw_bytes, size / whole),
            wire_bytes_up=None if shares is None else _part(up.wire_bytes, float(shares[place])),
            raw_bytes_down=_part(down.raw_bytes, size / whole),
            wire_bytes_down=_part(down.wire_bytes, size / whole),
        )
        for place, (layer, size) in enumerate(zip(layout.layers, sizes, strict=True))
    )


def _part(whole: float | None, share: float) -> float | None:
    return None if whole is None else whole * share


def _travelled(layout: Layout, blocks: Iterable[UpdateBlock]) -> Floats | None:
    """Of all values that arrived as other than zero, the share in each layer; None where none is known."""
    sizes = np.array([layer.size for layer in layout.layers], dtype=np.float64)
    there = np.zeros(len(sizes))
    for block in blocks:
        if block.layout == layout.id:
            there += np.nansum((1.0 - block.stats[:, :, STATISTICS.index("zero_ratio")]) * sizes, axis=0)
    total = float(there.sum())
    return there / total if total > 0 else None
