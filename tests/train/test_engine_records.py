"""What a training leaves in the store: everything that is promised of every participation, round and model."""

from __future__ import annotations

import json
import math
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from small_jobs import EXECUTORS, Spy, recorded, run, small
from torch import Tensor

from fedvitals.capture.tensors import Flattener, Sketcher
from fedvitals.codecs import agreed, parse
from fedvitals.store import RunReader
from fedvitals.train.build import build
from fedvitals.train.evaluate import evaluate
from fedvitals.train.job import Job
from fedvitals.train.result import Result
from fedvitals.vocabulary import Outcome, Participation, Status

LAYERS = {"1.weight": (8, 12), "1.bias": (8,), "3.weight": (4, 8), "3.bias": (4,)}
SIZE = sum(math.prod(shape) for shape in LAYERS.values())


def _named(row: Tensor) -> dict[str, Tensor]:
    parts = torch.split(row, [math.prod(shape) for shape in LAYERS.values()])
    return {name: part.view(shape) for (name, shape), part in zip(LAYERS.items(), parts, strict=True)}


class Recorded:
    """One run of the small job: its result, what a hook saw of it, and its reader."""

    def __init__(self, job: Job, folder: Path, **settings: Any) -> None:
        self.job, self.spy = job, Spy()
        self.result: Result = run(job, folder, hook=self.spy, **settings)
        with recorded(folder) as reader:
            self._read(reader)

    def _read(self, reader: RunReader) -> None:
        self.run = reader.run()
        self.rounds = reader.rounds()
        self.participations = reader.participations()
        self.stats = {_key(one): reader.update_stats(one) for one in self.participations}
        self.sketches = {_key(one): reader.sketch(one) for one in self.participations}
        self.blocks = list(reader.update_blocks())
        self.steps = list(reader.step_blocks())
        self.evaluations = reader.evaluations()
        self.models = reader.model_blocks()
        self.blobs = [(blob, reader.blob(blob.name)) for blob in reader.blobs()]
        self.spans = reader.spans()
        self.failures = reader.failures()

    def update(self, one: Participation) -> Tensor:
        return self.spy.updates[one.round][one.client]

    def sampled(self) -> dict[tuple[str, int, int], np.ndarray]:
        """Gradient statistics by client, attempt and step."""
        return {
            key: block.stats[row]
            for block in self.steps
            for row, key in enumerate(zip(block.clients, block.attempts, block.steps, strict=True))
        }


def _key(one: Participation) -> tuple[str, int]:
    return one.client, one.attempt


@pytest.fixture(scope="module", params=EXECUTORS)
def taken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    job = small({"train.rounds": 3, "execute.chunk": 3}, executor=request.param)
    return Recorded(job, tmp_path_factory.mktemp(request.param), steps="every", keep_updates=True)


def test_the_run_says_what_it_was(taken: Recorded) -> None:
    """The whole job, who carried it out and why, the data's digest; finished, with nothing lost on the way."""
    assert taken.run.status == Status.FINISHED
    assert taken.run.config == taken.job.to_dict()
    assert Job.from_dict(taken.run.config) == taken.job
    said = taken.run.environment
    assert said["executor"] == taken.result.executor == taken.job.execute.executor
    assert said["executor_why"]
    assert said["data_digest"] == build(taken.job).digest
    assert (said["engine_threads"], said["clock"], said["server_lr"]) == (1, "real", 1.0)
    assert taken.run.health["troubles"] == {}
    assert not any(taken.run.health["dropped"].values())


def test_every_client_of_every_round_is_there(taken: Recorded) -> None:
    """Once, with attempts counted from 0, and with its rows, steps, epochs and outcome."""
    federation = build(taken.job)
    attempts: dict[str, int] = {}
    assert [len(updates) for updates in taken.spy.updates] == [4, 4, 4]
    for number, updates in enumerate(taken.spy.updates):
        some = [one for one in taken.participations if one.round == number]
        assert sorted(one.client for one in some) == sorted(updates)
        for one in some:
            rows = len(federation.train_rows[federation.clients.index(one.client)])
            assert (one.samples, one.steps, one.epochs) == (rows, math.ceil(rows / 8) * 2, 2)
            assert (one.outcome, one.staleness) == (Outcome.USED, 0)
            assert (one.base_version, one.applied_version) == (number, number + 1)
            assert one.attempt == attempts.get(one.client, 0)
            attempts[one.client] = one.attempt + 1


