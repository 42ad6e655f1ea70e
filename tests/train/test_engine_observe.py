"""How much is recorded of a training: steps, levels of sight, and what the wire does to updates and models."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from small_jobs import EXECUTORS, Spy, recorded, run, small

from fedvitals.errors import TrainingError
from fedvitals.vocabulary import Outcome

Steps = dict[tuple[str, int, int], np.ndarray]


def _sampled(folder: Path) -> Steps:
    with recorded(folder) as reader:
        return {
            key: block.stats[row]
            for block in reader.step_blocks()
            for row, key in enumerate(zip(block.clients, block.attempts, block.steps, strict=True))
        }


@pytest.mark.parametrize("executor", EXECUTORS)
def test_at_least_one_step_of_each_is_looked_at(executor: str, tmp_path: Path) -> None:
    """Even with no budget at all; with `off`, none."""
    run(small({"observe.budget": 0.0}, executor=executor), tmp_path / "poor")
    found = _sampled(tmp_path / "poor")
    with recorded(tmp_path / "poor") as reader:
        clients = {(one.client, one.attempt) for one in reader.participations()}
    assert {key[:2] for key in found} == clients
    assert len(clients) == 8
    run(small({"observe.steps": "off"}, executor=executor), tmp_path / "off")
    assert _sampled(tmp_path / "off") == {}


def test_gradients_are_the_same_however_they_are_computed(tmp_path: Path) -> None:
    """All statistics of every step: of single clients by autograd, of a batch by hand."""
    found = []
    for executor in EXECUTORS:
        run(small({"observe.steps": "full"}, executor=executor), tmp_path / executor)
        found.append(_sampled(tmp_path / executor))
    assert found[0].keys() == found[1].keys() == found[2].keys()
    assert {stats.shape for stats in found[0].values()} == {(4, 6)}
    for key, stats in found[0].items():
        assert np.array_equal(stats, found[1][key])
        np.testing.assert_allclose(stats, found[2][key], rtol=1e-3, atol=1e-5)


def test_a_piling_client_shows_in_its_gradients(tmp_path: Path) -> None:
    """What is looked at is what the client steps along: with a missing zero_grad it grows."""
    changes = {"observe.steps": "every", "train.clients_per_round": 6, "train.lr": 0.001}
    run(small({**changes, "faults": [{"kind": "missing-zero-grad", "clients": [1]}]}, executor="vectorised"), tmp_path)
    norms = {key[2]: stats[0, 0] for key, stats in _sampled(tmp_path).items() if key[:2] == ("1", 0)}
    assert norms[max(norms)] > 3 * norms[0]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_sealed_shows_no_update(executor: str, tmp_path: Path) -> None:
    """With secure aggregation nothing of a single update is recorded; that it took part is."""
    run(small({"observe.level": "sealed"}, executor=executor), tmp_path)
    with recorded(tmp_path) as reader:
        some = reader.participations()
        assert list(reader.update_blocks()) == []
        assert list(reader.step_blocks()) == []
    assert len(some) == 8
    assert {(one.update_norm, one.cosine, one.block) for one in some} == {(None, None, None)}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_updates_go_through_their_codec(executor: str, tmp_path: Path) -> None:
    """What is aggregated and recorded is what arrives; the bytes are those that were sent."""
    plain, coded = Spy(), Spy()
    run(small({"train.rounds": 1}, executor=executor), hook=plain)
    result = run(small({"train.rounds": 1, "codec.up": "fp16"}, executor=executor), tmp_path, hook=coded)
    for client, update in coded.updates[0].items():
        assert torch.equal(update, plain.updates[0][client].half().float())
    with recorded(tmp_path) as reader:
        some = reader.participations()
    assert all(2 * (one.wire_bytes_up or 0) < 1.6 * (one.wire_bytes_down or 0) for one in some)
    assert sum(one.wire_bytes_up or 0 for one in some) == result.bytes_up
    assert all(one.update_norm == pytest.approx(float(coded.updates[0][one.client].norm()), rel=1e-5) for one in some)


def test_models_go_through_their_codec(tmp_path: Path) -> None:
    """The server's steps do: everybody has the same model, and who comes each round pays for one step."""
    whole = {"train.clients_per_round": 6, "train.rounds": 3}
    result = run(small({**whole, "codec.down": "fp16"}), tmp_path)
    assert result.weights_sha256 != run(small(whole)).weights_sha256
    with recorded(tmp_path) as reader:
        some, rounds = reader.participations(), {one.number: one for one in reader.rounds()}
    assert all(one.received in (None, rounds[one.round].fingerprint) for one in some)
    first = [one.wire_bytes_down for one in some if one.round == 0]
    later = [one for one in some if one.round > 0]
    assert first == [0] * 6  # the first model follows from the job
    assert all(0 < (one.wire_bytes_down or 0) < 0.6 * (one.wire_bytes_up or 0) for one in later)
    assert sum(one.wire_bytes_down or 0 for one in some) == result.bytes_down


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_update_that_cannot_be_sent_costs_its_client(executor: str, tmp_path: Path) -> None:
    """A lossy codec refuses NaN: a failure that names the layer, and the round goes on without it."""
    faults = [{"kind": "nan-update", "clients": [2]}]
    changes = {"train.clients_per_round": 6, "codec.up": "fp16", "faults": faults}
    result = run(small(changes, executor=executor), tmp_path)
    assert result.failed == 2
    assert result.loss is not None
    assert math.isfinite(result.loss)
    with recorded(tmp_path) as reader:
        failures, mine = reader.failures(), reader.participations(client="2")
    assert {(one.client, one.stage, one.kind) for one in failures} == {("2", "encode", "CodecError")}
    assert all("values that are not finite" in one.message for one in failures)
    assert [one.outcome for one in mine] == [Outcome.FAILED] * 2


def test_a_model_that_cannot_be_sent_ends_the_run() -> None:
    """With the round and the reason."""
    faults = [{"kind": "nan-update", "clients": [2]}]
    changes = {"train.clients_per_round": 6, "codec.down": "fp16", "faults": faults}
    with pytest.raises(TrainingError, match=r"step \d of the global model cannot be sent \(codec.down\): layer '3"):
        run(small(changes))
