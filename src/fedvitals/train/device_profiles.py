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


PROFILES: Mapping[str, Profile] = {
    "lan": Profile(  # desktops on one switched network
        down_bits_per_s=Around(1e9, 0.1),
        up_bits_per_s=Around(1e9, 0.1),
        latency_s=Around(0.0005, 0.2),
        flop_per_s=Around(10e9, 0.2),
        step_s=Around(0.0002, 0.2),
        loss=Around(0.0),
        available=1.0,
        dropout=0.0,
        jitter=0.02,
    ),
    "broadband": Profile(  # laptops at home
        down_bits_per_s=Around(100e6, 0.6),
        up_bits_per_s=Around(25e6, 0.6),
        latency_s=Around(0.015, 0.4),
        flop_per_s=Around(5e9, 0.4),
        step_s=Around(0.0005, 0.3),
        loss=Around(0.005, 0.5),
        available=0.9,
        dropout=0.01,
        jitter=0.15,
    ),
    "mobile": Profile(  # phones, on and off
        down_bits_per_s=Around(30e6, 0.8),
        up_bits_per_s=Around(8e6, 0.8),
        latency_s=Around(0.045, 0.4),
        flop_per_s=Around(1e9, 0.6),
        step_s=Around(0.002, 0.4),
        loss=Around(0.02, 0.7),
        available=0.7,
        dropout=0.06,
        jitter=0.3,
    ),
    "cross-silo": Profile(  # hospitals, banks: a server each
        down_bits_per_s=Around(500e6, 0.5),
        up_bits_per_s=Around(500e6, 0.5),
        latency_s=Around(0.030, 0.5),
        flop_per_s=Around(200e9, 0.4),
        step_s=Around(0.001, 0.2),
        loss=Around(0.001, 0.5),
        available=0.99,
        dropout=0.002,
        jitter=0.1,
    ),
}


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
