"""Whom a server believes: tickets, refusals, and what it may see whatever a client sends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from apart import session, told, work
from torch import nn
from watching import breaks, by_client, only, read, round_of, small_model, started

import fedvitals
from fedvitals.capture.nothing import NoClient
from fedvitals.capture.remote import LONGEST_TICKET


def problem(caplog: pytest.LogCaptureFixture) -> str:
    """The one failure, and the one warning, of a merge that was refused."""
    with read() as reader:
        (failure,) = reader.failures()
        assert reader.participations() == []
    assert (failure.stage, failure.kind) == ("merge", "bad telemetry")
    ours = [record for record in caplog.records if record.name == "fedvitals"]
    assert [record.levelname for record in ours] == ["WARNING"]
    assert failure.message in ours[0].getMessage()
    return f"{failure.client}: {failure.message}"


def test_another_clients_telemetry_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """The server's word says whose it is; a message answers the ticket of that client or none."""
    with round_of(small_model()) as rnd:
        mine = told(rnd.ticket("a"))
        rnd.ticket("b")
        rnd.merge(mine, client="b")
    assert problem(caplog) == "b: it answers another ticket than this client was given"


def test_telemetry_of_a_client_without_a_ticket_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody asked it."""
    with round_of(small_model()) as rnd:
        mine = told(rnd.ticket("a"))
        rnd.merge(mine, client="c")
    assert problem(caplog) == "c: client 'c' was given no ticket in round 0"


def test_telemetry_of_another_round_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """A ticket is of one round."""
    with started() as run:
        with run.round(0, model=small_model()) as rnd:
            old = told(rnd.ticket("a"))
        with run.round(1, model=small_model()) as rnd:
            rnd.ticket("a")
            rnd.merge(old, client="a")
    assert problem(caplog) == "a: it answers another ticket than this client was given"


def test_bad_telemetry_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each is a failure of its client; the log hears of the first."""
    with round_of(small_model()) as rnd:
        for client in range(5):
            rnd.ticket(client)
            rnd.merge(b"rubbish", client=client)
    with read() as reader:
        assert [failure.client for failure in reader.failures()] == ["0", "1", "2", "3", "4"]
        assert reader.run().health["troubles"] == {"bad telemetry": 5}
    assert len(caplog.records) == 1


def test_no_bytes_are_no_failure(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is switched off sends none, and a server that is switched off asks for none."""
    with round_of(small_model()) as rnd:
        ticket = rnd.ticket("a")
        monkeypatch.setenv("FEDVITALS_MODE", "off")
        with fedvitals.client_session(ticket, model=small_model()) as c:
            work(c)
        rnd.merge(c.to_bytes(), client="a")
        monkeypatch.delenv("FEDVITALS_MODE")
        with fedvitals.client_session(b"", model=small_model()) as c:
            work(c)
        assert c.to_bytes() == b""
    with read() as reader:
        assert reader.failures() == []
        assert reader.participations() == []
    assert [r.name for r in caplog.records] == ["mine", "mine"]


@pytest.mark.parametrize(
    "ticket",
    [
        b"x",
        b"{}",
        b"[" * 2000,
        b'{"v": 1}',
        b'{"v": 2, "run": "r"}',
        b'{"v":1,"run":"r","round":0,"attempt":true,"version":0,"trace":"t","sent":0}',
        b"\xff\xfe",
        b" " * (LONGEST_TICKET + 1),
        "text",
        None,
        7,
    ],
)
def test_a_ticket_that_cannot_be_read_gives_an_inert_session(ticket: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One warning, and the client's training goes on."""
    with fedvitals.client_session(ticket, model=small_model()) as c:
        assert isinstance(c, NoClient)
        work(c)
    assert c.to_bytes() == b""
    assert [record.name for record in caplog.records] == ["fedvitals", "mine"]


def test_a_bad_setting_at_a_client_does_not_stop_its_training(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not the client's user who may be refused here."""
    monkeypatch.setenv("FEDVITALS_BUDGET", "much")
    with fedvitals.client_session(b"{}") as c:
        assert isinstance(c, NoClient)
    assert "budget" in caplog.text


@pytest.mark.parametrize("other", [nn.Linear(4, 5), nn.Sequential(nn.Linear(4, 3), nn.Linear(5, 5))])
def test_of_another_model_than_the_rounds_no_layers_are_told(other: nn.Module) -> None:
    """They would be those of the wrong ones; the client and what it measured are kept, as in one process."""
    with round_of(small_model()) as rnd:
        with session(rnd.ticket("a"), other, samples=7) as c:
            c.submit(other, loss=0.5)
        rnd.merge(c.to_bytes(), client="a")
    one = only()
    assert (one.samples, one.loss, one.outcome, one.update_norm, one.block) == (7, 0.5, "used", None, None)
    with read() as reader:
        (failure,) = reader.failures()
        assert list(reader.update_blocks()) == []
    assert (failure.stage, failure.kind, failure.client) == ("submit", "shape mismatch", "a")
    assert "layer" in failure.message


def test_a_server_sees_no_more_than_its_level_allows() -> None:
    """Whatever a client sends: a sealed run keeps no update's statistics, one without sketches no sketch."""

    def stubborn(ticket: bytes) -> bytes:
        words = json.loads(ticket) | {"level": "open", "sketches": True}
        return told(json.dumps(words).encode())

    with round_of(small_model(), level="sealed", name="sealed") as rnd:
        rnd.merge(stubborn(rnd.ticket("a")), client="a")
        rnd.merge(told(rnd.ticket("honest")), client="honest")
    with round_of(small_model(), sketches=False, name="unsketched") as rnd:
        rnd.merge(stubborn(rnd.ticket("a")), client="a")
    with read("sealed") as reader:
        assert list(reader.update_blocks()) == []
        assert list(reader.step_blocks()) == []
        kept = [(one.update_norm, one.nonfinite, one.loss) for one in reader.participations()]
        assert kept == [(None, None, 0.5)] * 2
    with read("unsketched") as reader:
        (block,) = reader.update_blocks()
        assert (block.sketches, block.unit_sketches) == (None, None)


@pytest.mark.parametrize(("outcome", "applied"), [("late", 1), ("rejected", None)])
def test_what_became_of_an_update_is_the_servers_word(outcome: str, applied: int | None) -> None:
    """A client cannot know; its own failure stays a failure."""
    with round_of(small_model()) as rnd:
        rnd.merge(told(rnd.ticket("a")), client="a", outcome=outcome)
        with breaks(KeyError), session(rnd.ticket("failed"), small_model()) as c:
            raise KeyError
        rnd.merge(c.to_bytes(), client="failed", outcome=outcome)
    found = by_client()
    assert (found["a"].outcome, found["a"].applied_version) == (outcome, applied)
    assert found["failed"].outcome == "failed"


def test_a_client_may_refuse_sketches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own setting says no even when the server asks for them."""
    with round_of(small_model()) as rnd:
        ticket = rnd.ticket("a")
        monkeypatch.setenv("FEDVITALS_SKETCHES", "false")
        rnd.merge(told(ticket), client="a")
    with read() as reader:
        (block,) = reader.update_blocks()
    assert block.sketches is None
    assert (only().update_norm or 0) > 0
