"""Whatever a client hands over as its model: judged against the round's, or said not to fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from watching import by_client, flat, moved, only, read, round_of, small_model, started


def as_arrays(state: dict[str, Tensor], kind: str) -> list[np.ndarray]:
    arrays = [tensor.numpy().copy() for tensor in state.values()]
    if kind in ("float64", "float16"):
        return [array.astype(kind) for array in arrays]
    if kind == "big-endian":
        return [array.astype(">f4") for array in arrays]
    if kind == "read-only":
        for array in arrays:
            array.flags.writeable = False
    if kind == "strided":
        return [np.repeat(array, 2, axis=-1)[..., ::2] for array in arrays]
    if kind == "reversed":
        return [array[::-1].copy()[::-1] for array in arrays]
    return arrays


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "big-endian", "read-only", "strided", "reversed"])
def test_a_list_of_arrays_is_judged_like_the_state_it_holds(kind: str, recwarn: pytest.WarningsRecorder) -> None:
    """As Flower hands them over, in any type and memory, and without a warning of torch's."""
    model = small_model()
    state = moved(model)
    with round_of(list(as_arrays(dict(model.state_dict()), "float32"))) as rnd, rnd.client(1) as c:
        c.submit(as_arrays(state, kind))
    expected = float(torch.linalg.vector_norm(flat(state) - flat(model.state_dict())))
    assert only().update_norm == pytest.approx(expected, rel=2e-3 if kind == "float16" else 1e-5)
    assert list(recwarn) == []
    with read() as reader:
        assert reader.failures() == []


FORMS: dict[str, Callable[[nn.Module], Any]] = {
    "module": lambda m: m,
    "state dict": lambda m: m.state_dict(),
    "list": lambda m: [t.numpy() for t in m.state_dict().values()],
    "tuple": lambda m: tuple(m.state_dict().values()),
    "dict of arrays": lambda m: {name: t.numpy() for name, t in m.state_dict().items()},
    "shuffled": lambda m: dict(reversed(m.state_dict().items())),
}


@pytest.mark.parametrize("given", FORMS)
@pytest.mark.parametrize("submitted", FORMS)
def test_round_and_client_may_speak_of_models_in_different_ways(given: str, submitted: str) -> None:
    """Modules, state dicts and lists; names are matched by name, lists by order."""
    if given == "shuffled" and submitted in ("list", "tuple"):
        pytest.skip("a list has the order of the round's model, which is shuffled here")
    if submitted == "shuffled" and given in ("list", "tuple"):
        pytest.skip("a list has no names to match a shuffled dict by")
    model, other = small_model(), small_model(1)
    with round_of(FORMS[given](model)) as rnd, rnd.client(1) as c:
        c.submit(FORMS[submitted](other))
    expected = float(torch.linalg.vector_norm(flat(other.state_dict()) - flat(model.state_dict())))
    assert only().update_norm == pytest.approx(expected, rel=1e-5)


