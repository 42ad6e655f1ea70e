"""The compiled trainer against torch's own layers and autograd: the same training, in each of its versions."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedvitals.faults.work import LocalWork
from fedvitals.train.compiled import CompiledTrainer, program_of
from fedvitals.train.compiled import trainer as module_under_test
from fedvitals.train.compiled.library import library
from fedvitals.train.federation import Federation
from fedvitals.train.local import LocalTrainer
from fedvitals.train.sections import TrainSpec
from fedvitals.train.trained import Learnt, Trained

torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(library() is None, reason="no C compiler made the trainer here: ./script/kernel")

VERSIONS = {"plain": 0, "AVX2": 1, "best": 2}
CLASSES = 3


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each version that the compiled file has, where this processor can run it."""
    setting = ctypes.c_int32.in_dll(library(), "fedvitals_trainer_instructions")
    setting.value = VERSIONS[request.param]
    yield request.param
    setting.value = VERSIONS["best"]


def federation(shape: tuple[int, ...], rows: list[int], seed: int) -> Federation:
    """Clients with so many rows each, dealt in no order."""
    random = np.random.default_rng(seed)
    total = sum(rows)
    x = torch.from_numpy(random.standard_normal((total, *shape)).astype(np.float32))
    y = torch.from_numpy(random.integers(0, CLASSES, total))
    order = torch.from_numpy(random.permutation(total))
    own = tuple(torch.split(order, rows))
    none = torch.empty(0, dtype=torch.int64)
    names = tuple(str(number) for number in range(len(rows)))
    return Federation(x, y, names, own, (none,) * len(rows), none, CLASSES, "image")


def works_of(fed: Federation, **plan: Any) -> list[LocalWork]:
    return [LocalWork(client, name, 2, 0, 0.1, **plan) for client, name in enumerate(fed.clients)]


class Pair:
    """One model, to be trained both ways."""

    def __init__(self, model: nn.Module, fed: Federation, spec: TrainSpec, threads: int = 1) -> None:
        self.local = LocalTrainer(model, fed, spec, 7, full_steps=False)
        program = program_of(self.local.model, fed.input_shape)
        assert program is not None
        layout = self.local.model.flattener.layout
        self.compiled = CompiledTrainer(program, fed, spec, 7, layout, threads=threads, full_steps=False)
        self.weights = self.local.model.weights.detach().clone()
        self.federation = fed

    def one_by_one(self, works: list[LocalWork]) -> list[Trained]:
        results = [self.local.attempt(work, self.weights, {}) for work in works]
        assert all(isinstance(one, Trained) for one in results), results
        return results  # type: ignore[return-value]  # as was just seen

    def at_once(self, works: list[LocalWork]) -> Learnt:
        rows = [len(w.y) if w.y is not None else len(self.federation.train_rows[w.client]) for w in works]
        try:
            return self.compiled.train(works, rows, self.weights)
        finally:
            self.compiled.close()


def require_equal(pair: Pair, works: list[LocalWork], tolerance: float = 2e-5) -> None:
    """Updates, losses and sampled gradients, up to rounding."""
    learnt = pair.at_once(works)
    sampled = {(slot, one.step): one.stats[row] for one in learnt.sampled for row, slot in enumerate(one.slots)}
    seen = 0
    for place, alone in enumerate(pair.one_by_one(works)):
        scale = float(alone.updates.abs().max()) + 1e-3
        torch.testing.assert_close(learnt.updates[place], alone.updates[0], rtol=0, atol=tolerance * scale)
        steps = int(alone.steps[0])
        assert learnt.steps[place] == steps
        np.testing.assert_allclose(learnt.losses[place, :steps], alone.losses[0], rtol=1e-4, atol=1e-5)
        assert np.isnan(learnt.losses[place, steps:]).all()
        for one in alone.sampled:
            np.testing.assert_allclose(sampled[place, one.step], one.stats[0], rtol=1e-3, atol=1e-5)
            seen += 1
    assert seen == len(sampled)


