"""The run a user holds: `with fedvitals.start("name") as run`.

It records at once. `start` may refuse with a clear error; after it, nothing of ours raises into the training.
"""

from __future__ import annotations

import atexit
import logging
import secrets
import time
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fedvitals.capture import context
from fedvitals.capture.clients import ClientSession
from fedvitals.capture.draft import Draft
from fedvitals.capture.environment import environment
from fedvitals.capture.harmless import harmless
from fedvitals.capture.nothing import NoRun
from fedvitals.capture.recorder import Recorder
from fedvitals.capture.rounds import RoundSession
from fedvitals.capture.spans import SpanSession
from fedvitals.errors import StoreError
from fedvitals.settings import Settings, resolve
from fedvitals.vocabulary import Level, Status
from fedvitals.vocabulary import Run as RunRecord

if TYPE_CHECKING:
    from fedvitals.capture.accelerator import Accelerator
    from fedvitals.store.protocol import Journal

log = logging.getLogger("fedvitals")

FLUSH_EVERY_S = 0.3  # with a commit's own time well inside the half second that a killed process may lose


def start(
    name: str = "run",
    *,
    config: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
    now_ns: Callable[[], int] = time.perf_counter_ns,
    accelerator: Accelerator | None = None,
    environment_extra: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> Run | NoRun:
    """Begin to record a training.

    `config` is kept with the run. `overrides` are settings by name (`dir="runs"`, `budget=0.01`); see the reference of
    settings for the others' sources. A place that can't be written gives one warning and a run that is not recorded.
    """
    from fedvitals.store.names import check_name

    resolved = settings if settings is not None and not overrides else resolve(arguments=overrides)
    check_name(name, "name")
    if resolved.mode == "off":
        return NoRun()
    record = RunRecord(
        id=_new_id(name),
        name=name,
        status=Status.RUNNING,
        started_unix_ns=time.time_ns(),
        level=Level(resolved.level),
        config=dict(config or {}),
        environment=environment() | dict(environment_extra or {}),
    )
    try:
        journal = _create(resolved, record)
    except (OSError, StoreError) as error:
        log.warning("this run is not recorded: %s", error)
        return NoRun()
    return Run(record, resolved, journal, now_ns=now_ns, accelerator=accelerator)


def _create(settings: Settings, record: RunRecord) -> Journal:
    from fedvitals.store import open_store

    return open_store(settings).create(record)


def _new_id(name: str) -> str:
    return f"{name[:70]}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


class Run:
    """A training that is being recorded."""

    def __init__(
        self,
        record: RunRecord,
        settings: Settings,
        journal: Journal,
        *,
        now_ns: Callable[[], int],
        accelerator: Accelerator | None,
    ) -> None:
        from fedvitals.store import BackgroundWriter

        writer = BackgroundWriter(
            journal,
            queue_bytes=settings.queue_mb * 2**20,
            flush_every_s=FLUSH_EVERY_S,
            max_bytes=settings.max_mb * 2**20,
            on_trouble=log.warning,
        )
        self.recorder = Recorder(record, settings, writer, now_ns=now_ns, accelerator=accelerator)
        self._round = -1
        self._closed = False
        self._token = context.enter(context.current()._replace(run=record.id))
        # A run that nobody closes is closed when the interpreter ends; weakly, so that it is not kept alive by that.
        self._at_exit = _close_later(weakref.ref(self))
        atexit.register(self._at_exit)

    @property
    def id(self) -> str:
        return self.recorder.run.id

    @property
    def origin_ns(self) -> int:
        """Where on its clock the run began: what instants are counted from."""
        return self.recorder.origin_ns

    def round(self, number: int, model: Any = None) -> RoundSession:
        """One round. `model` is the global model it starts from: a module, a state dict or a list of arrays."""
        self._round = number
        return RoundSession(self.recorder, number, model)

    def client(self, client: Any, *, base: int | None = None, samples: int | None = None) -> ClientSession:
        """A participation outside of rounds: trained from version `base` of the model, as `version()` gave it."""
        name = str(client)
        reference = self.recorder.models.at_version(base)
        latest = self.recorder.models.latest_version
        version = reference.version if reference is not None else (base if base is not None else latest)
        draft = Draft(
            client=name,
            attempt=self.recorder.next_attempt(name),
            round=self._round,
            base_version=version,
            staleness=max(latest - version, 0),
            applied_version=latest + 1,
            start_ns=self.recorder.now(),
            samples=samples,
        )
        return ClientSession(self.recorder, draft, None, reference)

    @harmless
    def version(self, model: Any) -> int:
        """Take in a new global model, where there are no rounds to do it; gives its version for `client(base=...)`."""
        number = next(self.recorder.versions)
        self.recorder.models.reference(model, self._round, number)
        return number

    def span(self, name: str, **attributes: Any) -> SpanSession:
        """Time anything else: a context manager and a decorator."""
        return SpanSession(self.recorder, name, attributes=attributes)

    def plan_steps(self, steps: int) -> tuple[int, ...]:
        """Which steps of a participation to look at, for engines that must know beforehand."""
        return self.recorder.governor.plan(steps)

    def close(self, error: BaseException | None = None) -> None:
        """End the run: finished, or failed with this error. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        context.leave(self._token)
        status = Status.FAILED if error is not None else Status.FINISHED
        self.recorder.close(status, {"error": f"{type(error).__name__}: {error}"[:2000]} if error is not None else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close(error)
        except Exception as own:
            self.recorder.trouble("close", own)


def _close_later(run: weakref.ref[Run]) -> Callable[[], None]:
    def close() -> None:
        living = run()
        if living is not None:
            living.close()

    return close
