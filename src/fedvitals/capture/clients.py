"""One client's participation, from the loop that trains it: `with rnd.client(cid) as c`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsInt, TypeVar

from fedvitals.capture import context
from fedvitals.capture.attributes import as_json
from fedvitals.capture.draft import Draft, kept_apart, kept_metric, whole
from fedvitals.capture.failures import message_of, traceback_of
from fedvitals.capture.harmless import harmless, harmless_or
from fedvitals.capture.nothing import NO_SPAN, Timed
from fedvitals.capture.phase_memory import Held
from fedvitals.capture.resources import peak_rss_bytes
from fedvitals.capture.shapes import shapes_of
from fedvitals.capture.stopwatch import OUTSIDE, ClientPhase, Stopwatch
from fedvitals.vocabulary import Failure, Level, Outcome

if TYPE_CHECKING:
    from fedvitals.capture.buffer import CohortBuffer
    from fedvitals.capture.models import Reference
    from fedvitals.capture.recorder import Recorder
    from fedvitals.capture.tensors import Source

T = TypeVar("T")


class ClientSession:
    """Times the client, keeps its failure, and judges the model it submits against the model of the round."""

    def __init__(
        self,
        recorder: Recorder,
        draft: Draft,
        buffer: CohortBuffer | None,
        own: Reference | None = None,
        *,
        asynchronous: bool = False,
    ) -> None:
        self.recorder = recorder
        self.draft = draft
        self._buffer = buffer
        self._own = own  # the model it received, when there is no round that has it
        self._asynchronous = asynchronous  # versions go on while it trains
        self._where: context.Whereabouts | None = None
        self._submitted = False
        self._watch = Stopwatch(draft, recorder.clock)
        self._held: Held | None = None  # its memory, from its beginning to its end
        self._at_hand: dict[str, Any] = {}  # whose shapes a failure is kept with

    # -- what the training calls

    @harmless
    def watch(self, model: Any) -> None:
        """Look at the gradients of sampled steps, and take the fingerprint of the model as it was received."""
        self.draft.received = self._fingerprint(model)
        if self.draft.probe is None and hasattr(model, "named_parameters"):
            reference = self._own if self._buffer is None else self._buffer.reference
            layers = None if reference is None else reference.flattener
            self.draft.probe = self.recorder.models.probes.watching(model, layers)
            self.recorder.governor.review()

    @harmless_or(NO_SPAN)
    def phase(self, /, name: str, *, bytes: SupportsInt | None = None, **attributes: Any) -> Timed:
        """Time a phase of the client's work; `bytes` are what went over the wire in it."""
        count = whole(bytes)
        if count is not None:
            attributes["bytes"] = count
            self._count_bytes(name, count)
        return ClientPhase(self.recorder, self._watch, name, attributes)

    @harmless_or(NO_SPAN)
    def allocations(self, /, name: str = "allocations", *, most: int = 32) -> Timed:
        """Which operations of this client's training allocate memory, as `run.allocations` finds out."""
        from fedvitals.capture.allocations import AllocationSession

        draft = self.draft
        whose: dict[str, Any] = {"round": draft.round, "client": draft.client, "attempt": draft.attempt}
        return AllocationSession(self.recorder, name, most=most, **whose)

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """Go through a loader: its time counts as `load`, the loop's body as `train`; steps are counted."""
        if not self.draft.explicit_epochs:
            self.draft.epochs = (self.draft.epochs or 0) + 1
        return self._watch.batches(loader, self._at_hand)

    def epoch(self) -> nullcontext[None]:
        """Mark an epoch, as a call or around it with `with`; then `batches` no longer counts passes as epochs."""
        if not self.draft.explicit_epochs:
            self.draft.explicit_epochs, self.draft.epochs = True, 0
        self.draft.epochs = (self.draft.epochs or 0) + 1
        return nullcontext()

    @harmless
    def step(self, loss: Any = None) -> None:
        """Tell of a step, where no torch optimizer and no `batches` does. The loss may be a tensor."""
        self.draft.own_steps += 1
        if loss is not None:
            self.draft.losses.append(kept_apart(loss))

    @harmless
    def submit(
        self,
        /,
        state: Any,
        *,
        loss: Any = None,
        accuracy: Any = None,
        wire_bytes: SupportsInt | None = None,
        outcome: str = Outcome.USED,
        **metrics: Any,
    ) -> None:
        """Hand over the trained model: a state dict, a module or a list of arrays. The first one counts.

        `outcome` says so when it came too late or was dropped; `rnd.rejected` is for what is left out afterwards.
        """
        if self._submitted:
            raise ValueError(f"client {self.draft.client} submitted twice; only its first model is recorded")
        self._watch.go_on()
        draft = self.draft
        draft.loss, draft.accuracy = kept_apart(loss), kept_apart(accuracy)
        for name, value in metrics.items():
            draft.metrics[name] = kept_metric(value)
        draft.wire_bytes_up = whole(wire_bytes) if wire_bytes is not None else draft.wire_bytes_up
        draft.outcome = outcome if type(outcome) is Outcome else Outcome(outcome)
        self._at_hand["state"] = state
        self._finish_watching()
        self._settle_version()
        buffer = self._buffer_for_update()
        if buffer is None:
            self._take_unjudged(state)
            return
        draft.raw_bytes_up = buffer.reference.raw_bytes
        draft.end_ns = self.recorder.now()
        try:
            buffer.add_state(draft, state)
            self._submitted = True
        except ValueError as error:
            self._fail("submit", "shape mismatch", message_of(error), None)

    # -- the session itself

    def __enter__(self) -> Self:
        draft, owner = self.draft, self.recorder
        if owner.alive and owner.memory.wants(OUTSIDE):
            self._held = owner.memory.begin(OUTSIDE)
        draft.start_ns = owner.now()
        where = context.Whereabouts(owner.run.id, draft.round, draft.client, id(owner))
        self._where = context.enter(where)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_watching()
        self._end(error)
        where, self._where = self._where, None
        context.leave(where)

    @harmless
    def _end(self, error: BaseException | None) -> None:
        draft = self.draft
        draft.end_ns = self.recorder.now()
        self._measure()
        if not self._submitted:
            self._settle_version()
        if error is not None:
            draft.outcome = Outcome.FAILED
            self.recorder.kept_error(error)
            stage = self._watch.stage_of(error)
            self._fail(stage, type(error).__name__, message_of(error), traceback_of(error))
        self._at_hand.clear()  # the last batch and the model are not ours to keep alive
        self._write()

    def _measure(self) -> None:
        held, self._held = self._held, None
        draft, memory = self.draft, self.recorder.memory
        if held is not None:
            draft.memory = memory.end(held)
        elif draft.end_ns - draft.start_ns >= memory.long_ns:
            memory.lasted(OUTSIDE, draft.end_ns - draft.start_ns)
        known = memory.meter.known_peak_bytes  # looked at just now, where it was measured
        draft.peak_memory_bytes = known if draft.memory else peak_rss_bytes()

    @harmless
    def _stop_watching(self) -> None:
        """First of all: whatever goes wrong afterwards, no hook stays behind."""
        self._watch.end_step()
        self._finish_watching()

    def _write(self) -> None:
        if self._submitted and self._buffer is not None:
            self._buffer.amend(self.draft)
            if self._own is not None:
                self._buffer.finish()
            return
        if self.draft.probe is not None:  # a client that failed is the one whose gradients are wanted
            buffer = self._buffer_for_update()
            if buffer is not None:
                buffer.add_steps(self.draft)
        self.recorder.emit([self.draft.record()])

    def _fail(self, stage: str, kind: str, message: str, text: str | None) -> None:
        draft = self.draft
        shapes = shapes_of(self._at_hand)
        failure = Failure(
            at_ns=self.recorder.now(),
            stage=stage,
            kind=kind,
            message=message,
            round=draft.round,
            client=draft.client,
            attempt=draft.attempt,
            traceback=text,
            shapes=as_json(shapes) if shapes else None,
        )
        self.recorder.emit([failure])

    def _finish_watching(self) -> None:
        """No more steps are looked at. An optimizer's own count is the surest, then what the training told."""
        draft = self.draft
        if draft.probe is not None and not draft.watched:
            draft.probe.__exit__(None, None, None)
            draft.watched = True
            draft.steps = draft.probe.steps_seen or None
            if draft.probe.tensor_bytes is not None:
                whose: dict[str, Any] = {"round": draft.round, "client": draft.client, "attempt": draft.attempt}
                self.recorder.tensors.keep(draft.probe.tensor_bytes, **whose)
        if draft.steps is None or not draft.watched:
            draft.steps = draft.own_steps or self._watch.steps or None

    def _take_unjudged(self, state: Any) -> None:
        """A run whose updates nobody can judge looks like a healthy one: that is said. What is not finite is counted
        all the same, where there are models: then it takes no longer than to judge the update would."""
        owner = self.recorder
        if state is None or "RoundSession._take_model" in owner.troubles:
            return
        if owner.latest_version < 0:
            how = "run.version(model)" if self._asynchronous else "run.round(number, model=global_model)"
            owner.trouble("submit", ValueError(f"there is no model to judge updates by; {how} gives one"))
            return
        if self._asynchronous:
            gone = f"version {self.draft.base_version} of the model, which client {self.draft.client} began with, is"
            found = f"{gone} not among the last ones that are kept: of such updates only values that are not finite are"
            owner.trouble("a late update", ValueError(f"{found} told; c.watch(model) before training keeps the model"))
        if owner.settings.level != Level.SEALED:
            self.draft.nonfinite = owner.models.nonfinite(state)

    def _settle_version(self) -> None:
        """How stale the update is, now that it arrives: others may have been applied while it was made."""
        if self._asynchronous:
            latest = self.recorder.latest_version
            self.draft.staleness = max(latest - self.draft.base_version, 0)
            self.draft.applied_version = latest + 1

    def _fingerprint(self, model: Source) -> str:
        """Of the model it received: mostly that of the round, bit by bit, whose fingerprint is known."""
        if self._buffer is not None:
            try:
                return self._buffer.reference.fingerprint_of(model)
            except ValueError:  # it has other layers
                pass
        from fedvitals.capture.models import Reference

        flattener, sketcher = self.recorder.models.flattener(model)
        found = Reference(flattener, sketcher, flattener.row(model), self.draft.base_version)
        if self._buffer is None and self._own is None:
            self._own = found
        return found.fingerprint

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