def test_statistics_are_those_of_the_update(taken: Recorded) -> None:
    """Norms of the whole and of each layer, and that all is finite."""
    for one in taken.participations:
        update = taken.update(one)
        assert one.update_norm == pytest.approx(float(update.norm()), rel=1e-5)
        assert one.nonfinite == 0
        stats = {stat.layer: stat for stat in taken.stats[_key(one)]}
        assert list(stats) == list(LAYERS)
        for name, layer in _named(update).items():
            assert stats[name].norm == pytest.approx(float(layer.norm()), rel=1e-5)
            assert stats[name].min == pytest.approx(float(layer.min()))
            assert stats[name].zero_ratio == pytest.approx(float((layer == 0).float().mean()))


def test_sketches_are_those_of_the_update(taken: Recorded) -> None:
    """As the sketcher makes them of what a hook saw; so is the cosine to the others, within a sketch's error."""
    flattener = Flattener(taken.result.model)
    sketcher = Sketcher(flattener.layout, torch.device("cpu"))
    for one in taken.participations:
        update, sketch = taken.update(one), taken.sketches[_key(one)]
        assert sketch is not None
        expected = sketcher.sketch((update / update.norm()).unsqueeze(0))[0].numpy()
        np.testing.assert_allclose(sketch.values, expected, atol=2e-3)
        others = sum(row for client, row in taken.spy.updates[one.round].items() if client != one.client)
        assert one.cosine == pytest.approx(
            float(torch.cosine_similarity(update, torch.as_tensor(others), dim=0)), abs=0.2
        )


def test_bytes_are_those_of_a_real_message(taken: Recorded) -> None:
    """What `encode` of this very update gives between ends that know the model; and all together the result's."""
    for one in taken.participations:
        update = _named(taken.update(one))
        assert one.wire_bytes_up == len(agreed(parse("identity"), update).encode(update))
        assert (one.raw_bytes_up, one.raw_bytes_down) == (4 * SIZE, 4 * SIZE)
    assert sum(one.wire_bytes_up or 0 for one in taken.participations) == taken.result.bytes_up
    assert sum(one.wire_bytes_down or 0 for one in taken.participations) == taken.result.bytes_down


def test_losses_are_kept_step_by_step(taken: Recorded) -> None:
    """Every step's loss, their mean, and the first ones apart."""
    where = {block.id: block for block in taken.blocks}
    for one in taken.participations:
        assert one.block is not None
        block = where[one.block]
        assert block.losses is not None
        losses = block.losses[one.block_row]
        losses = losses[~np.isnan(losses)]
        assert len(losses) == one.steps
        assert one.loss == pytest.approx(losses.mean(), rel=1e-5)
        assert one.first_loss == pytest.approx(losses[:2].mean(), rel=1e-5)
        assert one.last_loss == pytest.approx(losses[-1])
        assert one.bad_step is None


def test_each_step_that_was_asked_for_was_looked_at(taken: Recorded) -> None:
    """With `steps = every`: the gradient's norm in every layer, of every client and step."""
    wanted = {(one.client, one.attempt, step) for one in taken.participations for step in range(one.steps or 0)}
    found = taken.sampled()
    assert found.keys() == wanted
    assert all(stats.shape == (len(LAYERS), 1) and np.isfinite(stats).all() for stats in found.values())


def test_where_a_client_was_trained_can_be_told(taken: Recorded) -> None:
    """Executor, chunk and slot: nobody shares a place in a batch; the times lie inside the round's."""
    batched = taken.result.executor == "vectorised"
    for number, rnd in enumerate(taken.rounds):
        some = [one for one in taken.participations if one.round == number]
        places = {(one.chunk, one.slot) for one in some}
        assert len(places) == (4 if batched else 1)
        assert {one.chunk for one in some} == ({0, 1} if batched else {0})
        assert {one.executor for one in some} == {taken.result.executor}
        assert {one.attributed for one in some} == {int(batched)}
        assert all(rnd.start_ns <= one.start_ns < one.end_ns <= (rnd.end_ns or 0) for one in some)
        assert all((one.train_s or 0) > 0 and (one.peak_memory_bytes or 0) > 2**20 for one in some)


