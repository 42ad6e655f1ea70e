"""The run a user holds: `with fedvitals.start("name") as run`.

It records at once. `start` may refuse with a clear error; after it, nothing of ours raises into the training.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, fields, is_dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsInt

from fedvitals.capture import context
from fedvitals.capture.clients import ClientSession
from fedvitals.capture.draft import Draft
from fedvitals.capture.ending import close, close_at_exit, uncaught
from fedvitals.capture.environment import environment
from fedvitals.capture.failures import in_words
from fedvitals.capture.harmless import harmless, harmless_or
from fedvitals.capture.nothing import NO_SPAN, NoClient, NoRound, NoRun, Timed
from fedvitals.capture.recorder import Recorder
from fedvitals.capture.rounds import RoundSession
from fedvitals.capture.spans import SpanSession
from fedvitals.errors import StoreError
from fedvitals.settings import Settings, resolve
from fedvitals.vocabulary import Level, Status
from fedvitals.vocabulary import Run as RunRecord

if TYPE_CHECKING:
    from fedvitals.capture.accelerator import Accelerator
    from fedvitals.diagnose.checkups import Checkups, Verdicts
    from fedvitals.diagnose.diagnosis import Diagnosis
    from fedvitals.profile.profile import Profile
    from fedvitals.store.protocol import Journal, RunReader

log = logging.getLogger("fedvitals")

FLUSH_EVERY_S = 0.42  # with a commit's own time well inside the half second that a killed process may lose


def start(
    name: str = "run",
    *,
    config: Any = None,
    settings: Settings | None = None,
    now_ns: Callable[[], int] = time.perf_counter_ns,
    accelerator: Accelerator | None = None,
    environment_extra: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> Run | NotRecorded:
    """Begin to record a training.

    `config` is kept with the run: a mapping, a dataclass, or an object with attributes. `overrides` are settings by
    name (`dir="runs"`, `budget=0.01`); see the reference of settings for the others' sources. A place that can't be
    written gives one warning and a run that is not recorded.
    """
    from fedvitals.store.names import check_name

    resolved = _resolved(settings, overrides)
    check_name(name, "name")
    if resolved.mode == "off":
        return NotRecorded()
    origin_ns, started_unix_ns = now_ns(), time.time_ns()  # the one anchor of the run's clock on the wall's
    record = RunRecord(
        id=_new_id(name),
        name=name,
        status=Status.RUNNING,
        started_unix_ns=started_unix_ns,
        level=Level(resolved.level),
        config=_as_mapping(config),
        environment=environment() | {"settings": _told(resolved)} | dict(environment_extra or {}),
    )
    resolved = replace(resolved, dir=os.path.abspath(resolved.dir))  # the training may go to another folder meanwhile
    try:
        journal = _create(resolved, record)
    except (OSError, StoreError) as error:
        log.warning("this run is not recorded: %s", error)
        return NotRecorded()
    return Run(record, resolved, journal, now_ns=now_ns, origin_ns=origin_ns, accelerator=accelerator)


def _told(settings: Settings) -> dict[str, Any]:
    """What a reader needs to judge the record by; a store's address may hold a password."""
    return {name: getattr(settings, name) for name in ("budget", "steps", "sketches", "keep_updates", "max_mb")}


def _resolved(settings: Settings | None, overrides: Mapping[str, Any]) -> Settings:
    if settings is None:
        return resolve(arguments=overrides)
    return resolve(arguments=asdict(settings) | dict(overrides)) if overrides else settings


def _as_mapping(config: Any) -> Mapping[str, Any]:
    """The user's configuration as it is now, of whatever kind that is: argparse gives an object with attributes."""
    from fedvitals.store.plain import plain

    if config is None:
        return {}
    if is_dataclass(config) and not isinstance(config, type):
        config = {one.name: getattr(config, one.name) for one in fields(config)}
    elif not isinstance(config, Mapping):
        config = getattr(config, "__dict__", {"config": config})
    found: dict[str, Any] = plain(config)
    return found


def _create(settings: Settings, record: RunRecord) -> Journal:
    from fedvitals.store import open_store

    return open_store(settings).create(record)


def _new_id(name: str) -> str:
    return f"{name[:70]}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


