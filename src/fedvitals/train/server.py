"""The server's half of a round: what goes out, what comes in, and the step of the global model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from fedvitals.train.aggregate import Aggregator
from fedvitals.train.aggregators.averaging import FedAdam, FedAvg, FedAvgM
from fedvitals.train.averaging import RunningMean
from fedvitals.train.downlink import Downlink
from fedvitals.train.flat import FlatModel
from fedvitals.train.hooks import RoundUpdates
from fedvitals.train.pruning import Pruning
from fedvitals.train.remembering import Remembered
from fedvitals.train.uplink import Uplink


class Server:
    """Holds the global model, and the ways to and from it."""

    def __init__(
        self,
        model: FlatModel,
        aggregator: Aggregator,
        uplink: Uplink,
        downlink: Downlink,
        pruning: Pruning | None = None,
        samples: Mapping[str, int] | None = None,
        average: float = 0.0,
    ) -> None:
        """`samples`, the rows of each client, are for a server that remembers what each sent last; `average` is the
        share that a running mean of the models keeps."""
        self.model = model
        self.uplink, self.downlink = uplink, downlink
        self._aggregator = aggregator
        self._pruning, self._rounds = pruning, 0
        # What was not cut, now and a round ago; of nothing where nothing is to be.
        self._live = self._live_before = torch.ones(model.size if pruning else 0, dtype=torch.bool)
        self.pruned = False  # whether anything was
        moving = model.trainable
        # Who averages also steps, with momentum or Adam, which would push a running variance below zero: running
        # statistics are averaged apart. Who votes must vote on them too, or one client's NaN would be everyone's.
        averages = isinstance(aggregator, FedAvg | FedAvgM | FedAdam)
        self._moving = moving if averages and moving is not None and not bool(moving.all()) else None
        size = model.size if self._moving is None else int(self._moving.sum())
        self._state = aggregator.init(size)
        self._remembered = Remembered(samples, size) if samples is not None else None
        self._state_before = self._state  # of the round that may yet be rolled back
        self._mean = RunningMean(average) if average else None

    def outgoing(self) -> Tensor:
        """The model as clients have it when they begin, while others may move it."""
        return self.model.weights.clone()

    @torch.no_grad()
    def aggregate(self, updates: RoundUpdates, integers: Sequence[Mapping[str, Tensor]]) -> None:
        """One step of the global model."""
        self._state_before = self._state
        self.uplink.used(updates.clients)
        step = self._step(updates)
        self._count(integers)
        self.model.weights.add_(self.downlink.step(step))
        self._rounds += 1
        self._live_before = self._live
        if self._pruning is not None:
            self._keep(self._pruning.mask(self._rounds, self.model.weights))
        if self._mean is not None:
            self._mean.add(self.model.weights)

    def judged(self) -> AbstractContextManager[None]:
        """Inside, the model is the one that is judged: where models are averaged, their mean."""
        return nullcontext() if self._mean is None else self._mean.inside(self.model.weights)

    def finish(self) -> None:
        """No more steps: what was judged is what stays."""
        if self._mean is not None:
            self._mean.put_into(self.model.weights)

    def _keep(self, live: Tensor) -> None:
        """Only these values of the model."""
        self._live, self.pruned = live, not bool(live.all())
        self.model.weights.masked_fill_(~live, 0.0)
        self.uplink.prune(live)
        self.downlink.prune(live)

    def _step(self, updates: RoundUpdates) -> Tensor:
        if self._moving is None:
            return self._moved(updates, updates.updates)
        step = torch.empty_like(self.model.weights)
        step[self._moving] = self._moved(updates, updates.updates[:, self._moving])
        share = updates.weights / updates.weights.sum()
        step[~self._moving] = share.to(updates.updates.dtype) @ updates.updates[:, ~self._moving]
        return step

    def _moved(self, updates: RoundUpdates, rows: Tensor) -> Tensor:
        """The aggregator's step, of these columns of the updates."""
        if self._remembered is not None:
            rows = self._remembered.corrected(updates.clients, rows)
        step, self._state = self._aggregator.apply(rows, updates.weights, self._state)
        return step

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
        if self._remembered is not None:
            self._remembered.roll_back()
        self.model.load_integers({name: state[name] for name in self.model.integers if name in state})
        if self._pruning is not None:
            self._keep(self._live_before)
        if self._mean is not None:
            self._mean.roll_back()
        self.downlink.rolled_back()
        self.uplink.rolled_back()
