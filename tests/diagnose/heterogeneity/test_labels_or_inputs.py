"""Labels that do not fit their rows and inputs in another order: the same losses, and updates that go elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from charted import found
from digit_loops import ROWS, digit_loop, network
from torch import Tensor

ODD, SINCE = 3, 5


@pytest.mark.parametrize("seed", [0, 4])
@pytest.mark.parametrize(("labels", "code"), [(True, "FL507"), (False, "FL506")])
def test_shuffled_labels_are_no_matter_of_inputs(tmp_path: Path, seed: int, labels: bool, code: str) -> None:
    """Nor shuffled columns one of labels."""
    torch.manual_seed(seed)
    columns, order = torch.randperm(64), torch.randperm(ROWS)

    def seen(number: int, client: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if client != ODD or number < SINCE:
            return x, y
        return (x, y[order]) if labels else (x[:, columns], y)

    chart = digit_loop(tmp_path, network(seed), seed=seed, clients=10, seen=seen)
    assert [one.code for one in found(chart, "FL5", "FL6") if str(ODD) in one.clients] == [code]
