"""Client and server apart: the ticket that goes out with the model, and the telemetry that comes back.

The client's id, attempt and round are the server's word: of what a client says about itself only measurements are
taken. The offset between the two clocks comes from the four times of the exchange, as NTP has it.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from fedvitals.capture.clients import ClientSession
from fedvitals.capture.draft import Draft
from fedvitals.capture.nothing import NoClient
from fedvitals.capture.recorder import Recorder
from fedvitals.capture.telemetry import Telemetry, read_telemetry
from fedvitals.capture.wire import pack, unpack
from fedvitals.errors import TelemetryError
from fedvitals.settings import Settings, resolve
from fedvitals.vocabulary import Blob, Failure, Level, Record, Run, Status, StepBlock, UpdateBlock

if TYPE_CHECKING:
    from fedvitals.capture.rounds import RoundSession

log = logging.getLogger("fedvitals")

LONGEST_TICKET = 4_096
MOST_KEPT = 5_000


def make_ticket(rnd: RoundSession, client: str) -> bytes:
    """The bytes for one client; the server remembers what it gave out."""
    trace = secrets.token_hex(8)
    recorder = rnd.recorder
    attempt = recorder.next_attempt(client)
    sent_ns = time.time_ns()
    rnd.tickets[client] = Ticket(trace, attempt, sent_ns, recorder.now())
    words = {
        "v": 1,
        "run": recorder.run.id,
        "round": rnd.number,
        "attempt": attempt,
        "version": rnd.version,
        "trace": trace,
        "sent": sent_ns,
        "model": rnd.buffer.reference.fingerprint if rnd.buffer is not None else None,
        "level": str(recorder.run.level),
        "sketches": recorder.settings.sketches,
    }
    return json.dumps(words, separators=(",", ":")).encode()


class Ticket:
    """What the server remembers of a ticket."""

    def __init__(self, trace: str, attempt: int, sent_unix_ns: int, at_ns: int) -> None:
        self.trace = trace
        self.attempt = attempt
        self.sent_unix_ns = sent_unix_ns
        self.at_ns = at_ns
        self.merged = False


def client_session(ticket: bytes, *, model: Any = None, samples: int | None = None) -> RemoteClient | NoClient:
    """Record on the client's side. A ticket that can't be read gives a session that records nothing."""
    settings = resolve()
    if settings.mode == "off":
        return NoClient()
    try:
        words = _read_ticket(ticket)
        return RemoteClient(words, settings, model, samples)
    except Exception as error:
        log.warning("fedvitals records nothing of this participation: %s", error)
        return NoClient()


class RemoteClient(ClientSession):
    """A ClientSession whose records go into a message instead of a store."""

    def __init__(self, words: dict[str, Any], settings: Settings, model: Any, samples: int | None) -> None:
        own = Settings(**{f.name: getattr(settings, f.name) for f in fields(Settings)} | _asked(words))
        run = Run(words["run"], words["run"], Status.RUNNING, time.time_ns(), Level(own.level))
        self._sink = MemorySink()
        self._words = words
        self._began_unix_ns = time.time_ns()
        recorder = Recorder(run, own, self._sink)
        draft = Draft(
            client="self",
            attempt=words["attempt"],
            round=words["round"],
            base_version=words["version"],
            start_ns=recorder.now(),
            samples=samples,
        )
        super().__init__(recorder, draft, self._reference_buffer(recorder, model, words))
        if self._buffer is not None:
            self.draft.received = self._buffer.reference.fingerprint
        self._bytes: bytes | None = None

    @staticmethod
    def _reference_buffer(recorder: Recorder, model: Any, words: dict[str, Any]) -> Any:
        if model is None:
            return None
        from fedvitals.capture.buffer import CohortBuffer

        return CohortBuffer(
            recorder, recorder.models.reference(model, words["round"], words["version"]), words["round"]
        )

    def to_bytes(self) -> bytes:
        """What to send back beside the update; b"" when nothing could be recorded."""
        if self._bytes is None:
            self._bytes = self._packed() or b""
        return self._bytes

    def _packed(self) -> bytes:
        try:
            self.recorder.flush()
            if self.draft.end_ns == 0:
                self.draft.end_ns = self.recorder.now()
            telemetry = Telemetry.gather(self.draft.record(), self._sink.records)
            header = telemetry.header() | {
                "v": 1,
                "trace": self._words["trace"],
                "began": self._began_unix_ns,
                "ended": time.time_ns(),
                "layers": self._layer_names(),
            }
            return pack(header, telemetry.arrays())
        except Exception as error:
            self.recorder.trouble("to_bytes", error)
            return b""

    def _layer_names(self) -> list[str]:
        return [] if self._buffer is None else [layer.name for layer in self._buffer.reference.flattener.layout.layers]

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        if self._buffer is not None:
            self._buffer.finish()
        self.recorder.close(Status.FAILED if error is not None else Status.FINISHED)


class MemorySink:
    """Keeps records in memory, as many as a message may hold."""

    def __init__(self) -> None:
        self.dropped: dict[str, int] = {}
        self.records: list[Record] = []

    @property
    def cpu_s(self) -> float:
        return 0.0

    def put(self, records: Sequence[Record], size_bytes: int) -> bool:
        room = len(self.records) + len(records) <= MOST_KEPT
        if room:
            self.records += records
        return room

    def nudge(self) -> None:
        """Nothing is written before the message is."""

    def put_blob(self, data: Callable[[], bytes], size_bytes: int, describe: Callable[[str], Blob]) -> bool:
        return False

    def close(self, timeout_s: float) -> bool:
        return True


def merge(rnd: RoundSession, data: bytes, client: str) -> None:
    """Take in a message; a bad one becomes a Failure of that client, once said in the log."""
    try:
        _merge(rnd, data, client)
    except TelemetryError as error:
        recorder = rnd.recorder
        recorder.emit([Failure(recorder.now(), "merge", "bad telemetry", str(error), rnd.number, client)])
        if recorder.troubles["bad telemetry"] == 0:
            log.warning("telemetry of client %s could not be used: %s; the round goes on", client, error)
        recorder.troubles["bad telemetry"] += 1


def _merge(rnd: RoundSession, data: bytes, client: str) -> None:
    ticket = rnd.tickets.get(client)
    if ticket is None:
        raise TelemetryError(f"client {client!r} was given no ticket in round {rnd.number}")
    header, arrays = unpack(data)
    if header.get("trace") != ticket.trace:
        raise TelemetryError("it answers another ticket than this client was given")
    if ticket.merged:
        return
    layout = rnd.buffer.reference.flattener.layout if rnd.buffer is not None else None
    telemetry = read_telemetry(header, arrays, layout)
    offset_ns = _clock_offset(header, ticket)
    records = telemetry.placed(
        client=client,
        attempt=ticket.attempt,
        round=rnd.number,
        version=rnd.version,
        start_ns=ticket.at_ns + _span(header, "began", ticket.sent_unix_ns + offset_ns),
        skew_s=offset_ns / 1e9,
        layout=layout.id if layout is not None else 0,
        next_block=rnd.recorder.next_block,
        next_id=rnd.recorder.next_id,
    )
    ticket.merged = True
    rnd.merged(records)
    size = sum(r.stats.nbytes if isinstance(r, UpdateBlock | StepBlock) else 512 for r in records)
    rnd.recorder.emit(records, size)


def _clock_offset(header: dict[str, Any], ticket: Ticket) -> int:
    """How far the client's clock is ahead: half the difference of the two ways, each seen from both ends."""
    began, ended = header.get("began"), header.get("ended")
    if type(began) is not int or type(ended) is not int or not 0 <= began <= ended < 2**63:
        raise TelemetryError("its times are not times")
    received = time.time_ns()
    return ((began - ticket.sent_unix_ns) + (ended - received)) // 2


