"""What each codec does to values, and how chains are put together."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedvitals import codecs
from fedvitals.codecs.frame import Layer, pack
from fedvitals.codecs.reductions.topk import by_energy
from fedvitals.codecs.streams import PlainSink
from fedvitals.errors import CodecError


def back(spec: str, update: dict[str, Tensor]) -> dict[str, Tensor]:
    codec = codecs.parse(spec)
    return codec.decode(codec.encode(update))


def size(spec: str, update: dict[str, Tensor]) -> int:
    return len(codecs.parse(spec).encode(update))


@pytest.mark.parametrize("spec", ["fp16", "bf16"])
def test_floats_take_half_and_the_rest_is_as_it_was(spec: str) -> None:
    """Counts come back to the last bit; floats as their short format has them."""
    update = {"weight": torch.randn(1000), "seen": torch.tensor(7), "short": torch.randn(9).half()}
    assert size(spec, update) < 2 * 1000 + 8 + 18 + 50
    found = back(spec, update)
    short = torch.float16 if spec == "fp16" else torch.bfloat16
    assert torch.equal(found["weight"], update["weight"].to(short).float())
    assert torch.equal(found["seen"], update["seen"])
    assert torch.equal(found["short"], update["short"])


def test_what_is_too_large_for_fp16_is_refused_by_name() -> None:
    """bf16 takes it: it has the range of float32."""
    update = {"fine": torch.ones(2), "large": torch.tensor([1e6])}
    with pytest.raises(CodecError, match="'large' has values beyond 65504"):
        codecs.parse("fp16").encode(update)
    assert float(back("bf16", update)["large"]) == pytest.approx(1e6, rel=0.01)


@given(st.integers(1, 8), st.integers(1, 70))
def test_values_take_just_their_bits(bits: int, count: int) -> None:
    """And nine bytes a layer, beside its name and shape."""
    update = {"weight": torch.arange(float(count))}
    empty = len(pack([Layer("weight", torch.float32, (count,))], b""))
    assert size(f"quantize:{bits}", update) == empty + 9 + -(-count * bits // 8)


def test_levels_are_evenly_spaced_and_reach_both_ends() -> None:
    """Two bits: four values from the least to the largest."""
    found = back("quantize:2", {"a": torch.tensor([-1.0, -0.4, 0.3, 0.9, 2.0])})["a"]
    torch.testing.assert_close(found, torch.tensor([-1.0, 0.0, 0.0, 1.0, 2.0]))


def test_rows_have_scales_of_their_own() -> None:
    """A small row beside a large one is not flattened by it."""
    update = {"w": torch.stack((torch.linspace(-1e-3, 1e-3, 256), torch.linspace(-100.0, 100.0, 256)))}
    together, apart = back("quantize:4", update)["w"][0], back("quantize:4:row", update)["w"][0]
    assert float((together - update["w"][0]).abs().max()) > 1e-3
    assert float((apart - update["w"][0]).abs().max()) <= 1e-3 / 15 * 1.01


@pytest.mark.parametrize("spec", ["quantize:2:stochastic", "qsgd:4", "onebit"])
def test_rounding_by_chance_is_right_in_the_mean(spec: str) -> None:
    """The mean over many updates that differ a little is near the value: nothing pulls one way."""
    torch.manual_seed(5)
    value = torch.randn(64)
    found = torch.stack([back(spec, {"w": value + 1e-6 * torch.randn(64)})["w"] for _ in range(800)])
    off = (found.mean(0) - value).abs()
    assert float((off / (found.std(0) / math.sqrt(800) + 1e-6)).max()) < 5.0


def test_the_largest_travel_and_the_others_are_zero() -> None:
    """Chosen among all layers, however they are shared out between them."""
    update = {"a": torch.tensor([0.1, -9.0, 0.2, 3.0]), "b": torch.tensor([[0.5, -4.0], [0.0, 0.3]])}
    found = back("topk:0.375", update)
    assert found["a"].tolist() == [0.0, -9.0, 0.0, 3.0]
    assert found["b"].tolist() == [[0.0, -4.0], [0.0, 0.0]]
    each = back("topk:0.25:layer", update)
    assert each["a"].tolist() == [0.0, -9.0, 0.0, 0.0]
    assert each["b"].tolist() == [[0.0, -4.0], [0.0, 0.0]]


def test_a_threshold_is_a_size_for_all_or_a_measure_of_each_layer() -> None:
    """In root mean squares a layer of small values sends its large ones too; one of zeros sends none."""
    update = {"a": torch.tensor([8.0, 1.0, 1.0, 1.0]), "b": torch.tensor([0.08, 0.01, 0.01, 0.01]), "c": torch.zeros(5)}
    alike = back("threshold:0.5", update)
    assert [int(one.count_nonzero()) for one in alike.values()] == [4, 0, 0]
    each = back("threshold:1.5:layer", update)
    assert [one.nonzero().flatten().tolist() for one in each.values()] == [[0], [0], []]
    assert int(back("threshold:1e300", update)["a"].count_nonzero()) == 0


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 50)), min_size=1, max_size=6), st.integers(0, 200))
def test_budgets_by_energy_are_spent_and_never_exceed_a_layer(layers: list[tuple[float, int]], budget: int) -> None:
    """All of the budget goes where there is energy, but for what rounding up adds; no layer gets more than it has."""
    energies, values = [one[0] for one in layers], [one[1] for one in layers]
    counts = by_energy(energies, values, budget)
    assert all(0 <= count <= most for count, most in zip(counts, values, strict=True))
    lively = [most for energy, most in layers if energy > 0] or values
    assert min(budget, sum(lively)) <= sum(counts) <= budget + len(layers)


def test_at_least_one_value_travels() -> None:
    """However small the share is."""
    assert back("topk:0.0001", {"a": torch.tensor([1.0, -2.0])})["a"].tolist() == [0.0, -2.0]


def test_ternary_is_plus_minus_or_nothing() -> None:
    """The mean size of those that travel, with their signs."""
    found = back("ternary:0.5 | entropy", {"a": torch.tensor([4.0, -2.0, 0.1, 0.0])})["a"]
    torch.testing.assert_close(found, torch.tensor([3.0, -3.0, 0.0, 0.0]))


def test_random_places_cost_a_seed() -> None:
    """Other updates have other places; the values there are exact."""
    torch.manual_seed(2)
    first, second = torch.randn(1000), torch.randn(1000)
    places = []
    for values in (first, second):
        found = back("randomk:0.1", {"w": values})["w"]
        where = found.nonzero().flatten()
        assert len(where) == 100
        assert torch.equal(found[where], values[where])
        places.append(where.tolist())
    assert places[0] != places[1]
    assert size("randomk:0.1", {"w": first}) < 100 * 4 + 20


def test_chance_and_signs_can_be_shared_out_by_layer_or_over_all() -> None:
    """A share of each layer is a value of each at least; of all together, small layers may go without."""
    torch.manual_seed(3)
    update = {"large": torch.randn(1000), "small": 1e-6 * torch.randn(8)}
    for spec, of_each in (("randomk:0.01:layer", True), ("ternary:0.01:layer", True), ("ternary:0.01", False)):
        counts = [int(one.count_nonzero()) for one in back(spec, update).values()]
        assert counts == ([10, 1] if of_each else [11, 0])
    assert sum(int(one.count_nonzero()) for one in back("randomk:0.01:update", update).values()) == 11


@pytest.mark.parametrize("spec", ["lowrank:2", "onebit", "lowrank:2 | quantize:8", "topk:0.1 | onebit"])
def test_bounds_are_near_what_happens(spec: str) -> None:
    """A bound that nothing could break would say nothing."""
    torch.manual_seed(4)
    update = {"w": torch.randn(80, 60), "b": torch.randn(80)}
    codec = codecs.parse(spec)
    moved = max(float((one - update[name]).abs().max()) for name, one in back(spec, update).items())
    assert moved <= codec.error_bound(update) <= 1.3 * moved


def test_a_matrix_of_low_rank_comes_back() -> None:
    """Two factors are all of it; a bias goes whole."""
    torch.manual_seed(0)
    update = {"w": torch.randn(60, 2) @ torch.randn(2, 50), "b": torch.randn(60)}
    found = back("lowrank:2", update)
    torch.testing.assert_close(found["w"], update["w"], rtol=1e-4, atol=1e-4)
    assert torch.equal(found["b"], update["b"])
    assert size("lowrank:2", update) < 4 * (2 * 110 + 60) + 40


def test_symbols_and_positions_take_their_entropy() -> None:
    """Within 2%, tables and header included, on a quarter of a million values."""
    torch.manual_seed(1)
    values = torch.randn(250_000)
    counts = np.unique(back("quantize:6", {"w": values})["w"].numpy(), return_counts=True)[1]
    shares = counts / counts.sum()
    symbols = float(-(shares * np.log2(shares)).sum()) * 250_000 / 8
    assert size("quantize:6 | entropy", {"w": values}) <= 1.02 * symbols
    share = 0.02
    kept = -share * math.log2(share) - (1 - share) * math.log2(1 - share) + share  # places, and a sign each
    assert size(f"ternary:{share} | entropy", {"w": values}) <= 1.02 * kept * 250_000 / 8


def test_positions_in_clusters_take_less_than_even_ones() -> None:
    """Gaps are coded by how they are, where that is shorter than what was expected."""
    torch.manual_seed(1)
    values = torch.zeros(100_000)
    values[:1000] = torch.randn(1000) + 5
    even = torch.zeros(100_000)
    even[torch.randperm(100_000)[:1000]] = torch.randn(1000) + 5
    assert size("ternary:0.01 | entropy", {"w": values}) < 0.4 * size("ternary:0.01 | entropy", {"w": even})


def test_sparse_ternary_of_a_million_values() -> None:
    """At one of 400, in four named tensors, more than 1,130-fold, with everything that is sent."""
    torch.manual_seed(0)
    shapes = {"0.weight": (1000, 784), "0.bias": (1000,), "2.weight": (214, 1000), "2.bias": (1000,)}
    update = {name: torch.randn(shape) for name, shape in shapes.items()}
    assert 4_000_000 / size("ternary:0.0025 | entropy", update) >= 1130


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("topk:0.1 | randomk:0.1", "'topk:0.1' and 'randomk:0.1' both choose which values travel"),
        ("ternary:0.1 | quantize:8", "'ternary:0.1' and 'quantize:8' both round values"),
        ("entropy | quantize:8", "'quantize:8' cannot come after 'entropy': the order is"),
        ("zstd | entropy", "'entropy' cannot come after 'zstd'"),
        ("topk:0.1 | quantize:8:row", "leaves no rows"),
        ("quantize", "quantize:8"),
        ("quantize:9", "1 to 8 bits"),
        ("quantize:²", "quantize:8"),
        ("quantize:4:row:tensor", "one of tensor and row"),
        ("quantize:4:twice", "quantize:4:stochastic:row"),
        ("topk", "a share above 0 and at most 1"),
        ("topk:0", "found '0'"),
        ("topk:1.5", "found '1.5'"),
        ("topk:nan", "found 'nan'"),
        ("topk:0.1:rows", "one of update, layer, energy; found 'rows'"),
        ("topk:0.1:", "found ''"),
        ("randomk:0.1:energy", "one of layer, update; found 'energy'"),
        ("ternary:0.1:rows", "one of update, layer, energy; found 'rows'"),
        ("threshold:2:energy", "'threshold:3:layer'; found '2:energy'"),
        ("ternary:-1", "found '-1'"),
        ("threshold:inf", "least size"),
        ("qsgd:0", "1 to 16384"),
        ("qsgd:x", "number of levels"),
        ("lowrank:0", "from 1 to 1024"),
        ("zstd:40", "from 1 to 19"),
        ("onebit:2", "takes no argument"),
        ("fp16:8", "takes no argument, found '8'"),
        ("feedback(identity)", "leaves nothing out"),
        ("feedback(feedback(topk:0.1))", "kept only once"),
        ("feedback(topk:0.1) | entropy", "around the whole chain"),
        ("feedback(topk:0.1, decay=2)", "decay = 2.0 is out of range"),
        ("feedback(topk:0.1, speed=2)", "'speed=2' is no way"),
        ("feedback(topk:0.1, decay=1, decay=0)", "decay is there twice"),
        ("feedback", "around the whole chain"),
    ],
)
def test_impossible_chains_are_refused(spec: str, says: str) -> None:
    """The message names the part and what would be right."""
    with pytest.raises(CodecError, match=says.replace("(", r"\(").replace("|", r"\|")):
        codecs.parse(spec)


def test_scales_that_cannot_be_are_damage() -> None:
    """Whoever sends them."""
    codec = codecs.parse("quantize:8")
    for low, high in ((2.0, 1.0), (math.nan, 1.0), (-math.inf, 1.0), (-3e38, 3e38)):
        sink = PlainSink()
        sink.count(4)
        sink.raw(np.array([low, high], dtype="<f4").tobytes() + b"\x00\xff")
        with pytest.raises(CodecError, match="claims to lie between"):
            codec.decode(pack([Layer("a", torch.float32, (2,))], sink.finished()))


def test_a_short_message_cannot_claim_much_memory() -> None:
    """A sparse frame of a few bytes with a shape of gigabytes is refused before anything is taken."""
    sink = PlainSink()
    sink.count(0)
    for spec in ("topk:0.1", "ternary:0.1 | entropy", "randomk:0.1", "lowrank:1"):
        with pytest.raises(CodecError, match="are claimed in a message of"):
            codecs.parse(spec).decode(pack([Layer("a", torch.float32, (2**16, 2**15))], sink.finished()))


@pytest.mark.parametrize("spec", ["zstd", "threshold:1", "topk:1e-7 | entropy", "threshold:1 | entropy | zstd"])
def test_what_a_receiver_would_refuse_is_not_sent(spec: str) -> None:
    """Next to nothing of a large model: the sender is told to agree on the layers, and then it goes through."""
    update = {"w": torch.zeros(5000, 4000)}
    with pytest.raises(CodecError, match=r"160000\d+ bytes to read, in a message of \d+: .*codecs\.agreed"):
        codecs.parse(spec).encode(update)
    codec = codecs.agreed(codecs.parse(spec), update)
    assert torch.equal(codec.decode(codec.encode(update))["w"], update["w"])
