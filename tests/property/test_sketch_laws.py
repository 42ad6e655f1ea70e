"""Laws of the sketches: the angle between any two updates, with its error, from a few hundred numbers."""

from __future__ import annotations

import math
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedvitals.capture.tensors import Flattener, Sketcher, angle, summarise, unit_sketch_scale
from fedvitals.capture.tensors.sketch import BUCKETS, LEAST_A_LAYER, allot_buckets
from fedvitals.vocabulary import Layer, Sketch

torch.set_num_threads(1)
SIZES = st.lists(st.integers(0, 3000) | st.sampled_from([1, 8, 9, 64, 2310, 30_030]), max_size=60)


def layer(size: int, index: int = 0) -> Layer:
    for columns in (32, 30, 7):
        if index % 2 and size % columns == 0 and size > columns:
            return Layer(str(index), (size // columns, columns), "float32", size)
    return Layer(str(index), (size,), "float32", size)


def flattener(*shapes: tuple[int, ...]) -> Flattener:
    return Flattener({str(index): torch.zeros(shape) for index, shape in enumerate(shapes)})


MODEL = flattener((64, 32), (64,), (10, 64), (10,))


@given(SIZES)
def test_every_layer_has_its_share_and_the_total_is_bounded(sizes: list[int]) -> None:
    """At least 8 buckets or all its values; about 256 in all, or 8 to 16 a layer where there are many."""
    layers = [layer(size, index) for index, size in enumerate(sizes)]
    buckets = allot_buckets(layers)
    assert all(min(one.size, LEAST_A_LAYER) <= given <= one.size for one, given in zip(layers, buckets, strict=True))
    # A number that shares no factor with a row's length is at most a few more.
    assert sum(buckets) <= max(BUCKETS, LEAST_A_LAYER * len(layers)) + 12 * len(layers)
    assert allot_buckets(layers) == buckets


@given(SIZES)
def test_small_models_are_kept_whole(sizes: list[int]) -> None:
    """When all values find room, each has its own bucket."""
    layers = [layer(size, index) for index, size in enumerate(sizes)]
    if sum(sizes) <= BUCKETS:
        assert allot_buckets(layers) == tuple(sizes)


def test_the_share_of_a_large_layer_takes_no_memory() -> None:
    """A million rows of a thousand values, or a vector as long: told without counting them up."""
    layers = [Layer("0", (1_000_000, 1000), "float32", 10**9), Layer("1", (10**9,), "float32", 10**9)]
    tracemalloc.start()
    try:
        assert sum(allot_buckets(layers)) <= BUCKETS
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_small_layers_of_big_models_are_kept_whole() -> None:
    """A layer of no more than 16 values is never folded, however big the rest."""
    buckets = allot_buckets([layer(1_000_000), layer(16), layer(1), layer(500_000, 2), layer(10), layer(17)])
    assert (*buckets[1:3], buckets[4]) == (16, 1, 10)
    assert buckets[5] < 17


def test_a_layer_that_is_kept_whole_can_be_read_off() -> None:
    """Its values divided by the update's norm, as they are."""
    model = flattener((3,), (2000,))
    row = torch.randn(1, model.size, generator=torch.Generator().manual_seed(0))
    found = summarise(row, model.layout, Sketcher(model.layout, model.device)).sketches
    assert found is not None
    expected = row[0, :3] / torch.linalg.vector_norm(row)
    np.testing.assert_allclose(found[0, :3], expected, atol=1e-3)


def sketches(rows: torch.Tensor, model: Flattener = MODEL) -> list[Sketch]:
    summary = summarise(rows, model.layout, Sketcher(model.layout, model.device))
    assert summary.sketches is not None
    return [Sketch(values, norm) for values, norm in zip(summary.sketches, summary.norms.tolist(), strict=True)]


@pytest.mark.parametrize("cosine", [-0.7, -0.5, 0.0, 0.3, 0.7])
def test_angles_are_estimated_without_bias_and_with_the_error_that_is_told(cosine: float) -> None:
    """Over many random pairs: the mean is right, and few are more than three standard errors off."""
    pairs = 400
    generator = torch.Generator().manual_seed(7)
    first = torch.randn(pairs, MODEL.size, generator=generator)
    first /= first.norm(dim=1, keepdim=True)
    other = torch.randn(pairs, MODEL.size, generator=generator)
    other -= (other * first).sum(1, keepdim=True) * first
    other /= other.norm(dim=1, keepdim=True)
    second = (cosine * first + math.sqrt(1 - cosine**2) * other) * 0.01
    found = [angle(a, b) for a, b in zip(sketches(first * 5), sketches(second), strict=True)]
    estimates, errors = np.array(found).T
    assert abs(estimates.mean() - cosine) < 4 * errors.mean() / math.sqrt(pairs) + 5e-3
    assert (np.abs(estimates - cosine) > 3 * errors).mean() < 0.02
    assert errors.max() < 2 / math.sqrt(BUCKETS)


def test_the_same_update_lies_within_the_error_of_itself() -> None:
    """An estimate is never beyond 1, and of twins rarely far below."""
    rows = torch.randn(200, MODEL.size, generator=torch.Generator().manual_seed(4))
    found = np.array([angle(one, one) for one in sketches(rows)])
    assert (found[:, 0] <= 1.0).all()
    assert (1.0 - found[:, 0] > 3 * found[:, 1]).mean() < 0.02


@pytest.mark.parametrize("pattern", ["one row", "one column", "one layer", "one value", "ramp"])
def test_structured_updates_are_estimated_as_well(pattern: str) -> None:
    """A fold must not fall into step with the rows of a matrix: updates of a single unit are common."""
    rows = torch.zeros(65, MODEL.size)
    generator = torch.Generator().manual_seed(3)
    for index in range(65):
        matrix = rows[index, : 64 * 32].view(64, 32)
        if pattern == "one row":
            matrix[index % 64] = torch.randn(32, generator=generator)
        elif pattern == "one column":
            matrix[:, index % 32] = torch.randn(64, generator=generator)
        elif pattern == "one layer":
            rows[index, -650:-10] = torch.randn(640, generator=generator)
        elif pattern == "one value":
            rows[index, index * 31] = 1.0
        else:
            rows[index] = torch.arange(MODEL.size) * (index + 1.0) + 100.0 * torch.randn(
                MODEL.size, generator=generator
            )
    kept = sketches(rows)
    exact = torch.nn.functional.normalize(rows.double()) @ torch.nn.functional.normalize(rows.double()).T
    off = [abs(angle(kept[0], kept[i])[0] - float(exact[0, i])) for i in range(1, 65)]
    assert np.mean(off) < 2.5 / math.sqrt(BUCKETS)
    # Two different values may share a bucket: the hash of single values can collide, as any hash can.
    assert np.quantile(off, 0.9) < (1.1 if pattern == "one value" else 0.35)


@given(st.integers(0, 10_000), st.floats(1e-6, 1e6), st.integers(0, 10_000))
def test_scale_does_not_change_a_sketch(seed: int, scale: float, other: int) -> None:
    """It is of the update divided by its norm, so half precision holds any scale."""
    row = torch.randn(1, MODEL.size, generator=torch.Generator().manual_seed(seed))
    (plain,), (scaled,) = sketches(row), sketches(row * scale)
    np.testing.assert_allclose(plain.values, scaled.values, atol=2e-3)
    assert scaled.norm == pytest.approx(plain.norm * scale, rel=1e-4)
    assert np.isfinite(plain.values).all()
    (flipped,) = sketches(-row)
    np.testing.assert_array_equal(flipped.values, -plain.values)


def test_the_same_buckets_and_signs_in_another_process() -> None:
    """They are a function of the layout alone, so that runs and machines can be compared."""
    code = """
import torch
from fedvitals.capture.tensors import Flattener, Sketcher
torch.manual_seed(99)
f = Flattener({str(i): torch.zeros(s) for i, s in enumerate([(64, 32), (64,), (10, 64), (10,)])})
row = torch.arange(float(f.size)).unsqueeze(0)
print(f.layout.sketch_buckets, Sketcher(f.layout, f.device).sketch(row).tolist())
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    row = torch.arange(float(MODEL.size)).unsqueeze(0)
    found = Sketcher(MODEL.layout, MODEL.device).sketch(row).tolist()
    assert result.stdout.strip() == f"{MODEL.layout.sketch_buckets} {found}"


def test_names_do_not_change_a_sketch() -> None:
    """A list of arrays at one side and a module at the other have the same buckets and signs."""
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    named, listed = Flattener(model), Flattener([t.numpy() for t in model.state_dict().values()])
    row = torch.randn(1, named.size, generator=torch.Generator().manual_seed(1))
    ours, theirs = (Sketcher(one.layout, one.device).sketch(row) for one in (named, listed))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("units", [1, 10, 64, 100])
def test_each_unit_of_the_last_layer_is_described(units: int) -> None:
    """Norm and sum of its row as shares, and 8 buckets; of at most 64 units."""
    model = flattener((20, 30), (units, 20), (units,))
    rows = torch.randn(3, model.size, generator=torch.Generator().manual_seed(2))
    found = summarise(rows, model.layout, Sketcher(model.layout, model.device))
    assert (model.layout.unit_layer, model.layout.units) == (1, min(units, 64))
    assert found.unit_norms is not None
    assert found.unit_sums is not None
    assert found.unit_sketches is not None
    matrix = rows[:, 600 : 600 + units * 20].reshape(3, units, 20)[:, :64].double()
    norms = matrix.norm(dim=2)
    whole = norms.norm(dim=1, keepdim=True)
    np.testing.assert_allclose(found.unit_norms, norms / whole, atol=1e-3)
    np.testing.assert_allclose(found.unit_sums, matrix.sum(2) / whole / math.sqrt(20), atol=1e-3)
    assert found.unit_sketches.shape == (3, min(units, 64), 8)
    lengths = np.linalg.norm(found.unit_sketches * unit_sketch_scale(), axis=2)
    assert 0.8 < lengths.mean() < 1.2


def test_sketches_of_units_tell_alike_rows_from_opposite_ones() -> None:
    """What shows label flips: rows that moved against each other."""
    model = flattener((10, 40))
    base = torch.randn(10, 40, generator=torch.Generator().manual_seed(5))
    flipped = base.clone()
    flipped[3] = -base[3]
    rows = torch.stack([base.flatten(), flipped.flatten()])
    found = summarise(rows, model.layout, Sketcher(model.layout, model.device)).unit_sketches
    assert found is not None
    values = found.astype(np.float64)
    cosines = (values[0] * values[1]).sum(1) / np.linalg.norm(values[0], axis=1) / np.linalg.norm(values[1], axis=1)
    np.testing.assert_allclose(cosines, [1.0] * 3 + [-1.0] + [1.0] * 6, atol=0.02)


def test_a_model_without_a_matrix_has_no_units() -> None:
    """Nothing to describe is no error; neither is a model without any layer."""
    for model in (flattener((5,), (2, 2, 2)), flattener()):
        found = summarise(torch.ones(2, model.size), model.layout, Sketcher(model.layout, model.device), groups=[2])
        assert found.unit_norms is None
        assert found.sketches is not None
        assert found.sketches.shape == (2, model.size)
