"""Clients that are apart from their server, for the tests: what they do, and the bytes they send."""

from __future__ import annotations

import logging
from typing import Any

from torch import nn
from watching import batches, small_model, train

import fedvitals
from fedvitals.capture.remote import RemoteClient


def work(c: Any, seed: int = 0) -> nn.Module:
    """What a client does, near or far."""
    local = small_model()
    c.watch(local)
    with c.phase("download", bytes=100):
        pass
    for batch in c.batches(batches(3, seed=seed)):
        c.step(train(local, [batch]))
    logging.getLogger("mine").warning("trained")
    c.submit(local.state_dict(), loss=0.5, accuracy=0.25, wire_bytes=77, f1=0.5)
    return local


def session(ticket: bytes, model: nn.Module | None = None, **values: Any) -> RemoteClient:
    found = fedvitals.client_session(ticket, model=model, **values)
    assert isinstance(found, RemoteClient)
    return found


def told(ticket: bytes, seed: int = 0) -> bytes:
    """The telemetry of a client that answers this ticket."""
    with session(ticket, small_model(), samples=12) as c:
        work(c, seed)
    return c.to_bytes()
