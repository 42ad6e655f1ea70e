"""A job carried out: repeatable, the same on every executor, and leaving the process as it found it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_jobs import EXECUTORS, Spy, Told, apart, run, small, weights, with_file

from fedvitals.errors import FedvitalsError, TrainingError
from fedvitals.settings import Settings
from fedvitals.store import SQLiteStore
from fedvitals.train.engine import observing
from fedvitals.vocabulary import Status

Changes = dict[str, Any]
CNN: Changes = {"data.source": "pictures", "model.kind": "cnn", "model.channels": [3, 4], "model.kernel": 3}
MODELS: dict[str, Changes] = {
    "mlp": {},
    "logistic": {"model.kind": "logistic"},
    "deep": {"model.hidden": [8, 6], "train.momentum": 0.9, "train.weight_decay": 0.01},
    "cnn": CNN,
    "cnn of one channel": {"data.source": "digits", "model.kind": "cnn", "model.channels": [3], "train.batch_size": 64},
    "cnn with group norm": {**CNN, "model.norm": "group"},
    "mlp with group norm": {"model.norm": "group", "model.hidden": [32]},
    "narrow mlp with group norm": {"model.norm": "group", "model.hidden": [16]},
    "gru of tokens": {"data.source": "tokens", "model.kind": "gru"},
    "gru of sequences": {"data.source": "sequences", "model.kind": "gru"},
    "own": {"model.kind": "own_models:plain"},
    "mlp by torch": {"execute.compiled": False, "train.momentum": 0.9},
    "cnn by torch": {**CNN, "execute.compiled": False},
    "cnn of one channel by torch": {
        "data.source": "digits",
        "model.kind": "cnn",
        "model.channels": [3],
        "train.batch_size": 64,
        "execute.compiled": False,
    },
}
CIFAR = Path(__file__).resolve().parents[3] / "shared" / "data" / "cifar10_subset" / "cifar10_subset.npz"


@pytest.mark.parametrize(("executor", "compiled"), [*((one, True) for one in EXECUTORS), ("vectorised", False)])
def test_a_job_repeats_bit_for_bit_watched_or_not(executor: str, compiled: bool, tmp_path: Path) -> None:
    """Three times the same weights: unwatched, watched a little, and with every step and update kept."""
    changes: Changes = {"train.momentum": 0.9, "train.clip": 1.0, "train.proximal": 0.01, "execute.compiled": compiled}
    job = small(changes, executor=executor)
    bare = run(job)
    watched = run(job, tmp_path)
    closely = run(job, tmp_path, steps="full", keep_updates=True)
    assert {bare.weights_sha256} == {watched.weights_sha256, closely.weights_sha256}
    assert {one.executor for one in (bare, watched, closely)} == {executor}
    assert (bare.run_id, bare.accuracy) == (None, watched.accuracy)


@pytest.mark.parametrize("model", MODELS)
def test_executors_agree(model: str, tmp_path: Path) -> None:
    """One by one and on all cores bit for bit; as one batch within 1e-5 of the largest weight after a round, and with
    the same accuracy in the end."""
    changes = with_file(MODELS[model], tmp_path)
    one_by_one, on_cores, as_one = (run(small({**changes, "train.rounds": 1}, executor=e)) for e in EXECUTORS)
    assert as_one.executor == "vectorised"
    assert on_cores.weights_sha256 == one_by_one.weights_sha256
    assert apart(one_by_one, as_one) < 1e-5
    slow, fast = (run(small({**changes, "train.rounds": 4}, executor=e)) for e in ("sequential", "vectorised"))
    assert slow.accuracy == fast.accuracy
    assert not torch.equal(weights(slow), weights(one_by_one))


@pytest.mark.skipif(not CIFAR.exists(), reason=f"no {CIFAR.name} beside the repository")
def test_executors_agree_on_real_pictures() -> None:
    """Three channels of 32 x 32, through layers without kinks: what is left is rounding, after 18 steps too.

    Through ReLU and max-pooling the same jobs part by up to 1e-3: at an input where two values of a window are equal
    but for rounding, either may win, and plain float32 training is as far from float64 there as ours are from each
    other.
    """
    changes: Changes = {
        "data.source": str(CIFAR),
        "data.partition": "iid",
        "data.clients": 100,
        "model.kind": "own_models:smooth_pictures",
        "train.rounds": 2,
        "train.epochs": 3,
        "train.clients_per_round": 2,
        "train.batch_size": 32,
    }
    one_by_one, as_one = (run(small(changes, executor=e)) for e in ("sequential", "vectorised"))
    assert apart(one_by_one, as_one) < 1e-5


@pytest.mark.parametrize("executor", EXECUTORS)
def test_nobody_elses_random_numbers_or_threads_are_touched(executor: str) -> None:
    """Torch's, numpy's and Python's generators go on where they were, and torch has the threads it had."""
    torch.manual_seed(5)
    before = _global_randomness()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run(small({"model.kind": "own_models:noisy"}, executor=executor))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert _global_randomness() == before


