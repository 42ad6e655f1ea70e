"""The embedded store keeps the contract of all stores."""

from __future__ import annotations

from pathlib import Path

from fedvitals.store import Journal, RunReader, SQLiteStore, Store
from fedvitals.store.contract import RUN, StoreContract


class TestSQLiteStore(StoreContract):
    """Every promise of the protocol, on a folder."""

    opening = "from fedvitals.store import SQLiteStore; store = SQLiteStore(folder)"

    def make_store(self, folder: Path) -> Store:
        return SQLiteStore(folder)


def test_the_parts_are_what_the_protocol_says(tmp_path: Path) -> None:
    """Store, journal and reader have every method of their protocols."""
    store = SQLiteStore(tmp_path)
    journal = store.create(RUN)
    reader = store.open(RUN.id)
    assert isinstance(store, Store)
    assert isinstance(journal, Journal)
    assert isinstance(reader, RunReader)
    journal.close()
    reader.close()
