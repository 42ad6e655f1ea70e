"""The store that the settings name."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from urllib.parse import urlsplit

from fedvitals.errors import MissingExtraError, SettingsError, StoreError
from fedvitals.settings import Settings, resolve
from fedvitals.store.folder import SQLiteStore
from fedvitals.store.protocol import Store

_POSTGRES = ("postgresql", "postgres")


def open_store(settings: Settings | None = None) -> Store:
    """The folder of runs, or whatever `store` names instead; by the settings in force, or by these. Makes nothing."""
    settings = settings or resolve()
    if not settings.store:
        return SQLiteStore(Path(settings.dir))
    scheme = urlsplit(settings.store).scheme
    if scheme not in _POSTGRES:  # the whole URL stays out of the message: it may hold a password
        raise SettingsError(
            f"store = {scheme + '://...' if scheme else settings.store!r} is no store that fedvitals knows: leave it "
            "empty for a folder (`dir` names it), or give postgresql://USER@HOST/DATABASE"
        )
    if importlib.util.find_spec("psycopg") is None:
        raise MissingExtraError("postgres", "A store in PostgreSQL", "psycopg")
    raise StoreError("runs cannot be kept in PostgreSQL yet: leave `store` empty to keep them in a folder")
