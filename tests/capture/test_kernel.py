"""The compiled kernel and the torch operations it stands for say the same of any rows; without it all goes on."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import fedvitals
from fedvitals.capture.tensors import Flattener, Sketcher, Summary, distances, gradient_statistics, kernel, summarise
from fedvitals.capture.tensors.plan import PlanStructure
from fedvitals.store import open_store
from fedvitals.vocabulary import Layout

torch.set_num_threads(1)
compiled = pytest.mark.skipif(not kernel.in_use(), reason="no C compiler made the kernel here: ./script/kernel")

SHAPES = st.lists(
    st.sampled_from([(), (1,), (3,), (0,), (2, 3), (4, 1), (5, 0), (17,), (2, 2, 2), (10, 37), (70, 9), (1200,)]),
    max_size=5,
)
AWKWARD = (0.0, -0.0, 1e-45, -1e-40, 1e-38, 1e18, float("nan"), float("inf"), float("-inf"), 3e38, 65504.0)


@contextmanager
def without_kernel() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "library", lambda: None)
        yield


def model_of(shapes: list[tuple[int, ...]]) -> Flattener:
    return Flattener({f"layer {index}": torch.zeros(shape) for index, shape in enumerate(shapes)})


@st.composite
def stacks(draw: st.DrawFn) -> tuple[Flattener, Tensor, list[int]]:
    """Rows of some layout in some cohorts, with awkward values here and there."""
    flattener = model_of(draw(SHAPES))
    groups = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = random.standard_normal((sum(groups), flattener.size)) * draw(st.sampled_from([1e-6, 1.0, 1e4]))
    rows *= random.random(rows.shape) < draw(st.sampled_from([0.1, 1.0]))
    rows = rows.astype(np.float32)
    for value in draw(st.lists(st.sampled_from(AWKWARD), max_size=4)):
        if rows.size:
            rows.flat[draw(st.integers(0, rows.size - 1))] = value
    return flattener, torch.from_numpy(rows), groups


def counted(summary: Summary) -> np.ndarray:
    """How many values of each layer are not finite; nothing where nobody counted."""
    return np.zeros(0) if summary.nonfinite is None else summary.nonfinite


def apart(one: Summary, other: Summary, layout: Layout) -> list[str]:
    """What the two do not agree on: counts exactly, the rest within float32's error of what went in."""
    sizes = np.maximum([layer.size for layer in layout.layers], 1)
    norms = one.stats[..., 0].astype(np.float64)
    finite = np.isfinite(norms)
    root = (norms / np.sqrt(sizes))[finite]

    def near(place: int, power: int) -> bool:
        left, right = (found.stats[..., place][finite].astype(np.float64) ** power for found in (one, other))
        return bool((np.abs(left - right) <= 1e-5 * root**power + 1e-37).all())

    equal = np.array_equal
    agreed = {
        "which layers are finite": equal(np.isfinite(other.stats[..., 0]), finite),
        "which rows are finite": equal(np.isfinite(one.norms), np.isfinite(other.norms)),
        "counts of values that are not finite": equal(counted(one), counted(other)),
        "least and largest": equal(one.stats[..., 3:5], other.stats[..., 3:5], equal_nan=True),
        "shares of zeros": np.allclose(one.stats[..., 5], other.stats[..., 5], rtol=1e-7, atol=1e-6, equal_nan=True),
        "norms": np.allclose(norms[finite], other.stats[..., 0][finite], rtol=1e-5, atol=1e-22),
        "means": near(1, 1),
        "variances": near(2, 2),
    }
    return [what for what, so in agreed.items() if not so]


@compiled
@given(stacks())
def test_both_ways_give_the_same_statistics(stack: tuple[Flattener, Tensor, list[int]]) -> None:
    """For any layers, empty ones too, and any values: zeros, subnormals, NaN, infinities, norms that overflow."""
    flattener, rows, groups = stack
    sketcher = Sketcher(flattener.layout, flattener.device)
    one = summarise(rows, flattener.layout, sketcher, groups=groups)
    with without_kernel():
        other = summarise(rows, flattener.layout, sketcher, groups=groups)
    assert apart(one, other, flattener.layout) == []


