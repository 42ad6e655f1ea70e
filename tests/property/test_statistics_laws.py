"""Laws of the statistics: they are what numpy says in float64, and nothing that is not finite is ever missed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedvitals.capture.tensors import Flattener, Sketcher, Summary, summarise
from fedvitals.vocabulary import STATISTICS, Layout

torch.set_num_threads(1)

# Squares of these neither vanish nor overflow in float32.
VALUES = st.floats(-1e6, 1e6, width=32).filter(lambda value: value == 0.0 or abs(value) > 1e-12)
SHAPES = st.lists(st.sampled_from([(), (1,), (3,), (0,), (2, 3), (4, 1), (5, 0), (7,), (2, 2, 2)]), max_size=5)


def layout_of(shapes: list[tuple[int, ...]]) -> Flattener:
    return Flattener({f"layer {index}": torch.zeros(shape) for index, shape in enumerate(shapes)})


@st.composite
def stacks(draw: st.DrawFn, least: int = 0) -> tuple[Flattener, np.ndarray]:
    """Some rows of some layout."""
    flattener = layout_of(draw(SHAPES))
    rows = draw(st.integers(least, 5))
    return flattener, draw(arrays(np.float32, (rows, flattener.size), elements=VALUES))


def summary_of(flattener: Flattener, rows: np.ndarray, **values: Any) -> Summary:
    return summarise(torch.from_numpy(rows.copy()), flattener.layout, **values)


def parts(layout: Layout, rows: np.ndarray) -> list[np.ndarray]:
    return np.split(rows, np.cumsum([layer.size for layer in layout.layers])[:-1], axis=1) if layout.layers else []


@given(stacks())
def test_statistics_are_numpys_in_double_precision(stack: tuple[Flattener, np.ndarray]) -> None:
    """Norm, mean, standard deviation, smallest, largest and share of zeros, within float32's error."""
    flattener, rows = stack
    found = summary_of(flattener, rows)
    assert found.stats.shape == (len(rows), len(flattener.layout.layers), len(STATISTICS))
    assert found.nonfinite is None
    for index, part in enumerate(parts(flattener.layout, rows.astype(np.float64))):
        norm, mean, std, low, high, zeros = found.stats[:, index].astype(np.float64).T
        if part.shape[1] == 0:
            assert not found.stats[:, index].any()
            continue
        square = np.square(part).mean(1)
        np.testing.assert_allclose(norm, np.linalg.norm(part, axis=1), rtol=1e-5)
        np.testing.assert_allclose(mean, part.mean(1), rtol=1e-5, atol=1e-6 * np.abs(part).mean(1).max(initial=0))
        # From sum and norm: below the rounding of the norm there is nothing to be had.
        assert (np.abs(np.square(std) - part.var(1)) <= 1e-5 * square + 1e-30).all()
        np.testing.assert_array_equal(low, part.min(1))
        np.testing.assert_array_equal(high, part.max(1))
        np.testing.assert_allclose(zeros, (part == 0).mean(1), atol=1e-6)
    np.testing.assert_allclose(found.norms, np.linalg.norm(rows.astype(np.float64), axis=1), rtol=1e-5)


@given(stacks(), st.data())
def test_rows_are_not_changed_by_looking(stack: tuple[Flattener, np.ndarray], data: st.DataObject) -> None:
    """Neither good ones nor bad ones."""
    flattener, rows = stack
    if rows.size:
        rows.flat[data.draw(st.integers(0, rows.size - 1))] = data.draw(st.sampled_from([np.nan, np.inf, 1.0]))
    tensor = torch.from_numpy(rows.copy())
    summarise(tensor, flattener.layout, Sketcher(flattener.layout, flattener.device), groups=[len(rows)])
    np.testing.assert_array_equal(tensor.numpy(), rows)


BAD = st.sampled_from([math.nan, math.inf, -math.inf])


@given(stacks(least=1).filter(lambda stack: stack[1].size > 0), BAD, st.data())
def test_a_value_that_is_not_finite_is_never_missed(
    stack: tuple[Flattener, np.ndarray], bad: float, data: st.DataObject
) -> None:
    """Whatever the row, the layer and the place; and it is counted there and nowhere else."""
    flattener, rows = stack
    places = data.draw(st.sets(st.integers(0, rows.size - 1), min_size=1, max_size=4))
    rows.flat[list(places)] = bad
    found = summary_of(flattener, rows, groups=[len(rows)])
    expected = np.stack([(~np.isfinite(part)).sum(1) for part in parts(flattener.layout, rows)], 1)
    assert found.nonfinite is not None
    np.testing.assert_array_equal(found.nonfinite, expected)
    spoiled = expected.sum(1) > 0
    assert not np.isfinite(found.norms[spoiled]).any()
    assert np.isfinite(found.norms[~spoiled]).all()
    assert not np.isfinite(found.stats[..., 0][expected > 0]).any()


