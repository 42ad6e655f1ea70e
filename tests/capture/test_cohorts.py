"""A cohort trained as one batch: the same records as if its clients had come one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load
from torch import Tensor, nn
from watching import IDS, by_client, flat, moved, opened, read, round_of, small_model, stacked

from fedvitals.capture.nothing import NoCohort
from fedvitals.vocabulary import STATISTICS, Participation


def matrix(states: dict[str, Tensor]) -> Tensor:
    return torch.cat([values.flatten(1) for values in states.values()], dim=1)


def in_parts(model: nn.Module, form: str) -> Any:
    states = stacked(model)
    return {
        "dict": states,
        "dict of arrays": {name: values.numpy() for name, values in states.items()},
        "matrix": matrix(states),
        "matrix of numpy": matrix(states).numpy(),
        "half": {name: values.half() for name, values in states.items()},
    }[form]


def one_by_one(model: nn.Module) -> dict[str, Participation]:
    with round_of(model, name="single") as rnd:
        for index, client in enumerate(IDS):
            with rnd.client(client, samples=index) as c:
                c.submit(moved(model, seed=index))
    return by_client("single")


@pytest.mark.parametrize("form", ["dict", "dict of arrays", "matrix", "matrix of numpy", "half"])
def test_a_cohort_gives_what_its_clients_would_have_given(form: str) -> None:
    """Statistics, cosines and sketches, whether it comes as stacked tensors or as a flat matrix."""
    model = small_model()
    with round_of(model) as rnd:
        opened(rnd, [3, 1, 2], samples=[0, 1, 2]).submit(in_parts(model, form), torch.tensor([0.5, 0.25, 0.125]))
    single, found = one_by_one(model), by_client("watched")
    assert list(found) == IDS
    told = [(one.samples, one.loss, one.attributed) for one in found.values()]
    assert told == [(0, 0.5, 1), (1, 0.25, 1), (2, 0.125, 1)]
    rough = 2e-2 if form == "half" else 1e-5
    with read("watched") as reader, read("single") as other:
        for client in IDS:
            one, two = found[client], single[client]
            assert one.update_norm == pytest.approx(two.update_norm, rel=rough, abs=rough)
            assert one.cosine == pytest.approx(two.cosine, rel=rough, abs=rough)
            assert (one.nonfinite, one.raw_bytes_up) == (0, two.raw_bytes_up)
            assert one.received == reader.rounds()[0].fingerprint
            ours, theirs = reader.update_stats(one), other.update_stats(two)
            assert [s.layer for s in ours] == [s.layer for s in theirs]
            for field in STATISTICS:
                np.testing.assert_allclose(
                    [getattr(s, field) for s in ours], [getattr(s, field) for s in theirs], rtol=2e-2, atol=5e-4
                )


def test_steps_are_told_with_losses_and_looked_at_when_sampled() -> None:
    """Every loss counts; of the gradients those of the sampled steps."""
    model = small_model()
    gradients = [{name: values * (step + 1) for name, values in stacked(model).items()} for step in range(3)]
    losses = [torch.tensor([1.0, 2.0, 3.0]) / (step + 1) for step in range(3)]
    with round_of(model, steps="every") as rnd:
        cohort = opened(rnd, IDS)
        for gradient, loss in zip(gradients, losses, strict=True):
            cohort.step(gradient, loss)
        cohort.submit(stacked(model))
    found = by_client()
    table = torch.stack(losses)
    for index, client in enumerate(IDS):
        one = found[client]
        assert (one.steps, one.bad_step) == (3, None)
        assert one.loss == pytest.approx(float(table[:, index].mean()))
        assert one.first_loss == pytest.approx(float(table[:2, index].mean()))
        assert one.last_loss == pytest.approx(float(table[2, index]))
    with read() as reader:
        (block,) = reader.step_blocks()
        (updates,) = reader.update_blocks()
    assert (block.steps, block.clients) == ((0, 0, 0, 1, 1, 1, 2, 2, 2), tuple(IDS) * 3)
    expected = [[float(v[i].norm()) for v in gradient.values()] for gradient in gradients for i in range(3)]
    np.testing.assert_allclose(block.stats[..., 0], expected, rtol=1e-5)
    assert updates.losses is not None
    np.testing.assert_allclose(updates.losses, table.T, rtol=1e-6)


def test_governed_sampling_looks_at_the_first_step_at_least() -> None:
    """As for single clients."""
    model = small_model()
    with round_of(model) as rnd:
        cohort = opened(rnd, IDS)
        for _ in range(5):
            cohort.step(stacked(model), torch.ones(3))
        cohort.submit(stacked(model))
    with read() as reader:
        assert {step for block in reader.step_blocks() for step in block.steps} >= {0}


@pytest.mark.parametrize("clients", [1, 3])
def test_steps_are_kept_that_are_told_without_losses(clients: int) -> None:
    """What a step takes is judged by them; a count too few costs only itself."""
    model = small_model()
    with round_of(model) as rnd:
        opened(rnd, IDS[:clients]).submit(stacked(model, clients), steps=np.arange(4, 4 + clients))
        opened(rnd, ["8", "9"]).submit(stacked(model, 2), steps=np.array([4]))
    found = {client: one.steps for client, one in by_client().items()}
    assert found == dict(zip(IDS[:clients], [4, 5, 6], strict=False)) | {"8": None, "9": None}


@pytest.mark.parametrize("clients", [1, 3])
def test_a_told_loss_goes_before_the_mean_of_its_steps(clients: int) -> None:
    """`submit(states, losses)` is the last word on the loss."""
    model = small_model()
    with round_of(model) as rnd:
        cohort = opened(rnd, IDS[:clients])
        cohort.step(None, torch.ones(clients))
        cohort.submit(stacked(model, clients), torch.full((clients,), 7.0))
    assert [(one.loss, one.first_loss) for one in by_client().values()] == [(7.0, 1.0)] * clients


@pytest.mark.parametrize("clients", [1, 2])
def test_losses_of_unequal_length_are_padded_not_counted(clients: int) -> None:
    """What lies beyond a client's own steps is no bad step of its; a client without steps has no loss."""
    model = small_model()
    losses = np.array([[4.0, 2.0, np.nan, np.nan], [1.0, np.inf, 1.0, 1.0]], np.float32)[:clients]
    with round_of(model) as rnd:
        opened(rnd, IDS[:clients]).submit(
            updates=torch.ones(clients, 43), step_losses=losses, steps=np.array([2, 4])[:clients]
        )
        opened(rnd, ["idle", "busy"]).submit(
            updates=torch.ones(2, 43), step_losses=np.ones((2, 1), np.float32), steps=np.array([0, 1])
        )
    found = by_client()
    one = found[IDS[0]]
    assert (one.steps, one.loss, one.first_loss, one.last_loss, one.bad_step) == (2, 3.0, 3.0, 2.0, None)
    if clients == 2:
        assert (found[IDS[1]].steps, found[IDS[1]].bad_step, found[IDS[1]].last_loss) == (4, 1, 1.0)
    assert (found["idle"].steps, found["idle"].loss, found["idle"].last_loss) == (0, None, None)
    assert found["busy"].loss == 1.0


