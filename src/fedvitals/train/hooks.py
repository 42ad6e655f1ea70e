"""Where others may step into a round: corrections and a user's own code use the same door.

A hook's exception is its author's: the engine lets it through unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from fedvitals.errors import TrainingError


@dataclass(frozen=True, slots=True, eq=False)
class RoundUpdates:
    """What is about to be aggregated: a row a client."""

    clients: tuple[str, ...]
    updates: Tensor  # [clients, values], differences from the global model
    weights: Tensor  # [clients], samples

    def __post_init__(self) -> None:
        rows = len(self.clients)
        if self.updates.dim() != 2 or len(self.updates) != rows or self.weights.shape != (rows,):
            raise TrainingError(
                f"a round's updates need a row and a weight for each of {rows} clients; found updates "
                f"{list(self.updates.shape)} and weights {list(self.weights.shape)}"
            )

    def checked(self, number: int, kept: object) -> RoundUpdates:
        """What a hook gave back for these in round `number`, if it can be aggregated."""
        if not isinstance(kept, RoundUpdates):
            raise TrainingError(f"round {number}: the hook gave back {type(kept).__name__}; right is a RoundUpdates")
        if not kept.clients:
            raise TrainingError(f"round {number}: the hook left none of {len(self.clients)} updates to aggregate")
        if kept.updates.shape[1] != self.updates.shape[1]:
            raise TrainingError(
                f"round {number}: the hook gave back updates of {kept.updates.shape[1]} values; the model has "
                f"{self.updates.shape[1]}"
            )
        return kept

    def without(self, clients: Collection[str]) -> RoundUpdates:
        """The same without these clients; names that are not here are none's loss."""
        kept = [row for row, client in enumerate(self.clients) if client not in clients]
        if len(kept) == len(self.clients):
            return self
        rows = torch.tensor(kept, dtype=torch.int64, device=self.updates.device)
        return RoundUpdates(tuple(self.clients[row] for row in kept), self.updates[rows], self.weights[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Rollback:
    """The model to go on from instead of the new one, and why."""

    state: Mapping[str, Tensor]
    reason: str


@runtime_checkable
class RoundHook(Protocol):
    """Called once a round, before and after the step of the global model."""

    def before_aggregate(self, round: int, updates: RoundUpdates) -> RoundUpdates:
        """What to aggregate: the same, fewer, or others. Clients that are missing from it count as rejected."""

    def after_round(self, round: int, model_state: Mapping[str, Tensor]) -> Rollback | None:
        """None keeps the new model. `model_state` is the engine's own memory: copy what you keep."""


class NoHook:
    """Changes nothing."""

    def before_aggregate(self, round: int, updates: RoundUpdates) -> RoundUpdates:
        return updates

    def after_round(self, round: int, model_state: Mapping[str, Tensor]) -> Rollback | None:
        return None
