"""Which executor takes a job, why, and that the ways it may differ in do not show in the result."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from small_jobs import EXECUTORS, Told, apart, recorded, run, small
from torch import Tensor

from fedvitals.errors import JobError, TrainingError
from fedvitals.faults.work import LocalWork
from fedvitals.train import executors
from fedvitals.train.engine import Training
from fedvitals.train.executors import chunk_size
from fedvitals.train.trained import Trained

Changes = dict[str, Any]
ONE_ROW: Changes = {"data.rows": 1, "data.partition": "natural", "data.min_rows": 1, "data.holdout": 0.0}


def _told(changes: Changes, executor: str) -> tuple[str, str]:
    told = Told()
    result = run(small({"train.rounds": 1, **changes}, executor=executor), progress=told)
    clients, name, why = told.beginning
    assert (clients, name) == (6, result.executor)
    return name, why


@pytest.mark.parametrize(
    ("changes", "wish", "taken", "why"),
    [
        ({"execute.compiled": False}, "auto", "vectorised", "trains the cohort as one, by hand-batched layers"),
        ({"execute.compiled": False}, "vectorised", "vectorised", "trains the cohort as one, by hand-batched layers"),
        ({}, "sequential", "sequential", "asked for"),
        ({}, "processes", "processes", "asked for"),
        ({"train.clients_per_round": 1}, "auto", "sequential", "one client a round is no batch"),
        ({"model.norm": "batch"}, "auto", "processes", "batch normalisation keeps running statistics"),
        ({"model.dropout": 0.5}, "vectorised", "processes", "dropout draws each client's masks"),
        ({"model.dropout": 0.5, "execute.workers": 1}, "vectorised", "sequential", "dropout draws each client's masks"),
        ({"model.kind": "own_models:plain"}, "vectorised", "vectorised", "by torch.func.vmap"),
        ({"model.kind": "own_models:noisy"}, "vectorised", "processes", "vmap cannot run it"),
        ({"model.kind": "own_models:scripted"}, "vectorised", "processes", "TorchScript runs with the parameters"),
        ({"model.kind": "own_models:running_anew"}, "vectorised", "processes", "writes to the buffer mean"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_the_pick_says_why(changes: Changes, wish: str, taken: str, why: str) -> None:
    """In the result, and in what progress is told."""
    name, reason = _told(changes, wish)
    assert name == taken
    assert why in reason


@pytest.mark.parametrize(
    "model", ["one_relu_twice", "one_layer_twice", "tied_bias", "no_bias", "own_sequential", "hooked", "masked"]
)
def test_awkward_models_are_batched_rightly(model: str) -> None:
    """What a batched version could get wrong: shared objects, ties, an own forward, hooks, integer buffers."""
    changes = {"model.kind": f"own_models:{model}", "train.momentum": 0.5, "train.weight_decay": 0.01}
    one_by_one, as_one = (run(small(changes, executor=e)) for e in ("sequential", "vectorised"))
    assert as_one.executor == "vectorised"
    assert apart(one_by_one, as_one) < 1e-5


@pytest.mark.parametrize("model", ["frozen_first", "unused", "running_written", "running_anew", "noisy"])
def test_awkward_models_are_the_same_on_every_executor(model: str) -> None:
    """Frozen and unused parameters, buffers that each client has of its own, random numbers in training."""
    changes = {"model.kind": f"own_models:{model}", "train.weight_decay": 0.01, "train.rounds": 3}
    results = [run(small(changes, executor=e)) for e in EXECUTORS]
    assert results[0].weights_sha256 == results[1].weights_sha256
    assert apart(results[0], results[2]) < 1e-5


def test_a_function_may_give_the_same_module_again() -> None:
    """The server and the clients have copies of their own; what cannot be copied must be new each time."""
    trained = [run(small({"model.kind": f"own_models:{one}"})).weights_sha256 for one in ("kept", "plain", "uncopied")]
    assert len(set(trained)) == 1
    with pytest.raises(JobError, match="gives the same module again, which cannot be copied"):
        run(small({"model.kind": "own_models:kept_uncopied"}))


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_batch_norm_and_dropout_are_the_same_on_every_executor(kind: str) -> None:
    """Running statistics are averaged, batches are counted, and masks are the same wherever they are drawn."""
    source = "digits" if kind == "cnn" else "synthetic"
    changes = {"data.source": source, "model.kind": kind, "model.norm": "batch", "model.dropout": 0.3}
    size = {"train.batch_size": 60 if kind == "cnn" else 7}
    results = [run(small({**changes, **size}, executor=e)) for e in EXECUTORS]
    assert len({result.weights_sha256 for result in results}) == 1
    assert results[2].executor == "processes"
    state = results[0].model.state_dict()
    counted = {name: int(value) for name, value in state.items() if name.endswith("num_batches_tracked")}
    assert all(steps > 2 for steps in counted.values())
    assert all((value > 0).all() for name, value in state.items() if name.endswith("running_var"))


def test_dropout_masks_belong_to_the_client_and_the_attempt() -> None:
    """On a single row there is nothing else that could make a difference."""
    works = [LocalWork(0, "a", 0, 0, 0.1), LocalWork(0, "b", 0, 0, 0.1), LocalWork(0, "a", 1, 0, 0.1)]
    for dropout, differ in ((0.5, True), (0.0, False)):
        training = Training.prepare(small({**ONE_ROW, "model.dropout": dropout}))
        rows = [training.executor.run([work], training.model.weights.clone(), {}) for work in works]
        updates = [one.updates[0] for results in rows for one in results if isinstance(one, Trained)]
        assert len(updates) == 3
        assert all((torch.dist(updates[0], other) > 1e-3) == differ for other in updates[1:])


@pytest.mark.parametrize("executor", ["processes", "vectorised"])
def test_the_number_of_workers_does_not_matter(executor: str) -> None:
    """Bit for bit, whether one process or three share the chunks."""
    results = [run(small({"execute.workers": workers, "execute.chunk": 2}, executor=executor)) for workers in (1, 2, 3)]
    assert len({result.weights_sha256 for result in results}) == 1


def test_the_chunk_matters_in_the_last_bits_only() -> None:
    """Trained alone, in pairs or all at once."""
    results = [run(small({"execute.chunk": chunk}, executor="vectorised")) for chunk in (1, 2, 3, 100)]
    assert max(apart(results[0], other) for other in results[1:]) < 1e-6


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_order_of_the_cohort_does_not_matter(executor: str) -> None:
    """A client's update is its own, whoever goes before it or beside it."""
    training = Training.prepare(small(executor=executor))
    try:
        works = [LocalWork(client, str(client), 0, 0, 0.1) for client in range(4)]
        forth = _updates(training, works)
        back = _updates(training, works[::-1])
        fewer = _updates(training, works[1:3])
    finally:
        training.executor.close()
    for name, update in forth.items():
        torch.testing.assert_close(back[name], update, rtol=0, atol=1e-7 if executor == "vectorised" else 0)
    assert fewer.keys() == {"1", "2"}
    for name, update in fewer.items():
        torch.testing.assert_close(forth[name], update, rtol=0, atol=1e-7 if executor == "vectorised" else 0)


