"""The door into a round."""

from __future__ import annotations

import pytest
import torch

from fedvitals.errors import TrainingError
from fedvitals.train.hooks import NoHook, RoundHook, RoundUpdates


def three() -> RoundUpdates:
    return RoundUpdates(("a", "b", "c"), torch.arange(6.0).reshape(3, 2), torch.tensor([1.0, 2.0, 3.0]))


def test_no_hook_changes_nothing() -> None:
    """It is a hook, hands back the very updates, and never rolls back."""
    hook: RoundHook = NoHook()
    updates = three()
    assert isinstance(hook, RoundHook)
    assert hook.before_aggregate(1, updates) is updates
    assert hook.after_round(1, {}) is None


def test_clients_are_dropped_with_their_rows_and_weights() -> None:
    """What is left keeps its order and belongs together."""
    left = three().without({"b", "nobody"})
    assert left.clients == ("a", "c")
    assert left.updates.tolist() == [[0.0, 1.0], [4.0, 5.0]]
    assert left.weights.tolist() == [1.0, 3.0]


def test_all_clients_may_be_dropped() -> None:
    """An empty round keeps the width of its updates."""
    left = three().without(["a", "b", "c"])
    assert left.clients == ()
    assert left.updates.shape == (0, 2)


@pytest.mark.parametrize(
    ("clients", "updates", "weights"),
    [
        (("a",), torch.ones(2, 3), torch.ones(2)),
        (("a", "b"), torch.ones(2, 3), torch.ones(3)),
        (("a", "b"), torch.ones(2), torch.ones(2)),
    ],
)
def test_rows_weights_and_clients_must_match(
    clients: tuple[str, ...], updates: torch.Tensor, weights: torch.Tensor
) -> None:
    """A hook that mixes them up is told at once, with the shapes."""
    with pytest.raises(TrainingError, match="a row and a weight for each"):
        RoundUpdates(clients, updates, weights)
