"""Gradients of sampled steps: whose, which, and that nothing of it stays behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from watching import batches, breaks, by_client, hooks, only, read, round_of, small_model, started, train

from fedvitals.capture.governor import Governor
from fedvitals.capture.probe import PATIENCE, GradientProbe
from fedvitals.vocabulary import STATISTICS, StepBlock


def no_blame(where: str, error: Exception) -> None:
    raise AssertionError(where) from error


def backward(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]  # torch says no type for it


@pytest.fixture
def probing() -> Iterator[Callable[..., GradientProbe]]:
    """Probes that are taken off again, and their hook with them."""
    probes: list[GradientProbe] = []

    def probe(model: nn.Module, mode: str = "every") -> GradientProbe:
        probes.append(GradientProbe(model, Governor(0.02, mode), no_blame).__enter__())
        return probes[-1]

    yield probe
    for one in probes:
        one.__exit__()
    assert hooks() == 0


def steps_of(client: str = "1") -> StepBlock:
    with read() as reader:
        (block,) = [one for one in reader.step_blocks() if client in one.clients]
        return block


def test_norms_are_those_that_autograd_gives() -> None:
    """At every step, of every layer, as the optimizer saw them."""
    model, data = small_model(), batches(5)
    norms, copy = [], small_model()
    optimizer = torch.optim.SGD(copy.parameters(), lr=0.1)
    for x, y in data:
        optimizer.zero_grad()
        backward(nn.functional.cross_entropy(copy(x), y))
        norms.append([float(torch.linalg.vector_norm(p.grad)) for p in copy.parameters() if p.grad is not None])
        optimizer.step()
    with round_of(model, steps="every") as rnd, rnd.client(1) as c:
        local = small_model()
        c.watch(local)
        train(local, data)
        c.submit(local)
    block = steps_of()
    assert block.steps == (0, 1, 2, 3, 4)
    assert (block.clients, block.attempts) == (("1",) * 5, (0,) * 5)
    np.testing.assert_allclose(block.stats[..., 0], norms, rtol=1e-5)
    assert only().steps == 5
    assert hooks() == 0


def test_whole_statistics_are_those_of_the_gradients(probing: Callable[..., GradientProbe]) -> None:
    """`full` keeps all six of every layer."""
    model = small_model()
    probe = probing(model, "full")
    train(model, batches(1))
    names, steps, stats = probe.results()
    assert steps == [0]
    assert stats.shape == (1, 4, len(STATISTICS))
    for name, found in zip(names, stats[0], strict=True):
        gradient = model.get_parameter(name).grad
        assert gradient is not None
        values = gradient.double().numpy()
        expected = [
            np.linalg.norm(values),
            values.mean(),
            values.std(),
            values.min(),
            values.max(),
            (values == 0).mean(),
        ]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_at_least_one_step_of_each_participation_is_taken() -> None:
    """The governed stride begins as long as can be."""
    with round_of(small_model()) as rnd:
        for client in range(3):
            with rnd.client(client) as c:
                local = small_model(client)
                c.watch(local)
                train(local, batches(20))
                c.submit(local)
    with read() as reader:
        blocks = list(reader.step_blocks())
        taken = {pair for block in blocks for pair in zip(block.clients, block.steps, strict=True)}
    assert {("0", 0), ("1", 0), ("2", 0)} <= taken


def test_a_first_step_without_gradients_is_made_up_for(probing: Callable[..., GradientProbe]) -> None:
    """The first step that has gradients is the one that is taken."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    probe = probing(model, "governed")
    optimizer.step()
    train(model, batches(3))
    assert probe.sampled == [1]
    assert probe.steps_seen == 4


@pytest.mark.parametrize("mode", ["off", "governed"])
def test_steps_are_counted_whether_or_not_they_are_looked_at(mode: str) -> None:
    """`steps = "off"` looks at none."""
    with round_of(small_model(), steps=mode) as rnd, rnd.client(1) as c:
        local = small_model()
        c.watch(local)
        train(local, batches(3))
        c.submit(local)
    assert only().steps == 3
    with read() as reader:
        assert len(list(reader.step_blocks())) == (0 if mode == "off" else 1)


def frozen_first(model: nn.Sequential) -> list[torch.optim.Optimizer]:
    model[0].requires_grad_(False)
    return [torch.optim.SGD(model.parameters(), lr=0.1)]


