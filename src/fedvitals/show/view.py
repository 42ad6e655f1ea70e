"""One run, or one round or client of it, gathered from a reader for showing: as tables and as a document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from fedvitals.show.documents import overview_document, records_documents, rounds_documents
from fedvitals.show.overview import overview
from fedvitals.show.tables import (
    Table,
    clients_table,
    failures_table,
    header_lines,
    layers_table,
    participations_table,
    rounds_table,
)
from fedvitals.show.words import safe
from fedvitals.store.protocol import RunReader
from fedvitals.vocabulary import STATISTICS, Failure, Layout, ModelBlock, Participation, TensorStats


class Layers(NamedTuple):
    """Statistics a layer, and of what."""

    title: str
    subject: dict[str, str | int]
    stats: tuple[TensorStats, ...]


class View:
    """What `fedvitals show` shows. Reads once, when made; nothing is computed that is not shown."""

    def __init__(self, reader: RunReader, *, round: int | None, client: str | None, layers: bool) -> None:
        self._round, self._client = round, client
        self._overview = overview(reader)
        self._rounds = reader.rounds()
        self._evaluations = reader.evaluations()
        self._participations = reader.participations(client=client, round=round)
        self._failures = [one for one in reader.failures() if self._shows(one)]
        self._layers = self._read_layers(reader) if layers else []

    @property
    def _whole_run(self) -> bool:
        return self._round is None and self._client is None

    def _shows(self, failure: Failure) -> bool:
        return (self._round is None or failure.round == self._round) and (
            self._client is None or failure.client == self._client
        )

    def _read_layers(self, reader: RunReader) -> list[Layers]:
        if self._whole_run:
            return [model_layers(block, reader.layouts()) for block in reader.model_blocks()[-1:]]
        read = ((one, reader.update_stats(one)) for one in self._participations)
        return [update_layers(one, stats) for one, stats in read if stats]

    def header(self) -> list[tuple[str, str]]:
        lines = header_lines(self._overview, len(self._participations) if self._whole_run else None)
        return lines if self._whole_run else lines[:1]

    def tables(self) -> list[Table]:
        """What there is to show, in the order it is read; empty tables are left out."""
        if self._whole_run:
            shown = [rounds_table(self._rounds, self._evaluations), clients_table(self._participations)]
        else:
            shown = [participations_table(self._participations, of_client=self._client is not None)]
        shown.append(failures_table(self._failures))
        shown += [layers_table(one.title, one.stats) for one in self._layers]
        return [table for table in shown if table.rows]

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {"run": overview_document(self._overview)}
        if self._client is None:
            rounds = [one for one in self._rounds if self._round is None or one.number == self._round]
            document["rounds"] = rounds_documents(rounds, self._evaluations)
        document["participations"] = records_documents(self._participations)
        document["failures"] = records_documents(self._failures)
        if self._layers:
            document["layers"] = [{**one.subject, "layers": records_documents(one.stats)} for one in self._layers]
        return document


def update_layers(one: Participation, stats: tuple[TensorStats, ...]) -> Layers:
    title = f"update of client {safe(one.client, 40)} in round {one.round}"
    return Layers(title, {"client": one.client, "attempt": one.attempt, "round": one.round}, stats)


def model_layers(block: ModelBlock, layouts: tuple[Layout, ...]) -> Layers:
    """The statistics of one version of the global model."""
    layers = next(layout.layers for layout in layouts if layout.id == block.layout)
    counts = [0] * len(layers) if block.nonfinite is None else [int(count) for count in block.nonfinite]
    stats = tuple(
        TensorStats(layer.name, layer.size, **_named(row), nonfinite=count)
        for layer, row, count in zip(layers, block.stats, counts, strict=True)
    )
    return Layers(f"global model, version {block.version}", {"version": block.version, "round": block.round}, stats)


def _named(row: Iterable[float]) -> dict[str, float]:
    return {name: float(value) for name, value in zip(STATISTICS, row, strict=True)}
