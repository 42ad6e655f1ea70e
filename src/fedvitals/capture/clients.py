"""One client's participation, from the loop that trains it: `with rnd.client(cid) as c`."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterable, Iterator
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from fedvitals.capture import context
from fedvitals.capture.draft import Draft
from fedvitals.capture.harmless import harmless
from fedvitals.capture.logs import LONGEST_TRACEBACK
from fedvitals.capture.resources import peak_rss_bytes
from fedvitals.capture.shapes import shapes_of
from fedvitals.capture.spans import SpanSession, as_json
from fedvitals.vocabulary import Failure, Outcome

if TYPE_CHECKING:
    from fedvitals.capture.buffer import CohortBuffer
    from fedvitals.capture.models import Reference
    from fedvitals.capture.recorder import Recorder
    from fedvitals.capture.tensors import Source

T = TypeVar("T")

LONGEST_MESSAGE = 2_000


class ClientSession:
    """Times the client, keeps its failure, and judges the model it submits against the model of the round."""

    def __init__(
        self, recorder: Recorder, draft: Draft, buffer: CohortBuffer | None, own: Reference | None = None
    ) -> None:
        self.recorder = recorder
        self.draft = draft
        self._buffer = buffer
        self._own = own  # the model it received, when there is no round that has it
        self._token: Token[context.Whereabouts] | None = None
        self._submitted = False
        self._stage = "client"
        self._open_phases = 0
        self._shapes: dict[str, Any] = {}

    # -- what the training calls

    @harmless
    def watch(self, model: Any) -> None:
        """Look at the gradients of sampled steps, and take the fingerprint of the model as it was received."""
        from fedvitals.capture.probe import GradientProbe

        flattener, sketcher = self._flattener(model)
        row = flattener.row(model)
        self.draft.received = flattener.fingerprint(row)
        if self._buffer is None and self._own is None:
            from fedvitals.capture.models import Reference

            version = self.draft.base_version
            self._own = Reference(flattener, sketcher, row, version, self.draft.received)
        if self.draft.probe is None:
            self.draft.probe = GradientProbe(model, self.recorder.governor, self.recorder.trouble).__enter__()
            self.recorder.governor.review()

    def phase(self, name: str, *, bytes: int | None = None, **attributes: Any) -> SpanSession:
        """Time a phase of the client's work; `bytes` are what went over the wire in it."""
        if bytes is not None:
            attributes["bytes"] = bytes
            self._count_bytes(name, bytes)
        self._stage = name
        return _ClientPhase(self, name, attributes)

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """Go through a loader: its time counts as `load`, the loop's body as `train`; steps are counted."""
        now = self.recorder.now
        draft = self.draft
        draft.epochs = (draft.epochs or 0) + (0 if draft.explicit_epochs else 1)
        draft.steps = draft.steps or 0
        iterator = iter(loader)
        while True:
            began = now()
            self._stage = "load"
            try:
                batch = next(iterator)
            except StopIteration:
                draft.add_phase("load", (now() - began) / 1e9)
                self._stage = "client"
                return
            loaded = now()
            draft.add_phase("load", (loaded - began) / 1e9)
            self._shapes = {"batch": batch}
            self._stage = "train"
            draft.steps += 1
            inside = sum(draft.phases_s.values())
            yield batch
            # Phases that the body names itself are not counted as training once more.
            named = sum(draft.phases_s.values()) - inside
            draft.add_phase("train", max((now() - loaded) / 1e9 - named, 0.0))

    @contextlib.contextmanager
    def epoch(self) -> Iterator[None]:
        """Mark an epoch; then `batches` no longer counts a pass over the loader as one."""
        if not self.draft.explicit_epochs:
            self.draft.explicit_epochs, self.draft.epochs = True, 0
        self.draft.epochs = (self.draft.epochs or 0) + 1
        yield

    @harmless
    def step(self, loss: Any = None) -> None:
        """Tell of a step, where no torch optimizer and no `batches` does. The loss may be a tensor."""
        self.draft.own_steps += 1
        if loss is not None:
            self.draft.losses.append(loss.detach() if hasattr(loss, "detach") else loss)

    @harmless
    def submit(
        self,
        /,
        state: Any,
        *,
        loss: Any = None,
        accuracy: Any = None,
        wire_bytes: int | None = None,
        **metrics: Any,
    ) -> None:
        """Hand over the trained model: a state dict, a module or a list of arrays."""
        draft = self.draft
        draft.loss = loss.detach() if hasattr(loss, "detach") else loss
        draft.accuracy = accuracy.detach() if hasattr(accuracy, "detach") else accuracy
        draft.metrics.update(metrics)
        draft.wire_bytes_up = wire_bytes if wire_bytes is not None else draft.wire_bytes_up
        self._shapes = {"state": state}
        self._finish_watching()
        buffer = self._buffer_for_update()
        if buffer is None:
            return
        draft.raw_bytes_up = _raw_bytes(buffer.reference)
        draft.end_ns = self.recorder.now()
        try:
            buffer.add_state(draft, state)
            self._submitted = True
        except ValueError as error:
            self._fail("submit", "shape mismatch", str(error), None)

    # -- the session itself

    def __enter__(self) -> Self:
        where = context.current()
        self._token = context.enter(where._replace(round=self.draft.round, client=self.draft.client))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)
        context.leave(self._token)

    @harmless
    def _end(self, error: BaseException | None) -> None:
        draft = self.draft
        draft.end_ns = self.recorder.now()
        draft.peak_memory_bytes = peak_rss_bytes()
        self._finish_watching()
        if error is not None:
            draft.outcome = Outcome.FAILED
            text = "".join(traceback.format_exception(error))[-LONGEST_TRACEBACK:]
            self._fail(self._stage, type(error).__name__, str(error), text)
        self._write()

    def _write(self) -> None:
        if not self._submitted:
            if self._buffer is not None:
                self._buffer.add_steps(self.draft)  # a client that failed is the one whose gradients are wanted
            self.recorder.emit([self.draft.record()])
        elif self._buffer is not None:
            self._buffer.finish() if self._own is not None else self._buffer.amend(self.draft)

    def _fail(self, stage: str, kind: str, message: str, text: str | None) -> None:
        draft = self.draft
        shapes = shapes_of(self._shapes)
        failure = Failure(
            at_ns=self.recorder.now(),
            stage=stage,
            kind=kind,
            message=message[:LONGEST_MESSAGE],
            round=draft.round,
            client=draft.client,
            attempt=draft.attempt,
            traceback=text,
            shapes=as_json(shapes) if shapes else None,
        )
        self.recorder.emit([failure])

    def _finish_watching(self) -> None:
        draft = self.draft
        if draft.probe is not None and not draft.watched:
            draft.probe.__exit__(None, None, None)
            draft.watched = True
            draft.steps = max(draft.steps or 0, draft.probe.steps_seen, draft.own_steps) or None
        elif draft.own_steps:
            draft.steps = max(draft.steps or 0, draft.own_steps)

    def _flattener(self, model: Source) -> Any:
        if self._buffer is not None and self._buffer.reference.flattener.fits(model):
            return self._buffer.reference.flattener, self._buffer.reference.sketcher
        return self.recorder.models.flattener(model)

    def _buffer_for_update(self) -> CohortBuffer | None:
        if self._buffer is None and self._own is not None:
            from fedvitals.capture.buffer import CohortBuffer

            self._buffer = CohortBuffer(self.recorder, self._own, self.draft.round)
        return self._buffer

    def _count_bytes(self, phase: str, count: int) -> None:
        draft = self.draft
        if phase == "download":
            draft.wire_bytes_down = (draft.wire_bytes_down or 0) + count
        elif phase == "upload":
            draft.wire_bytes_up = (draft.wire_bytes_up or 0) + count


class _ClientPhase(SpanSession):
    """A phase whose seconds are added to the participation; an exception in it leaves its name as the stage."""

    def __init__(self, session: ClientSession, name: str, attributes: dict[str, Any]) -> None:
        draft = session.draft
        super().__init__(
            session.recorder,
            name,
            round=draft.round,
            client=draft.client,
            attempt=draft.attempt,
            attributes=attributes,
            on_end=draft.add_phase,
        )
        self._session = session

    def __enter__(self) -> Self:
        self._session._stage = self.name
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is None:
            self._session._stage = "client"


def _raw_bytes(reference: Reference) -> int:
    return 4 * reference.flattener.size
