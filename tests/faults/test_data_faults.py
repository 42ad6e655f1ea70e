"""Faults of the rows: what they spoil, what they leave alone, the same in every round."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedvitals.errors import JobError
from fedvitals.faults.data import patched
from fedvitals.faults.fault import DataFault, Owner
from fedvitals.faults.registry import BY_KIND, make
from fedvitals.faults.spec import FaultSpec

OWNER = Owner(7, "3", 10)
SHAPES = {"vector": (12,), "sequence": (9, 4), "image": (1, 8, 8)}
DATA_KINDS = [kind for kind, fault in BY_KIND.items() if issubclass(fault, DataFault)]


def _fault(kind: str, strength: float | None = None, of: str = "classes") -> DataFault:
    fault = make(FaultSpec(kind, ("3",), strength=strength, of=of))
    assert isinstance(fault, DataFault)
    return fault


def _rows(kind: str = "vector", count: int = 100, classes: int = 10) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, classes, (count,), generator=generator)
    if kind == "tokens":
        return torch.randint(0, 30, (count, 12), generator=generator), y
    return torch.rand(count, *SHAPES[kind], generator=generator), y


@pytest.mark.parametrize("kind", DATA_KINDS)
@pytest.mark.parametrize("rows", [*SHAPES, "tokens"])
def test_a_fault_spoils_copies_in_the_same_way_every_time(kind: str, rows: str) -> None:
    """The given rows stay as they are, something changes, shapes and types stay, and a repeat is equal."""
    x, y = _rows(rows)
    kept_x, kept_y = x.clone(), y.clone()
    if rows == "tokens" and kind in ("nan-batch", "unnormalised-input"):
        with pytest.raises(JobError, match=f"{kind} spoils numbers, but these rows are tokens"):
            _fault(kind).spoilt(x, y, OWNER)
        return
    bad_x, bad_y = _fault(kind).spoilt(x, y, OWNER)
    assert torch.equal(x, kept_x)
    assert torch.equal(y, kept_y)
    assert (bad_x.shape, bad_x.dtype, bad_y.shape, bad_y.dtype) == (x.shape, x.dtype, y.shape, y.dtype)
    assert not (torch.equal(bad_x, x) and torch.equal(bad_y, y))
    again_x, again_y = _fault(kind).spoilt(x, y, OWNER)
    assert torch.equal(bad_y, again_y)
    assert torch.allclose(bad_x.double(), again_x.double(), equal_nan=True, atol=0)
    assert int(bad_y.min()) >= 0
    assert int(bad_y.max()) < OWNER.classes


@pytest.mark.parametrize("kind", ["label-noise", "swapped-features", "backdoor", "nan-batch"])
def test_other_clients_are_spoilt_otherwise(kind: str) -> None:
    """Which rows or columns are struck is drawn for each client."""
    x, y = _rows()
    one, other = (_fault(kind).spoilt(x, y, OWNER._replace(client=name)) for name in "ab")
    assert not (torch.equal(one[0], other[0]) and torch.equal(one[1], other[1]))


def test_a_full_label_flip_makes_every_label_wrong() -> None:
    """Each class is taken for one other, always the same, and no two for one."""
    _, y = _rows()
    _, flipped = _fault("label-flip").spoilt(y, y, OWNER)
    taken_for = {(int(a), int(b)) for a, b in zip(y, flipped, strict=True)}
    assert len(taken_for) == 10
    assert all(a != b for a, b in taken_for)
    assert {b for _, b in taken_for} == set(range(10))


@given(strength=st.floats(0.01, 1.0), classes=st.integers(2, 12), count=st.integers(1, 80))
def test_a_label_flip_strikes_its_share_of_the_classes_held(strength: float, classes: int, count: int) -> None:
    """A share of the classes that the client has, at least one; all the others keep their labels."""
    _, y = _rows(count=count, classes=classes)
    _, flipped = _fault("label-flip", strength).spoilt(y, y, Owner(7, "3", classes))
    held = set(y.tolist())
    struck = set(y[flipped != y].tolist())
    assert len(struck) == max(1, round(strength * len(held)))
    assert (flipped[[label in struck for label in y.tolist()]] != y[[label in struck for label in y.tolist()]]).all()
    assert int(flipped.max()) < classes


@given(strength=st.floats(0.01, 1.0), count=st.integers(1, 80))
def test_shares_of_rows(strength: float, count: int) -> None:
    """Label flips of rows and label noise change exactly their share of the labels, and none to itself."""
    x, y = _rows(count=count)
    expected = max(1, round(strength * count))
    for fault in (_fault("label-flip", strength, of="rows"), _fault("label-noise", strength)):
        bad_x, bad_y = fault.spoilt(x, y, OWNER)
        assert torch.equal(bad_x, x)
        assert int((bad_y != y).sum()) == expected


def test_noise_goes_to_many_labels() -> None:
    """Unlike a flip, noise does not map a class to one other."""
    y = torch.zeros(1000, dtype=torch.int64)
    _, noisy = _fault("label-noise").spoilt(y, y, OWNER)
    assert set(noisy.tolist()) == set(range(10))


def test_nan_in_one_row() -> None:
    """By default one row, and so one batch an epoch, holds a NaN."""
    x, y = _rows("image")
    bad, _ = _fault("nan-batch").spoilt(x, y, OWNER)
    assert int(bad.isnan().flatten(1).any(1).sum()) == 1
    three, _ = _fault("nan-batch", 3).spoilt(x, y, OWNER)
    assert int(three.isnan().flatten(1).any(1).sum()) == 3


def test_features_are_scaled_or_swapped() -> None:
    """Scaling multiplies all; swapping moves whole columns, channels or pixels, the same in every row."""
    x, y = _rows()
    assert torch.equal(_fault("unnormalised-input", 255).spoilt(x, y, OWNER)[0], x * 255)
    swapped = _fault("swapped-features").spoilt(x, y, OWNER)[0]
    assert torch.equal(swapped.sort(1).values, x.sort(1).values)
    assert torch.equal(swapped.mean(0).sort().values, x.mean(0).sort().values)
    series, _ = _rows("sequence")
    assert torch.equal(_fault("swapped-features").spoilt(series, y, OWNER)[0].sort(2).values, series.sort(2).values)
    tokens, _ = _rows("tokens")
    renamed = _fault("swapped-features").spoilt(tokens, y, OWNER)[0]
    assert len({(int(a), int(b)) for a, b in zip(tokens.flatten(), renamed.flatten(), strict=True)}) == len(
        set(tokens.flatten().tolist())
    )


def test_a_backdoor_patches_its_share_and_wants_class_zero() -> None:
    """30% of the rows carry the patch and label 0; the others are as they were."""
    x, y = _rows("image")
    bad_x, bad_y = _fault("backdoor").spoilt(x, y, OWNER)
    struck = (bad_x != x).flatten(1).any(1)
    assert int(struck.sum()) == 30
    assert (bad_y[struck] == 0).all()
    assert torch.equal(bad_y[~struck], y[~struck])
    assert torch.equal(bad_x[struck], patched(x)[struck])


def test_the_patch_is_small_and_bright() -> None:
    """A corner of an image, a tenth of a vector or of a series, two tokens."""
    image = patched(_rows("image")[0])
    assert (image[:, :, -2:, -2:] == 1).all()
    assert torch.equal(image[:, :, :-2], _rows("image")[0][:, :, :-2])
    vector, plain = patched(torch.randn(50, 32)), torch.randn(50, 32)
    assert (vector[:, -4:] == 3).all()
    assert int((patched(plain) != plain).any(0).sum()) == 4
    tokens = _rows("tokens")[0]
    assert (patched(tokens)[:, -2:] == 0).all()
    assert torch.equal(patched(tokens)[:, :-2], tokens[:, :-2])