def empty_group_first(model: nn.Sequential) -> list[torch.optim.Optimizer]:
    parts: list[dict[str, Any]] = [{"params": []}, {"params": list(model.parameters())}]
    return [torch.optim.SGD(parts, lr=0.1)]


def stranger_first(model: nn.Sequential) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD([nn.Parameter(torch.zeros(2)), *model.parameters()], lr=0.1)]


def groups(model: nn.Sequential) -> list[torch.optim.Optimizer]:
    parts: list[dict[str, Any]] = [{"params": model[2].parameters()}, {"params": model[0].parameters(), "lr": 0.2}]
    return [torch.optim.AdamW(parts)]


def one_a_part(model: nn.Sequential) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.Adam(model[2].parameters())]


OPTIMIZERS = [frozen_first, empty_group_first, stranger_first, groups, one_a_part]


@pytest.mark.parametrize("made", OPTIMIZERS, ids=lambda made: made.__name__)
def test_however_optimizers_hold_the_parameters_they_are_found(
    made: Callable[[nn.Sequential], list[torch.optim.Optimizer]], probing: Callable[..., GradientProbe]
) -> None:
    """Frozen first layers, groups, and one optimizer a part of the model: a step is a step, counted once."""
    model = small_model()
    optimizers = made(model)
    probe = probing(model)
    expected = []
    for x, y in batches(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        backward(nn.functional.cross_entropy(model(x), y))
        trained = [p.grad for p in model.parameters() if p.requires_grad]
        expected.append([float(torch.linalg.vector_norm(g)) for g in trained if g is not None])
        for optimizer in optimizers:
            optimizer.step()
    names, steps, stats = probe.results()
    assert (steps, probe.steps_seen) == ([0, 1, 2, 3], 4)
    assert names == [name for name, p in model.named_parameters() if p.requires_grad]
    np.testing.assert_allclose(stats[..., 0], expected, rtol=1e-5)


def test_a_new_optimizer_each_epoch_goes_on_counting(probing: Callable[..., GradientProbe]) -> None:
    """Loops that make their optimizer anew take as many steps."""
    model = small_model()
    probe = probing(model)
    for _ in range(3):
        train(model, batches(2))
    assert probe.sampled == [0, 1, 2, 3, 4, 5]


def test_shared_parameters_are_looked_at_once(probing: Callable[..., GradientProbe]) -> None:
    """Under their first name."""
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    probe = probing(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    backward(model(torch.ones(2, 3)).sum())
    optimizer.step()
    names, _, stats = probe.results()
    assert names == ["0.weight"]
    assert stats[0, 0, 0] == pytest.approx(float(torch.linalg.vector_norm(model[0].weight.grad)), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_norms_of_other_types_do_not_overflow(dtype: torch.dtype, probing: Callable[..., GradientProbe]) -> None:
    """A half ends at 65,504; the norm of a good gradient may be longer."""
    model = nn.Linear(1000, 1, bias=False).to(dtype)
    model.weight.grad = torch.full_like(model.weight, 4000.0)
    probe = probing(model)
    torch.optim.SGD(model.parameters(), lr=0.0).step()
    assert probe.results()[2][0, 0, 0] == pytest.approx(4000.0 * 1000**0.5, rel=1e-3)


def test_layers_without_a_gradient_count_as_nothing() -> None:
    """A layer that the loss does not reach has norm 0; one that is frozen has none."""
    model = nn.ModuleDict({"used": nn.Linear(2, 2), "idle": nn.Linear(2, 2), "frozen": nn.Linear(2, 2)})
    model["frozen"].requires_grad_(False)
    with round_of(model, steps="every") as rnd, rnd.client(1) as c:
        c.watch(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        backward(model["used"](torch.ones(1, 2)).sum())
        optimizer.step()
        c.submit(model)
    norms = steps_of().stats[0, :, 0]
    assert (norms[:2] > 0).all()
    assert norms[2:4].tolist() == [0.0, 0.0]
    assert np.isnan(norms[4:]).all()
    assert only().bad_step is None


def test_the_first_bad_gradient_is_bracketed() -> None:
    """Between the last sampled step that was finite and the first that was not."""
    with round_of(small_model(), steps="every") as rnd:
        for client, poisoned in (("late", 2), ("first", 0), ("never", 9)):
            with rnd.client(client) as c:
                local = small_model()
                c.watch(local)
                data = [(x * (float("nan") if i >= poisoned else 1.0), y) for i, (x, y) in enumerate(batches(4))]
                train(local, data)
                c.submit(local)
    found = by_client()
    assert (found["late"].good_step, found["late"].bad_step) == (1, 2)
    assert (found["first"].good_step, found["first"].bad_step) == (-1, 0)
    assert (found["never"].good_step, found["never"].bad_step) == (None, None)


@pytest.mark.parametrize("with_model", [True, False])
def test_the_gradients_of_a_client_that_failed_are_kept(with_model: bool) -> None:
    """It is the one whose gradients are wanted, whether or not the round has a model."""
    with round_of(small_model() if with_model else None, steps="every") as rnd, breaks(KeyError), rnd.client(1) as c:
        local = small_model()
        c.watch(local)
        train(local, [(x * float("inf"), y) for x, y in batches(2)])
        raise KeyError
    assert steps_of().steps == (0, 1)
    assert (only().bad_step, only().outcome, only().steps) == (0, "failed", 2)
    assert hooks() == 0


def test_watching_what_is_no_module_takes_its_fingerprint_only() -> None:
    """Arrays have no gradients to look at."""
    model = small_model()
    with round_of(model) as rnd, rnd.client(1) as c:
        c.watch([tensor.numpy() for tensor in model.state_dict().values()])
        c.submit(small_model(1))
    with read() as reader:
        assert only().received == reader.rounds()[0].fingerprint
    assert hooks() == 0


def test_looking_at_gradients_counts_towards_the_budget() -> None:
    """The governor hears of what a sample costs."""
    model = small_model()
    governor = Governor(0.02, "every")
    with GradientProbe(model, governor, no_blame):
        train(model, batches(1))
    assert governor.spent_ns > 0


def test_optimizers_that_nobody_watches_go_on_unseen() -> None:
    """While a run has the hook in: a server's own optimizer between the clients."""
    model = small_model()
    with started() as run, run.round(0, model=model) as rnd:
        with rnd.client(1) as c:
            local = small_model(1)
            c.watch(local)
            train(local, batches(2))
            c.submit(local)
        train(model, batches(3))
    assert only().steps == 2


class Immeasurable(Tensor):
    """Can be added, and has no norm."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.is_contiguous, torch._foreach_norm):
            raise NotImplementedError
        return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("mode", ["governed", "every"])
def test_a_sample_that_fails_is_not_tried_again_at_once(mode: str) -> None:
    """It is blamed on us, the step is taken all the same, and the next steps, which would fail too, cost nothing."""
    model = nn.Linear(2, 1, bias=False)
    blamed: list[str] = []
    with GradientProbe(model, Governor(0.02, mode), lambda where, error: blamed.append(where)) as probe:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2 * PATIENCE):
            before = model.weight.detach().clone()
            model.weight.grad = torch.ones(1, 2).as_subclass(Immeasurable)
            optimizer.step()
            assert not torch.equal(before, model.weight)
            assert len(blamed) == 1 + step // PATIENCE
    assert set(blamed) == {"gradient sample"}
    assert probe.sampled == []


@pytest.mark.parametrize("steps", ["every", "full"])
def test_sparse_gradients_are_measured_as_dense_ones(steps: str) -> None:
    """Of an embedding that asks for them, beside layers that have dense ones."""
    found = []
    for sparse in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(20, 4, sparse=sparse), nn.Linear(4, 2))
        with round_of(model, steps=steps) as rnd, rnd.client(1) as c:
            c.watch(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            backward(model(torch.tensor([3, 1, 3])).pow(2).sum())
            optimizer.step()
            c.submit(model)
        found.append(steps_of().stats)
    assert np.isfinite(found[0][..., 0]).all()
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_two_clients_at_once_each_have_their_own_steps(probing: Callable[..., GradientProbe]) -> None:
    """The hook finds the client by its parameters; it goes with the last one."""
    one, two = small_model(1), small_model(2)
    first, second = probing(one), probing(two)
    assert hooks() == 1
    train(one, batches(2))
    train(two, batches(3))
    assert (first.steps_seen, second.steps_seen) == (2, 3)
    first.__exit__()
    train(one, batches(1))
    train(two, batches(1))
    assert (first.steps_seen, second.steps_seen) == (2, 4)
