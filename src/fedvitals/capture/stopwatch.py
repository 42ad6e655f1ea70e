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

OUTSIDE = "client"  # the stage of a client that is in no phase


class Loop:
    """One pass over a loader that is going on. What it took altogether, less the waiting for batches, is training."""

    __slots__ = ("batches", "began_ns", "covered", "explained_s", "load_explained_s", "load_ns")

    def __init__(self, began_ns: int, draft: Draft) -> None:
        self.began_ns = began_ns
        self.load_ns = 0
        self.load_explained_s = 0.0  # by phases inside the loader
        self.explained_s = draft.explained_s  # what was explained when it began
        self.batches = 0  # handed out
        self.covered = False  # another one began in its body and goes on


class Stopwatch:
    """Of one participation. `clock` is the run's, wherever that begins: only differences count here."""

    __slots__ = ("_beside", "_clock", "_failed", "_left", "_loops", "draft", "stage")

    def __init__(self, draft: Draft, clock: Callable[[], int]) -> None:
        self.draft = draft
        self.stage = OUTSIDE
        self._clock = clock
        self._failed: tuple[tuple[Any, ...], str] | None = None
        self._left = False  # a loop was left in its body, and nothing was told since
        self._loops: list[Loop] = []  # that are going on, the innermost last
        self._beside: list[Loop] = []  # that go on beside one of these: their batches are part of its steps

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

    def batches(self, loader: Iterable[T], at_hand: dict[str, Any]) -> Iterator[T]:
        """What a loader gives: waiting for it is `load`, the loop's body is `train`. This runs at every step, so all
        but the waiting is worked out when the loop is over."""
        self.go_on()
        draft, clock, outside = self.draft, self._clock, self.stage
        iterator = iter(loader)
        self.stage = "train"
        began, explained, loading = clock(), draft.explained_s, True
        loop = Loop(began, draft)
        if self._loops:
            self._loops[-1].covered = True
        self._loops.append(loop)
        try:
            for batch in iterator:
                loop.load_ns += clock() - began
                if draft.explained_s != explained:
                    loop.load_explained_s += draft.explained_s - explained
                at_hand["batch"] = batch
                loop.batches += 1
                loading = False
                yield batch
                if loop.covered:
                    self._set_beside(loop)
                loading, explained = True, draft.explained_s
                began = clock()
        except GeneratorExit:  # the loop was left by `break` or by an exception, which cannot be told from here
            self._left = self._left or loop in self._loops
            self._end(loop, clock())
            raise
        except BaseException as error:
            if loading:
                self.blame(error, "load")
            self.stage = outside
            raise
        else:
            self.stage = outside
        finally:
            if loading:
                now = clock()
                loop.load_ns += now - began
                loop.load_explained_s += draft.explained_s - explained
                self._end(loop, now)

    @property
    def steps(self) -> int:
        """Batches so far, of loops that are over and of those that go on."""
        return self.draft.batches + sum(loop.batches for loop in self._loops)

    def end_step(self) -> None:
        """The session is over: an exception may leave a loop suspended in its body."""
        if self._loops or self._beside:
            now = self._clock()
            for loop in reversed(self._loops):
                self._end(loop, now)
            self._settle_beside()

    def _set_beside(self, loop: Loop) -> None:
        """It goes on before those that began in its body are over: they go side by side, as in `zip`. Of the others
        only waiting for their batches is told, and their passes and batches are no epochs and steps of their own."""
        loop.covered = False
        if loop not in self._loops:
            return  # it was over when the session was
        after = self._loops.index(loop) + 1
        others, self._loops[after:] = self._loops[after:], []
        self._beside += others
        if not self.draft.explicit_epochs:
            self.draft.epochs = max((self.draft.epochs or 0) - len(others), 1)

    def _settle_beside(self) -> None:
        for loop in self._beside:
            self.draft.add_phase("load", loop.load_ns / 1e9 - loop.load_explained_s)
            loop.load_ns, loop.load_explained_s = 0, 0.0

    def _end(self, loop: Loop, now_ns: int) -> None:
        if self._beside:
            self._settle_beside()
            if loop in self._beside:
                self._beside.remove(loop)
                return
        if loop not in self._loops:
            return  # it was over when the session was
        if loop.covered:  # it is left along with those beside it
            self._set_beside(loop)
            self._settle_beside()
        self._loops.remove(loop)
        if self._loops:
            self._loops[-1].covered = False
        draft = self.draft
        draft.batches += loop.batches
        inside_s = draft.explained_s - loop.explained_s - loop.load_explained_s  # by phases inside its body
        draft.add_phase("load", loop.load_ns / 1e9 - loop.load_explained_s)
        if loop.batches:
            draft.add_phase("train", (now_ns - loop.began_ns - loop.load_ns) / 1e9 - inside_s)


class ClientPhase(PhaseSession):
    """A phase whose seconds are added to the participation; an exception in it leaves its name as the stage."""

    def __init__(self, recorder: Recorder, watch: Stopwatch, name: str, attributes: dict[str, Any]) -> None:
        draft = watch.draft
        super().__init__(recorder, name, (draft.round, draft.client, draft.attempt), attributes)
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
        draft, taken_s = self._watch.draft, (self.recorder.now() - self._start_ns) / 1e9
        draft.add_phase(self._kept_as, taken_s - (draft.explained_s - self._explained_s))
        self._watch.stage = self._outside
        if error is not None:
            self._watch.blame(error, self.name)
        super().__exit__(kind, error, trace)
