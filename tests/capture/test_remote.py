"""Client and server apart: what goes out in a ticket and comes back as telemetry, and who is believed."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from apart import session, told, work
from torch import nn
from watching import batches, breaks, by_client, in_python, only, read, round_of, small_model, spans_of, train

from fedvitals.capture import telemetry
from fedvitals.capture.merging import clock_offset_ns
from fedvitals.capture.wire import MOST_BYTES, MOST_HEADER, pack, unpack
from fedvitals.vocabulary import Participation

_CLIENT = """
import sys
from pathlib import Path
import fedvitals
from apart import work
from watching import small_model
place = Path(sys.argv[1])
received = small_model()
with fedvitals.client_session((place / "ticket").read_bytes(), model=received, samples=12) as c:
    work(c)
(place / "telemetry").write_bytes(c.to_bytes())
"""
SECOND = 10**9


@pytest.fixture(autouse=True)
def without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What memory a client takes is for the tests of memory: here it would be one number more that differs."""
    monkeypatch.setenv("FEDVITALS_MEMORY", "off")


SAME = (
    *("client", "attempt", "round", "base_version", "applied_version", "staleness", "outcome", "samples", "steps"),
    *("epochs", "loss", "first_loss", "last_loss", "accuracy", "bad_step", "good_step", "update_norm", "nonfinite"),
    *("raw_bytes_down", "wire_bytes_down", "raw_bytes_up", "wire_bytes_up", "received"),
)


def test_a_client_in_another_process_gives_what_it_would_have_given_here(tmp_path: Path) -> None:
    """The same numbers, statistics, sketches, gradients, losses, spans and logs, under the server's name for it."""
    with round_of(small_model(), number=3, steps="every", name="near") as rnd, rnd.client(7, samples=12) as c:
        work(c)
    with round_of(small_model(), number=3, name="far") as rnd:
        (tmp_path / "ticket").write_bytes(rnd.ticket(7))
        result = in_python(_CLIENT, str(tmp_path), FEDVITALS_STEPS="every")
        assert result.returncode == 0, result.stderr
        rnd.merge((tmp_path / "telemetry").read_bytes(), client=7)
    near, far = only("near"), only("far")
    assert {name: getattr(far, name) for name in SAME} == {name: getattr(near, name) for name in SAME}
    assert far.executor == "remote"
    assert set(far.phases_s) == set(near.phases_s) == {"download", "load", "train"}
    assert json.loads(far.metrics or "")["f1"] == 0.5
    assert json.loads(far.metrics or "")["self_reported"] is True
    with read("near") as one, read("far") as two:
        assert two.update_stats(far) == one.update_stats(near)
        for field in ("sketches", "unit_norms", "unit_sums", "unit_sketches", "losses", "loss_steps"):
            ours, theirs = (getattr(next(iter(reader.update_blocks())), field) for reader in (one, two))
            np.testing.assert_array_equal(ours, theirs)
        (steps,), (others,) = list(one.step_blocks()), list(two.step_blocks())
        assert (steps.clients, steps.attempts, steps.steps) == (others.clients, others.attempts, others.steps)
        np.testing.assert_array_equal(steps.stats, others.stats)
        spans = [[(s.name, s.client, s.attempt, s.attributes) for s in spans_of(reader)] for reader in (one, two)]
        assert spans[0] == spans[1] == [("download", "7", 0, '{"bytes": 100}')]
        logs = [[(e.message, e.client, e.round, e.level) for e in reader.logs()] for reader in (one, two)]
        assert logs[0] == logs[1] == [("trained", "7", 3, "WARNING")]
        assert [(r.selected, r.used, r.failed) for r in two.rounds()] == [(1, 1, 0)]
        assert two.failures() == []