class Odd(nn.Module):
    """Everything a state dict may hold: shared, frozen, integer, empty, scalar, transposed, complex."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.tied = nn.Linear(3, 3)
        self.tied.weight = self.first.weight
        self.frozen = nn.Parameter(torch.randn(2), requires_grad=False)
        self.scalar = nn.Parameter(torch.tensor(0.5))
        self.transposed = nn.Parameter(torch.randn(4, 2).t())
        self.complex = nn.Parameter(torch.randn(2, dtype=torch.complex64))
        self.register_buffer("empty", torch.empty(0, 5))
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("mask", torch.tensor([True, False]))
        self.norm = nn.BatchNorm1d(2)

    def get_extra_state(self) -> Any:
        """What no tensor is."""
        return {"version": 3}

    def set_extra_state(self, state: Any) -> None: ...


def reals(state: dict[str, Any]) -> Tensor:
    """Its floats once each, as float64."""
    names = ("first.weight", "first.bias", "tied.bias", "frozen", "scalar", "transposed", "norm.weight", "norm.bias")
    parts = [state[name].detach().double().reshape(-1) for name in (*names, "norm.running_mean", "norm.running_var")]
    return torch.cat([*parts, torch.view_as_real(state["complex"].detach()).double().reshape(-1)])


@pytest.mark.parametrize("form", ["module", "state dict"])
def test_odd_parameters_are_each_taken_once(form: str) -> None:
    """Shared ones once, integers and what is no tensor not at all, complex ones as pairs, empty ones as nothing."""
    torch.manual_seed(0)
    model, other = Odd(), Odd()
    with round_of(model) as rnd, rnd.client(1) as c:
        c.watch(other)
        c.submit(other if form == "module" else other.state_dict())
    change = reals(other.state_dict()) - reals(model.state_dict())
    one = only()
    assert one.update_norm == pytest.approx(float(torch.linalg.vector_norm(change)), rel=1e-5)
    with read() as reader:
        assert reader.failures() == []
        stats = {entry.layer: entry for entry in reader.update_stats(one)}
        layers = {layer.name: layer for layer in reader.layouts()[0].layers}
    assert list(stats) == list(layers)
    left_out = {"tied.weight", "count", "mask", "norm.num_batches_tracked", "_extra_state"}
    assert set(layers) == set(model.state_dict()) - left_out
    assert (layers["frozen"].trainable, layers["scalar"].trainable) == (False, True)
    assert (layers["complex"].size, layers["empty"].size, layers["scalar"].shape) == (4, 0, ())
    assert stats["empty"].norm == 0.0
    difference = (other.transposed - model.transposed).detach()
    assert stats["transposed"].max == pytest.approx(float(difference.max()), rel=1e-5)


def test_layers_that_a_client_keeps_to_itself_do_not_count() -> None:
    """A personal head beside the shared body: the body is judged, and received as it was sent."""
    body = nn.Sequential(nn.Linear(2, 2))
    local = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 7))
    local[0].load_state_dict(body[0].state_dict())
    with round_of(body) as rnd, rnd.client(1) as c:
        c.watch(local)
        c.submit(local)
    one = only()
    assert one.update_norm == 0.0
    with read() as reader:
        assert one.received == reader.rounds()[0].fingerprint
        assert len(reader.layouts()) == 1


def test_a_model_that_grows_gets_a_new_layout() -> None:
    """A layer added to the global model between rounds is seen from then on."""
    model = nn.Sequential(nn.Linear(2, 2))
    with started() as run:
        for number in range(2):
            with run.round(number, model=model):
                pass
            model.append(nn.Linear(2, 1))
    with read() as reader:
        assert [len(layout.layers) for layout in reader.layouts()] == [2, 4, 6]
        assert [block.layout for block in reader.model_blocks()] == [0, 1, 2]


def test_tied_weights_may_come_apart_in_a_list() -> None:
    """A list from another process holds a shared weight twice; a module holds it once."""
    torch.manual_seed(0)
    model, other = Odd(), Odd()
    tensors = [t for t in other.state_dict().values() if isinstance(t, Tensor)]
    with round_of(model) as rnd, rnd.client(1) as c:
        c.submit([tensor.detach().clone() for tensor in tensors])
    change = reals(other.state_dict()) - reals(model.state_dict())
    assert only().update_norm == pytest.approx(float(torch.linalg.vector_norm(change)), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_models_of_other_types_are_judged_and_weighed(dtype: torch.dtype) -> None:
    """Halves are widened, doubles narrowed; the raw bytes are those of the model itself."""
    model, other = small_model().to(dtype), small_model(1).to(dtype)
    with round_of(model) as rnd, rnd.client(1) as c:
        c.submit(other.state_dict())
    one = only()
    expected = float(torch.linalg.vector_norm(flat(other.state_dict()) - flat(model.state_dict())))
    assert one.update_norm == pytest.approx(expected, rel=1e-5)
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    assert (one.raw_bytes_down, one.raw_bytes_up) == (size, size)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({}, "0.weight is missing"),
        ([np.zeros(3, np.float32)], "1 arrays of floats, the model of the round has 4"),
        (lambda: {**small_model().state_dict(), "2.bias": torch.zeros(4)}, "2.bias has shape (4,)"),
        (lambda: nn.Linear(4, 5), "0.weight is missing"),
    ],
)
def test_a_model_that_does_not_fit_is_a_failure_and_the_training_goes_on(state: Any, says: str) -> None:
    """Kept as "shape mismatch" with the shapes; what else is known of the client is kept too."""
    given = state() if callable(state) else state
    with round_of(small_model()) as rnd:
        with rnd.client(1, samples=5) as c:
            c.submit(given, loss=0.5)
        with rnd.client(2) as c:
            c.submit(small_model(1))
    found = by_client()
    assert (found["1"].loss, found["1"].samples, found["1"].update_norm) == (0.5, 5, None)
    assert (found["2"].update_norm or 0) > 0
    with read() as reader:
        (failure,) = reader.failures()
    assert (failure.stage, failure.kind, failure.client) == ("submit", "shape mismatch", "1")
    assert says in failure.message
    if given:
        assert any("float32" in shape for shape in json.loads(failure.shapes or "{}").values())


def test_a_model_that_fits_after_one_that_did_not_is_taken() -> None:
    """Only a model that was taken in is the client's last word."""
    with round_of(small_model()) as rnd, rnd.client(1) as c:
        c.submit({})
        c.submit(small_model(1))
    assert (only().update_norm or 0) > 0


@pytest.mark.parametrize("garbage", ["text", 7, None, [object()], {"0.weight": "text"}])
def test_what_is_no_model_costs_the_statistics_and_nothing_else(garbage: Any) -> None:
    """The participation is written, with what was told beside the model."""
    with round_of(small_model()) as rnd, rnd.client(1) as c:
        c.submit(garbage, loss=torch.tensor(0.25), f1=0.5)
    one = only()
    assert (one.loss, one.update_norm, one.metrics) == (0.25, None, '{"f1": 0.5}')


