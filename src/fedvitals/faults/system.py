"""What can go wrong in what a client or the server runs on: processes, links, disks, memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fedvitals.faults.fault import Layers, ServerFault, WorkFault

if TYPE_CHECKING:
    from fedvitals.faults.work import LocalWork

MB = 1_000_000


class Crash(WorkFault):
    __slots__ = ()
    kind = "crash"
    imitates = "A client that raises in the middle of its training."
    finding = "FL101"

    def planned(self, work: LocalWork, layers: Layers) -> LocalWork:
        return replace(work, error=f"injected fault: client {work.name} crashed in round {work.round}")


class Timeout(WorkFault):
    __slots__ = ()
    kind = "timeout"
    imitates = "A client that takes the model and is never heard of again, until the server gives up."
    finding = "FL102"
    measures = "seconds of silence"
    default_strength = 0.2

    def planned(self, work: LocalWork, layers: Layers) -> LocalWork:
        return replace(work, silent_s=work.silent_s + self.strength)


class SlowCompute(WorkFault):
    __slots__ = ()
    kind = "slow-compute"
    imitates = "A client on an old, throttled or overloaded computer."
    finding = "FL201"
    measures = "factor on its computing time"
    default_strength = 5.0
    lowest = 1.0

    def planned(self, work: LocalWork, layers: Layers) -> LocalWork:
        return replace(work, compute_factor=work.compute_factor * self.strength)


class SlowLink(WorkFault):
    __slots__ = ()
    kind = "slow-link"
    imitates = "A client on a slow or congested connection."
    finding = "FL301"
    measures = "factor on its transfer times"
    default_strength = 10.0
    lowest = 1.0

    def planned(self, work: LocalWork, layers: Layers) -> LocalWork:
        return replace(work, link_factor=work.link_factor * self.strength)


class SlowLoader(WorkFault):
    __slots__ = ()
    kind = "slow-loader"
    imitates = "A client that waits for its own data: a network disk, or decoding in the training thread."
    finding = "FL204"
    measures = "how many times as long as its training alone the client takes with its loading"
    default_strength = 4.0
    lowest = 1.0

    def planned(self, work: LocalWork, layers: Layers) -> LocalWork:
        return replace(work, load_factor=work.load_factor * self.strength)


class MemoryLeak(WorkFault):
    __slots__ = ()
    kind = "memory-leak"
    imitates = "A client process that keeps something of every participation, such as losses with their graphs."
    finding = "FL801"
    measures = "MB kept a participation"
    default_strength = 10.0
    highest = 10_000.0

    def planned(self, work: LocalWork, layers: Layers) -> LocalWork:
        return replace(work, leak_bytes=work.leak_bytes + int(self.strength * MB))


class SlowAggregation(ServerFault):
    __slots__ = ()
    kind = "slow-aggregation"
    imitates = "A server that spends its round combining updates: one thread, a costly rule, a full disk."
    finding = "FL203"
    measures = "seconds more a round"
    default_strength = 0.1
    highest = 3600.0

    def delay_s(self) -> float:
        return self.strength