def test_merging_twice_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Messages may be delivered more than once."""
    with round_of(small_model()) as rnd:
        data = told(rnd.ticket("a"))
        for _ in range(3):
            rnd.merge(data, client="a")
    with read() as reader:
        assert len(reader.participations()) == 1
        assert len(list(reader.update_blocks())) == 1
        assert len(spans_of(reader)) == 1
        assert reader.failures() == []
        assert [r.used for r in reader.rounds()] == [1]
    assert [r.name for r in caplog.records] == ["mine"]


def test_a_failed_client_reports_its_failure() -> None:
    """With its stage and traceback, and the exception comes out unchanged."""
    mine = KeyError("mine")
    with round_of(small_model(), number=2) as rnd:
        c = session(rnd.ticket("a"), small_model())
        with breaks(KeyError) as broken, c, c.phase("decode"):
            raise mine
        assert broken.caught is mine
        rnd.merge(c.to_bytes(), client="a")
    one = only()
    assert (one.outcome, one.applied_version, one.staleness) == ("failed", None, None)
    with read() as reader:
        (failure,) = reader.failures()
        assert [(r.used, r.failed) for r in reader.rounds()] == [(0, 1)]
    assert (failure.stage, failure.kind, failure.round, failure.client) == ("decode", "KeyError", 2, "a")
    assert "raise mine" in (failure.traceback or "")


def test_bytes_may_be_taken_inside_the_session() -> None:
    """As in `with ... as c: ...; data = c.to_bytes()`; what follows is in the bytes taken after it."""
    with round_of(small_model()) as rnd:
        with session(rnd.ticket("inside"), small_model()) as c:
            work(c)
            rnd.merge(c.to_bytes(), client="inside")
        c = session(rnd.ticket("after"), small_model())
        with breaks(KeyError), c:
            work(c)
            assert c.to_bytes()
            raise KeyError
        rnd.merge(c.to_bytes(), client="after")
    found = by_client()
    assert (found["inside"].outcome, found["after"].outcome) == ("used", "failed")
    assert found["inside"].update_norm == found["after"].update_norm is not None
    assert found["inside"].end_ns > found["inside"].start_ns


def test_remote_clients_belong_to_the_cohort() -> None:
    """Their cosines are to the mean of all others of the round, near or far, from the sketches."""
    torch.manual_seed(0)
    model = nn.Linear(50, 40)
    common = torch.randn(40, 50)
    states = [{"weight": model.weight + common + torch.randn(40, 50), "bias": model.bias} for _ in range(4)]
    states[3]["weight"] = model.weight - common
    with round_of(model) as rnd:
        for index, state in enumerate(states):
            if index == 0:
                with rnd.client(0) as near:
                    near.submit(state)
                continue
            with session(rnd.ticket(index), model) as c:
                c.submit(state)
            rnd.merge(c.to_bytes(), client=index)
    updates = torch.stack([(state["weight"] - model.weight).detach().flatten() for state in states])
    exact = torch.cosine_similarity(updates, updates.sum(0) - updates, dim=1)
    found = [by_client()[str(index)].cosine for index in range(4)]
    assert found == pytest.approx(exact.tolist(), abs=4 / 16)
    assert (found[3] or 0) < -0.3


def test_a_client_may_be_asked_again_in_one_round() -> None:
    """Each ticket is an attempt; a late answer to the first is still an answer."""
    with round_of(small_model()) as rnd:
        first, second = rnd.ticket("a"), rnd.ticket("a")
        rnd.merge(told(second), client="a")
        rnd.merge(told(first), client="a")
    with read() as reader:
        assert sorted(one.attempt for one in reader.participations()) == [0, 1]
        assert reader.failures() == []
        assert [(r.selected, r.used) for r in reader.rounds()] == [(1, 2)]


def test_a_model_that_cannot_be_read_costs_the_statistics_only() -> None:
    """Times and losses are sent all the same."""
    with round_of(small_model()) as rnd:
        with session(rnd.ticket("a"), "no model") as c:  # type: ignore[arg-type]  # that is the point
            c.submit(small_model(1), loss=0.5)
        rnd.merge(c.to_bytes(), client="a")
    assert (only().loss, only().update_norm) == (0.5, None)


@pytest.mark.parametrize("given", ["names", "list"])
def test_lists_of_arrays_at_one_side_match_names_at_the_other(given: str) -> None:
    """A Flower client has a module where its server has arrays; the order is what counts then."""
    model, trained = small_model(), small_model(1)
    arrays = [tensor.numpy() for tensor in model.state_dict().values()]
    with round_of(model if given == "names" else arrays) as rnd:
        received: Any = arrays if given == "names" else model
        with session(rnd.ticket("a"), received) as c:
            c.submit(trained)
        rnd.merge(c.to_bytes(), client="a")
    with read() as reader:
        assert reader.failures() == []
    assert (only().update_norm or 0) > 0


def exchange(monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> Participation:
    """A client whose clock is so much ahead: 2 s there, 5 s of work, 1 s back."""
    now = [1_000_000 * SECOND]
    monkeypatch.setattr(time, "time_ns", lambda: now[0])
    with round_of(small_model(), now_ns=lambda: now[0]) as rnd:
        now[0] += 10 * SECOND
        ticket = rnd.ticket("a")
        now[0] += round((2 + ahead_s) * SECOND)
        with session(ticket, small_model()) as c:
            c.submit(small_model(1))
            c.draft.start_ns = 0
            monkeypatch.setattr(c.recorder, "now", lambda: 5 * SECOND)
            now[0] += 5 * SECOND
        data = c.to_bytes()
        now[0] += round((1 - ahead_s) * SECOND)
        rnd.merge(data, client="a")
    return only()


@pytest.mark.parametrize("ahead_s", [0.0, 100.0, -100.0])
def test_clock_skew_is_estimated_and_taken_out(ahead_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NTP has it: right within half the difference of the two ways, here half a second."""
    one = exchange(monkeypatch, ahead_s)
    assert json.loads(one.metrics or "")["clock_skew_s"] == pytest.approx(ahead_s + 0.5)
    assert one.start_ns == pytest.approx(11.5 * SECOND)
    assert one.duration_s == 5.0


