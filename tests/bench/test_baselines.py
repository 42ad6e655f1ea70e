"""The contestants of the engine bench: they get the same problem, learn it alike, and say what they lack."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch

from fedvitals.bench.baselines.as_job import job_of
from fedvitals.bench.baselines.command import MODULES, SOURCE, Measured, measure_elsewhere
from fedvitals.bench.baselines.dataloader_loop import DataLoaderLoop
from fedvitals.bench.baselines.flower_simulation import FlowerSimulation
from fedvitals.bench.baselines.pfl_research import PflResearch
from fedvitals.bench.baselines.plain_loop import PlainLoop
from fedvitals.bench.baselines.problem import NAMES, Problem, named
from fedvitals.bench.baselines.protocol import Baseline
from fedvitals.errors import JobError, TrainingError
from fedvitals.train.build import build
from fedvitals.train.models import build_model


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As the bench runs them: threads make small tensors slow."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def few_digits() -> Problem:
    """Ten clients of the digits, and a pass more, so that a test learns something."""
    whole = named("digits")
    return replace(whole, clients=whole.clients[:10], epochs=3)


def test_problems_are_functions_of_their_names() -> None:
    """Made again in another process they have the same rows."""
    digests = ", ".join(f"sha256({name.replace('-', '_')}()['x_train'].tobytes()).hexdigest()" for name in NAMES)
    code = f"from hashlib import sha256; from fedvitals.bench.baselines.as_job import *; print({digests})"
    command = [sys.executable, "-c", code]
    again = subprocess.run(command, capture_output=True, text=True, check=True, env=_environment())
    rows = [np.concatenate([x for x, _ in named(name).clients]) for name in NAMES]
    assert again.stdout.split() == [sha256(part.tobytes()).hexdigest() for part in rows]


def test_a_model_begins_with_the_same_weights_at_every_call() -> None:
    """And making it leaves the caller's random numbers as they were."""
    before = torch.random.get_rng_state()
    for name in NAMES:
        first, second = named(name).model().state_dict(), named(name).model().state_dict()
        assert all(torch.equal(first[key], second[key]) for key in first)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_problems_have_the_sizes_they_claim() -> None:
    """Clients, rows and shapes of the published protocols; no test row is a client's."""
    sizes = {
        "tutorial": (100, 200, (32,), 3, 32),
        "digits": (100, 115, (64,), 1, 16),
        "cnn-batch10": (20, 100, (1, 28, 28), 1, 10),
        "cnn-batch32": (20, 100, (1, 28, 28), 1, 32),
        "cnn-8x8": (100, 115, (1, 8, 8), 1, 16),
    }
    for name, (clients, rows, shape, epochs, batch) in sizes.items():
        problem = named(name)
        assert (len(problem.clients), problem.epochs, problem.batch) == (clients, epochs, batch)
        assert all(x.shape == (rows, *shape) and y.shape == (rows,) for x, y in problem.clients)
        held = {row.tobytes() for row in problem.test[0]}
        assert sum(row.tobytes() in held for x, _ in problem.clients for row in x) <= 0.001 * problem.rows


def test_an_unknown_problem_is_refused() -> None:
    """With the name that was meant."""
    with pytest.raises(JobError, match="did you mean 'digits'"):
        named("digit")


@pytest.mark.parametrize("baseline", [PlainLoop(), DataLoaderLoop(), PflResearch()], ids=lambda b: b.name)
def test_every_contestant_learns_the_same(baseline: Baseline) -> None:
    """After the same rounds from the same weights each is about as right, and a second run begins anew."""
    lacking = baseline.available()
    if lacking is not None:
        pytest.skip(lacking)
    problem = few_digits()
    baseline.prepare(problem)
    assert baseline.run(4) > 0
    accuracy = baseline.accuracy()
    assert accuracy == pytest.approx(0.90, abs=0.04)
    baseline.run(4)
    assert baseline.accuracy() == pytest.approx(accuracy, abs=0.04)


