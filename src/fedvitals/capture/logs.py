"""The standard `logging` module, with run, round and client attached to each record, kept as LogEntry.

Records are tapped where logging makes them. A handler on the root logger would be the usual way, and would hurt: with
any handler there, `logging.basicConfig` does nothing and warnings of a program without handlers are no longer printed.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

from fedvitals.capture.context import current
from fedvitals.capture.failures import LONGEST_TRACEBACK, traceback_of
from fedvitals.vocabulary import LogEntry

LONGEST_MESSAGE = 8_192

_lock = threading.Lock()
_tap: Tap | None = None
_busy = threading.local()


class LogKeeper:
    """Hands the records of one run to its recorder, labelled with where they came from."""

    def __init__(self, owner: int, level: str, keep: Callable[[LogEntry], None], now_ns: Callable[[], int]) -> None:
        self._owner = owner
        self._level = logging.getLevelNamesMapping()[level]
        self._keep = keep
        self._now_ns = now_ns

    def install(self) -> None:
        global _tap
        with _lock:
            if _tap is None:
                _tap = Tap(logging.getLogRecordFactory())
                logging.setLogRecordFactory(_tap)
            _tap.keepers = (*_tap.keepers, self)

    def remove(self) -> None:
        """Take no more; the last one to go takes the tap along, unless somebody has put another one around it."""
        global _tap
        with _lock:
            if _tap is None or self not in _tap.keepers:
                return
            _tap.keepers = tuple(keeper for keeper in _tap.keepers if keeper is not self)
            if not _tap.keepers:
                if logging.getLogRecordFactory() is _tap:
                    logging.setLogRecordFactory(_tap.inner)
                _tap = None

    def take(self, record: logging.LogRecord) -> None:
        """A record of another run is not ours; one from a thread that says nothing of a run may be."""
        if record.levelno >= self._level and current().owner in (None, self._owner):
            self._keep(entry_of(record, self._now_ns()))


class Tap:
    """Makes log records as the factory inside it does, and shows them to the keepers."""

    def __init__(self, inner: Callable[..., logging.LogRecord]) -> None:
        self.inner = inner
        self.keepers: tuple[LogKeeper, ...] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self.inner(*args, **kwargs)
        # `makeLogRecord` makes records without a name; a record made while another is being kept is our own doing.
        if self.keepers and record.name and not getattr(_busy, "keeping", False):
            _busy.keeping = True
            try:
                for keeper in self.keepers:
                    keeper.take(record)
            except Exception:  # a record that can't be kept must not reach the training as an error
                pass
            finally:
                _busy.keeping = False
        return record


class JSONLines(logging.Formatter):
    """One JSON object a line, for machines that collect logs."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {"run": current().run} | entry_of(record, int(record.created * 1e9))._asdict()
        return json.dumps({key: value for key, value in fields.items() if value is not None})


def printing_handler(log_format: str, level: str) -> logging.Handler | None:
    """The handler that prints, as the setting `log_format` asks; None for `none`."""
    if log_format == "none":
        return None
    handler = logging.StreamHandler(sys.stderr) if log_format == "json" else _rich_handler()
    handler.setLevel(level)
    if log_format == "json":
        handler.setFormatter(JSONLines())
    return handler


def _rich_handler() -> logging.Handler:
    from rich.console import Console
    from rich.logging import RichHandler

    handler = RichHandler(console=Console(stderr=True), show_path=False, markup=False)
    handler.setFormatter(_RichLine("%(message)s"))
    return handler


class _RichLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        where = current()
        parts = [
            f"round {where.round}" if where.round is not None else "",
            f"client {where.client}" if where.client else "",
        ]
        label = " ".join(part for part in parts if part)
        return f"[{label}] {super().format(record)}" if label else super().format(record)


def entry_of(record: logging.LogRecord, at_ns: int) -> LogEntry:
    """What is kept of a log record."""
    where = current()
    error = record.exc_info[1] if record.exc_info else None
    trace = traceback_of(error) if error is not None else record.exc_text
    return LogEntry(
        at_ns=at_ns,
        level=record.levelname,
        logger=record.name,
        message=_message(record)[:LONGEST_MESSAGE],
        round=where.round,
        client=where.client,
        traceback=trace[-LONGEST_TRACEBACK:] if trace else None,
    )


def _message(record: logging.LogRecord) -> str:
    """With its arguments filled in, or as it stands when they do not fit: logging itself will complain of that."""
    try:
        return record.getMessage()
    except Exception:
        return str(record.msg)