def _global_randomness() -> tuple[object, ...]:
    numpys = np.random.get_state(legacy=False)["state"]
    return torch.random.get_rng_state().tolist(), numpys["key"].tolist(), numpys["pos"], random.getstate()


def test_threads_come_back_when_a_job_fails() -> None:
    """Also after an error in the middle of a round."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(TrainingError):
            run(small({"model.kind": "own_models:failing"}))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_the_callers_random_state_does_not_matter() -> None:
    """Not even for a model that draws random numbers in training, on one core or on several."""
    digests = []
    for seed, executor in ((1, "sequential"), (2, "sequential"), (3, "processes")):
        torch.manual_seed(seed)
        digests.append(run(small({"model.kind": "own_models:noisy"}, executor=executor)).weights_sha256)
    assert len(set(digests)) == 1


def test_the_result_says_what_happened() -> None:
    """Rounds, figures of the last evaluation, bytes of every model and update, and the model itself."""
    told, spy = Told(), Spy()
    result = run(small({"train.rounds": 3}), hook=spy, progress=told)
    assert (result.rounds, result.failed, result.executor) == (3, 0, "sequential")
    assert told.result is result
    assert [one[:2] for one in told.rounds] == [(1, 3), (2, 3), (3, 3)]
    assert told.rounds[-1][2:] == (result.loss, 4, 0)
    assert result.bytes_up == result.bytes_down > 3 * 4 * 4 * weights(result).numel()
    assert result.wall_s > 0
    assert result.clients_per_s == pytest.approx(12 / result.wall_s)
    assert all(torch.equal(spy.states[-1][name], tensor) for name, tensor in result.model.state_dict().items())


def test_evaluation_may_be_rare() -> None:
    """Every so many rounds, and always after the last."""
    told = Told()
    result = run(small({"train.rounds": 5, "train.evaluate_every": 2}), progress=told)
    losses = [one[2] for one in told.rounds]
    assert losses[0] is None
    assert losses[1] is not None
    assert losses[1] == losses[2] != losses[3]
    assert losses[4] == result.loss != losses[3]


def test_it_learns() -> None:
    """The digits are told apart after a few rounds: the whole of it does what it is for."""
    job = small({"data.source": "digits", "train.rounds": 12, "model.hidden": [32], "train.lr": 0.2}, executor="auto")
    result = run(job)
    assert result.accuracy is not None
    assert result.accuracy > 0.85


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data.source": "missing.npz"}, "missing.npz"),
        ({"data.source": "own_models:nothing"}, "not in that module"),
        ({"data.clients": 100, "data.source": "digits", "data.min_rows": 50}, "need 5,000 rows"),
        ({"model.kind": "cnn"}, "cnn"),
        ({"model.kind": "own_models:double"}, "cannot read a row"),
        ({"model.kind": "own_models:untrainable"}, "nothing to train"),
        ({"model.kind": "own_models:shared_memory"}, "another parameter's memory"),
        ({"codec.up": "zip"}, "there is no codec 'zip'"),
        ({"faults": [{"kind": "frozen-layer", "clients": [0], "strength": 9}]}, "trainable layers 0 to 3"),
        (
            {"data.source": "tokens", "model.kind": "gru", "faults": [{"kind": "nan-batch", "clients": [0]}]},
            "these rows are tokens",
        ),
    ],
)
def test_a_job_that_cannot_be_leaves_nothing(changes: Changes, said: str, tmp_path: Path) -> None:
    """One clear error before the first round, no folder, no file."""
    folder = tmp_path / "runs"
    with pytest.raises(FedvitalsError, match=said):
        run(small(with_file(changes, tmp_path)), folder)
    assert not folder.exists()


def test_a_run_that_fails_is_marked_so(tmp_path: Path) -> None:
    """What was recorded up to then stays, with the reason."""
    with pytest.raises(TrainingError, match="all 4 clients failed") as raised:
        run(small({"model.kind": "own_models:failing"}), tmp_path)
    (record,) = SQLiteStore(tmp_path).runs()
    assert record.status == Status.FAILED
    assert str(raised.value) in record.health["error"]


def test_the_job_may_ask_for_what_is_recorded() -> None:
    """A key of `[observe]` that the job sets wins over the setting; one that it leaves alone does not."""
    settings = Settings(steps="every", budget=0.5, keep_models=False)
    asked = observing(small({"observe.budget": 0.1, "observe.level": "summary"}), settings)
    assert (asked.budget, asked.level) == (0.1, "summary")
    assert (asked.steps, asked.keep_models) == ("every", False)
