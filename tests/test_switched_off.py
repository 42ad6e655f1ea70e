"""A run that is not recorded: every call works, does nothing and says nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedvitals
from fedvitals.capture.nothing import NoRun
from fedvitals.run import NotRecorded, Run


def test_switched_off_nothing_is_made_and_every_call_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`FEDVITALS_MODE=off`: the same objects each time, and nothing on disk."""
    monkeypatch.setenv("FEDVITALS_MODE", "off")
    run = fedvitals.start("t")
    assert isinstance(run, NoRun)
    with run, run.round(0, model=object()) as rnd, rnd.client(7, samples=3) as c, c.phase("train", bytes=3) as phase:
        phase.note(a=1)
        c.watch(object())
        with c.epoch():
            assert list(c.batches([1, 2])) == [1, 2]
        c.step(1.0)
        c.submit({}, loss=1.0)
        assert c.to_bytes() == b""
        assert rnd.ticket(7) == b""
        rnd.merge(b"x", client=7)
        rnd.evaluated(loss=1)
        rnd.failed(7, stage="s", kind="k", message="m")
        rnd.selected(3)
        assert (len(rnd.verdicts()), 7 in rnd.verdicts()) == (0, False)
        rnd.cohort([1, 2]).step(None)
        rnd.cohort([1, 2]).submit(None)
        assert run.client(1, base=run.version(object())) is rnd.client(2)
        assert run.round(1) is run.round(2)
        assert run.span("x")(len) is len
    assert not (tmp_path / "runs").exists()


def test_switched_off_a_call_that_makes_no_sense_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder would warn of it once: a training must not end because there is none."""
    monkeypatch.setenv("FEDVITALS_MODE", "off")
    run: Any = fedvitals.start("t")
    with run, run.round() as rnd, rnd.client() as c:
        rnd.evaluated(0.3)
        c.step(0.1, 3)
        c.submit()
        with run.span("a", name="b"), rnd.phase(), c.phase("train", name="c"):
            pass
        assert rnd.version == run.version() == 0


def test_switched_off_has_every_name_that_switched_on_has() -> None:
    """A call that works with the recorder on works with it off."""
    from fedvitals.capture import clients, cohorts, nothing, remote, rounds, spans

    pairs: list[tuple[type, type]] = [
        (Run, NotRecorded),
        (rounds.RoundSession, nothing.NoRound),
        (clients.ClientSession, nothing.NoClient),
        (remote.RemoteClient, nothing.NoClient),
        (cohorts.CohortSession, nothing.NoCohort),
        (spans.SpanSession, nothing.NoSpan),
    ]
    ours = {"merged", "beginning", "whole"}  # between our own parts
    for on, off in pairs:
        public = {name for name in vars(on) if not name.startswith("_")} - ours
        assert public <= set(dir(off)), (on, public - set(dir(off)))