@st.composite
def chains(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, ...]]:
    """Convolutions of all sorts, some pooled, some rectified, before and after; then dense layers."""
    layers: list[nn.Module] = []
    channels, height, width = draw(st.integers(1, 4)), draw(st.integers(3, 13)), draw(st.integers(3, 19))
    shape = (channels, height, width)
    for _ in range(draw(st.integers(0, 2))):
        kernel, out = draw(st.sampled_from([1, 2, 3, 5, 7])), draw(st.sampled_from([1, 3, 4, 8, 9]))
        pad = draw(st.integers(0, 3))
        height, width = height + 2 * pad - kernel + 1, width + 2 * pad - kernel + 1
        if min(height, width) < 1:
            return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], CLASSES)), shape
        layers.append(nn.Conv2d(channels, out, kernel, padding=pad, bias=draw(st.booleans())))
        relu_first, pool = draw(st.booleans()), min(height, width) >= 2 and draw(st.booleans())
        layers += [nn.ReLU()] * relu_first
        if pool:
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
        layers += [nn.ReLU()] * draw(st.booleans())
        channels = out
    layers.append(nn.Flatten())
    features = channels * height * width
    for _ in range(draw(st.integers(0, 2))):
        out = draw(st.sampled_from([1, 5, 16, 33, 64]))
        layers += [nn.Linear(features, out, bias=draw(st.booleans())), nn.ReLU()]
        features = out
    return nn.Sequential(*layers, nn.Linear(features, CLASSES)), shape


specs = st.builds(
    TrainSpec,
    epochs=st.integers(1, 2),
    batch_size=st.integers(1, 9),
    momentum=st.sampled_from([0.0, 0.9]),
    weight_decay=st.sampled_from([0.0, 0.1]),
    clip=st.sampled_from([0.0, 0.5]),
    proximal=st.sampled_from([0.0, 0.3]),
)


@given(chains(), specs, st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(0, 2**16), st.booleans())
@settings(max_examples=60)
def test_any_chain_is_trained_as_torch_does(
    chain: tuple[nn.Module, tuple[int, ...]], spec: TrainSpec, rows: list[int], seed: int, drop_last: bool
) -> None:
    """Whatever its shapes, and whatever SGD is told: one epoch or two of unequal clients."""
    model, shape = chain
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for part in model.modules():
            if isinstance(part, nn.Linear | nn.Conv2d):
                part.reset_parameters()
    pair = Pair(model, federation(shape, rows, seed), spec)
    require_equal(pair, works_of(pair.federation, sample_steps=(0, 2), drop_last=drop_last))


MODELS = ("dense", "small kernels", "large kernels")