@pytest.mark.parametrize("value", [1e20, -1e20, 3e38])
@pytest.mark.parametrize("place", [0, 4, 9])
def test_a_norm_that_overflows_is_seen(value: float, place: int) -> None:
    """Every value is finite, and yet the update is not one to use: its norm is infinite."""
    flattener = layout_of([(5,), (5,)])
    rows = np.ones((3, 10), np.float32)
    rows[1, place] = value
    found = summary_of(flattener, rows, sketcher=Sketcher(flattener.layout, flattener.device), groups=[3])
    assert np.isinf(found.norms[1])
    assert np.isfinite(found.norms[[0, 2]]).all()
    assert found.nonfinite is not None
    assert found.nonfinite.sum() == 0
    assert found.cosines is not None
    assert np.isnan(found.cosines[1])
    assert found.cosines[[0, 2]] == pytest.approx([1.0, 1.0])
    assert found.sketches is not None
    assert not found.sketches[1].any()


def exact_cosines(rows: np.ndarray) -> np.ndarray:
    """By the definition: of each row to the sum of the others, NaN where either has no length."""
    double = rows.astype(np.float64)
    others = np.stack([np.delete(double, index, axis=0).sum(0) for index in range(len(double))])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((double * others).sum(1) / np.linalg.norm(double, axis=1) / np.linalg.norm(others, axis=1))


@given(
    st.integers(2, 12),
    st.integers(1, 300),
    st.integers(0, 2**32 - 1),
    st.floats(-2, 2),
    st.sampled_from([1.0, 10.0, 1e3, 1e6, 1e12]),
)
def test_cosines_are_those_of_the_definition(rows: int, size: int, seed: int, common: float, boost: float) -> None:
    """For updates that agree, disagree, or one of which outweighs all others by far."""
    random = np.random.default_rng(seed)
    stack = (random.standard_normal((rows, size)) + common * random.standard_normal(size)).astype(np.float32)
    stack[seed % rows] *= boost
    expected = exact_cosines(stack)
    found = summary_of(layout_of([(size,)]), stack, groups=[rows]).cosines
    assert found is not None
    # Where the others cancel each other out there is no direction to compare with.
    others = np.linalg.norm(stack.astype(np.float64).sum(0) - stack.astype(np.float64), axis=1)
    told = others > 1e-2 * np.linalg.norm(stack, axis=1).max()
    told |= np.arange(rows) == seed % rows if boost > 100 else False
    np.testing.assert_allclose(found[told], expected[told], atol=2e-3)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 1000))
def test_each_cohort_is_compared_within_itself(groups: list[int], seed: int) -> None:
    """Rows of several rounds that are summarised together."""
    rows = np.random.default_rng(seed).standard_normal((sum(groups), 50)).astype(np.float32)
    flattener = layout_of([(50,)])
    together = summary_of(flattener, rows, groups=groups).cosines
    alone = [summary_of(flattener, part, groups=[len(part)]).cosines for part in np.split(rows, np.cumsum(groups)[:-1])]
    assert together is not None
    np.testing.assert_allclose(together, np.concatenate([one for one in alone if one is not None]), atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[1.0, 0.0]], [math.nan]),
        ([[1.0, 0.0], [0.0, 0.0]], [math.nan, math.nan]),
        ([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]], [1.0, 1.0, math.nan]),
        ([[1.0, 0.0], [-1.0, 0.0]], [-1.0, -1.0]),
        ([[1.0, 0.0], [math.nan, 0.0], [0.0, 3.0]], [0.0, math.nan, 0.0]),
    ],
)
def test_who_is_zero_alone_or_spoiled_has_no_cosine(rows: list[list[float]], expected: list[float]) -> None:
    """And is no part of anybody else's."""
    found = summary_of(layout_of([(2,)]), np.array(rows, np.float32), groups=[len(rows)]).cosines
    assert found is not None
    np.testing.assert_allclose(found, expected, atol=1e-6)


@settings(max_examples=30)
@given(st.permutations(range(6)), st.integers(0, 1000))
def test_the_order_of_clients_does_not_matter(order: list[int], seed: int) -> None:
    """Each row's statistics are its own."""
    flattener = layout_of([(4, 8), (8,), (3, 4)])
    rows = np.random.default_rng(seed).standard_normal((6, flattener.size)).astype(np.float32)
    sketcher = Sketcher(flattener.layout, flattener.device)
    straight = summary_of(flattener, rows, sketcher=sketcher, groups=[6])
    mixed = summary_of(flattener, rows[order], sketcher=sketcher, groups=[6])
    for field in ("stats", "cosines", "sketches", "unit_norms", "unit_sums"):
        np.testing.assert_allclose(getattr(mixed, field), getattr(straight, field)[order], atol=2e-3)