def _span(header: dict[str, Any], name: str, since: int) -> int:
    return max(0, int(header[name]) - since)


def _read_ticket(ticket: object) -> dict[str, Any]:
    if not isinstance(ticket, bytes | bytearray) or len(ticket) > LONGEST_TICKET:
        raise TelemetryError("the ticket is not one of ours: it is not bytes, or too long")
    try:
        words = json.loads(ticket.decode())
    except (ValueError, RecursionError) as error:
        raise TelemetryError(f"the ticket is not one of ours: {error}") from error
    wanted = {"run": str, "round": int, "attempt": int, "version": int, "trace": str, "sent": int}
    if not isinstance(words, dict) or words.get("v") != 1:
        raise TelemetryError("the ticket is of another version")
    for name, kind in wanted.items():
        if type(words.get(name)) is not kind:
            raise TelemetryError(f"the ticket has no {name}")
    return words


def _asked(words: dict[str, Any]) -> dict[str, Any]:
    level = words.get("level")
    return {
        "level": level if level in ("open", "summary", "sealed") else "summary",
        "sketches": words.get("sketches") is True,
        "keep_models": False,
        "keep_updates": False,
    }


__all__ = ["MemorySink", "RemoteClient", "Ticket", "client_session", "make_ticket", "merge"]