def test_clients_received_the_rounds_model(taken: Recorded) -> None:
    """By fingerprint, which is another one in every round."""
    assert {(one.round, one.received) for one in taken.participations} == {
        (rnd.number, rnd.fingerprint) for rnd in taken.rounds
    }
    assert len({rnd.fingerprint for rnd in taken.rounds}) == 3


def test_models_are_kept_and_described(taken: Recorded) -> None:
    """The first, each round's and the last: as they were, with their drift."""
    models = {blob.version: safetensors.torch.load(data) for blob, data in taken.blobs if blob.kind == "model"}
    assert models.keys() == {0, 1, 2, 3}
    for number, state in enumerate(taken.spy.states):
        assert models[number + 1].keys() == state.keys()
        assert all(torch.equal(models[number + 1][name], tensor) for name, tensor in state.items())
    assert all(torch.equal(models[3][name], tensor) for name, tensor in taken.result.model.state_dict().items())
    assert [block.version for block in taken.models] == [0, 1, 2, 3]
    rows = [torch.cat([models[version][name].flatten() for name in LAYERS]) for version in range(4)]
    for version, block in enumerate(taken.models):
        assert block.drift_first == pytest.approx(float(torch.dist(rows[version], rows[0])), rel=1e-4)
        assert block.drift_last == pytest.approx(float(torch.dist(rows[version], rows[max(version - 1, 0)])), rel=1e-4)


def test_updates_are_kept_when_asked_for(taken: Recorded) -> None:
    """Whole, by client and attempt."""
    kept = {(b.client, b.attempt): safetensors.torch.load(data) for b, data in taken.blobs if b.kind == "update"}
    assert kept.keys() == {_key(one) for one in taken.participations}
    for one in taken.participations:
        tensors = kept[_key(one)]
        assert all(torch.equal(tensors[name], layer) for name, layer in _named(taken.update(one)).items())


def test_evaluations_are_of_the_new_model(taken: Recorded) -> None:
    """On the test rows after each round, and in the end on every client's own held-out rows."""
    federation, model = build(taken.job), taken.result.model
    overall = [one for one in taken.evaluations if one.client is None]
    assert [one.round for one in overall] == [0, 1, 2]
    assert (overall[-1].loss, overall[-1].accuracy) == (taken.result.loss, taken.result.accuracy)
    own = {one.client: one for one in taken.evaluations if one.client is not None}
    assert own.keys() == {
        name for name, rows in zip(federation.clients, federation.holdout_rows, strict=True) if len(rows)
    }
    for client, rows in zip(federation.clients, federation.holdout_rows, strict=True):
        loss, accuracy = evaluate(model, federation.x, federation.y, rows)
        assert (own[client].split, own[client].round, own[client].samples) == ("holdout", 2, len(rows))
        assert own[client].loss == pytest.approx(loss, rel=1e-4)
        assert own[client].accuracy == pytest.approx(accuracy)


def test_the_servers_phases_are_spans(taken: Recorded) -> None:
    """Select, sending, taking in what comes back as it comes, aggregate and evaluate, in that order; around what has to
    do with clients there is one, so that nothing between them goes untold."""
    for number in range(3):
        spans = sorted((one.start_ns, one.name) for one in taken.spans if one.round == number)
        order = [name for name, _ in groupby(name for _, name in spans)]
        assert order == ["select", "other", "encode", "decode", "aggregate", "evaluate"]
        (around,) = [one for one in taken.spans if one.round == number and one.name == "other"]
        inside = [one for one in taken.spans if one.round == number and one.name in ("encode", "decode")]
        assert json.loads(around.attributes or "{}")["name"] == "collect"
        assert all(around.start_ns <= one.start_ns <= (one.end_ns or 0) <= (around.end_ns or 0) for one in inside)
    assert [one.round for one in taken.spans if one.name == "fl.progress"] == [None] * 3  # between two rounds
    assert taken.failures == []
    assert [(one.selected, one.used, one.failed, one.error) for one in taken.rounds] == [(4, 4, 0, None)] * 3


def test_chunks_of_one_keep_their_numbers(tmp_path: Path) -> None:
    """Results that are handled together are still told apart."""
    taken = Recorded(small({"train.rounds": 1, "execute.chunk": 1}, executor="vectorised"), tmp_path)
    assert sorted((one.chunk, one.slot) for one in taken.participations) == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert {one.attributed for one in taken.participations} == {1}
