"""The engine's network: which device each client has, and what luck it has with it.

Everything is a function of the job's seed, the client and the attempt (or round), so the same job meets the same links
on every executor, and a faster link never meets worse luck. Nothing waits: the times are for the virtual clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedvitals.faults.work import LocalWork
from fedvitals.randomness import chance
from fedvitals.train import device_files
from fedvitals.train.device import NOMINAL, Device, ServerDevice
from fedvitals.train.device_profiles import PROFILES, drawn, normal

MOST_TRIES = 6  # of one transfer, before it is given up
MOST_DESCRIBED = 1000  # devices in a run's record
NOTHING = "none"
SERVER = ServerDevice()


class Transfer(NamedTuple):
    """One model or update on its way, with the tries that broke off."""

    seconds: float
    retries: int = 0
    given_up: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """The devices of a run, by index of client."""

    profile: str
    clients: tuple[str, ...]
    devices: tuple[Device, ...]
    seed: int
    server: ServerDevice = SERVER
    sha256: str = ""  # of the file they come from

    @property
    def imitated(self) -> bool:
        """Whether there is a network at all; without one every client has the nominal device and a server no time."""
        return self.profile != NOTHING

    def download(self, work: LocalWork, size_bytes: int) -> Transfer:
        """The model, server to client."""
        device = self.devices[work.client]
        return self._transfer(work, device, "down", device.download_s(size_bytes, work.link_factor))

    def upload(self, work: LocalWork, size_bytes: int) -> Transfer:
        """The update, client to server."""
        device = self.devices[work.client]
        return self._transfer(work, device, "up", device.upload_s(size_bytes, work.link_factor))

    def available(self, client: int, round: int, look: int = 0) -> bool:
        """Whether a client is there when a round looks for clients, for the first or a later time."""
        share = self.devices[client].available
        return share >= 1.0 or chance(self.seed, "available", self.clients[client], round, look) < share

    def leaves_after(self, work: LocalWork) -> float | None:
        """The share of its work after which a client goes away for good; None when it stays."""
        dropout = self.devices[work.client].dropout
        if dropout <= 0.0 or chance(self.seed, "dropout", work.name, work.attempt) >= dropout:
            return None
        return chance(self.seed, "leaves after", work.name, work.attempt)

    def described(self) -> dict[str, Any]:
        """For the run's record: the devices in the columns of a file of devices, of the first clients where there are
        very many."""
        known = zip(self.clients[:MOST_DESCRIBED], self.devices, strict=False)
        devices = {client: device_files.described(device) for client, device in known} if self.imitated else {}
        said = {"profile": self.profile, "clients": len(self.clients), "devices": devices}
        return said | {"nominal": device_files.described(NOMINAL)} | ({"sha256": self.sha256} if self.sha256 else {})

    def _transfer(self, work: LocalWork, device: Device, way: str, once_s: float) -> Transfer:
        """A try that breaks off has cost the part that was through; then it begins anew."""
        if device.jitter > 0.0:
            once_s *= math.exp(device.jitter * normal(self.seed, "jitter", work.name, work.attempt, way))
        if device.loss <= 0.0:
            return Transfer(once_s)
        seconds = 0.0
        for retry in range(MOST_TRIES):
            here = (work.name, work.attempt, way, retry)
            if chance(self.seed, "transfer lost", *here) >= device.loss:
                return Transfer(seconds + once_s, retry)
            seconds += once_s * chance(self.seed, "lost after", *here)
        return Transfer(seconds, MOST_TRIES - 1, given_up=True)


def network_of(profile: str, clients: Sequence[str], seed: int) -> Network:
    """The network that a job asks for; JobError where a file of devices is not one."""
    names = tuple(clients)
    if profile == NOTHING:
        return Network(profile, names, (NOMINAL,) * len(names), seed)
    kind = PROFILES.get(profile)
    if kind is not None:
        return Network(profile, names, tuple(drawn(kind, seed, name) for name in names), seed)
    file = device_files.read(profile)
    return Network(profile, names, device_files.dealt(profile, file, names, seed), seed, sha256=file.sha256)