def made(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """A model of that kind, with the same weights every time, and the shape of its rows."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        if name == "dense":
            return nn.Sequential(nn.Flatten(), nn.Linear(40, 70), nn.ReLU(), nn.Linear(70, CLASSES)), (40,)
        if name == "small kernels":
            first = (nn.Conv2d(3, 9, 3, padding=1), nn.MaxPool2d(2), nn.ReLU())
            second = (nn.Conv2d(9, 5, 3), nn.ReLU(), nn.MaxPool2d(2))
            return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(20, CLASSES)), (3, 12, 12)
        first = (nn.Conv2d(1, 8, 5, padding=2), nn.MaxPool2d(2), nn.ReLU())
        second = (nn.Conv2d(8, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
        last = (nn.Conv2d(16, 4, 5, padding=2), nn.Flatten(), nn.Linear(64, CLASSES))
        return nn.Sequential(*first, *second, *last), (1, 16, 16)


@pytest.mark.parametrize("name", MODELS)
def test_every_version_trains_as_torch_does(name: str, version: str) -> None:
    """For processors with AVX-512, with AVX2, and for all others."""
    model, shape = made(name)
    pair = Pair(model, federation(shape, [13, 4, 30], 1), TrainSpec(epochs=2, batch_size=10, momentum=0.9))
    require_equal(pair, works_of(pair.federation, sample_steps=(1,)))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", MODELS)
def test_what_is_not_finite_stays_so(name: str, value: float, version: str) -> None:
    """A bad pixel in one client's rows: its loss and update are not finite, as torch's are not; the others' are."""
    model, shape = made(name)
    fed = federation(shape, [8, 8], 2)
    fed.x[fed.train_rows[0][3]].view(-1)[5] = value
    pair = Pair(model, fed, TrainSpec(epochs=2, batch_size=8))
    works = works_of(fed)
    learnt, alone = pair.at_once(works), pair.one_by_one(works)
    assert np.isfinite(learnt.losses[0]).tolist() == np.isfinite(alone[0].losses[0]).tolist() == [False, False]
    assert not torch.isfinite(learnt.updates[0]).all()
    assert torch.isfinite(learnt.updates[1]).all()
    torch.testing.assert_close(learnt.updates[1], alone[1].updates[0], rtol=0, atol=1e-5)


def test_scores_that_overflow_are_no_loss() -> None:
    """Weights so large that a score is infinite, of either sign."""
    model, shape = made("dense")
    for sign in (1.0, -1.0):
        pair = Pair(model, federation(shape, [8], 3), TrainSpec(epochs=1, batch_size=8))
        pair.weights[-CLASSES] = sign * float("inf")
        works = works_of(pair.federation)
        told, wanted = pair.at_once(works).losses[0], pair.one_by_one(works)[0].losses[0]
        np.testing.assert_equal(np.nan_to_num(told, nan=-1.0), np.nan_to_num(wanted, nan=-1.0))


def test_company_and_threads_change_no_bit() -> None:
    """A client alone, among others, and among others on three threads: the same update to the last bit."""
    model, shape = made("large kernels")
    fed = federation(shape, [9, 17, 3, 12, 40], 4)
    spec = TrainSpec(epochs=2, batch_size=8, momentum=0.9)
    together = Pair(model, fed, spec).at_once(works_of(fed))
    threaded = Pair(model, fed, spec, threads=3).at_once(works_of(fed))
    assert torch.equal(together.updates, threaded.updates)
    for place, work in enumerate(works_of(fed)):
        assert torch.equal(Pair(model, fed, spec).at_once([work]).updates[0], together.updates[place])


def test_what_takes_long_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the threads are at work and this one waits; without an interrupt it comes to the same."""
    model, shape = made("dense")
    fed = federation(shape, [9, 17], 5)
    quick = Pair(model, fed, TrainSpec(epochs=1)).at_once(works_of(fed))
    monkeypatch.setattr(module_under_test, "QUICK", 1.0)
    patient = Pair(model, fed, TrainSpec(epochs=1), threads=2)
    assert torch.equal(patient.at_once(works_of(fed)).updates, quick.updates)

    def interrupted(_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(module_under_test, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        patient.at_once(works_of(fed))


def test_rows_of_ones_own_and_none_at_all() -> None:
    """A client may bring rows that lie in any order of memory; one without rows learns nothing."""
    model, shape = made("dense")
    fed = federation(shape, [9, 0, 4], 6)
    x = torch.randn(2, *shape, 7, generator=torch.Generator().manual_seed(1)).permute(2, 0, 1)[:, 1]
    y = torch.arange(14)[::2] % CLASSES
    works = [replace(works_of(fed)[0], x=x, y=y), *works_of(fed)[1:]]
    assert not x.is_contiguous()
    pair = Pair(model, fed, TrainSpec(epochs=1, batch_size=4))
    require_equal(pair, [works[0], works[2]])
    assert pair.at_once(works).updates[1].abs().max() == 0


def test_nothing_is_written_beyond_its_room() -> None:
    """What lies behind a thread's room, and behind updates, losses and gradients, stays as it was."""
    for model, shape in map(made, MODELS):
        fed = federation(shape, [11, 5], 7)
        pair = Pair(model, fed, TrainSpec(epochs=1, batch_size=4))
        (room,) = pair.compiled._rooms
        fenced = torch.full((len(room) + 4096,), 171, dtype=torch.uint8)
        pair.compiled._places = [-(-fenced.data_ptr() // 64) * 64]
        beyond = pair.compiled._places[0] - fenced.data_ptr() + len(room) - module_under_test.ALIGNED
        pair.at_once(works_of(fed, sample_steps=(0,)))
        assert bool((fenced[beyond:] == 171).all())
        assert not bool((fenced[:beyond] == 171).all())


def test_a_batch_that_nobody_fills_takes_no_room() -> None:
    """Ten million rows a step, the job's way to say all of them, is room for the rows that there are; also for those
    that a client brings, which may be more."""
    model, shape = made("dense")
    fed = federation(shape, [9, 4], 10)
    pair = Pair(model, fed, TrainSpec(epochs=2, batch_size=10_000_000))
    assert sum(len(room) for room in pair.compiled._rooms) < 1 << 20
    require_equal(pair, works_of(fed, sample_steps=(0,)))
    random = torch.Generator().manual_seed(1)
    x, y = torch.randn(300, *shape, generator=random), torch.arange(300) % CLASSES
    require_equal(pair, [replace(works_of(fed)[0], x=x, y=y), works_of(fed)[1]])


@pytest.mark.parametrize("bad", [None, torch.inf, torch.nan])
def test_norms_taken_inside_are_those_of_the_whole_gradients(version: str, bad: float | None) -> None:
    """Whichever steps are asked for, and also of rows that are not finite: what fills a row up counts nowhere."""
    for model, shape in map(made, MODELS):
        fed = federation(shape, [11, 5, 9], 7)
        if bad is not None:
            fed.x[fed.train_rows[1][0]] = bad
        pair = Pair(model, fed, TrainSpec(epochs=2, batch_size=4))
        layout, program = pair.local.model.flattener.layout, pair.compiled._program
        spec = TrainSpec(epochs=2, batch_size=4)
        whole = CompiledTrainer(program, fed, spec, 7, layout, threads=1, full_steps=True)
        for steps in ((0,), (0, 1), (0, 5)):  # of the second client there are four
            works = works_of(fed, sample_steps=steps)
            known = whole.train(works, [11, 5, 9], pair.weights).sampled
            found = pair.at_once(works).sampled
            assert [(one.step, list(one.slots)) for one in found] == [(one.step, list(one.slots)) for one in known]
            for one, other in zip(known, found, strict=True):
                np.testing.assert_allclose(one.stats[..., :1], other.stats, rtol=1e-5, atol=1e-12)


def test_clients_that_a_fault_changes_inside_are_not_for_it() -> None:
    """Gradients that pile up, layers that stand still and weights that were cut."""
    work = LocalWork(0, "0", 0, 0, 0.1)
    assert CompiledTrainer.takes(work)
    for change in ({"zero_grad": False}, {"frozen": (1,)}, {"pruned": True}):
        assert not CompiledTrainer.takes(replace(work, **change))


def spread_out(values: Tensor) -> Tensor:
    """The same values with room between them."""
    return torch.stack([values, values], dim=-1)[..., 0]


def test_a_model_that_arrives_in_pieces() -> None:
    """Weights need not lie value by value."""
    model, shape = made("dense")
    fed = federation(shape, [9], 8)
    pair = Pair(model, fed, TrainSpec(epochs=1))
    first = pair.at_once(works_of(fed)).updates
    pair.weights = spread_out(pair.weights)
    assert not pair.weights.is_contiguous()
    assert torch.equal(pair.at_once(works_of(fed)).updates, first)


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (torch.zeros(2, 40), torch.tensor([0, CLASSES]), "classes from 0 to 3; the model has 3"),
        (torch.zeros(2, 40), torch.tensor([-1, 0]), "classes from -1 to 0"),
        (torch.zeros(2, 39), torch.tensor([0, 1]), "a row has 40 values"),
        (torch.zeros(2, 40, dtype=torch.float64), torch.tensor([0, 1]), "rows of torch.float64"),
        (torch.zeros(2, 40), torch.tensor([0, 1], dtype=torch.int32), "classes of torch.int32"),
    ],
)
def test_rows_that_are_not_for_it_are_refused(x: Tensor, y: Tensor, said: str) -> None:
    """Before anything is read or written where it should not be."""
    model, shape = made("dense")
    fed = federation(shape, [9], 9)
    pair = Pair(model, fed, TrainSpec(epochs=1))
    with pytest.raises(ValueError, match=said):
        pair.at_once([replace(works_of(fed)[0], x=x, y=y)])
