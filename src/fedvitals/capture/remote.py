"""Client and server apart: the ticket that goes out with the model, and the telemetry that comes back.

The client's id, attempt and round are the server's word: of what a client says about itself only measurements are
taken. The offset between the two clocks comes from the four times of the exchange, as NTP has it.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, SupportsInt

from fedvitals.capture.clients import ClientSession
from fedvitals.capture.draft import Draft
from fedvitals.capture.harmless import harmless, harmless_or
from fedvitals.capture.memory import MemorySink
from fedvitals.capture.nothing import NoClient
from fedvitals.capture.recorder import Recorder
from fedvitals.capture.telemetry import Telemetry
from fedvitals.capture.wire import pack
from fedvitals.errors import TelemetryError
from fedvitals.settings import Settings, resolve
from fedvitals.vocabulary import Level, Run, Status

if TYPE_CHECKING:
    from fedvitals.capture.rounds import RoundSession
    from fedvitals.capture.tensors import Choice

log = logging.getLogger("fedvitals")

LONGEST_TICKET = 4_096
MOST_LEFT_OUT = 400  # tensors of a model that are no layers and that a ticket has room to name


class Ticket:
    """What the server remembers of a ticket."""

    def __init__(self, attempt: int, sent_unix_ns: int, at_ns: int) -> None:
        self.attempt = attempt
        self.sent_unix_ns = sent_unix_ns
        self.at_ns = at_ns
        self.merged = False


def make_ticket(rnd: RoundSession, client: str) -> bytes:
    """The bytes for one client; the server remembers what it gave out."""
    trace = secrets.token_hex(8)
    recorder, reference = rnd.recorder, rnd.buffer.reference if rnd.buffer is not None else None
    ticket = Ticket(recorder.next_attempt(client), time.time_ns(), recorder.now())
    rnd.tickets.setdefault(client, {})[trace] = ticket
    words = {
        "v": 1,
        "run": recorder.run.id,
        "round": rnd.number,
        "attempt": ticket.attempt,
        "version": rnd.version,
        "trace": trace,
        "sent": ticket.sent_unix_ns,
        "model": reference.fingerprint if reference is not None else None,
        "level": str(recorder.run.level),
        "sketches": recorder.settings.sketches,
    }
    choice = reference.flattener.choice if reference is not None else None
    if choice is not None and len(choice.left_out) <= MOST_LEFT_OUT:
        words["tensors"], words["left_out"] = choice
    return json.dumps(words, separators=(",", ":")).encode()


def client_session(ticket: bytes, *, model: Any = None, samples: SupportsInt | None = None) -> RemoteClient | NoClient:
    """Record on the client's side. A ticket that can't be read gives a session that records nothing."""
    try:
        settings = resolve()
        if settings.mode == "off" or ticket == b"":  # a server that records nothing gives empty tickets
            return NoClient()
        return RemoteClient(_read_ticket(ticket), settings, model, samples)
    except Exception as error:
        log.warning("fedvitals records nothing of this participation: %s", error)
        return NoClient()


class RemoteClient(ClientSession):
    """A ClientSession whose records go into a message instead of a store."""

    def __init__(self, words: dict[str, Any], settings: Settings, model: Any, samples: SupportsInt | None) -> None:
        own = replace(settings, **_asked(words))
        self._words = words
        self._sink = MemorySink()
        self._bytes: bytes | None = None
        self._began_unix_ns = time.time_ns()
        run = Run(words["run"], words["run"], Status.RUNNING, self._began_unix_ns, Level(own.level))
        recorder = Recorder(run, own, self._sink, owns_up=False)
        draft = Draft(
            client="self",
            attempt=words["attempt"],
            round=words["round"],
            base_version=words["version"],
            start_ns=recorder.now(),
            samples=samples,
        )
        super().__init__(recorder, draft, None)
        self._receive(model)

    def to_bytes(self) -> bytes:
        """What to send back beside the update; b"" when nothing could be recorded. Complete once the session ended."""
        return self._packed() if self._bytes is None else self._bytes

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        self.recorder.close(Status.FAILED if error is not None else Status.FINISHED)
        self._bytes = self._packed()

    @harmless
    def _receive(self, model: Any) -> None:
        if model is None:
            return
        from fedvitals.capture.buffer import CohortBuffer

        number, version = self._words["round"], self._words["version"]
        self.recorder.models.choice = _choice(self._words)
        reference = self.recorder.models.reference(model, number, version)
        self._buffer = CohortBuffer(self.recorder, reference, number)
        self.draft.received, self.draft.raw_bytes_down = reference.fingerprint, reference.raw_bytes

    @harmless_or(b"")
    def _packed(self) -> bytes:
        self.recorder.flush()
        if self.draft.end_ns == 0:
            self.draft.end_ns = self.recorder.now()
        telemetry = Telemetry.gather(self.draft.record(), self._sink)
        buffer = self._buffer
        header = telemetry.header() | {
            "v": 1,
            "trace": self._words["trace"],
            "began": self._began_unix_ns,
            "ended": time.time_ns(),
            "layers": [[one.name, one.shape] for one in buffer.reference.flattener.layout.layers] if buffer else [],
        }
        return pack(header, telemetry.arrays())


def _read_ticket(ticket: object) -> dict[str, Any]:
    if not isinstance(ticket, bytes | bytearray | memoryview) or len(ticket) > LONGEST_TICKET:
        raise TelemetryError("the ticket is not one of ours: it is not bytes, or too long")
    try:
        words = json.loads(bytes(ticket).decode())
    except (ValueError, RecursionError) as error:
        raise TelemetryError(f"the ticket is not one of ours: {error}"[:300]) from error
    wanted = {"run": str, "round": int, "attempt": int, "version": int, "trace": str, "sent": int}
    if not isinstance(words, dict) or words.get("v") != 1:
        raise TelemetryError("the ticket is of another version")
    for name, kind in wanted.items():
        if type(words.get(name)) is not kind:
            raise TelemetryError(f"the ticket has no {name}")
    return words


def _choice(words: dict[str, Any]) -> Choice | None:
    """What the server takes for the layers of its model; None where it does not say."""
    from fedvitals.capture.tensors import Choice

    tensors, left_out = words.get("tensors"), words.get("left_out")
    if type(tensors) is not int or not isinstance(left_out, list) or not all(type(place) is int for place in left_out):
        return None
    return Choice(tensors, tuple(left_out))


def _asked(words: dict[str, Any]) -> dict[str, Any]:
    """What the server wants; the client's own settings say no when they forbid sketches."""
    level = words.get("level")
    asked: dict[str, Any] = {
        "level": level if level in ("open", "summary", "sealed") else "summary",
        "keep_models": False,
        "keep_updates": False,
        "resources_every_s": 0.0,
    }
    return asked if words.get("sketches") is True else asked | {"sketches": False}


__all__ = ["LONGEST_TICKET", "RemoteClient", "Ticket", "client_session", "make_ticket"]