def test_a_client_is_judged_against_what_it_received_when_the_round_has_no_model() -> None:
    """`watch` takes the model in before the training changes it."""
    model = small_model()
    state = moved(model)
    with round_of() as rnd, rnd.client(1) as c:
        c.watch(model)
        model.load_state_dict(state)
        c.submit(model)
    one = only()
    expected = float(torch.linalg.vector_norm(flat(state) - flat(small_model().state_dict())))
    assert one.update_norm == pytest.approx(expected, rel=1e-5)
    assert one.received is not None
    with read() as reader:
        assert reader.sketch(one) is not None


def test_without_any_model_only_the_rest_is_kept() -> None:
    """Nothing to judge by is no failure."""
    with round_of() as rnd, rnd.client(1, samples=3) as c:
        c.submit(small_model(), loss=0.5, accuracy=torch.tensor(0.75), wire_bytes=np.int64(10))
    one = only()
    assert (one.loss, one.accuracy, one.update_norm, one.samples, one.wire_bytes_up) == (0.5, 0.75, None, 3, 10)
    with read() as reader:
        assert reader.failures() == []


def test_the_first_of_two_submissions_counts(caplog: pytest.LogCaptureFixture) -> None:
    """With one warning; the cohort has the client once."""
    model = small_model()
    with round_of(model) as rnd:
        for client in (1, 2):
            with rnd.client(client) as c:
                c.submit(small_model(client), loss=client)
                c.submit(small_model(9), loss=9.0)
    found = by_client()
    assert [one.loss for one in found.values()] == [1.0, 2.0]
    with read() as reader:
        assert [len(block.stats) for block in reader.update_blocks()] == [2]
    one, two = (flat(small_model(i).state_dict()) - flat(model.state_dict()) for i in (1, 2))
    assert found["1"].cosine == pytest.approx(float(torch.cosine_similarity(one, two, dim=0)), abs=1e-5)
    assert len([record for record in caplog.records if "submitted twice" in record.message]) == 1


def test_what_became_of_an_update_can_be_told() -> None:
    """A late one was applied somewhere, a rejected or dropped one nowhere; the round counts only those used."""
    with round_of(small_model()) as rnd:
        for seed, outcome in enumerate(("used", "late", "dropped")):
            with rnd.client(outcome) as c:
                c.submit(small_model(seed), outcome=outcome)
        with rnd.client("odd") as c:
            c.submit(small_model(9), loss=0.5, outcome="eaten")
    found = by_client()
    assert {name: (one.outcome, one.applied_version) for name, one in found.items()} == {
        "used": ("used", 1),
        "late": ("late", 1),
        "dropped": ("dropped", None),
        "odd": ("used", 1),
    }
    assert found["odd"].loss == 0.5
    with read() as reader:
        assert [(one.selected, one.used, one.failed) for one in reader.rounds()] == [(4, 2, 1)]


def test_a_client_that_never_submits_is_kept_with_its_time() -> None:
    """Not everybody hands a model over."""
    with round_of(small_model()) as rnd, rnd.client(1):
        pass
    assert (only().outcome, only().update_norm, only().block) == ("used", None, None)


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_loss_that_the_training_goes_on_adding_to_is_kept_as_it_was(requires_grad: bool) -> None:
    """Told as a tensor, of no dimension or of one, with or without its graph."""
    loss = torch.tensor(0.5, requires_grad=requires_grad)
    accuracy = torch.tensor([0.25])
    with round_of(small_model()) as rnd, rnd.client(1) as c:
        c.submit(small_model(1), loss=loss * 2, accuracy=accuracy)
        accuracy.add_(1.0)
    assert (only().loss, only().accuracy) == (1.0, 0.25)


@pytest.mark.parametrize("width", [4, 40_000, 500_000])
def test_updates_may_be_written_to_after_they_were_submitted(width: int) -> None:
    """Of whatever size: what is summarised later is what was submitted."""
    model = nn.Linear(width, 1, bias=False)
    with round_of(model) as rnd:
        cohort = rnd.cohort(list(range(10)))
        updates = torch.ones(10, width)
        cohort.submit(updates=updates)
        updates.zero_()
    assert [one.update_norm for one in by_client().values()] == pytest.approx([width**0.5] * 10)


def test_updates_that_are_handed_over_are_not_copied() -> None:
    """The engine's: who says that nobody writes to them again pays for no copy of what is large."""
    with round_of(nn.Linear(40_000, 1, bias=False)) as rnd:
        updates = torch.ones(10, 40_000)
        rnd.cohort(list(range(10))).submit(updates=updates, handed_over=True)
        (waiting,) = rnd.recorder.pending._entries
        assert waiting.rows is updates