@compiled
@given(stacks())
def test_both_ways_give_the_same_sketches(stack: tuple[Flattener, Tensor, list[int]]) -> None:
    """Within float16's error; all zero for a row with a value that is not finite."""
    flattener, rows, _ = stack
    if not len(rows):
        return
    sketcher = Sketcher(flattener.layout, flattener.device)
    one = summarise(rows, flattener.layout, sketcher)
    with without_kernel():
        other = summarise(rows, flattener.layout, sketcher)
    assert one.sketches is not None
    assert other.sketches is not None
    np.testing.assert_allclose(one.sketches, other.sketches, atol=3e-3)
    assert not one.sketches[~np.isfinite(one.norms)].any()
    assert np.isfinite(one.sketches).all()
    assert (one.unit_norms is None) == (other.unit_norms is None)
    if one.unit_norms is not None and one.unit_sums is not None and one.unit_sketches is not None:
        assert other.unit_norms is not None
        assert other.unit_sums is not None
        assert other.unit_sketches is not None
        np.testing.assert_allclose(one.unit_norms, other.unit_norms, atol=2e-3)
        np.testing.assert_allclose(one.unit_sums, other.unit_sums, atol=2e-3)
        told = one.unit_norms > 1e-3  # below that a unit's own norm is rounding noise, and its buckets are shares of it
        steps = np.abs(one.unit_sketches.astype(int) - other.unit_sketches.astype(int))
        assert (steps[told] <= 1).all()