def _updates(training: Training, works: list[LocalWork]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for result in training.executor.run(works, training.model.weights.clone(), training.model.integers):
        assert isinstance(result, Trained)
        found |= {work.name: row.clone() for work, row in zip(result.works, result.updates, strict=True)}
    return found


@pytest.mark.parametrize(
    "changes",
    [
        {"data.source": "digits", "data.partition": "quantity", "data.sigma": 2.0, "data.min_rows": 1},
        ONE_ROW,
        {"train.batch_size": 1000},
        {"train.batch_size": 1, "data.rows": 8},
    ],
    ids=["unequal", "one row each", "batch above the rows", "batch of one"],
)
def test_clients_of_any_size(changes: Changes) -> None:
    """Unequal clients, a client with one row, a batch larger than the rows: on every executor the same."""
    results = [run(small({**changes, "data.holdout": 0.0}, executor=e)) for e in EXECUTORS]
    assert results[0].weights_sha256 == results[1].weights_sha256
    assert apart(results[0], results[2]) < 1e-5
    assert all(result.failed == 0 for result in results)


def test_chunks_are_a_function_of_the_job() -> None:
    """As asked for; else smaller for larger models, whatever the machine, and never none."""
    assert chunk_size(small({"execute.chunk": 7}), 10**6) == 7
    sizes = [chunk_size(small(), size) for size in (100, 10**6, 10**9)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1
    pictures = small({"model.kind": "cnn"})
    sides = [chunk_size(pictures, 100, (1, side, side)) for side in (8, 28, 1000, 10_000)]
    assert sides == sorted(sides, reverse=True)
    assert sides[0] == sides[1] > sides[2] >= sides[3] == 1


def test_workers_are_as_many_as_asked_or_as_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a system that does not tell which cores a process may use."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert executors._workers(small({"execute.workers": 3})) == 3
    assert executors._workers(small({"execute.workers": 0})) == 5


def test_without_fork_several_workers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason, instead of a hang or a pickling error."""
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    with pytest.raises(TrainingError, match=r"needs fork\(\)"):
        run(small(executor="processes"))


@pytest.mark.parametrize("executor", ["sequential", "vectorised"])
def test_threads_in_this_process_are_as_many_as_a_worker_would_have(executor: str) -> None:
    """Where a client trains must not show in its last bits; whoever takes its result keeps their own threads."""
    seen: list[int] = []
    own = torch.get_num_threads()
    model = {"model.kind": "own_models:plain", "execute.threads": own + 1, "execute.workers": 1}
    training = Training.prepare(small(model, executor=executor))
    trainer: Any = training.executor._trainer  # type: ignore[attr-defined]  # both have one
    taken = trainer.attempt

    def one_by_one(*given: Any) -> Any:
        seen.append(torch.get_num_threads())
        return taken(*given)

    def as_a_batch(*given: Any) -> Iterator[Any]:
        yield from one_by_one(*given)

    trainer.attempt = one_by_one if executor == "sequential" else as_a_batch
    for _ in training.executor.run([LocalWork(0, "0", 0, 0, 0.1)], training.model.weights.clone(), {}):
        seen.append(torch.get_num_threads())
    assert seen == [own + 1, own]


def test_workers_have_a_core_for_each_of_their_threads(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Unless more are asked for, which is said to be slow."""
    monkeypatch.setattr(executors, "_cores", lambda: 4)
    assert [executors._workers(small({"execute.workers": 0, "execute.threads": n})) for n in (1, 2, 3, 8)] == [
        4,
        2,
        1,
        1,
    ]
    executors._limits(small({"execute.threads": 2}), 2)
    executors._limits(small({"execute.threads": 1}), 9)
    assert not caplog.records
    executors._limits(small({"execute.threads": 2}), 3)
    assert "3 workers of execute.threads = 2 share 4 cores" in caplog.text


@pytest.mark.parametrize("executor", EXECUTORS)
def test_batch_norm_leaves_out_a_last_batch_of_one_row(executor: str, tmp_path: Path) -> None:
    """The client trains on the others instead of failing; with accumulated batches, too."""
    rows: Changes = {"data.partition": "natural", "data.rows": 41, "data.holdout": 0.0, "model.norm": "batch"}
    for changes, steps in ({**rows}, 10), ({**rows, "train.accumulate": 2}, 6):
        result = run(small(changes, executor=executor), tmp_path)
        assert result.failed == 0
        with recorded(tmp_path) as reader:
            assert {one.steps for one in reader.participations()} == {steps}


def test_pixels_are_company_enough_for_batch_norm(tmp_path: Path) -> None:
    """A picture alone can be normalised over its pixels: nothing is left out, and a batch of one is no trouble."""
    pictures: Changes = {
        "data.source": "digits",
        "model.kind": "cnn",
        "model.channels": [3],
        "model.norm": "batch",
        "train.batch_size": 1,
        "train.epochs": 1,
    }
    assert run(small(pictures), tmp_path).failed == 0
    with recorded(tmp_path) as reader:
        assert all(one.steps == one.samples for one in reader.participations())


@pytest.mark.parametrize("executor", EXECUTORS)
def test_batch_norm_over_single_rows_is_refused(executor: str, tmp_path: Path) -> None:
    """Before anything is trained or written, naming what to change."""
    with pytest.raises(JobError, match=r"client '0' trains on one row, as do 5 more.*data\.min_rows"):
        run(small({**ONE_ROW, "model.norm": "batch"}, executor=executor), tmp_path)
    with pytest.raises(JobError, match=r"train\.batch_size = 1.*at least two rows"):
        run(small({"model.norm": "batch", "train.batch_size": 1}, executor=executor), tmp_path)
    assert not list(tmp_path.iterdir())
