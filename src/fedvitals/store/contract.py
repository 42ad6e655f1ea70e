"""What every store must do, as tests: subclass `StoreContract`, say how to open yours, and pytest runs them all."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from fedvitals.errors import StoreError
from fedvitals.store.awkward import same
from fedvitals.store.record_contract import LAYOUT as LAYOUT
from fedvitals.store.record_contract import RUN as RUN
from fedvitals.store.record_contract import RecordContract, columns_are
from fedvitals.store.record_contract import participation as participation
from fedvitals.vocabulary import (
    LogEntry,
    Record,
    Run,
    Span,
    Status,
    UpdateBlock,
)

_LOOKER = """
import sys
from pathlib import Path
folder = Path(sys.argv[1])
{opening}
reader = store.open("first")
for _ in sys.stdin:
    print(len(reader.participations()), reader.run().status, flush=True)
"""


class StoreContract(RecordContract):
    """Subclass it as `TestMyStore(StoreContract)`."""

    opening = ""  # Python that makes `store` from `folder`, for a second process

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
            some = reader.participation_columns(("loss", "client"))
            assert list(some) == ["client", "loss"]
            assert some["client"].tolist() == [record.client for record in expected]
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
        "odd", ["", ".", "..", "a/b", "a\\b", ".hidden", "a..b", "a b", "é", "x" * 101, "a\n", "-a", "last"]
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