def test_without_losses_sampled_gradients_bracket_the_first_bad_step() -> None:
    """Between the last sampled step that was finite and the first that was not."""
    model = small_model()
    with round_of(model, steps="every") as rnd:
        cohort = opened(rnd, IDS)
        for step in range(3):
            gradients = stacked(model)
            if step == 2:
                gradients["0.bias"][1] = float("nan")
            cohort.step(gradients)
        cohort.submit(stacked(model))
    assert [(one.good_step, one.bad_step) for one in by_client().values()] == [(None, None), (1, 2), (None, None)]


@pytest.mark.parametrize("sizes", [[5, 5, 5, 5], [1, 19], [64, 64, 8], [20]])
def test_many_parts_of_a_round_give_the_cosines_of_one(sizes: list[int]) -> None:
    """Within the sketches' error: each client's is to the mean of all others of the round."""
    total, model = sum(sizes), nn.Linear(60, 40)
    size = 60 * 40 + 40
    generator = torch.Generator().manual_seed(5)
    common = torch.randn(size, generator=generator)
    updates = common + 1.5 * torch.randn(total, size, generator=generator)
    updates[0] = -updates[0]
    with round_of(model) as rnd:
        start = 0
        for part in sizes:
            opened(rnd, list(range(start, start + part))).submit(updates=updates[start : start + part].clone())
            rnd.recorder.flush()
            start += part
    others = updates.double().sum(0) - updates.double()
    exact = torch.cosine_similarity(updates.double(), others, dim=1).numpy()
    found = np.array([by_client()[str(i)].cosine for i in range(total)], np.float64)
    assert np.abs(found - exact).max() < (1e-5 if len(sizes) == 1 else 4 / 16)
    assert found[0] < -0.3
    assert (found[1:] > 0.1).all()