def test_the_loops_average_by_rows() -> None:
    """One client with all rows but one decides: the average is not by heads."""
    problem = few_digits()
    (x, y), (few_x, few_y) = problem.clients[0], problem.clients[1]
    lopsided = replace(problem, clients=((x, y), (few_x[:1], few_y[:1])), lr=1e-3, momentum=0.0, epochs=1)
    shares = [len(y) / (len(y) + 1), 1 / (len(y) + 1)]
    for baseline in (PlainLoop(), DataLoaderLoop()):
        baseline.prepare(lopsided)
        baseline.run(0)  # the warm-up round alone
        ends = []
        for alone in lopsided.clients:
            single = type(baseline)()
            single.prepare(replace(lopsided, clients=(alone,)))
            single.run(0)
            ends.append(_weights(single))
        wanted = shares[0] * ends[0] + shares[1] * ends[1]
        torch.testing.assert_close(_weights(baseline), wanted, rtol=0, atol=2e-5)


def test_flowers_workers_cannot_be_given_a_private_problem() -> None:
    """They make it by name; another object under that name would be measured on other rows than it says."""
    with pytest.raises(TrainingError, match="by its name"):
        FlowerSimulation().prepare(few_digits())


def test_a_missing_framework_says_what_to_install() -> None:
    """Available, or a line with the package's name; the loops need nothing."""
    assert PlainLoop().available() is None
    for baseline, package in ((PflResearch(), "pfl[pytorch]"), (FlowerSimulation(), "flwr[simulation]")):
        lacking = baseline.available()
        assert lacking is None or f"pip install '{package}'" in lacking


def test_a_contestant_runs_in_another_interpreter() -> None:
    """One line of JSON comes back with rounds, clients, seconds and accuracy."""
    found = measure_elsewhere(sys.executable, "plain_loop", "digits", 1)
    assert isinstance(found, Measured)
    assert (found.baseline, found.problem, found.rounds, found.clients) == ("plain loop", "digits", 1, 100)
    assert found.clients_per_s == pytest.approx(100 / found.seconds)
    assert 0.2 < found.accuracy < 0.8  # two rounds: begun to learn, no more


def test_a_contestant_that_fails_elsewhere_says_why() -> None:
    """Its last words are in the error."""
    with pytest.raises(TrainingError, match="invalid choice"):
        measure_elsewhere(sys.executable, "plain_loop", "no-such-problem", 1)


def test_every_module_has_a_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m` answers --help without its framework."""
    for module in MODULES:
        name = f"fedvitals.bench.baselines.{module}"
        monkeypatch.setattr(sys, "argv", [module, "--help"])
        monkeypatch.delitem(sys.modules, name)
        with pytest.raises(SystemExit, match="0"):
            runpy.run_module(name, run_name="__main__")
        assert "--problem" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_a_problem_is_a_job_of_ours_too(name: str) -> None:
    """The engine gets each client's very rows, the test rows, the settings and a model of the same shapes."""
    problem = named(name)
    job = job_of(problem, rounds=3)
    federation = build(job)
    assert len(federation.clients) == len(problem.clients)
    for rows, (x, y) in zip(federation.train_rows, problem.clients, strict=True):
        order = np.lexsort(federation.x[rows].reshape(len(y), -1).numpy().T)
        wanted = np.lexsort(x.reshape(len(y), -1).T)
        assert np.array_equal(federation.x[rows].numpy()[order], x[wanted].reshape(federation.x[rows].shape))
        assert np.array_equal(federation.y[rows].numpy()[order], y[wanted])
    assert np.array_equal(federation.y[federation.test_rows].numpy(), problem.test[1])
    assert (job.train.epochs, job.train.batch_size, job.train.lr) == (problem.epochs, problem.batch, problem.lr)
    shapes = [tuple(p.shape) for p in build_model(job, federation).parameters()]
    assert shapes == [tuple(p.shape) for p in problem.model().parameters()]
    assert json.loads(json.dumps(job.to_dict()))["train"]["clients_per_round"] == len(problem.clients)


def _weights(baseline: PlainLoop | DataLoaderLoop) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in baseline._global.parameters()])


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(SOURCE))}
