"""Where a client's time goes, and in which stage it is: what a failure is labelled with.

Time counts once: what a phase inside another took is not the outer one's, so the phases of a participation add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from fedvitals.capture.draft import Draft
from fedvitals.capture.failures import mark
from fedvitals.capture.recorder import Recorder
from fedvitals.capture.spans import PhaseSession

T = TypeVar("T")

END: Any = object()
OUT = -1  # instead of an instant: the loop's body is not going on
OUTSIDE = "client"  # the stage of a client that is in no phase


class Stopwatch:
    """Of one participation."""

    def __init__(self, draft: Draft, now: Callable[[], int]) -> None:
        self.draft = draft
        self.now = now
        self.stage = OUTSIDE
        self._failed: tuple[tuple[Any, ...], str] | None = None
        self._left = False  # a loop was left in its body, and nothing was told since
        self._body_ns = OUT  # when the loop's body began
        self._explained_s = 0.0  # what was explained by then

    def go_on(self) -> None:
        """The training tells of something: what failed before was overcome, and a loop that was left is over."""
        self._failed = None
        if self._left:
            self.stage, self._left = OUTSIDE, False

    def blame(self, error: BaseException, stage: str) -> None:
        """An exception leaves a phase: the innermost one is where it happened."""
        known = mark(error)
        if self._failed is None or self._failed[0] != known:
            self._failed = (known, stage)

    def stage_of(self, error: BaseException) -> str:
        """Where an exception that reached the end of the session came from."""
        if self._failed is not None and self._failed[0] == mark(error):
            return self._failed[1]
        return self.stage

    def count(self, phase: str, began_ns: int, explained_s: float) -> int:
        """Time since `began_ns`, without what phases inside it have explained meanwhile; gives the present instant."""
        now = self.now()
        self.draft.add_phase(phase, now - began_ns, explained_s)
        return now

    def batches(self, loader: Iterable[T], at_hand: dict[str, Any]) -> Iterator[T]:
        """What a loader gives: waiting for it is `load`, the loop's body is `train`. This runs at every step, so one
        ends at the very instant at which the other begins."""
        self.go_on()
        draft, outside, now = self.draft, self.stage, self.now
        iterator = iter(loader)
        began = now()
        try:
            while True:
                before, self.stage = self.stage, "load"
                explained = draft.explained_s
                try:
                    batch = next(iterator, END)
                except BaseException as error:
                    self.count("load", began, explained)
                    self.blame(error, "load")
                    self.stage = OUTSIDE if before == "train" else before
                    raise
                ended = now()
                draft.add_phase("load", ended - began, explained)
                if batch is END:
                    break
                at_hand["batch"] = batch
                draft.batches += 1
                self.stage = "train"
                self._body_ns, self._explained_s = ended, draft.explained_s
                yield batch
                began = now()
                if self._body_ns != OUT:  # as in `end_step`, without a call
                    draft.add_phase("train", began - self._body_ns, self._explained_s)
                    self._body_ns = OUT
        except GeneratorExit:  # the loop was left by `break` or by an exception, which cannot be told from here
            self.end_step()
            self._left = True
            raise
        self.stage = outside

    def end_step(self) -> int:
        """The loop's body is over, or the session is: an exception may leave the loop suspended in its body. Gives the
        present instant."""
        now, body_ns = self.now(), self._body_ns
        if body_ns != OUT:
            self._body_ns = OUT
            self.draft.add_phase("train", now - body_ns, self._explained_s)
        return now


class ClientPhase(PhaseSession):
    """A phase whose seconds are added to the participation; an exception in it leaves its name as the stage."""

    def __init__(self, recorder: Recorder, watch: Stopwatch, name: str, attributes: dict[str, Any]) -> None:
        draft = watch.draft
        super().__init__(
            recorder, name, round=draft.round, client=draft.client, attempt=draft.attempt, attributes=attributes
        )
        self._watch = watch
        self._outside = OUTSIDE
        self._explained_s = 0.0

    def __enter__(self) -> Self:
        self._watch.go_on()
        self._outside, self._watch.stage = self._watch.stage, self.name
        self._explained_s = self._watch.draft.explained_s
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.count(self._phase(), self._start_ns, self._explained_s)
        self._watch.stage = self._outside
        if error is not None:
            self._watch.blame(error, self.name)
        super().__exit__(kind, error, trace)