@pytest.mark.parametrize("level", ["sealed", "summary"])
def test_a_sealed_run_keeps_nothing_of_single_updates(level: str) -> None:
    """Neither statistics nor sketches, gradients or updates; what else is known of a client is kept."""
    model = small_model()
    with round_of(model, level=level, steps="every", keep_updates=True) as rnd:
        cohort = opened(rnd, IDS, samples=[1, 2, 3])
        cohort.step(stacked(model), torch.ones(3))
        cohort.submit(stacked(model))
        with rnd.client("single") as c:
            c.watch(model)
            c.submit(moved(model), loss=0.5)
    sealed = level == "sealed"
    found = by_client()
    assert set(found) == {*IDS, "single"}
    assert [one.update_norm is None for one in found.values()] == [sealed] * 4
    assert [one.samples for one in found.values()] == [1, 2, 3, None]
    with read() as reader:
        assert (list(reader.update_blocks()) == []) == sealed
        assert (list(reader.step_blocks()) == []) == sealed
        assert {one.kind for one in reader.blobs()} == ({"model"} if sealed else {"model", "update"})


def test_sketches_can_be_switched_off() -> None:
    """Then the cosines of the cohort are all that tells of likeness."""
    model = small_model()
    with round_of(model, sketches=False) as rnd:
        opened(rnd, IDS).submit(stacked(model))
    with read() as reader:
        (block,) = reader.update_blocks()
        assert reader.sketch(by_client()["1"]) is None
    assert (block.sketches, block.unit_norms, block.unit_sums, block.unit_sketches) == (None,) * 4
    assert all(one.cosine is not None for one in by_client().values())


def test_kept_updates_are_the_updates() -> None:
    """As safetensors that anybody can read, one a participation, of cohorts and single clients."""
    model = small_model()
    states = stacked(model)
    with round_of(model, keep_updates=True, number=4) as rnd:
        opened(rnd, IDS).submit(states)
        with rnd.client("single") as c:
            c.submit(moved(model, seed=9))
    start = dict(model.state_dict())
    with read() as reader:
        blobs = {blob.client: blob for blob in reader.blobs() if blob.kind == "update"}
        assert set(blobs) == {*IDS, "single"}
        for index, client in enumerate(IDS):
            assert (blobs[client].round, blobs[client].attempt) == (4, 0)
            kept = load(reader.blob(blobs[client].name))
            assert {name: tuple(t.shape) for name, t in kept.items()} == {n: tuple(t.shape) for n, t in start.items()}
            for name, tensor in kept.items():
                torch.testing.assert_close(tensor, states[name][index] - start[name], rtol=0, atol=1e-7)
        assert flat(load(reader.blob(blobs["single"].name))).norm() == pytest.approx(by_client()["single"].update_norm)


