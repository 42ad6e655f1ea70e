"""The server's half of a round: what goes out, what comes in, and the step of the global model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedvitals.codecs import Codec
from fedvitals.train.aggregate import Aggregator
from fedvitals.train.aggregators.averaging import FedAdam, FedAvg, FedAvgM
from fedvitals.train.flat import FlatModel
from fedvitals.train.hooks import RoundUpdates


class Server:
    """Holds the global model; counts the bytes that go over the wire both ways."""

    def __init__(self, model: FlatModel, aggregator: Aggregator, up: Codec, down: Codec) -> None:
        self.model = model
        self.bytes_up = 0
        self.bytes_down = 0
        self._aggregator = aggregator
        self._up, self._down = up, down
        moving = model.trainable
        # Who averages also steps, with momentum or Adam, which would push a running variance below zero: running
        # statistics are averaged apart. Who votes must vote on them too, or one client's NaN would be everyone's.
        averages = isinstance(aggregator, FedAvg | FedAvgM | FedAdam)
        self._moving = moving if averages and moving is not None and not bool(moving.all()) else None
        self._state = aggregator.init(model.size if self._moving is None else int(self._moving.sum()))
        self._state_before = self._state  # of the round that may yet be rolled back
        # Identity writes equally many bytes for every update of this model, and gives back what it was given.
        self._size = len(up.encode(model.named(model.weights))) if up.config == {"id": "identity"} else None
        self._size_down = len(down.encode(model.named(model.weights)))
        self.alters_models = down.config != {"id": "identity"}  # on their way to the clients

    def outgoing(self) -> Tensor:
        """The model of this round as clients get it, after the wire."""
        if not self.alters_models:
            return self.model.weights.clone()
        data = self._down.encode(self.model.named(self.model.weights))
        self._size_down = len(data)
        return self.model.from_named(self._down.decode(data))

    @property
    def model_bytes(self) -> int:
        """What a model takes on its way out."""
        return self._size_down

    def sent(self) -> int:
        """A model goes out to one client: its bytes."""
        self.bytes_down += self._size_down
        return self._size_down

    def received(self, updates: Tensor) -> tuple[Tensor, list[int]]:
        """Updates [clients, size] as they arrive after the wire, and the bytes each took."""
        if self._size is not None:
            self.bytes_up += self._size * len(updates)
            return updates, [self._size] * len(updates)
        arrived, sizes = [], []
        for update in updates:
            data = self._up.encode(self.model.named(update))
            sizes.append(len(data))
            arrived.append(self.model.from_named(self._up.decode(data)))
        self.bytes_up += sum(sizes)
        return torch.stack(arrived), sizes

    @torch.no_grad()
    def aggregate(self, updates: RoundUpdates, integers: Sequence[Mapping[str, Tensor]]) -> None:
        """One step of the global model."""
        weights = self.model.weights
        self._state_before = self._state
        if self._moving is None:
            step, self._state = self._aggregator.apply(updates.updates, updates.weights, self._state)
            weights.add_(step)
        else:
            step, self._state = self._aggregator.apply(updates.updates[:, self._moving], updates.weights, self._state)
            share = updates.weights / updates.weights.sum()
            weights[self._moving] += step
            weights[~self._moving] += share.to(updates.updates.dtype) @ updates.updates[:, ~self._moving]
        self._count(integers)

    def _count(self, integers: Sequence[Mapping[str, Tensor]]) -> None:
        """Buffers that count (batches seen) take the largest count: a mean of counts counts nothing."""
        if integers:
            largest = {name: torch.stack([one[name] for one in integers]).amax(0) for name in integers[0]}
            self.model.load_integers(largest)

    @torch.no_grad()
    def roll_back(self, state: Mapping[str, Tensor]) -> None:
        """Go on from this model, as if the last round had not been: its push on momentum and moments goes as well."""
        self.model.weights.copy_(self.model.flattener.row(state))
        self._state = self._state_before
        self.model.load_integers({name: state[name] for name in self.model.integers if name in state})
