"""The server takes in what a client recorded: untrusted bytes become records, or a Failure and one warning."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvitals.capture.inspection import OF_UPDATES, read_telemetry
from fedvitals.capture.telemetry import Place, Telemetry
from fedvitals.capture.wire import unpack
from fedvitals.errors import TelemetryError
from fedvitals.vocabulary import Failure, Layout, Level, Outcome, Participation, StepBlock, UpdateBlock

if TYPE_CHECKING:
    from fedvitals.capture.remote import Ticket
    from fedvitals.capture.rounds import RoundSession

log = logging.getLogger("fedvitals")

SKETCHES = ("sketches", "unit_norms", "unit_sums", "unit_sketches")


def merge(rnd: RoundSession, data: Any, client: str, outcome: Outcome = Outcome.USED) -> None:
    """Take in a message; a bad one becomes a Failure of that client, once said in the log.

    No bytes at all are what a client that records nothing sends.
    """
    recorder = rnd.recorder
    try:
        if data != b"":
            _merge(rnd, data, client, outcome)
    except Exception as error:  # whatever such bytes bring about is their fault
        said = str(error) if isinstance(error, TelemetryError) else f"it cannot be read: {type(error).__name__}"
        recorder.emit([Failure(recorder.now(), "merge", "bad telemetry", said, rnd.number, client)])
        if recorder.troubles["bad telemetry"] == 0:
            log.warning("telemetry of client %s could not be used: %s; the round goes on", client, said)
        recorder.troubles["bad telemetry"] += 1


def _merge(rnd: RoundSession, data: Any, client: str, outcome: Outcome) -> None:
    tickets = rnd.tickets.get(client)
    if tickets is None:
        raise TelemetryError(f"client {client!r} was given no ticket in round {rnd.number}")
    header, arrays = unpack(data)
    trace = header.get("trace")
    ticket = tickets.get(trace) if isinstance(trace, str) else None
    if ticket is None:
        raise TelemetryError("it answers another ticket than this client was given")
    if ticket.merged:
        return
    layout = _layout(rnd)
    telemetry = read_telemetry(header, _wanted(rnd, arrays), layout)
    if rnd.recorder.run.level == Level.SEALED:
        telemetry = replace(telemetry, measured=telemetry.measured | dict.fromkeys(OF_UPDATES))
    if telemetry.outcome == Outcome.USED:
        telemetry = replace(telemetry, outcome=outcome.value)
    place = _place(rnd, client, ticket, header, layout)
    ticket.merged = True
    _keep(rnd, telemetry, place)


def _keep(rnd: RoundSession, telemetry: Telemetry, place: Place) -> None:
    records = telemetry.placed(place)
    rnd.merged(records)
    size = sum(r.stats.nbytes if isinstance(r, UpdateBlock | StepBlock) else 512 for r in records)
    rnd.recorder.emit(records, size)
    sketches = telemetry.block.sketches if telemetry.block is not None else None
    own = next(record for record in records if isinstance(record, Participation))
    if rnd.buffer is not None and sketches is not None:
        rnd.buffer.reported(own, sketches)


def _layout(rnd: RoundSession) -> Layout | None:
    return rnd.buffer.reference.flattener.layout if rnd.buffer is not None else None


def _wanted(rnd: RoundSession, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What this server may see, whatever a client sends."""
    if rnd.recorder.run.level == Level.SEALED:
        return {}
    left_out = () if rnd.recorder.settings.sketches else SKETCHES
    return {name: array for name, array in arrays.items() if name not in left_out}


def _place(rnd: RoundSession, client: str, ticket: Ticket, header: Mapping[str, Any], layout: Layout | None) -> Place:
    began, ended = header.get("began"), header.get("ended")
    if type(began) is not int or type(ended) is not int or not 0 <= began <= ended < 2**63:
        raise TelemetryError("its times are not times")
    offset_ns = clock_offset_ns(ticket.sent_unix_ns, began, ended, time.time_ns())
    return Place(
        client=client,
        attempt=ticket.attempt,
        round=rnd.number,
        version=rnd.version,
        start_ns=ticket.at_ns + max(0, began - (ticket.sent_unix_ns + offset_ns)),
        skew_s=offset_ns / 1e9,
        layout=layout.id if layout is not None else 0,
        next_block=rnd.recorder.next_block,
        next_id=rnd.recorder.next_id,
    )


def clock_offset_ns(sent: int, began: int, ended: int, received: int) -> int:
    """How far the client's clock is ahead: half the difference of the two ways, each seen from both ends."""
    return ((began - sent) + (ended - received)) // 2