def test_the_offset_of_two_clocks() -> None:
    """Half the difference of the two ways, each seen from both ends."""
    assert clock_offset_ns(sent=100, began=1_110, ended=1_150, received=160) == 1_000


def test_a_talkative_client_fits_into_its_message() -> None:
    """Spans, logs, failures and gradients are cut to what a server takes; the update's statistics are never."""
    with round_of(small_model()) as rnd:
        with session(rnd.ticket("a"), small_model()) as c:
            for _ in range(600):
                with c.phase("wait", text="\N{SNOWMAN}" * 600):
                    pass
            for _ in range(300):
                logging.getLogger("mine").error("x" * 9_000)
            c.submit(small_model(1), loss=0.5)
        data = c.to_bytes()
        assert len(data) < MOST_BYTES
        header, _ = unpack(data)
        assert 50 < len(header["spans"]) <= 500
        assert 20 < len(header["logs"]) <= 200
        rnd.merge(data, client="a")
    with read() as reader:
        assert reader.failures() == []
        assert len(spans_of(reader)) == len(header["spans"])
    assert (only().update_norm or 0) > 0


def test_too_many_sampled_steps_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evenly, with the first and the last."""
    monkeypatch.setenv("FEDVITALS_STEPS", "every")
    monkeypatch.setattr(telemetry, "MOST_STEP_BYTES", 5 * 4 * 4)
    with round_of(small_model()) as rnd:
        with session(rnd.ticket("a"), small_model()) as c:
            local = small_model()
            c.watch(local)
            train(local, batches(9))
            c.submit(local)
        rnd.merge(c.to_bytes(), client="a")
    with read() as reader:
        (block,) = reader.step_blocks()
    assert block.steps == (0, 2, 4, 6, 8)
    assert block.stats.shape == (5, 4, 1)


def test_a_client_writes_nothing_where_it_runs(tmp_path: Path) -> None:
    """What it records goes into its message only."""
    with round_of(small_model(), name="server") as rnd:
        ticket = rnd.ticket("a")
    before = sorted(tmp_path.rglob("*"))
    assert told(ticket)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_header_has_room_for_many_layers() -> None:
    """A thousand layers and all that may be told fit into the header."""
    model = nn.ModuleDict({f"a_layer_with_a_long_name_{i:04}": nn.Linear(1, 1) for i in range(500)})
    with round_of(model) as rnd:
        with session(rnd.ticket("a"), model) as c:
            c.submit(model)
        data = c.to_bytes()
        rnd.merge(data, client="a")
    header, arrays = unpack(data)
    assert len(pack(header, {})) < MOST_HEADER // 4
    assert arrays["stats"].shape == (1, 1000, 6)
    assert only().update_norm == 0.0
