"""The first half of what every store must do, as tests: whatever is written comes back as it was."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fedvitals.store import awkward
from fedvitals.store.awkward import same
from fedvitals.store.protocol import RunReader, Store
from fedvitals.vocabulary import (
    Blob,
    Evaluation,
    Failure,
    Layer,
    Layout,
    LogEntry,
    Participation,
    Record,
    ResourceSample,
    Round,
    Run,
    Span,
    Status,
    UpdateBlock,
)

LAW = settings(
    max_examples=20,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking 43 fields takes minutes and tells little more
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
RUN = Run("first", "digits", Status.RUNNING, 1_000)
LAYOUT = Layout(1, (Layer("weight", (2, 3), "float32", 6), Layer("bias", (2,), "float32", 2)), (4, 4), 0, 2)
_MEMORY = "/dev/shm"  # noqa: S108  # a folder in memory, where there is one: this is about meaning, not about disks


def participation(client: str, attempt: int, round: int = 0, **more: Any) -> Participation:
    begun = Participation(client, attempt, round, round, None, None, "used", 10, 2, 1, 0, 5)
    return begun._replace(**more)


def columns_are(columns: dict[str, Any], records: Sequence[Participation]) -> bool:
    """Whether each column holds what the records do: numbers as near as an array of its kind can come."""
    for name in Participation._fields:
        values = [getattr(record, name) for record in records]
        column = columns[name]
        if column.dtype.kind in "Oi":
            fits = column.tolist() == values
        else:
            fits = np.array_equal(column, np.array(values, dtype=np.float64), equal_nan=True)
        if not fits:
            return False
    return len(columns) == len(Participation._fields)


class RecordContract:
    """Every kind of record, with every value a field may hold. `StoreContract` is the whole."""

    def make_store(self, folder: Path) -> Store:
        """Your store, keeping its runs in (or under a name made from) this folder."""
        raise NotImplementedError

    @contextmanager
    def store(self) -> Iterator[tuple[Store, Path]]:
        with tempfile.TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None) as folder:
            yield self.make_store(Path(folder)), Path(folder)

    @contextmanager
    def written(self, *batches: Sequence[Record], run: Run = RUN) -> Iterator[RunReader]:
        """A reader of a run into which these batches were written, one append each."""
        with self.store() as (store, _):
            with closing(store.create(run)) as journal:
                for batch in batches:
                    journal.append(batch)
            with closing(store.open(run.id)) as reader:
                yield reader

    def check_gives_back(self, records: list[Any], cut: int, method: str) -> None:
        with self.written(records[:cut], records[cut:]) as reader:
            assert same(getattr(reader, method)(), records)

    @LAW
    @given(st.lists(awkward.records(Evaluation), max_size=6), st.integers(0, 6))
    def test_evaluations_come_back(self, records: list[Evaluation], cut: int) -> None:
        """Reading gives back every evaluation as it was written, in order."""
        self.check_gives_back(records, cut, "evaluations")

    @LAW
    @given(st.lists(awkward.records(ResourceSample), max_size=6), st.integers(0, 6))
    def test_resource_samples_come_back(self, records: list[ResourceSample], cut: int) -> None:
        """Reading gives back every resource sample as it was written, in order."""
        self.check_gives_back(records, cut, "resources")

    @LAW
    @given(st.lists(awkward.records(LogEntry), max_size=6), st.integers(0, 6))
    def test_logs_come_back(self, records: list[LogEntry], cut: int) -> None:
        """Reading gives back every log entry as it was written, in order."""
        self.check_gives_back(records, cut, "logs")

    @LAW
    @given(st.lists(awkward.records(Failure), max_size=6), st.integers(0, 6))
    def test_failures_come_back(self, records: list[Failure], cut: int) -> None:
        """Reading gives back every failure as it was written, in order."""
        self.check_gives_back(records, cut, "failures")

    @LAW
    @given(st.lists(awkward.records(Blob), max_size=6), st.integers(0, 6))
    def test_blob_records_come_back(self, records: list[Blob], cut: int) -> None:
        """Reading gives back every blob's record as it was written, in order."""
        self.check_gives_back(records, cut, "blobs")

    @LAW
    @given(st.lists(awkward.records(Round), max_size=6), st.integers(0, 6))
    def test_rounds_come_back_and_the_last_wins(self, records: list[Round], cut: int) -> None:
        """Of rounds with the same number the last is read; rounds come by number."""
        expected = {record.number: record for record in records}
        with self.written(records[:cut], records[cut:]) as reader:
            assert same(reader.rounds(), [expected[number] for number in sorted(expected)])

    @LAW
    @given(st.lists(awkward.records(Span), max_size=8), st.integers(0, 8))
    def test_spans_come_back_and_the_last_wins(self, records: list[Span], cut: int) -> None:
        """Of spans with the same id the last is read; asking for a round gives exactly its spans."""
        expected = {record.id: record for record in records}
        with self.written(records[:cut], records[cut:]) as reader:
            assert same({span.id: span for span in reader.spans()}, expected)
            assert len(reader.spans()) == len(expected)
            assert same(list(reader.iterate_spans()), list(expected.values()))
            for number in {record.round for record in records} - {None}:
                wanted = {span.id for span in expected.values() if span.round == number}
                assert {span.id for span in reader.spans(round=number)} == wanted

    @LAW
    @given(st.data())
    def test_participations_come_back_and_the_last_wins(self, data: st.DataObject) -> None:
        """Of participations with the same client and attempt the last is read, however they are asked for."""
        few = st.tuples(st.sampled_from(("a", "", "名")), st.integers(0, 3) | awkward.INTEGERS)
        drawn = data.draw(st.lists(st.tuples(few, awkward.records(Participation)), max_size=10))
        records = [record._replace(client=client, attempt=attempt) for (client, attempt), record in drawn]
        cut = data.draw(st.integers(0, len(records)))
        expected = {(record.client, record.attempt): record for record in records}
        with self.written(records[:cut], records[cut:]) as reader:
            in_order = sorted(expected.values(), key=lambda record: record.round)
            assert same(reader.participations(), in_order)
            assert same(list(reader.iterate_participations()), list(expected.values()))
            assert columns_are(reader.participation_columns(), in_order)
            assert reader.clients() == list(dict.fromkeys(record.client for record in records))
            for client in reader.clients():
                assert same(reader.participations(client=client), [one for one in in_order if one.client == client])
            for number in {record.round for record in records}:
                assert same(reader.participations(round=number), [one for one in in_order if one.round == number])

    @LAW
    @given(st.integers(1, 3).flatmap(lambda count: st.tuples(*map(awkward.cohorts, range(count)))), st.integers(0, 2))
    def test_whole_cohorts_come_back_one_by_one(self, cohorts: tuple[Any, ...], again: int) -> None:
        """As if each of their participations had come by itself, whatever their columns are, and the last wins."""
        late = [one._replace(outcome="rejected") for one in cohorts[0].rows()[:again]]
        expected = {one[:2]: one for some in cohorts for one in some.rows()} | {one[:2]: one for one in late}
        with self.written(cohorts[:1], [*cohorts[1:], *late]) as reader:
            assert same(list(reader.iterate_participations()), list(expected.values()))
            in_order = sorted(expected.values(), key=lambda record: record.round)
            assert columns_are(reader.participation_columns(), in_order)

    @LAW
    @given(st.data())
    def test_statistics_come_back(self, data: st.DataObject) -> None:
        """Layouts and blocks of arrays come back bit for bit, all or by round."""
        layout = data.draw(awkward.layouts())
        updates = [data.draw(awkward.update_blocks(layout, number)) for number in range(data.draw(st.integers(0, 3)))]
        models = [data.draw(awkward.model_blocks(layout, number)) for number in range(data.draw(st.integers(0, 3)))]
        steps = data.draw(st.lists(awkward.step_blocks(layout), max_size=3))
        with self.written([layout, *updates], [*models, *steps]) as reader:
            assert same(reader.layouts(), (layout,))
            assert same(list(reader.update_blocks()), updates)
            assert same(list(reader.update_blocks(after=0)), [one for one in updates if one.id > 0])
            assert same(reader.model_blocks(), models)
            assert same(list(reader.step_blocks()), steps)
            for number in {block.round for block in updates} | {block.round for block in steps}:
                assert same(list(reader.update_blocks(round=number)), [one for one in updates if one.round == number])
                assert same(list(reader.step_blocks(round=number)), [one for one in steps if one.round == number])

    @LAW
    @given(awkward.runs())
    def test_a_run_comes_back(self, run: Run) -> None:
        """A run comes back with its configuration, whatever is in it; a later record of it replaces the first."""
        with self.written([replace(run, config={"early": 1})], [run], run=run) as reader:
            assert same(reader.run(), run)

    def test_what_json_cannot_hold_becomes_text(self) -> None:
        """A configuration may hold anything: objects, sets, keys that are no text, and itself."""
        config: dict[Any, Any] = {1: {2, 3}, "path": Path("a"), "type": np.float32, "number": np.float64(0.5)}
        config["self"] = config
        with self.written(run=replace(RUN, config=config)) as reader:
            found = reader.run().config
            assert found["1"] == [2, 3]
            assert found["path"] == "a"
            assert found["number"] == 0.5

    def test_update_statistics_have_names(self) -> None:
        """A participation's statistics come a layer each, with its sketch; without a block there are none."""
        stats = np.arange(24, dtype=np.float32).reshape(2, 2, 6)
        sketches = np.ones((2, 8), dtype=np.float16)
        block = UpdateBlock(7, 0, 1, stats, np.array([[0, 0], [0, 5]], np.uint32), sketches)
        one = participation("a", 0, block=7, block_row=1, update_norm=2.0)
        with self.written([LAYOUT, block, one]) as reader:
            weight, bias = reader.update_stats(one)
            assert (weight.layer, weight.size, weight.norm, weight.zero_ratio) == ("weight", 6, 12.0, 17.0)
            assert (bias.layer, bias.nonfinite) == ("bias", 5)
            sketch = reader.sketch(one)
            assert sketch is not None
            assert sketch.norm == 2.0
            assert same(sketch.values, sketches[1])
            for other in (participation("b", 0), one._replace(block=8), one._replace(block_row=2)):
                assert reader.update_stats(other) == ()
                assert reader.sketch(other) is None
