"""The standard `logging` module, with run, round and client attached to each record, kept as LogEntry.

Records are kept by a handler on the root logger while a run is open; what the user's own handlers do is left alone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import traceback
from collections.abc import Callable
from typing import Any

from fedvitals.capture.context import current
from fedvitals.vocabulary import LogEntry

LONGEST_MESSAGE = 8_192
LONGEST_TRACEBACK = 32_768


class KeepingHandler(logging.Handler):
    """Hands each record to the recorder, labelled with where it came from."""

    def __init__(self, level: str, keep: Callable[[LogEntry], None], now_ns: Callable[[], int]) -> None:
        super().__init__(level)
        self._keep = keep
        self._now_ns = now_ns

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):  # a record that can't be kept must not reach the training as an error
            self._keep(_entry(record, self._now_ns()))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's own name
        """Say nothing: logging would print to the user's stderr."""


class JSONLines(logging.Formatter):
    """One JSON object a line, for machines that collect logs."""

    def format(self, record: logging.LogRecord) -> str:
        entry = _entry(record, int(record.created * 1e9))
        fields: dict[str, Any] = {"run": current().run} | entry._asdict()
        return json.dumps({key: value for key, value in fields.items() if value is not None})


class Labelled(logging.Filter):
    """Adds `run`, `round` and `client` to records, for formatters that print them."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.run, record.round, record.client = current()
        return True


def printing_handler(log_format: str, level: str) -> logging.Handler | None:
    """The handler that prints, as the setting `log_format` asks; None for `none`."""
    if log_format == "none":
        return None
    handler = logging.StreamHandler(sys.stderr) if log_format == "json" else _rich_handler()
    handler.setLevel(level)
    handler.addFilter(Labelled())
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


def _entry(record: logging.LogRecord, at_ns: int) -> LogEntry:
    where = current()
    trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info and record.exc_info[0] else None
    return LogEntry(
        at_ns=at_ns,
        level=record.levelname,
        logger=record.name,
        message=record.getMessage()[:LONGEST_MESSAGE],
        round=where.round,
        client=where.client,
        traceback=trace[-LONGEST_TRACEBACK:] if trace else None,
    )