class Run:
    """A training that is being recorded."""

    def __init__(
        self,
        record: RunRecord,
        settings: Settings,
        journal: Journal,
        *,
        now_ns: Callable[[], int],
        origin_ns: int,
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
        self.recorder = Recorder(record, settings, writer, now_ns=now_ns, origin_ns=origin_ns, accelerator=accelerator)
        self._writer = writer
        self._checkups: Checkups | None = None
        self._round = -1
        self._closed = False
        self._where = context.enter(context.Whereabouts(record.id, owner=id(self.recorder)))
        # A run that nobody closes is closed when the interpreter ends, whether or not somebody still holds it.
        self.recorder.recorded_since(0)
        self._at_exit = partial(close_at_exit, self.recorder, uncaught())
        atexit.register(self._at_exit)

    @property
    def id(self) -> str:
        return self.recorder.run.id

    @property
    def origin_ns(self) -> int:
        """Where on its clock the run began: what instants are counted from."""
        return self.recorder.origin_ns

    @harmless_or(NoRound())
    def round(self, number: int, model: Any = None) -> RoundSession:
        """One round. `model` is the global model it starts from: a module, a state dict or a list of arrays."""
        self._round = int(number)
        return RoundSession(self.recorder, self._round, model, verdicts=self._verdicts)

    @harmless_or(NoClient())
    def client(self, client: Any, *, base: int | None = None, samples: SupportsInt | None = None) -> ClientSession:
        """A participation outside of rounds: trained from version `base` of the model, as `version()` gave it."""
        name = str(client)
        latest = self.recorder.latest_version
        version = latest if base is None else int(base)
        reference = self.recorder.models.at_version(version) if latest >= 0 else None
        draft = Draft(
            client=name,
            attempt=self.recorder.next_attempt(name),
            round=self._round,
            base_version=version,
            start_ns=self.recorder.now(),
            samples=samples,
        )
        if reference is not None:
            draft.raw_bytes_down = reference.raw_bytes
        return ClientSession(self.recorder, draft, None, reference, asynchronous=True)

    @harmless
    def version(self, model: Any) -> int:
        """Take in a new global model, where there are no rounds to do it; gives its version for `client(base=...)`."""
        number = next(self.recorder.versions)
        self.recorder.models.reference(model, self._round, number)
        self.recorder.by_version = True
        return number

    @harmless_or(NO_SPAN)
    def span(self, /, name: str, **attributes: Any) -> Timed:
        """Time anything else: a context manager and a decorator."""
        return SpanSession(self.recorder, name, attributes=attributes)

    @harmless_or(NO_SPAN)
    def allocations(self, /, name: str = "allocations", *, most: int = 32) -> Timed:
        """Find out which operations allocate memory in the lines inside, by torch's profiler: a table of the `most`.

        It slows these lines down and is not counted against the budget, so it is for a few steps. torch has room for
        one profiler at a time: where another runs, nothing is found out, and the span says so.
        """
        from fedvitals.capture.allocations import AllocationSession

        return AllocationSession(self.recorder, name, most=most)

    @harmless_or(())
    def plan_steps(self, steps: int) -> tuple[int, ...]:
        """Which steps of a participation to look at, for engines that must know beforehand."""
        return self.recorder.governor.plan(steps)

    def diagnose(self) -> Diagnosis:
        """What is wrong with the run, as far as it can be seen now; also after `close`.

        It waits until all that was recorded is on disk and reads it back. That takes the time it takes: it is not
        counted against the budget, because it was asked for. Trouble gives one warning and a diagnosis that says that
        nothing could be observed.
        """
        try:
            return self._on_disk().diagnosis()
        except Exception as error:
            self.recorder.trouble("diagnose", error)
            return _unseen(self.recorder.run, f"the run could not be read: {in_words(error)}")
        finally:
            if self._closed:
                self._end_checkups()

    def profile(self) -> Profile:
        """Where the run's time and bytes went so far and what it waited for; also after `close`.

        As with `diagnose` it takes the time it takes, and trouble gives one warning and a profile of nothing, which
        says why.
        """
        from fedvitals.profile.profile import nothing_profiled, profile_of

        try:
            self._put_on_disk()
            with closing(_opened(self.recorder.settings, self.id)) as reader:
                return profile_of(reader)
        except Exception as error:
            self.recorder.trouble("profile", error)
            return nothing_profiled(self.recorder.run, f"the run could not be read: {in_words(error)}")

    def report(self, path: str | PathLike[str]) -> Path | None:
        """Put the findings, the profile and the figures of the run so far on one page, which opens offline.

        Gives the page's path. As with `diagnose` it takes the time it takes; trouble gives one warning and None.
        """
        from fedvitals.show.report import write_report

        try:
            self._put_on_disk()
            with closing(_opened(self.recorder.settings, self.id)) as reader:
                write_report(reader, Path(path))
            return Path(path)
        except Exception as error:
            self.recorder.trouble("report", error)
            return None

    def _verdicts(self, number: int) -> Verdicts:
        from fedvitals.diagnose.checkups import Verdicts

        try:
            return self._on_disk().verdicts(number)
        except Exception as error:
            self.recorder.trouble("verdicts", error)
            return Verdicts()

    def _on_disk(self) -> Checkups:
        """Everything that was recorded so far, ready to be examined."""
        from fedvitals.diagnose.checkups import Checkups

        self._put_on_disk()
        if self._checkups is None:
            self._checkups = Checkups(partial(_opened, self.recorder.settings, self.id))
        return self._checkups

    def _put_on_disk(self) -> None:
        if not self.recorder.alive:
            raise StoreError("this is a forked child, and the run is its parent's")
        if not self._closed:
            self.recorder.flush()
            self._writer.flush(self.recorder.settings.close_timeout_s)

    def _end_checkups(self) -> None:
        checkups, self._checkups = self._checkups, None
        if checkups is not None:
            checkups.close()

    def close(self, error: BaseException | None = None) -> None:
        """End the run: finished, or failed with this error. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        context.leave(self._where)
        self._end_checkups()
        close(self.recorder, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)


_NOT_RECORDED = RunRecord("", "a run that is not recorded", Status.FINISHED, 0)


class NotRecorded(NoRun):
    """A run that is not recorded, as `start` gives it."""

    def diagnose(self) -> Diagnosis:
        """Nothing could be observed."""
        return _unseen(_NOT_RECORDED, "the run is not recorded")

    def profile(self) -> Profile:
        """Nothing could be observed."""
        from fedvitals.profile.profile import nothing_profiled

        return nothing_profiled(_NOT_RECORDED, "the run is not recorded")

    def report(self, path: str | PathLike[str]) -> Path | None:
        """There is nothing to tell: no page is written."""
        return None


def _opened(settings: Settings, run_id: str) -> RunReader:
    from fedvitals.store import open_store

    return open_store(settings).open(run_id)


def _unseen(run: RunRecord, reason: str) -> Diagnosis:
    from fedvitals.diagnose.diagnosis import nothing_observed
    from fedvitals.diagnose.registry import RULES

    return nothing_observed(run, RULES, reason)
