"""One round: `with run.round(r, model=global_model) as rnd`."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fedvitals.capture import context
from fedvitals.capture.clients import ClientSession
from fedvitals.capture.draft import Draft, number
from fedvitals.capture.harmless import harmless
from fedvitals.capture.nothing import NoCohort
from fedvitals.capture.spans import SpanSession, as_json
from fedvitals.vocabulary import Evaluation, Failure, Outcome, Participation, Record, Round

if TYPE_CHECKING:
    from fedvitals.capture.buffer import CohortBuffer
    from fedvitals.capture.cohorts import CohortSession
    from fedvitals.capture.recorder import Recorder
    from fedvitals.capture.remote import Ticket


class RoundSession:
    """Gives out the sessions of a round's clients and writes the round when it is over."""

    def __init__(self, recorder: Recorder, round_number: int, model: Any = None) -> None:
        self.recorder = recorder
        self.number = round_number
        self.version = next(recorder.versions)
        self.buffer: CohortBuffer | None = None
        self._model = model
        self._token: Token[context.Whereabouts] | None = None
        self._start_ns = 0
        self._drafts: list[Draft] = []
        self._cohort_clients = 0
        self._remote_failed = 0
        self.tickets: dict[str, Ticket] = {}  # by client
        self._remote = 0
        self._selected = 0

    def client(self, client: Any, *, samples: int | None = None) -> ClientSession:
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
            draft.raw_bytes_down = 4 * self.buffer.reference.flattener.size
        self._drafts.append(draft)
        return ClientSession(self.recorder, draft, self.buffer)

    def cohort(
        self, ids: Sequence[Any], *, samples: Sequence[int] | None = None, attempts: Sequence[int] | None = None
    ) -> CohortSession | NoCohort:
        """Clients that are trained as one batch. Needs the round's model; without it nothing is recorded of them."""
        if self.buffer is None:
            self.recorder.trouble("rnd.cohort", ValueError("it needs the round's model: run.round(r, model=...)"))
            return NoCohort()
        from fedvitals.capture.cohorts import CohortSession

        names = [str(client) for client in ids]
        self._cohort_clients += len(names)
        # Who counts attempts for itself, as the engine does, need not have them counted here as well.
        numbers = [self.recorder.next_attempt(name) for name in names] if attempts is None else attempts
        return CohortSession(self.recorder, self.buffer, self.number, names, numbers, samples)

    def selected(self, count: int) -> None:
        """How many clients were asked, where not each of them gets a session."""
        self._selected = count

    def phase(self, name: str, **attributes: Any) -> SpanSession:
        """A phase of the server's work: select, aggregate, evaluate ..."""
        return SpanSession(self.recorder, name, round=self.number, attributes=attributes, on_end=_nothing)

    @harmless
    def evaluated(
        self,
        /,
        *,
        loss: Any = None,
        accuracy: Any = None,
        client: Any = None,
        split: str = "test",
        samples: int | None = None,
        **metrics: Any,
    ) -> None:
        """What an evaluation found: of the global model, or on one client's own rows."""
        self.recorder.emit(
            [
                Evaluation(
                    round=self.number,
                    at_ns=self.recorder.now(),
                    split=split,
                    client=None if client is None else str(client),
                    samples=samples,
                    loss=number(loss),
                    accuracy=number(accuracy),
                    metrics=as_json(metrics) if metrics else None,
                )
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
    ) -> None:
        """A client that failed elsewhere than in a session: in a worker, or by not answering."""
        name, now = str(client), self.recorder.now()
        draft = Draft(
            client=name,
            attempt=self.recorder.next_attempt(name) if attempt is None else attempt,
            round=self.number,
            base_version=self.version,
            start_ns=now if start_ns is None else start_ns,
            end_ns=now if end_ns is None else end_ns,
            outcome=outcome,
            executor=executor,
        )
        failure = Failure(now, stage, kind, message[:2000], self.number, name, draft.attempt, traceback)
        self._drafts.append(draft)
        self.recorder.emit([failure, draft.record()])

    def ticket(self, client: Any) -> bytes:
        """What to send along to a client that records for itself: `fedvitals.client_session(ticket)`."""
        from fedvitals.capture.remote import make_ticket

        return make_ticket(self, str(client))

    @harmless
    def merge(self, data: bytes, *, client: Any) -> None:
        """Take in what a client recorded. The bytes are untrusted; bad ones become a Failure and one warning."""
        from fedvitals.capture.remote import merge

        merge(self, data, str(client))

    def merged(self, records: Sequence[Record]) -> None:
        """Count a client that reported from afar."""
        for record in records:
            if isinstance(record, Participation):
                self._remote += 1
                self._remote_failed += record.outcome == Outcome.FAILED

    def __enter__(self) -> Self:
        self._start_ns = self.recorder.now()
        self._token = context.enter(context.current()._replace(run=self.recorder.run.id, round=self.number))
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish(error)
        context.leave(self._token)

    @harmless
    def _begin(self) -> None:
        if self._model is not None:
            from fedvitals.capture.buffer import CohortBuffer

            reference = self.recorder.models.reference(self._model, self.number, self.version)
            self.buffer = CohortBuffer(self.recorder, reference, self.number)
            self._model = None
        self.recorder.emit([self._record(None, None)])

    @harmless
    def _finish(self, error: BaseException | None) -> None:
        if self.buffer is not None:
            self.buffer.finish()
        text = None if error is None else f"{type(error).__name__}: {error}"[:2000]
        self.recorder.emit([self._record(self.recorder.now(), text)])
        self.recorder.governor.review()

    def _record(self, end_ns: int | None, error: str | None) -> Round:
        failed = self._remote_failed + sum(draft.outcome != Outcome.USED for draft in self._drafts)
        asked = max(len(self.tickets), self._remote)
        selected = max(len(self._drafts) + self._cohort_clients + asked, self._selected)
        return Round(
            number=self.number,
            version=self.version,
            start_ns=self._start_ns,
            end_ns=end_ns,
            selected=selected,
            used=max(selected - failed, 0),
            failed=failed,
            fingerprint=self.buffer.reference.fingerprint if self.buffer is not None else None,
            error=error,
        )


def _nothing(phase: str, seconds: float) -> None:
    """A server's phase adds to no participation; its span says it all."""
