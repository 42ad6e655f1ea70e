"""What every store must do, as tests: subclass `StoreContract`, say how to open yours, and pytest runs them all."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fedvitals.errors import StoreError
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
_LOOKER = """
import sys
from pathlib import Path
folder = Path(sys.argv[1])
{opening}
reader = store.open("first")
for _ in sys.stdin:
    print(len(reader.participations()), reader.run().status, flush=True)
"""


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


class StoreContract:
    """Subclass it as `TestMyStore(StoreContract)`."""

    opening = ""  # Python that makes `store` from `folder`, for a second process

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

    def test_an_append_is_whole_or_not_at_all(self) -> None:
        """When one record of an append is impossible, none of it is kept, and the journal goes on."""
        wrong = UpdateBlock(1, 0, 1, np.zeros((1, 5, 6), np.float32))
        with self.store() as (store, _), closing(store.create(RUN)) as journal:
            journal.append([LAYOUT, participation("a", 0)])
            with pytest.raises(StoreError):
                journal.append([participation("a", 1), participation("b", 0), wrong])
            journal.append([participation("c", 0), participation("a", 1)])
            with closing(store.open("first")) as reader:
                assert [(one.client, one.attempt) for one in reader.participations()] == [("a", 0), ("c", 0), ("a", 1)]
                assert reader.clients() == ["a", "c"]

    def test_many_rows_keep_their_order_and_their_last_value(self) -> None:
        """Thousands of rows over many appends, a third of them written again later, are all read as last written."""
        first = [participation(f"c{index % 300}", index // 300, index // 100, slot=index) for index in range(3_000)]
        again = [record._replace(loss=float("nan"), outcome="late") for record in first[::3]]
        spans = [Span(index, None, "train", index, None, index // 100) for index in range(1_500)]
        ended = [span._replace(end_ns=span.start_ns + 1) for span in reversed(spans)]
        batches: list[Sequence[Record]] = [
            first[:10],
            first[10:20],
            first[20:1_700],
            spans,
            again[:500],
            [*first[1_700:], *ended],
            again[500:],
        ]
        late = {(record.client, record.attempt): record for record in again}
        with self.written(*batches) as reader:
            expected = [late.get((record.client, record.attempt), record) for record in first]
            assert same(reader.participations(), expected)
            assert columns_are(reader.participation_columns(), expected)
            assert same(reader.participations(client="c7"), [record for record in expected if record.client == "c7"])
            assert same(reader.participations(round=12), expected[1_200:1_300])
            assert same(reader.spans(), ended[::-1])

    def test_logs_can_be_asked_for(self) -> None:
        """Logs come by client, and from a level upwards."""
        entries = [
            LogEntry(1, "INFO", "x", "a"),
            LogEntry(2, "ERROR", "x", "b", client="3"),
            LogEntry(3, "WARNING", "x", "c"),
        ]
        with self.written(entries) as reader:
            assert [entry.message for entry in reader.logs(level="WARNING")] == ["b", "c"]
            assert [entry.message for entry in reader.logs(client="3")] == ["b"]

    def test_blobs_are_kept_once_and_checked(self) -> None:
        """A blob is read under its name; the same bytes have the same name; an unknown or odd name is refused."""
        with self.store() as (store, _), closing(store.create(RUN)) as journal:
            name = journal.put_blob(b"weights")
            before = journal.size_bytes()
            assert journal.put_blob(b"weights") == name
            assert journal.size_bytes() == before
            assert journal.put_blob(b"") != name
            with closing(store.open("first")) as reader:
                assert reader.blob(name) == b"weights"
                for odd in ("0" * 64, "../run.db", ""):
                    with pytest.raises(StoreError):
                        reader.blob(odd)

    def test_readers_in_another_process_see_the_run_live(self) -> None:
        """A reader that stays open in another process sees each append once it has returned."""
        with self.store() as (store, folder), closing(store.create(RUN)) as journal:
            program = [sys.executable, "-c", _LOOKER.format(opening=self.opening), str(folder)]
            with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as looker:  # noqa: S603
                assert looker.stdin is not None
                assert looker.stdout is not None
                seen = []
                for attempt in range(4):
                    looker.stdin.write("look\n")
                    looker.stdin.flush()
                    seen.append(int(looker.stdout.readline().split()[0]))
                    journal.append([participation(client, attempt) for client in "abc"])
                looker.stdin.close()
            assert seen == [0, 3, 6, 9]

    def test_runs_are_found_by_id_name_start_and_last(self) -> None:
        """Runs are listed newest first and found by id, newest of a name, the start of an id, or `last`."""
        with self.store() as (store, _):
            for begun, (number, name) in enumerate((("20-a", "digits"), ("21-b", "digits"), ("22-c", "other"))):
                store.create(Run(number, name, Status.FINISHED, begun)).close()
            assert [run.id for run in store.runs()] == ["22-c", "21-b", "20-a"]
            for word, number in (("20-a", "20-a"), ("digits", "21-b"), ("last", "22-c"), ("20", "20-a")):
                with closing(store.open(word)) as reader:
                    assert reader.run().id == number
            for word, hint in (("2", "20-a"), ("nothing", "22-c"), ("", "22-c"), ("../20-a", "22-c")):
                with pytest.raises(StoreError, match=hint):
                    store.open(word)

    def test_deleting_frees_bytes(self) -> None:
        """A deleted run is gone, its bytes are counted, and it cannot be deleted again."""
        with self.store() as (store, _):
            store.create(RUN).close()
            assert store.delete("first") > 0
            assert store.runs() == []
            with pytest.raises(StoreError, match="first"):
                store.delete("first")

    @pytest.mark.parametrize(
        "odd", ["", ".", "..", "a/b", "a\\b", ".hidden", "a..b", "a b", "é", "x" * 101, "a\n", "last"]
    )
    def test_odd_ids_are_refused(self, odd: str) -> None:
        """An id that could leave the folder, hide, or mean something else is refused, saying what is right."""
        with self.store() as (store, _):
            with pytest.raises(StoreError, match="id of a run"):
                store.create(replace(RUN, id=odd))
            assert store.runs() == []

    def test_an_id_is_used_once(self) -> None:
        """A second run with the same id is refused and the first left as it was."""
        with self.store() as (store, _):
            with closing(store.create(RUN)) as journal:
                journal.append([participation("a", 0)])
            with pytest.raises(StoreError, match="first"):
                store.create(RUN)
            with closing(store.open("first")) as reader:
                assert len(reader.participations()) == 1

    def test_a_run_whose_writer_is_gone_is_cut_off(self) -> None:
        """A run that says it is going on is cut off when its process does not exist."""
        gone = {"host": platform.node(), "pid": 2**22 + 1, "process_started": time.time()}
        with self.written(run=replace(RUN, environment=gone)) as reader:
            assert reader.run().status is Status.CUT_OFF
