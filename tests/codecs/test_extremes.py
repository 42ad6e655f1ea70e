"""Updates at the edge of what numbers can be: they arrive inside the codec's bound, or are refused by their layer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedvitals import codecs
from fedvitals.errors import CodecError

SPECS = (
    "fp16",
    "bf16",
    "quantize:8",
    "quantize:2:stochastic:row",
    "qsgd:4",
    "onebit | zstd",
    "ternary:0.5",
    "grid:1e30 | entropy",
    "topk:0.3:energy",
    "topk:0.3:layer | qsgd:4",
    "randomk:0.3 | entropy",
    "threshold:1:layer",
    "lowrank:2",
    "lowrank:2 | qsgd:4",
)
EXTREMES = {
    "wide": torch.tensor([1e308, -1.7e308, 1e-320] * 9, dtype=torch.float64),
    "wide matrix": torch.full((40, 30), 1.5e308, dtype=torch.float64),
    "large": torch.linspace(-1e289, 1e289, 1200, dtype=torch.float64).reshape(40, 30),
    "single": torch.full((300, 20), 3.4e38),
    "both ways": torch.tensor([3e38, -3e38, 1.0, 0.0]),
    "fine": torch.tensor([1e-45, -1e-40, 0.0, 3e-39]).repeat(5),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("spec", SPECS)
def test_extremes_arrive_inside_the_bound_or_are_refused(spec: str, name: str) -> None:
    """What was encoded can be decoded: nothing that a receiver refuses is ever sent."""
    codec, update = codecs.parse(spec), {"layer": EXTREMES[name]}
    try:
        data = codec.encode(update)
    except CodecError as error:
        assert "'layer'" in str(error)  # noqa: PT017  # either will do
        return
    arrived = codec.decode(data)["layer"]
    assert bool(arrived.isfinite().all())
    moved = np.abs(arrived.double().numpy() - EXTREMES[name].double().numpy())
    assert moved.max() <= codec.error_bound(update)


def test_a_share_by_energy_goes_by_it_at_any_size() -> None:
    """Squares of these are beyond all numbers; the larger layer still gets the values."""
    update = {"much": torch.full((50,), 1e280, dtype=torch.float64), "little": torch.full((50,), 1e30).double()}
    codec = codecs.parse("topk:0.2:energy")
    arrived = codec.decode(codec.encode(update))
    assert [int((arrived[name] != 0).sum()) for name in update] == [20, 0]


@pytest.mark.parametrize("spec", ["identity", "fp16", "feedback(topk:0.1)"])
@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        (torch.eye(3).to_sparse(), "not a dense tensor"),
        (torch.empty(3, device="meta"), "not a dense tensor"),
        (torch.ones(3).to(torch.float8_e4m3fn), "float8_e4m3fn, which cannot be written"),
        (np.ones(3), "of type ndarray; right is a torch.Tensor"),
    ],
)
def test_what_no_codec_holds_is_refused_by_name(spec: str, tensor: Tensor, says: str) -> None:
    """Whatever it is, and whichever codec meets it."""
    with pytest.raises(CodecError, match=rf"'odd' is .*{says}"):
        codecs.parse(spec).encode({"fine": torch.ones(2), "odd": tensor})