@pytest.mark.parametrize(
    ("states", "says"),
    [
        (lambda m: stacked(m, 4), "shape (4, 43), expected (3, 43)"),
        (lambda m: {**stacked(m), "0.bias": torch.zeros(3, 6)}, "0.bias has shape (3, 6)"),
        (lambda m: {**stacked(m), "0.bias": torch.zeros(2, 5)}, "of [2, 3] clients"),
        (lambda m: {"0.weight": torch.zeros(3, 5, 4)}, "0.bias is missing"),
        (lambda m: torch.zeros(3, 7), "expected (clients, 43)"),
        (lambda m: torch.zeros(3), "expected (clients, 43)"),
        (lambda m: None, "needs the stacked states"),
    ],
)
def test_a_cohort_that_does_not_fit_is_a_failure_and_is_kept_without_statistics(states: Any, says: str) -> None:
    """What is known beside the updates is not lost."""
    model = small_model()
    with round_of(model) as rnd:
        opened(rnd, IDS, samples=[4, 5, 6]).submit(states(model), torch.ones(3))
    found = by_client()
    assert [(one.samples, one.loss, one.update_norm) for one in found.values()] == [(n, 1.0, None) for n in (4, 5, 6)]
    with read() as reader:
        (failure,) = reader.failures()
    assert (failure.stage, failure.kind) == ("submit", "shape mismatch")
    assert says in failure.message


def test_a_column_of_the_wrong_length_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    """It must not cut the cohort short."""
    model = small_model()
    with round_of(model) as rnd:
        opened(rnd, IDS, samples=[1, 2]).submit(stacked(model), accuracy=[0.5], epochs=2, phases_s={"mine": [1.0] * 3})
    found = by_client()
    assert list(found) == IDS
    assert [(o.samples, o.accuracy, o.epochs, o.other_s) for o in found.values()] == [(None, None, 2, 1.0)] * 3
    assert len([r for r in caplog.records if "for 3 clients" in r.getMessage()]) == 1


def test_a_round_counts_its_cohort_by_what_became_of_each() -> None:
    """Late ones and rejected ones are not used, dropped ones failed, and a cohort that never submits is only asked."""
    model = small_model()
    with round_of(model) as rnd:
        opened(rnd, IDS).submit(stacked(model), outcome=["used", "late", "dropped"])
        opened(rnd, ["4", "5"]).submit(stacked(model, 2))
        opened(rnd, ["6"])
        rnd.rejected(["5"])
    with read() as reader:
        (only,) = reader.rounds()
    assert (only.selected, only.used, only.failed) == (6, 2, 1)


def test_a_cohort_is_submitted_once(caplog: pytest.LogCaptureFixture) -> None:
    """The first time counts, with one warning for the second."""
    model = small_model()
    with round_of(model) as rnd:
        cohort = opened(rnd, IDS)
        cohort.submit(stacked(model), torch.ones(3))
        cohort.submit(stacked(model), torch.zeros(3))
    assert [one.loss for one in by_client().values()] == [1.0, 1.0, 1.0]
    assert "submitted before" in caplog.text


def test_a_cohort_without_the_rounds_model_is_not_recorded(caplog: pytest.LogCaptureFixture) -> None:
    """One warning says what it needs."""
    with round_of() as rnd:
        for _ in range(2):
            cohort = rnd.cohort(IDS)
            assert isinstance(cohort, NoCohort)
            cohort.submit({})
    assert [record.getMessage() for record in caplog.records if "model=" in record.getMessage()] != []
    assert len(caplog.records) == 1
    assert by_client() == {}


def test_attempts_go_on_where_single_clients_left_off() -> None:
    """Unless the caller counts them itself; a round counts the clients of its cohorts."""
    model = small_model()
    with round_of(model) as rnd:
        with rnd.client("1"):
            pass
        assert opened(rnd, IDS).attempts == [0, 1, 0]
        cohort = opened(rnd, IDS, attempts=[7, 8, 9])
        cohort.submit(stacked(model))
        assert cohort.attempts == [7, 8, 9]
    assert {name: one.attempt for name, one in by_client().items()} == {"3": 7, "1": 8, "2": 9}
    with read() as reader:
        (one,) = reader.rounds()
    assert (one.selected, one.used, one.failed) == (3, 4, 0)
