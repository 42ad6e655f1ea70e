"""Records to disk and back. One writer a run, any number of readers."""

from fedvitals.store.folder import SQLiteStore
from fedvitals.store.journal import SQLiteJournal
from fedvitals.store.open import open_store
from fedvitals.store.protocol import Journal, RunReader, Store
from fedvitals.store.reader import SQLiteReader
from fedvitals.store.writer import BackgroundWriter

__all__ = [
    "open_store",
    "Store",
    "Journal",
    "RunReader",
    "SQLiteStore",
    "SQLiteJournal",
    "SQLiteReader",
    "BackgroundWriter",
]
