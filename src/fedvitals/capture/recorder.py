"""The recorder of one run: ids, clock, models and the way to the store, shared by all sessions of that run."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from fedvitals.capture.governor import Governor
from fedvitals.capture.logs import KeepingHandler, printing_handler
from fedvitals.capture.resources import ResourceProbe
from fedvitals.settings import Settings
from fedvitals.vocabulary import Blob, LogEntry, Record, Run, Status

if TYPE_CHECKING:
    from fedvitals.capture.accelerator import Accelerator
    from fedvitals.capture.models import Models
    from fedvitals.capture.pending import Pending

log = logging.getLogger("fedvitals")

TICK_S = 0.05
RECORD_BYTES = 512  # a scalar record in the queue, roughly


class Sink(Protocol):
    """Where records go: `store.writer.BackgroundWriter`, or a list in tests."""

    dropped: dict[str, int]

    @property
    def cpu_s(self) -> float: ...
    def put(self, records: Sequence[Record], size_bytes: int) -> bool: ...
    def nudge(self) -> None:
        """Write now what was put so far."""

    def put_blob(self, data: Callable[[], bytes], size_bytes: int, describe: Callable[[str], Blob]) -> bool: ...
    def close(self, timeout_s: float) -> bool: ...


class Recorder:
    """Takes what sessions report and passes it on. It does no I/O; the sink's own thread does."""

    def __init__(
        self,
        run: Run,
        settings: Settings,
        sink: Sink,
        *,
        now_ns: Callable[[], int] = time.perf_counter_ns,
        accelerator: Accelerator | None = None,
    ) -> None:
        self.run = run
        self.settings = settings
        self.governor = Governor(settings.budget, settings.steps, writer_cpu_s=lambda: sink.cpu_s)
        self.troubles: Counter[str] = Counter()
        self.attempts: Counter[str] = Counter()
        self.versions = itertools.count()
        self._sink = sink
        self._now_ns = now_ns
        self.origin_ns = now_ns()
        self._pid = os.getpid()
        self._ids = itertools.count(1)
        self._blocks = itertools.count(1)
        self._chunks = itertools.count()
        self._lock = threading.Lock()
        self._models: Models | None = None
        self._pending: Pending | None = None
        self._resources = ResourceProbe(accelerator)
        self._stop = threading.Event()
        self._handlers = self._attach_logging()
        self.emit([run])
        self._ticker = threading.Thread(target=self._tick, name="fedvitals-ticker", daemon=True)
        self._ticker.start()

    @property
    def recorder(self) -> Recorder:
        return self

    @property
    def alive(self) -> bool:
        """False in a forked child: its copy of the writer has no thread, and the file is the parent's."""
        return os.getpid() == self._pid

    def now(self) -> int:
        """Nanoseconds since the run began, on the run's clock."""
        return self._now_ns() - self.origin_ns

    def next_id(self) -> int:
        return next(self._ids)

    def next_block(self) -> int:
        return next(self._blocks)

    def next_chunk(self) -> int:
        return next(self._chunks)

    def next_attempt(self, client: str) -> int:
        with self._lock:
            attempt = self.attempts[client]
            self.attempts[client] += 1
        return attempt

    @property
    def models(self) -> Models:
        """The tensor side of the run; torch is loaded only by who hands over a model."""
        if self._models is None:
            from fedvitals.capture.models import Models

            self._models = Models(self)
        return self._models

    def emit(self, records: Sequence[Record], size_bytes: int | None = None) -> None:
        if self.alive:
            self._sink.put(records, RECORD_BYTES * len(records) if size_bytes is None else size_bytes)

    def keep_blob(self, data: Callable[[], bytes], size_bytes: int, describe: Callable[[str], Blob]) -> None:
        if self.alive:
            self._sink.put_blob(data, size_bytes, describe)

    @property
    def pending(self) -> Pending:
        """The updates that wait to be summarised."""
        if self._pending is None:
            from fedvitals.capture.pending import Pending

            self._pending = Pending()
        return self._pending

    def flush(self) -> None:
        """Summarise what waits, at once."""
        if self._pending is not None:
            self._pending.flush()
        if self._models is not None:
            self._models.flush()
        self._sink.nudge()

    def spent(self, ns: int) -> None:
        self.governor.spent_ns += ns

    def trouble(self, where: str, error: Exception) -> None:
        """Report a fault of our own once a place; the training never hears of it."""
        self.troubles[where] += 1
        if self.troubles[where] == 1:
            log.warning(
                "fedvitals could not record in %s: %s: %s; the training goes on", where, type(error).__name__, error
            )

    def close(self, status: Status, health: dict[str, Any] | None = None) -> None:
        """Write what is left and say how the run ended; waits no longer than the setting allows."""
        if not self.alive:
            return
        self._stop.set()
        self._ticker.join(timeout=1.0)
        for handler in self._handlers:
            logging.getLogger().removeHandler(handler)
        self._finish_tensors()
        self.emit(list(self._resources.samples(self.now())))
        self.run = replace(self.run, status=status, ended_ns=self.now(), health=self.health() | (health or {}))
        self.emit([self.run])
        if not self._sink.close(self.settings.close_timeout_s):
            log.warning("fedvitals gave up waiting for the disk; the end of run %s may be missing", self.run.id)

    def _finish_tensors(self) -> None:
        """What is left to summarise; a fault in it must not keep the run from ending."""
        try:
            self.flush()
            if self._models is not None:
                self._models.close()
        except Exception as error:
            self.trouble("close", error)

    def health(self) -> dict[str, Any]:
        return {
            "overhead": round(self.governor.overhead(), 5),
            "writer_cpu_s": round(self._sink.cpu_s, 4),
            "dropped": dict(self._sink.dropped),
            "stride": self.governor.stride,
            "troubles": dict(self.troubles),
        }

    def _attach_logging(self) -> list[logging.Handler]:
        keeping = KeepingHandler(self.settings.log_level, self._keep_log, self.now)
        printing = printing_handler(self.settings.log_format, self.settings.log_level)
        handlers: list[logging.Handler] = [keeping] + ([printing] if printing else [])
        for handler in handlers:
            logging.getLogger().addHandler(handler)
        return handlers

    def _keep_log(self, entry: LogEntry) -> None:
        self.emit([entry], RECORD_BYTES + len(entry.message) + len(entry.traceback or ""))

    def _tick(self) -> None:
        """Rows that wait too long, and the resource samples."""
        due = 0.0
        while not self._stop.wait(TICK_S):
            began = time.thread_time_ns()
            try:
                if (self._pending is not None and self._pending.old) or (self._models is not None and self._models.old):
                    self.flush()
                every = self.settings.resources_every_s
                if every and time.monotonic() >= due:
                    due = time.monotonic() + every
                    self.emit(list(self._resources.samples(self.now())))
            except Exception as error:
                self.trouble("ticker", error)
            self.spent(time.thread_time_ns() - began)
