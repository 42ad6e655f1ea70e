"""Aggregators by name, as a job names them: `make("trimmed-mean", lr=1.0)`."""

from __future__ import annotations

import math
from collections.abc import Callable

from fedvitals.errors import JobError, nearest
from fedvitals.train.aggregators.averaging import FedAdam, FedAsync, FedAvg, FedAvgM
from fedvitals.train.aggregators.coordinatewise import Median, TrimmedMean
from fedvitals.train.aggregators.geometric import GeometricMedian
from fedvitals.train.aggregators.krum import Krum, MultiKrum
from fedvitals.train.aggregators.protocol import Aggregator, State

__all__ = ["AGGREGATORS", "Aggregator", "State", "make"]

AGGREGATORS: dict[str, Callable[[float], Aggregator]] = {
    "fedavg": FedAvg,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "median": Median,
    "trimmed-mean": TrimmedMean,
    "krum": Krum,
    "multi-krum": MultiKrum,
    "geometric-median": GeometricMedian,
    "fedasync": FedAsync,
}


# Rates that fit: an average, or a vote, is taken as it is; a step of Adam is as long as its rate, whatever the updates.
OWN_RATES = {"fedadam": FedAdam().lr, "fedasync": FedAsync().lr}


def own_rate(name: str) -> float:
    """The server's learning rate where a job names none."""
    return OWN_RATES.get(name, 1.0)


def make(name: str, lr: float = 0.0) -> Aggregator:
    """The aggregator of this name, with the server's learning rate; 0 is the aggregator's own."""
    kind = AGGREGATORS.get(name)
    if kind is None:
        raise JobError(f"server.aggregator: there is no aggregator {name!r}{nearest(name, list(AGGREGATORS))}")
    if not (0 <= lr < math.inf):
        raise JobError(f"server.lr = {lr!r} is not a number from 0; 1.0 takes an average as it is")
    return kind(lr or own_rate(name))
