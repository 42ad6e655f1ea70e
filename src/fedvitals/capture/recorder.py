"""The recorder of one run: ids, clock, models and the way to the store, shared by all sessions of that run."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from fedvitals.capture.failures import in_words, mark
from fedvitals.capture.governor import Governor
from fedvitals.capture.heap import Heap
from fedvitals.capture.logs import LogKeeper, printing_handler
from fedvitals.capture.notes import Notes
from fedvitals.capture.phase_memory import PhaseMemory
from fedvitals.capture.resources import ResourceProbe
from fedvitals.capture.tensor_bytes import TensorCounts
from fedvitals.settings import Settings
from fedvitals.vocabulary import Blob, LogEntry, Record, Run, Status

if TYPE_CHECKING:
    from fedvitals.capture.accelerator import Accelerator
    from fedvitals.capture.models import Models
    from fedvitals.capture.pending import Pending

log = logging.getLogger("fedvitals")

LONGEST_LOOK_S = 0.3  # less than rows wait: what comes while the ticker sleeps is due after it wakes
RECORD_BYTES = 512  # a scalar record in the queue, roughly
ERRORS_REMEMBERED = 64
RECORDING = "fl.recording"
ROUNDS_APART_S = 0.1  # between two samples at the end of rounds
SOON_S = 0.15  # what is noted waits for a flush that is so near, and for so long: one transaction is half of two
MOST_ROUND_SAMPLES = 2_000  # about: later they are taken farther apart

_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


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
        origin_ns: int | None = None,
        accelerator: Accelerator | None = None,
        owns_up: bool = True,
    ) -> None:
        self.run = run
        self.settings = settings
        self.governor = Governor(settings.budget, settings.steps, writer_cpu_s=lambda: sink.cpu_s)
        self.troubles: Counter[str] = Counter()
        self.versions = itertools.count()
        self.by_version = False  # models come by `run.version`: a round without one is about the latest of them
        self._sink = sink
        self._owns_up = owns_up  # tells of the time that recording took; a client's is too short for its message
        self.clock = now_ns
        self.origin_ns = now_ns() if origin_ns is None else origin_ns
        self.alive = True  # False in a forked child: its copy of the writer has no thread, and the file is the parent's
        _recorders.add(self)
        self._ids = itertools.count(1)
        self._blocks = itertools.count(1)
        self._attempts: dict[str, itertools.count[int]] = {}
        self._errors: deque[tuple[Any, ...]] = deque(maxlen=ERRORS_REMEMBERED)
        self.notes = Notes(self.emit)
        self._lock = threading.Lock()
        self._closed = False
        self._models: Models | None = None
        self._pending: Pending | None = None
        self._resources = ResourceProbe(accelerator, self.trouble)
        devices = self._resources.device_memory
        self.memory = PhaseMemory(self.governor, settings.memory, blame=self.trouble, devices=devices)
        self.tensors = TensorCounts(self, wanted=settings.memory != "off")
        self._heap = Heap(self, wanted=settings.memory != "off")
        self._sampled_s = self._first_s = self._passed_on_s = time.monotonic()
        self._stop = threading.Event()
        self.emit([run])
        self._logs = LogKeeper(id(self), settings.log_level, self._keep_log, self.now)
        self._logs.install()
        self._printing = printing_handler(settings.log_format, settings.log_level)
        if self._printing is not None:
            logging.getLogger().addHandler(self._printing)
        self._ticker = threading.Thread(target=self._tick, name="fedvitals-ticker", daemon=True)
        self._ticker.start()

    @property
    def recorder(self) -> Recorder:
        return self

    def now(self) -> int:
        """Nanoseconds since the run began, on the run's clock."""
        return self.clock() - self.origin_ns

    def next_id(self) -> int:
        return next(self._ids)

    def next_block(self) -> int:
        return next(self._blocks)

    def next_attempt(self, client: str) -> int:
        count = self._attempts.get(client)
        if count is None:
            count = self._attempts.setdefault(client, itertools.count())  # of two threads, one wins
        return next(count)

    def kept_error(self, error: BaseException) -> None:
        """A session has kept this exception, which goes on to the sessions around it."""
        self._errors.append(mark(error))

    def is_kept(self, error: BaseException) -> bool:
        return mark(error) in self._errors

    @property
    def models(self) -> Models:
        """The tensor side of the run; torch is loaded only by who hands over a model."""
        if self._models is None:
            from fedvitals.capture.models import Models

            with self._lock:  # of two threads that come at once, one makes it
                if self._models is None:
                    self._models = Models(self)
        return self._models

    @property
    def latest_version(self) -> int:
        """Of the global model; -1 before there is one."""
        return -1 if self._models is None else self._models.latest_version

    def emit(self, records: Sequence[Record], size_bytes: int | None = None) -> None:
        if self.alive:
            try:
                self._sink.put(records, RECORD_BYTES * len(records) if size_bytes is None else size_bytes)
            except Exception as error:
                self.trouble("the queue", error)

    def recorded_since(self, start_ns: int) -> None:
        """Own up to the training's time that went into recording: a profile has to explain every instant."""
        if self._owns_up:
            self.noted(RECORDING, start_ns, self.now())

    def noted(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        where: tuple[int | None, str | None, int | None] = (None, None, None),
        error: str | None = None,
        attributes: str | None = None,
    ) -> None:
        """A span is over. It becomes a record soon: making one here and now, alone, costs a training several times as
        much. `where` is round, client and attempt."""
        if not self.alive:
            return
        thread = threading.current_thread().name
        self.notes.span((next(self._ids), None, name, start_ns, end_ns, *where, thread, 0, error, attributes))

    def keep_blob(self, data: Callable[[], bytes], size_bytes: int, describe: Callable[[str], Blob]) -> None:
        if self.alive:
            try:
                self._sink.put_blob(data, size_bytes, describe)
            except Exception as error:
                self.trouble("the queue", error)

    @property
    def pending(self) -> Pending:
        """The updates that wait to be summarised."""
        if self._pending is None:
            from fedvitals.capture.pending import Pending

            with self._lock:
                if self._pending is None:
                    self._pending = Pending()
        return self._pending

    def flush(self) -> None:
        """Summarise what waits, at once, and have it written."""
        self.notes.pass_on()
        try:
            if self._pending is not None:
                self._pending.flush()
        finally:
            if self._models is not None:
                self._models.flush()
            self._sink.nudge()

    def trouble(self, where: str, error: Exception) -> None:
        """Report a fault of our own once a place; the training never hears of it."""
        self.troubles[where] += 1
        if self.troubles[where] == 1:
            with contextlib.suppress(Exception):  # a user's own log handler may raise
                log.warning("fedvitals could not record in %s: %s; the training goes on", where, in_words(error))

    def close(self, status: Status, health: dict[str, Any] | None = None) -> None:
        """Write what is left and say how the run ended; waits no longer than the setting allows. Never raises."""
        if self._closed or not self.alive:
            return
        self._closed = True
        began = self.now()
        self._stop.set()
        if threading.current_thread() is not self._ticker:
            self._ticker.join(timeout=1.0)
        self._logs.remove()
        if self._printing is not None:
            logging.getLogger().removeHandler(self._printing)
        end = partial(self._end, status, health or {}, began)
        for last in (self._finish_tensors, end, self.memory.close, self._close_sink):
            try:
                last()
            except Exception as error:  # a fault in one must not keep the run from ending
                self.trouble("close", error)

    def _finish_tensors(self) -> None:
        """What is left to summarise."""
        try:
            self.flush()
        finally:
            if self._models is not None:
                self._models.close()
            if self._pending is not None:
                self._pending.close()

    def _end(self, status: Status, health: dict[str, Any], began_ns: int) -> None:
        self.recorded_since(began_ns)
        self.run = replace(self.run, status=status, ended_ns=self.now(), health=health)
        try:
            if self.settings.resources_every_s:
                self._sample_resources()
            self.run = replace(self.run, health=self.health() | health)
        finally:
            self.notes.pass_on()
            self.emit([self.run])

    def _close_sink(self) -> None:
        if not self._sink.close(self.settings.close_timeout_s):
            log.warning("fedvitals gave up waiting for the disk; the end of run %s may be missing", self.run.id)

    def health(self) -> dict[str, Any]:
        return {
            "overhead": round(self.governor.overhead(), 5),
            "elapsed_s": round(self.governor.elapsed_s(), 3),
            "writer_cpu_s": round(self._sink.cpu_s, 4),
            "dropped": dict(self._sink.dropped),
            "stride": self.governor.stride,
            "troubles": dict(self.troubles),
            "kernel": None if self._models is None else self._models.kernel,
            "memory": self.memory.health(),
        }

    def _keep_log(self, entry: LogEntry) -> None:
        self.emit([entry], RECORD_BYTES + len(entry.message) + len(entry.traceback or ""))

    def _tick(self) -> None:
        """Rows that wait too long, and the resource samples."""
        every = self.settings.resources_every_s
        due = 0.0 if every else math.inf
        while not self._stop.wait(self._next_look_s(due)):
            began = time.thread_time_ns()
            try:
                self.memory.reconsider()
                if time.monotonic() >= due:
                    due = time.monotonic() + every
                    self._sample_resources()
                self._pass_on()
            except Exception as error:
                self.trouble("ticker", error)
            self.governor.spent_ns += time.thread_time_ns() - began

    def _pass_on(self) -> None:
        """What waited long enough; with it all that waits."""
        now = time.monotonic()
        left_s = self._next_flush_s() - now
        if left_s > 0.0 and (left_s < SOON_S or now - self._passed_on_s < SOON_S):
            return
        self._passed_on_s = now
        if left_s <= 0.0:
            self.flush()
        elif self.notes.pass_on():
            self._sink.nudge()

    def _next_look_s(self, due_s: float) -> float:
        """Not more often than needed: waking a thread costs the training more than what it then does."""
        return min(max(min(self._next_flush_s(), due_s) - time.monotonic(), 0.005), LONGEST_LOOK_S)

    def _next_flush_s(self) -> float:
        waiting = (part.due_s for part in (self._pending, self._models) if part is not None)
        return min(waiting, default=math.inf)

    def held_bytes(self) -> int:
        """What waits here or is remembered, which is no leak of the training's."""
        waiting = 0 if self._pending is None else self._pending.size_bytes
        return waiting + (0 if self._models is None else self._models.size_bytes)

    @property
    def busy(self) -> bool:
        """Nobody can say just now what is ours."""
        return self._pending is not None and self._pending.busy

    def round_over(self, number: int) -> None:
        """What a round leaves behind shows in the memory at its end: a sample then, not more often than is of use."""
        self._heap.round_over(number)
        now = time.monotonic()
        soonest = max(ROUNDS_APART_S, (now - self._first_s) / MOST_ROUND_SAMPLES)
        if not self.settings.resources_every_s or now - self._sampled_s < soonest:
            return
        self._sampled_s = now
        self.notes.record(self._resources.host(self.now()))

    def _sample_resources(self) -> None:
        for sample in self._resources.samples(self.now()):
            self.notes.record(sample)


def _forked() -> None:
    for recorder in list(_recorders):
        recorder.alive = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
