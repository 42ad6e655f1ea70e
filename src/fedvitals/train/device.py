"""The engine's network: how long a client's device and link, or the server, need for their parts of a round.

Plain arithmetic, no randomness: `network.py` says which device a client has and what luck its transfers have.
"""

from __future__ import annotations

from dataclasses import dataclass

BACKWARD_AND_FORWARD_FLOP = 6  # a parameter a row: a multiply and an add forward, twice that backward
FORWARD_FLOP = 2
VALUE_BYTES = 4


@dataclass(frozen=True, slots=True)
class Device:
    """A client's computer and its link; without arguments the nominal one, a modest phone on a home network.

    The constants are for comparing runs with each other, not a forecast for anyone's device. `compute_factor` and
    `link_factor` are those of the client's `LocalWork`: how many times slower than this it is.
    """

    flop_per_s: float = 1e9  # as achieved by small batches, far below what the chip could
    down_bits_per_s: float = 100e6
    up_bits_per_s: float = 100e6
    latency_s: float = 0.020  # of one transfer
    step_s: float = 0.0  # of each step, whatever its rows: a loader, a framework, a battery's governor
    loss: float = 0.0  # chance that a transfer breaks off and must be begun again
    available: float = 1.0  # chance of being there when a round begins
    dropout: float = 0.0  # chance of going away in the middle of a participation
    jitter: float = 0.0  # spread of a transfer's time from one to the next: sigma of its logarithm

    def download_s(self, size_bytes: int, link_factor: float = 1.0) -> float:
        """One transfer that does not break off."""
        return link_factor * (self.latency_s + 8 * size_bytes / self.down_bits_per_s)

    def upload_s(self, size_bytes: int, link_factor: float = 1.0) -> float:
        """One transfer that does not break off."""
        return link_factor * (self.latency_s + 8 * size_bytes / self.up_bits_per_s)

    def train_s(self, steps: int, batch_rows: float, parameters: int, compute_factor: float = 1.0) -> float:
        """`batch_rows` is the mean over the steps where the last batch is smaller."""
        flop = BACKWARD_AND_FORWARD_FLOP * parameters * batch_rows * steps
        return compute_factor * (flop / self.flop_per_s + steps * self.step_s)


NOMINAL = Device()


@dataclass(frozen=True, slots=True)
class ServerDevice:
    """The nominal server of a network that is imitated: a few cores in a data centre, its link never the bottleneck.

    `ask_s` is what a web service needs for one small request; `bytes_per_s` is float32 read, decoded, checked and added
    up by one thread, some passes over memory of 10 GB/s; `flop_per_s` is a forward pass in large batches on one core.
    Robust aggregators, which compare updates with each other, are counted like a mean.
    """

    begin_s: float = 0.001  # of a round, before anyone is asked
    ask_s: float = 0.0001  # a client
    bytes_per_s: float = 1e9
    flop_per_s: float = 20e9

    def select_s(self, asked: int) -> float:
        return self.begin_s + asked * self.ask_s

    def aggregate_s(self, updates: int, parameters: int) -> float:
        """The updates once each, and the model that comes of them."""
        return (updates + 1) * parameters * VALUE_BYTES / self.bytes_per_s

    def evaluate_s(self, rows: int, parameters: int) -> float:
        return FORWARD_FLOP * parameters * rows / self.flop_per_s
