"""Updates that do not wait: a whole round of many small ones is measured while it lies in the cache."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
from torch import nn
from watching import by_client, read, round_of

from fedvitals.capture.tensors import kernel


@pytest.mark.skipif(not kernel.in_use(), reason="there is no compiled kernel: nothing is summarised at once")
def test_a_whole_round_is_measured_at_once_and_let_go_of() -> None:
    """Where it is known how many clients there are, many small updates do not wait; what is found is the same."""
    model, clients = nn.Linear(60, 40), 40
    size = sum(parameter.numel() for parameter in model.parameters())
    made = torch.randn(clients, size, generator=torch.Generator().manual_seed(1))
    seen = {}
    for name, known in (("waiting", False), ("at-once", True)):
        updates = made.clone()
        with round_of(model, name=name) as rnd:
            if known:
                rnd.selected(clients)
            rnd.cohort(list(range(clients))).submit(updates=updates)
            alive = weakref.ref(updates)
            del updates
            assert alive() is None  # what waits lies on the shelf
            (entry,) = rnd.recorder.pending._entries
            assert (entry.found is None, 0 if entry.rows is None else len(entry.rows)) == (
                (False, 0) if known else (True, clients)
            )
        seen[name] = by_client(name)
    for client, one in seen["waiting"].items():
        other = seen["at-once"][client]
        assert (one.update_norm, one.cosine, one.nonfinite) == (other.update_norm, other.cosine, other.nonfinite)
    with read("waiting") as reader, read("at-once") as other_reader:
        (one_block,), (other_block,) = reader.update_blocks(), other_reader.update_blocks()
        for name in ("stats", "sketches"):
            np.testing.assert_array_equal(getattr(one_block, name), getattr(other_block, name))
