"""One round: `with run.round(r, model=global_model) as rnd`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsInt

from fedvitals.capture import context
from fedvitals.capture.attributes import as_json
from fedvitals.capture.clients import ClientSession
from fedvitals.capture.draft import Draft, number, whole
from fedvitals.capture.failures import LONGEST_MESSAGE, in_words, message_of, traceback_of
from fedvitals.capture.harmless import harmless, harmless_or
from fedvitals.capture.members import Members
from fedvitals.capture.nothing import NO_SPAN, NoClient, NoCohort, Timed
from fedvitals.capture.spans import PhaseSession
from fedvitals.vocabulary import Evaluation, Failure, Finding, Outcome, Participation, Record, Round

if TYPE_CHECKING:
    from fedvitals.capture.buffer import CohortBuffer
    from fedvitals.capture.cohorts import CohortSession, Whole
    from fedvitals.capture.recorder import Recorder
    from fedvitals.capture.remote import Ticket


class RoundSession:
    """Gives out the sessions of a round's clients and writes the round when it is over."""

    def __init__(
        self,
        recorder: Recorder,
        round_number: int,
        model: Any = None,
        verdicts: Callable[[int], Mapping[object, tuple[Finding, ...]]] | None = None,
    ) -> None:
        self.recorder = recorder
        self._judge = verdicts
        self.number = round_number
        of_the_latest = model is None and recorder.by_version
        self.version = recorder.latest_version if of_the_latest else next(recorder.versions)
        self.buffer: CohortBuffer | None = None
        self.tickets: dict[str, dict[str, Ticket]] = {}  # by client and trace: one may be asked again
        self._model = model
        self._where: context.Whereabouts | None = None
        self._start_ns = recorder.now()
        self._members = Members()
        self._end_ns: int | None = None
        self._error: str | None = None

    @harmless_or(NoClient())
    def client(self, client: Any, *, samples: SupportsInt | None = None) -> ClientSession:
        """One client of this round; failures inside it are kept and raised again unchanged."""
        name = str(client)
        draft = Draft(
            client=name,
            attempt=self.recorder.next_attempt(name),
            round=self.number,
            base_version=self.version,
            applied_version=self.version + 1,
            staleness=0,
            start_ns=self.recorder.now(),
            samples=samples,
        )
        if self.buffer is not None:
            draft.raw_bytes_down = self.buffer.reference.raw_bytes
        self._members.drafts.append(draft)
        return ClientSession(self.recorder, draft, self.buffer)

    @harmless_or(NoCohort())
    def cohort(
        self, ids: Sequence[Any], *, samples: Whole | None = None, attempts: Sequence[int] | None = None
    ) -> CohortSession:
        """Clients that are trained as one batch. Needs the round's model; without it nothing is recorded of them."""
        if self.buffer is None:
            raise ValueError("a cohort needs the model of its round: run.round(r, model=...)")
        from fedvitals.capture.cohorts import CohortSession

        names = [str(client) for client in ids]
        # Who counts attempts for itself, as the engine does, need not have them counted here as well.
        numbers = [self.recorder.next_attempt(name) for name in names] if attempts is None else attempts
        session = CohortSession(self.recorder, self.buffer, self.number, names, numbers, samples)
        self._members.cohorts.append(session)
        return session

    @harmless
    def selected(self, count: int) -> None:
        """How many clients were asked, where not each of them gets a session."""
        self._members.asked = int(count)
        if self.buffer is not None:
            self.buffer.expected = self._members.asked

    @harmless_or(NO_SPAN)
    def phase(self, /, name: str, **attributes: Any) -> Timed:
        """A phase of the server's work: select, aggregate, evaluate ..."""
        return PhaseSession(self.recorder, name, (self.number, None, None), attributes)

    @harmless_or(NO_SPAN)
    def allocations(self, /, name: str = "allocations", *, most: int = 32) -> Timed:
        """Which operations of the server's work allocate memory, as `run.allocations` finds out."""
        from fedvitals.capture.allocations import AllocationSession

        return AllocationSession(self.recorder, name, most=most, round=self.number)

    @harmless
    def evaluated(
        self,
        /,
        *,
        loss: Any = None,
        accuracy: Any = None,
        client: Any = None,
        split: str = "test",
        samples: SupportsInt | None = None,
        **metrics: Any,
    ) -> None:
        """What an evaluation found: of the global model, or on one client's own rows."""
        self.recorder.notes.record(
            Evaluation(
                round=self.number,
                at_ns=self.recorder.now(),
                split=str(split),
                client=None if client is None else str(client),
                samples=whole(samples),
                loss=number(loss),
                accuracy=number(accuracy),
                metrics=as_json(metrics) if metrics else None,
            )
        )

    @harmless
    def evaluated_each(
        self,
        clients: Sequence[Any],
        *,
        losses: Sequence[Any],
        accuracies: Sequence[Any],
        samples: Sequence[SupportsInt],
        split: str = "holdout",
    ) -> None:
        """What an evaluation found on each client's own rows, of many clients at once."""
        now = self.recorder.now()
        found = zip(clients, losses, accuracies, samples, strict=True)
        self.recorder.emit(
            [
                Evaluation(self.number, now, str(split), str(client), whole(rows), number(loss), number(accuracy))
                for client, loss, accuracy, rows in found
            ]
        )

    @harmless
    def failed(
        self,
        client: Any,
        *,
        stage: str,
        kind: str,
        message: str,
        traceback: str | None = None,
        attempt: int | None = None,
        start_ns: int | None = None,
        end_ns: int | None = None,
        executor: str | None = None,
        outcome: Outcome = Outcome.FAILED,
        wire_bytes_down: int | None = None,
        phases_s: Mapping[str, float | None] | None = None,
        base_version: int | None = None,
    ) -> None:
        """A client that failed elsewhere than in a session: in a worker, or by not answering."""
        name, now = str(client), self.recorder.now()
        draft = Draft(
            client=name,
            attempt=self.recorder.next_attempt(name) if attempt is None else attempt,
            round=self.number,
            base_version=self.version if base_version is None else base_version,
            start_ns=now if start_ns is None else start_ns,
            end_ns=now if end_ns is None else end_ns,
            outcome=Outcome(outcome),
            executor=executor,
            raw_bytes_down=None if self.buffer is None else self.buffer.reference.raw_bytes,
            wire_bytes_down=wire_bytes_down,
            phases_s={phase: seconds for phase, seconds in (phases_s or {}).items() if seconds is not None},
        )
        text = str(message)[:LONGEST_MESSAGE]
        failure = Failure(now, stage, kind, text, self.number, name, draft.attempt, traceback)
        self._members.drafts.append(draft)
        self.recorder.emit([failure, draft.record()])

    @harmless
    def late(
        self,
        client: Any,
        *,
        attempt: int | None = None,
        start_ns: int,
        end_ns: int,
        executor: str | None = None,
        wire_bytes_down: int | None = None,
        phases_s: Mapping[str, float] | None = None,
        base_version: int | None = None,
    ) -> None:
        """A client that the round did not wait for, and of whom there is no update: no failure, but not used. One that
        began with `base_version`, in a training without rounds, is still at work and not among this one's clients."""
        name = str(client)
        draft = Draft(
            client=name,
            attempt=self.recorder.next_attempt(name) if attempt is None else attempt,
            round=self.number,
            base_version=self.version if base_version is None else base_version,
            staleness=None if base_version is None else self.version - base_version,
            start_ns=start_ns,
            end_ns=end_ns,
            outcome=Outcome.LATE,
            executor=executor,
            raw_bytes_down=None if self.buffer is None else self.buffer.reference.raw_bytes,
            wire_bytes_down=wire_bytes_down,
            phases_s=dict(phases_s or {}),
        )
        if base_version is None:
            self._members.drafts.append(draft)
        self.recorder.emit([draft.record()])

    @harmless
    def rejected(self, clients: Sequence[Any]) -> None:
        """Clients that finished and whose updates were then left out of the aggregate; also after the round."""
        names = [str(client) for client in clients]
        self.recorder.emit(self._members.leave_out(names, compared=self.buffer is not None))
        if self.buffer is not None:
            self.buffer.reject(self._members.left_out)
        if self._end_ns is not None:
            self.recorder.notes.over(self)  # told of once more, with fewer used

    def verdicts(self) -> Mapping[object, tuple[Finding, ...]]:
        """Clients of this round whose updates are known to be bad by now, each with what was found: to be asked before
        they are aggregated, as in `states = [s for cid, s in states if cid not in bad]`; then `rnd.rejected(bad)`.

        Only findings of severity warning or critical that are about this round's updates (integrity, learning, spoilt
        inputs and labels). The round's updates are summarised, written and read back first. That takes the time it
        takes, some milliseconds for a short run: it is not counted against the budget, because it was asked for.
        """
        if self._judge is None or not self.recorder.alive:
            return {}
        began = self.recorder.now()
        if self.buffer is not None:
            self._compare()
        found = self._judge(self.number)
        self.recorder.recorded_since(began)
        return found

    @harmless
    def _compare(self) -> None:
        """Each update with all others of the round that are there by now."""
        self.recorder.flush()
        if self.buffer is not None:
            self.buffer.compare()

    @harmless_or(b"")
    def ticket(self, client: Any) -> bytes:
        """What to send along to a client that records for itself: `fedvitals.client_session(ticket)`."""
        from fedvitals.capture.remote import make_ticket

        return make_ticket(self, str(client))

    @harmless
    def merge(self, data: bytes, *, client: Any, outcome: str = Outcome.USED) -> None:
        """Take in what a client recorded. The bytes are untrusted; bad ones become a Failure and one warning.

        `outcome` is the server's word on what became of an update that the client made: used, late, rejected, dropped.
        """
        from fedvitals.capture.merging import merge

        merge(self, data, str(client), Outcome(outcome))

    def merged(self, records: Sequence[Record]) -> None:
        """Count a client that reported from afar."""
        self._members.far += [record for record in records if isinstance(record, Participation)]

    def __enter__(self) -> Self:
        self._start_ns = self.recorder.now()
        self._where = context.enter(context.Whereabouts(self.recorder.run.id, self.number, owner=id(self.recorder)))
        self._take_model()
        self._begin()
        self.recorder.recorded_since(self._start_ns)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        began = self.recorder.now()
        self._keep(error)
        self._finish(error)
        self.recorder.recorded_since(began)
        where, self._where = self._where, None
        context.leave(where)

    @harmless
    def _take_model(self) -> None:
        model, self._model = self._model, None
        if model is not None:
            from fedvitals.capture.buffer import CohortBuffer

            reference = self.recorder.models.reference(model, self.number, self.version)
            self.buffer = CohortBuffer(self.recorder, reference, self.number)
            self.recorder.tensors.of_server(model, reference.flattener.layout.id)

    @harmless
    def _begin(self) -> None:
        self.recorder.notes.begun(self)

    def beginning(self) -> Round:
        """What there is to tell of a round that is going on."""
        return self._record(None, None)

    def whole(self) -> Round:
        """What there is to tell of a round that is over."""
        return self._record(self._end_ns, self._error)

    @harmless
    def _keep(self, error: BaseException | None) -> None:
        """An exception that ends the round, unless it is that of a client, whose session has kept it."""
        if error is not None and not self.recorder.is_kept(error):
            kind, trace = type(error).__name__, traceback_of(error)
            now = self.recorder.now()
            self.recorder.emit([Failure(now, "round", kind, message_of(error), self.number, traceback=trace)])

    @harmless
    def _finish(self, error: BaseException | None) -> None:
        if self.buffer is not None:
            self.buffer.finish()
        self._end_ns, self._error = self.recorder.now(), None if error is None else in_words(error)
        self.recorder.notes.over(self)
        self.recorder.round_over(self.number)
        self.recorder.governor.review()

    def _record(self, end_ns: int | None, error: str | None) -> Round:
        counts = self._members.counts(self.tickets)
        return Round(
            number=self.number,
            version=self.version,
            start_ns=self._start_ns,
            end_ns=end_ns,
            selected=counts.clients,
            used=counts.used,
            failed=counts.failed,
            fingerprint=self.buffer.reference.fingerprint if self.buffer is not None else None,
            error=error,
        )
