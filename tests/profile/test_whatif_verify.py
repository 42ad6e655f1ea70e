"""What-if against the engine: on the virtual clock a prediction can be held to what the changed job takes, exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedvitals.bench import whatif
from fedvitals.bench.whatif_cases import Case, codec, deadline, drop, evaluate, unbound, wait_for
from fedvitals.profile.whatif.changes.batch import with_batches_of
from fedvitals.profile.whatif.changes.compress import compressed
from fedvitals.profile.whatif.cohorts import AsRecorded, BySeed
from fedvitals.profile.whatif.messages import FORMS, SPARSE, caught_up_bytes, message_bytes
from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.prediction import Prediction
from fedvitals.profile.whatif.registry import what_if
from fedvitals.train.job import Job


def _job(network: str, **server: Any) -> Job:
    return Job.from_dict(
        {
            "name": "whatif",
            "data": {"source": "synthetic", "clients": 12, "partition": "quantity", "rows": 40},
            "model": {"kind": "logistic"},
            "train": {"rounds": 10, "clients_per_round": 5, "epochs": 1, "batch_size": 8},
            "server": server,
            "network": {"profile": network},
            "execute": {"clock": "virtual"},
        }
    )


@pytest.mark.parametrize("network", ["lan", "mobile"])
def test_what_the_engine_can_change_takes_as_long_as_predicted(network: str) -> None:
    """Every change that it can make, within 2%; where nobody is lost on the way, most of them to the nanosecond."""
    job = _job(network)
    profile = whatif.profile_run(job)
    made = [one for one in what_if(profile, least=-1.0).predictions if one.unverified is None and one.job is not None]
    assert {one.kind for one in made} >= {"deadline", "first", "drop", "batch", "evaluate", "async", "compress"}
    errors = {}
    for one in made:
        took_s = whatif.profile_run(job.replaced(one.job or {})).wall_s
        errors[one.change] = one.predicted_s / took_s - 1.0
    assert errors == pytest.approx(dict.fromkeys(errors, 0.0), abs=0.02)
    exact = [change for change, error in errors.items() if abs(error) < 1e-3]
    assert len(exact) >= 3


def test_the_draw_is_known_even_where_clients_come_late() -> None:
    """A run that already has a deadline, and clients that are busy after it, is explained by its seed."""
    job = _job("mobile", deadline_s=0.15, over_select=1.5)
    profile = whatif.profile_run(job)
    late = sum(one.late for one in profile.rounds)
    model = Model.of(profile)
    assert late > 0
    assert isinstance(model.draw, BySeed)
    assert model.patience == (5, 0.15)
    found = with_batches_of(model, 32)
    assert isinstance(found, Prediction)
    took_s = whatif.profile_run(job.replaced({"train.batch_size": 32})).wall_s
    assert found.predicted_s == pytest.approx(took_s, rel=0.03)


@pytest.mark.parametrize("hidden", [[], [16], [200, 40]])
def test_messages_are_as_large_as_the_codecs_make_them(hidden: list[int]) -> None:
    """From the shapes alone: to the byte where values do not matter, and within 10% or 40 bytes of the sparse one."""
    kind = {"kind": "mlp", "hidden": hidden} if hidden else {"kind": "logistic"}
    job = _job("lan").replaced({f"model.{key}": value for key, value in kind.items()} | {"train.rounds": 2})
    model = Model.of(whatif.profile_run(job))
    for spec in FORMS:
        sent = whatif.profile_run(job.replaced({"codec.up": spec})).timeline.participations.wire_bytes_up
        slack = max(40.0, 0.1 * sent.mean()) if spec == SPARSE else 0.0
        assert message_bytes(model, spec) == pytest.approx(sent.mean(), abs=slack), spec


def test_codecs_are_judged_by_what_they_make_of_kept_updates() -> None:
    """A chain that nobody knows the bytes of is predicted where the run kept updates, and not where it did not."""
    spec = "topk:0.1 | quantize:4 | entropy"
    job = _job("mobile").replaced({"model.kind": "mlp", "model.hidden": [128]})
    assert compressed(whatif.model_run(job, [spec]), spec) is None
    found = compressed(whatif.model_run(job.replaced({"observe.keep_updates": True}), [spec]), spec)
    assert isinstance(found, Prediction)
    took_s = whatif.profile_run(job.replaced({"codec.up": spec})).wall_s
    assert found.predicted_s == pytest.approx(took_s, rel=0.005)
    assert "messages are as large as the codec made of this run's updates" in found.assumes


def test_steps_that_were_missed_are_caught_up_on() -> None:
    """A client that comes back takes in each step since, or the whole model: as the engine's downlink counts."""
    job = _job("mobile").replaced({"model.kind": "mlp", "model.hidden": [64], "train.clients_per_round": 3})
    model = Model.of(whatif.profile_run(job))
    sent = whatif.profile_run(job.replaced({"codec.down": "quantize:8"})).timeline
    assert list(sent.clients) == list(model.timeline.clients)
    for rows in model.rows:
        known = caught_up_bytes(model, "quantize:8", rows)
        assert known is not None
        assert known.tolist() == sent.participations.wire_bytes_down[rows].tolist()


def test_another_seed_does_not_explain_the_run() -> None:
    """Then cohorts are as recorded, and nobody claims to know the draw."""
    from dataclasses import replace

    profile = whatif.profile_run(_job("lan"))
    other = replace(profile, run=replace(profile.run, config={**profile.run.config, "seed": 1}))
    assert isinstance(Model.of(profile).draw, BySeed)
    assert isinstance(Model.of(other).draw, AsRecorded)


def test_the_bench_lists_every_pair(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Three rows a pair, and medians with their goals; what is not predicted is said."""
    changes = (drop(), deadline(0.8), wait_for(4), codec("quantize:8"), unbound(2), evaluate(99))
    pairs = whatif.measured(Case("small", _job("mobile").to_dict(), changes), 1)
    assert [pair.change for pair in pairs] == [
        "drop the slowest",
        "deadline for 80%",
        "wait for the first 4",
        "quantize:8 up",
        "async, buffer of 2",
    ]
    assert "evaluate every 99 rounds is not predicted" in capsys.readouterr().err
    rows = [row for pair in pairs for row in whatif.pair_rows("virtual clock", pair)]
    assert [row.measure.rpartition(": ")[2] for row in rows] == ["predicted", "measured", "error"] * 5
    assert max(pair.error for pair in pairs) < 0.05
    last = whatif.summary_rows("virtual clock", pairs)[-1]
    assert (last.goal, last.met) == (0.05, True)


def test_a_run_without_rounds_is_not_played_as_if_it_had_them() -> None:
    """No change is predicted, and that is said once."""
    found = what_if(whatif.profile_run(_job("mobile", mode="async", buffer=3, concurrency=6)), least=-1.0)
    assert found.predictions == ()
    assert [one.kind for one in found.declined] == ["async"]
