"""Training without rounds on the virtual clock: who is at work, what a step is made of, and what is written down."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_jobs import EXECUTORS, Spy, apart, recorded, run, small

from fedvitals.errors import TrainingError
from fedvitals.profile.profile import profile_of
from fedvitals.vocabulary import Outcome, Participation

SLOW = [{"kind": "slow-compute", "clients": [0, 1], "strength": 8.0}]
ASYNC: dict[str, Any] = {
    "data.clients": 12,
    "train.rounds": 12,
    "server.mode": "async",
    "server.buffer": 3,
    "server.concurrency": 6,
    "execute.clock": "virtual",
    "network.profile": "mobile",
}


def _unfinished(one: Participation, last: int) -> bool:
    """At work when the training ended: no update of it is known."""
    return one.round == last and one.outcome == Outcome.LATE and one.update_norm is None


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_repeat_is_the_same_to_the_bit(executor: str, tmp_path: Path) -> None:
    """Watched or not; and the executors agree up to the last bits."""
    job = small(ASYNC, executor=executor)
    first, again = run(job, tmp_path), run(job)
    assert first.weights_sha256 == again.weights_sha256
    assert apart(first, run(small(ASYNC))) < 1e-5


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 1000),
    buffer=st.integers(1, 12),
    concurrency=st.integers(1, 20),
    profile=st.sampled_from(["none", "mobile"]),
    selection=st.sampled_from(["random", "round-robin", "available", "oort", "pisces"]),
)
def test_what_is_written_holds_together(
    tmp_path: Path, seed: int, buffer: int, concurrency: int, profile: str, selection: str
) -> None:
    """Versions, staleness, fingerprints, how many are at work at once, and who is in a step; for any buffer."""
    server = {"server.buffer": buffer, "server.concurrency": concurrency, "server.selection": selection}
    job = small({**ASYNC, **server, "seed": seed, "train.rounds": 5, "network.profile": profile})
    result = run(job, tmp_path)
    with recorded(tmp_path) as reader:
        rounds, some = list(reader.rounds()), list(reader.participations())
    fingerprints = {one.version: one.fingerprint for one in rounds}
    assert [one.number for one in rounds] == list(range(5))
    for number in range(5):
        used = [one for one in some if one.round == number and one.outcome == Outcome.USED]
        assert len({one.client for one in used}) == len(used) == rounds[number].used
        # A step waits for a full buffer, unless all who could fill it are in it already.
        assert len(used) == buffer or profile != "none" or len(used) == 12
    for one in some:
        assert one.start_ns <= one.end_ns <= (rounds[one.round].end_ns or 0)
        assert one.outcome in (Outcome.USED, Outcome.DROPPED, Outcome.FAILED) or _unfinished(one, 4)
        if one.outcome == Outcome.USED:
            assert one.staleness == one.round - one.base_version >= 0
            assert one.applied_version == one.round + 1
            assert one.received == fingerprints[one.base_version]
    moments = sorted([(one.start_ns, 1) for one in some] + [(one.end_ns, -1) for one in some])
    at_work = [sum(change for _, change in moments[: place + 1]) for place in range(len(moments))]
    assert max(at_work) <= min(concurrency, 12)
    assert result.rounds == 5


def test_a_client_is_in_one_place_at_a_time(tmp_path: Path) -> None:
    """Its participations follow each other, counted from 0; how many are at work is told with each step."""
    run(small(ASYNC), tmp_path)
    with recorded(tmp_path) as reader:
        some = list(reader.participations())
        asking = [json.loads(one.attributes or "{}")["at_work"] for one in reader.spans() if one.name == "select"]
    assert len(asking) == 12
    assert set(asking) <= set(range(1, 7))
    for client in {one.client for one in some}:
        own = sorted((one for one in some if one.client == client), key=lambda one: one.attempt)
        assert all(before.end_ns <= after.start_ns for before, after in itertools.pairwise(own))
    assert {one.staleness for one in some} - {None, 0}  # or nothing was asynchronous at all


def test_fedbuff_weighs_updates_by_their_age(tmp_path: Path) -> None:
    """What is aggregated is each update times (1 + staleness)^-power; the model moves by its weighted mean."""
    spy = Spy()
    run(small({**ASYNC, "server.staleness_power": 0.5}), tmp_path, hook=spy)
    with recorded(tmp_path) as reader:
        some = [one for one in reader.participations() if one.outcome == Outcome.USED]
    assert any(one.staleness for one in some)
    for one in some:
        age = (1 + (one.staleness or 0)) ** -0.5
        assert float(spy.updates[one.round][one.client].norm()) == pytest.approx(age * (one.update_norm or 0), rel=1e-4)
    for number in range(1, 12):
        rows = {one.client: one.samples or 0 for one in some if one.round == number}
        total = sum(rows.values())
        step = sum(spy.updates[number][client] * (count / total) for client, count in rows.items())
        before, after = (torch.cat([t.reshape(-1) for t in spy.states[at].values()]) for at in (number - 1, number))
        assert torch.allclose(after - before, torch.as_tensor(step), atol=1e-6)


def test_fedasync_moves_towards_the_clients_model(tmp_path: Path) -> None:
    """With a buffer of one: w + alpha * s * (its model - w), where its model is its base plus its update."""
    spy = Spy()
    job = {**ASYNC, "server.aggregator": "fedasync", "server.buffer": 1, "server.lr": 0.5, "network.profile": "none"}
    job |= {"server.staleness_weight": "constant", "server.concurrency": 1, "faults": []}
    run(small(job), tmp_path, hook=spy)
    plain = Spy()
    run(small({**job, "server.aggregator": "fedavg"}), hook=plain)
    # One at a time nobody is stale, so that moving half the way is averaging with half the rate.
    for one, other in zip(spy.states, plain.states, strict=True):
        assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)
    several = Spy()
    run(small({**job, "server.concurrency": 6}), tmp_path, hook=several)
    with recorded(tmp_path) as reader:
        stale = next(one for one in reader.participations() if one.staleness)
    flat = [torch.cat([t.reshape(-1) for t in state.values()]) for state in several.states]
    (change,) = several.updates[stale.round].values()
    base = flat[stale.base_version - 1] if stale.base_version else None
    now = flat[stale.round - 1]
    assert torch.allclose(flat[stale.round] - now, 0.5 * change, atol=1e-6)
    if base is not None:
        trained_norm = float((change + now - base).norm())
        assert trained_norm == pytest.approx(stale.update_norm or 0.0, rel=1e-3)


def test_too_stale_updates_are_rejected_and_recorded(tmp_path: Path) -> None:
    """None used is older than the bound; those beyond it are there, with their age, as rejected."""
    run(small({**ASYNC, "server.staleness_bound": 1, "faults": SLOW}), tmp_path)
    with recorded(tmp_path) as reader:
        some = list(reader.participations())
    assert max(one.staleness or 0 for one in some if one.outcome == Outcome.USED) == 1
    rejected = [one for one in some if one.outcome == Outcome.REJECTED]
    assert rejected
    assert all((one.staleness or 0) > 1 and one.applied_version is None for one in rejected)


@pytest.mark.parametrize("aggregator", ["median", "trimmed-mean", "krum", "geometric-median", "fedadam", "fedavgm"])
def test_any_aggregator_combines_the_buffer(aggregator: str) -> None:
    """Robust ones too."""
    result = run(small({**ASYNC, "server.buffer": 5, "server.aggregator": aggregator}))
    assert result.loss is not None
    assert math.isfinite(result.loss)


@pytest.mark.parametrize("aggregator", ["fedavg", "fedadam"])
def test_running_statistics_go_towards_the_clients_own(aggregator: str) -> None:
    """Differences of variances from older models do not add up below zero: the loss stays a number."""
    job = {**ASYNC, "model.norm": "batch", "server.aggregator": aggregator, "network.profile": "none"}
    job |= {"data.source": "digits", "data.clients": 20, "server.buffer": 5, "server.concurrency": 10}
    result = run(small(job | {"train.rounds": 8, "train.lr": 0.2, "server.staleness_weight": "constant"}))
    assert math.isfinite(result.loss or math.nan)
    assert min(float(one.min()) for name, one in result.model.named_buffers() if name.endswith("running_var")) >= 0.0


def test_who_goes_away_frees_its_place_in_the_end(tmp_path: Path) -> None:
    """Recorded as dropped, after the time it would have taken or, where that is shorter, the deadline."""
    for deadline_s in (0.0, 0.3):
        run(small({**ASYNC, "train.rounds": 40, "server.deadline_s": deadline_s}), tmp_path)
        with recorded(tmp_path) as reader:
            gone = [one for one in reader.participations() if one.outcome == Outcome.DROPPED]
            reasons = {one.kind for one in reader.failures()}
        assert gone
        assert reasons == {"ConnectionResetError"}
        for one in gone:
            assert one.duration_s == pytest.approx(sum(one.phases_s.values()), abs=1e-6)
        waited = [one.phases_s["wait"] for one in gone]
        assert max(waited) > 0
        if deadline_s:
            assert max(one.duration_s for one in gone) <= deadline_s + 1e-9


def test_who_is_late_is_not_used_and_holds_up_nobody(tmp_path: Path) -> None:
    """Its place is free at the deadline; it is asked again only when it is done, and recorded as late."""
    job = {**ASYNC, "network.profile": "none", "server.deadline_s": 0.1, "train.rounds": 80}
    faults = [{"kind": "slow-compute", "clients": [0], "strength": 15_000.0}]
    result = run(small({**job, "faults": faults}), tmp_path)
    with recorded(tmp_path) as reader:
        own = sorted(reader.participations(client="0"), key=lambda one: one.start_ns)
    came = [one for one in own if not _unfinished(one, 79)]
    assert came
    assert result.late >= len(own)
    assert {one.outcome for one in came} == {Outcome.LATE.value}
    assert all(one.applied_version is None for one in own)
    assert all(before.end_ns <= after.start_ns for before, after in itertools.pairwise(own))


def test_late_updates_are_used_where_the_job_says_so(tmp_path: Path) -> None:
    """Their place is free at the deadline all the same: more clients are at work than are waited for."""
    job = {**ASYNC, "network.profile": "none", "server.deadline_s": 0.1, "server.late": "use", "train.rounds": 80}
    faults = [{"kind": "slow-compute", "clients": [0], "strength": 15_000.0}]
    result = run(small({**job, "faults": faults}), tmp_path)
    with recorded(tmp_path) as reader:
        own = [one for one in reader.participations(client="0") if not _unfinished(one, 79)]
        late = [one for one in reader.participations() if one.outcome == Outcome.LATE]
    assert own
    assert all(_unfinished(one, 79) for one in late)
    assert result.late == len(late)
    assert {one.outcome for one in own} == {Outcome.USED.value}
    assert min(one.duration_s for one in own) > 0.1
    assert all(one.staleness for one in own)


def test_late_clients_are_stopped_where_the_job_says_so(tmp_path: Path) -> None:
    """At the deadline: it is recorded as late without an update, may be asked again, and never are too many at work."""
    job = {**ASYNC, "network.profile": "none", "server.deadline_s": 0.1, "server.late": "stop", "train.rounds": 80}
    faults = [{"kind": "slow-compute", "clients": [0], "strength": 15_000.0}]
    result = run(small({**job, "faults": faults}), tmp_path)
    assert result.weights_sha256 == run(small({**job, "faults": faults})).weights_sha256
    with recorded(tmp_path) as reader:
        some = list(reader.participations())
    own = sorted((one for one in some if one.client == "0"), key=lambda one: one.start_ns)
    assert len(own) > 1
    assert {one.outcome for one in own} == {Outcome.LATE.value}
    assert all(one.update_norm is None and one.duration_s <= 0.1 + 1e-9 for one in own)
    assert all(before.end_ns <= after.start_ns for before, after in itertools.pairwise(own))
    assert sum(one.outcome == Outcome.LATE for one in some) == result.late
    assert sum(one.wire_bytes_down or 0 for one in some) == result.bytes_down
    moments = sorted([(one.start_ns, 1) for one in some] + [(one.end_ns, -1) for one in some])
    assert max(sum(change for _, change in moments[:place]) for place in range(1, len(moments))) <= 6
    with pytest.raises(TrainingError, match=r"nobody was done within server\.deadline_s = 0\.001, all were stopped"):
        run(small({**job, "server.deadline_s": 0.001}))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"codec.up": "topk:0.1", "codec.down": "feedback(topk:0.1 | entropy)"},
        {"server.deadline_s": 0.5},
        {"server.deadline_s": 0.05, "server.late": "use"},
        {"server.deadline_s": 0.5, "server.late": "stop"},
        {"train.stop_at": 0.2},
    ],
    ids=["plain", "codecs", "late dropped", "late used", "late stopped", "ended early"],
)
def test_what_was_sent_to_who_did_not_come_back_is_recorded(changes: dict[str, Any], tmp_path: Path) -> None:
    """Bytes add up to all that was sent, and all that came; who was at work at the end is late in the last step."""
    result = run(small({**ASYNC, "network.profile": "mobile", **changes}), tmp_path)
    with recorded(tmp_path) as reader:
        some, rounds = list(reader.participations()), list(reader.rounds())
        profile = profile_of(reader)
    unfinished = [one for one in some if _unfinished(one, result.rounds - 1)]
    assert unfinished
    assert sum(one.wire_bytes_down or 0 for one in some) == result.bytes_down
    assert sum(one.bytes_down or 0 for one in profile.rounds) == result.bytes_down
    assert sum(one.wire_bytes_up or 0 for one in some) == result.bytes_up
    assert sum(one.outcome == Outcome.LATE for one in some) == result.late
    assert all((one.wire_bytes_down or 0) > 0 for one in unfinished)
    assert all(one.start_ns <= one.end_ns <= (rounds[-1].end_ns or 0) for one in unfinished)
    assert all(one.staleness == one.round - one.base_version >= 0 for one in unfinished)


def test_a_deadline_that_nobody_meets_is_named(tmp_path: Path) -> None:
    """With what the quickest took; the run keeps what happened."""
    with pytest.raises(TrainingError, match=r"nobody was done within server\.deadline_s = 0\.001; the quickest, \d+"):
        run(small({**ASYNC, "network.profile": "none", "server.deadline_s": 0.001}), tmp_path)
    with recorded(tmp_path) as reader:
        assert reader.failures()


@pytest.mark.parametrize("profile", ["none", "mobile"])
def test_where_everybody_fails_the_training_ends(profile: str) -> None:
    """With the reason of the last one, and not never."""
    faults = [{"kind": "crash", "share": 1.0}]
    with pytest.raises(TrainingError, match=r"step 0: of the last \d+ participations nothing came"):
        run(small({**ASYNC, "network.profile": profile, "faults": faults}))


@pytest.mark.parametrize("kind", ["crash", "timeout", "nan-update"])
def test_a_client_that_fails_costs_its_own_part(kind: str, tmp_path: Path) -> None:
    """It is recorded as failed or dropped each time; the others go on. A lossy codec refuses NaN."""
    faults = [{"kind": kind, "clients": [2]}]
    result = run(small({**ASYNC, "network.profile": "none", "codec.up": "fp16", "faults": faults}), tmp_path)
    assert result.loss is not None
    assert math.isfinite(result.loss)
    with recorded(tmp_path) as reader:
        done = [one for one in reader.participations() if not _unfinished(one, 11)]
        failures = reader.failures()
    mine, others = [one for one in done if one.client == "2"], done
    assert mine
    assert {one.outcome for one in mine} == {Outcome.DROPPED if kind == "timeout" else Outcome.FAILED}
    assert {one.client for one in failures} == {"2"}
    assert len(failures) == len(mine)
    assert all(one.outcome == Outcome.USED for one in others if one.client != "2")


@pytest.mark.parametrize("kind", ["duplicate", "sign-flip", "scaled-update", "stale-update"])
def test_faults_strike_without_rounds(kind: str) -> None:
    """Those that look at others' updates, too."""
    faults = [{"kind": kind, "clients": [2, 3]}]
    struck, honest = run(small({**ASYNC, "faults": faults})), run(small(ASYNC))
    assert struck.weights_sha256 != honest.weights_sha256


def test_a_hook_may_leave_out_updates(tmp_path: Path) -> None:
    """As in a round: it is recorded as rejected."""

    class Without(Spy):
        def before_aggregate(self, round: int, updates: Any) -> Any:
            return updates.without({updates.clients[0]})

    run(small({**ASYNC, "train.rounds": 4}), tmp_path, hook=Without())
    with recorded(tmp_path) as reader:
        outcomes = [one.outcome for one in reader.participations()]
    assert outcomes.count(Outcome.REJECTED) == 4
    assert outcomes.count(Outcome.USED) == 8
