"""The engine's network: named kinds of clients, and one client's device drawn from its kind.

The numbers are round, of the order of magnitude of what has been published, and meant for study: for asking what a
deadline, a codec or a selection would do in a federation of such a kind, not for predicting one. Where they come from,
in words:

- Links of homes and phones: the public indexes of consumer speed tests put the median fixed line near 100 Mbit/s down
  and a third of that or less up at some 10 ms, and the median phone at a few tens of Mbit/s down, about 10 up, at some
  30 to 50 ms; both vary by an order of magnitude between a country's clients.
- Devices: benchmarks of on-device learning (Lai et al., FedScale, ICML 2022, over measured phones) show training speeds
  an order of magnitude apart. What a small batch achieves lies far below what the chip could.
- Availability and dropout: Bonawitz et al., Towards Federated Learning at Scale (MLSys 2019), report that 6 to 10% of
  phones drop out of a round, and that only a part of them is there at any time.
- Cross-silo: a virtual machine with an accelerator a site, and the open internet between the sites.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from fedvitals.randomness import chance
from fedvitals.train.device import Device

FARTHEST = 2.5  # standard deviations: the tail beyond it would be one absurd device in a hundred
MOST_LOST = 0.5


class Around(NamedTuple):
    """Values around a median: `spread` is the standard deviation of their logarithm."""

    median: float
    spread: float = 0.0

    def at(self, place: float) -> float:
        return self.median * math.exp(self.spread * place)


@dataclass(frozen=True, slots=True)
class Profile:
    """A kind of clients; the units are those of `Device`."""

    down_bits_per_s: Around
    up_bits_per_s: Around
    latency_s: Around
    flop_per_s: Around
    step_s: Around
    loss: Around
    available: float
    dropout: float
    jitter: float


Spread = tuple[float, float]  # a median and the spread around it
# Down and up in Mbit/s, latency in ms, GFLOP/s, ms a step, lost messages; then shares: there, dropping out, jitter.
Row = tuple[Spread, Spread, Spread, Spread, Spread, Spread, float, float, float]
_TABLE: Mapping[str, Row] = {
    # desktops on one switched network
    "lan": ((1000, 0.1), (1000, 0.1), (0.5, 0.2), (10, 0.2), (0.2, 0.2), (0.0, 0.0), 1.0, 0.0, 0.02),
    # laptops at home
    "broadband": ((100, 0.6), (25, 0.6), (15, 0.4), (5, 0.4), (0.5, 0.3), (0.005, 0.5), 0.9, 0.01, 0.15),
    # phones, on and off
    "mobile": ((30, 0.8), (8, 0.8), (45, 0.4), (1, 0.6), (2, 0.4), (0.02, 0.7), 0.7, 0.06, 0.3),
    # hospitals, banks: a server each
    "cross-silo": ((500, 0.5), (500, 0.5), (30, 0.5), (200, 0.4), (1, 0.2), (0.001, 0.5), 0.99, 0.002, 0.1),
}


def _profile(row: Row) -> Profile:
    down, up, latency, speed, step, loss, available, dropout, jitter = row
    return Profile(
        down_bits_per_s=Around(down[0] * 1e6, down[1]),
        up_bits_per_s=Around(up[0] * 1e6, up[1]),
        latency_s=Around(latency[0] / 1e3, latency[1]),
        flop_per_s=Around(speed[0] * 1e9, speed[1]),
        step_s=Around(step[0] / 1e3, step[1]),
        loss=Around(*loss),
        available=available,
        dropout=dropout,
        jitter=jitter,
    )


PROFILES: Mapping[str, Profile] = {name: _profile(row) for name, row in _TABLE.items()}


def drawn(profile: Profile, seed: int, client: str) -> Device:
    """The device of this client: the same for the same seed and name, whoever else is there."""

    def place(what: str) -> float:
        return normal(seed, "device", client, what)

    link = place("link")  # a place with bad reception is bad both ways
    return Device(
        flop_per_s=profile.flop_per_s.at(place("compute")),
        down_bits_per_s=profile.down_bits_per_s.at(link),
        up_bits_per_s=profile.up_bits_per_s.at(link),
        latency_s=profile.latency_s.at(place("latency")),
        step_s=profile.step_s.at(place("step")),
        loss=min(profile.loss.at(place("loss")), MOST_LOST),
        available=profile.available,
        dropout=profile.dropout,
        jitter=profile.jitter,
    )


def normal(seed: int, purpose: str, *parts: str | int) -> float:
    """A standard normal number of one's own, cut off where it would be absurd."""
    even = min(max(chance(seed, purpose, *parts), 1e-12), 1 - 1e-12)
    return min(max(NormalDist().inv_cdf(even), -FARTHEST), FARTHEST)