@compiled
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 1000), st.sampled_from([1.0, 50.0, 1e6]))
def test_both_ways_give_the_same_cosines(groups: list[int], seed: int, boost: float) -> None:
    """Cohort by cohort, with one that outweighs the others, one that is zero and one that is not finite."""
    random = np.random.default_rng(seed)
    rows = torch.from_numpy((random.standard_normal((sum(groups), 300)) + 0.3).astype(np.float32))
    rows[seed % len(rows)] *= boost
    rows[(seed // 7) % len(rows)] *= 0.0 if seed % 3 == 0 else 1.0
    rows[(seed // 11) % len(rows), 5] *= float("nan") if seed % 5 == 0 else 1.0
    layout = model_of([(300,)]).layout
    one = summarise(rows, layout, groups=groups).cosines
    with without_kernel():
        other = summarise(rows, layout, groups=groups).cosines
    assert one is not None
    assert other is not None
    np.testing.assert_allclose(one, other, atol=2e-3)


@compiled
@given(stacks())
def test_both_ways_give_the_same_norms_of_gradients(stack: tuple[Flattener, Tensor, list[int]]) -> None:
    """Not finite for the same, and the same within float32's error for the others."""
    flattener, rows, _ = stack
    if not flattener.layout.layers or not len(rows):
        return
    one = gradient_statistics(rows, flattener.layout, full=False)
    with without_kernel():
        other = gradient_statistics(rows, flattener.layout, full=False)
    np.testing.assert_array_equal(np.isfinite(one), np.isfinite(other))
    np.testing.assert_allclose(one[np.isfinite(one)], other[np.isfinite(one)], rtol=1e-5, atol=1e-22)


@compiled
@given(stacks())
def test_both_ways_give_the_same_distances(stack: tuple[Flattener, Tensor, list[int]]) -> None:
    """From one row and from the row before; not finite for the same."""
    _, rows, _ = stack
    if not len(rows):
        return
    each = list(rows)
    for following in (False, True):
        one = np.array(distances(each, each[0], following=following))
        with without_kernel():
            other = np.array(distances(each, each[0], following=following))
        # torch squares in float32 and takes more care of what is too large or too small for that
        usual = np.isfinite(one) & np.isfinite(other)
        np.testing.assert_allclose(one[usual], other[usual], rtol=1e-4, atol=1e-18)
        np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
        assert (other[np.isinf(one)] > 1e18).all()
        assert np.isinf(one[np.isinf(other)]).all()


@compiled
@pytest.mark.parametrize("way", ["columns apart", "rows apart", "in parts", "halves"])
def test_rows_that_lie_otherwise_in_memory_are_read_right(way: str) -> None:
    """Every second column, every second row, several pieces, or another type, which torch takes."""
    flattener = model_of([(6, 5), (7,)])
    plain = torch.randn(4, flattener.size)
    wide, tall = torch.zeros(4, 2 * flattener.size), torch.zeros(8, flattener.size)
    wide[:, ::2], tall[::2] = plain, plain
    if way == "halves":
        assert not kernel.takes([plain.half()])
        plain = plain.half().float()
    ways = {"columns apart": [wide[:, ::2]], "rows apart": [tall[::2]], "in parts": [plain[:1], plain[1:]]}
    rows = ways.get(way, [plain])
    sketcher = Sketcher(flattener.layout, flattener.device)
    with without_kernel():
        expected = summarise(plain, flattener.layout, sketcher, groups=[4])
    found = summarise(rows, flattener.layout, sketcher, groups=[4])
    assert apart(found, expected, flattener.layout) == []
    assert found.cosines is not None
    assert expected.cosines is not None
    np.testing.assert_allclose(found.cosines, expected.cosines, atol=1e-5)


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_says_whether_the_kernel_was_in_use(tmp_path: Path, kept: bool) -> None:
    """And is recorded all the same where it was not."""
    with pytest.MonkeyPatch.context() as patch:
        if not kept:
            patch.setattr(kernel, "library", lambda: None)
        settings = fedvitals.settings.resolve({"dir": str(tmp_path)})
        model = nn.Linear(3, 2)
        with (
            fedvitals.start("kernel", settings=settings) as run,
            run.round(0, model=model) as rnd,
            rnd.client("a") as c,
        ):
            c.submit({name: value + 1.0 for name, value in model.state_dict().items()})
    reader = open_store(settings).open("last")
    try:
        assert reader.run().health["kernel"] is (kept and kernel.in_use())
        assert [one.update_norm for one in reader.participations()] == [pytest.approx(8**0.5, rel=1e-5)]
    finally:
        reader.close()


@pytest.mark.parametrize("what", ["no file", "no library", "another version"])
def test_a_kernel_that_cannot_be_used_is_not(what: str, tmp_path: Path) -> None:
    """A missing file, one that is no library, one of another version of fedvitals: torch does the work."""
    place = tmp_path / "_kernel.so"
    version = kernel.VERSION
    if what == "no library":
        place.write_bytes(b"no library")
    if what == "another version":
        if not kernel.in_use():
            pytest.skip("no C compiler made the kernel here: ./script/kernel")
        place.write_bytes(kernel.LIBRARY.read_bytes())
        version += 1
    code = (
        "from pathlib import Path; from fedvitals.capture.tensors import kernel;"
        f"kernel.LIBRARY, kernel.VERSION = Path({str(place)!r}), {version}; print(kernel.in_use())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@compiled
def test_the_structure_is_as_long_as_c_says() -> None:
    """Python's mirror of the kernel's structure has all its fields."""
    assert ctypes.sizeof(PlanStructure) == 6 * 8 + 4 * 8 + 8


@compiled
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40))
def test_halves_are_torchs(values: list[float]) -> None:
    """Sketches are halved by the kernel as torch halves numbers, subnormal ones too: a layer that is kept whole shows
    its values, as shares of the norm, to the last bit."""
    flattener = model_of([(1,)] * len(values))
    rows = torch.tensor([values], dtype=torch.float32)
    found = summarise(rows, flattener.layout, Sketcher(flattener.layout, flattener.device))
    assert found.sketches is not None
    with np.errstate(divide="ignore", over="ignore"):
        share = (1.0 / found.norms).astype(np.float32)
    if not np.isfinite(share).all() or not np.isfinite(found.norms).all():
        share = np.zeros(1, np.float32)
    expected = (rows * torch.from_numpy(share)).half().numpy()
    np.testing.assert_array_equal(found.sketches, expected)


@compiled
def test_a_lone_value_whose_square_overflows_has_a_unit() -> None:
    """The norm of a layer of one value is that value, however large; so is its unit's."""
    flattener = model_of([(1, 1)])
    rows = torch.tensor([[1e30], [-1e30], [2.0]])
    sketcher = Sketcher(flattener.layout, flattener.device)
    one = summarise(rows, flattener.layout, sketcher)
    with without_kernel():
        other = summarise(rows, flattener.layout, sketcher)
    assert one.unit_norms is not None
    assert other.unit_norms is not None
    np.testing.assert_array_equal(one.unit_norms, np.ones((3, 1), np.float16))
    np.testing.assert_array_equal(other.unit_norms, one.unit_norms)
