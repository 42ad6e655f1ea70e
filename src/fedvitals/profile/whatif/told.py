"""What the run's record says beside its times: its job, its clock, its machine, and the devices that were imitated.

A configuration is a user's own: nothing in it is taken for granted, and what is missing or odd is nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedvitals.vocabulary import JSONObject, Run

SECTIONS = ("data", "model", "train", "server", "codec", "execute")
EXECUTORS = ("sequential", "processes", "vectorised")
MOST_CLIENTS = 100_000  # whose selection is looked at


@dataclass(frozen=True, slots=True)
class Told:
    """The configuration and the environment of one run."""

    config: JSONObject
    environment: JSONObject

    @staticmethod
    def of(run: Run) -> Told:
        return Told(run.config, run.environment)

    @property
    def is_job(self) -> bool:
        """Whether the engine made the run, so that it can make it again."""
        return "executor" in self.environment and all(isinstance(self.config.get(one), Mapping) for one in SECTIONS)

    @property
    def virtual(self) -> bool:
        return self.environment.get("clock") == "virtual"

    @property
    def one_machine(self) -> bool:
        """Whether the engine ran all clients itself, for real."""
        return self.is_job and not self.virtual and self.environment.get("executor") in EXECUTORS

    @property
    def own_workers(self) -> bool:
        """Whether clients of the engine's own machine work in processes, which may be as many as they are. Who is late
        there is stopped, and free at once."""
        return self.one_machine and self.environment.get("executor") == "processes"

    @property
    def replacing_s(self) -> float:
        """Seconds for which the server is held up by one who is late and stopped: taking a process apart takes about as
        long as making it does."""
        known = self.environment.get("worker_start_s")
        return 2.0 * known if self.own_workers and type(known) is float and 0.0 < known < math.inf else 0.0

    @property
    def processes(self) -> int:
        """In which the engine ran them."""
        if self.environment.get("executor") == "sequential":
            return 1
        return int(self.number("execute.workers", 0.0)) or self.cores

    @property
    def cores(self) -> int:
        """That the run might have used; 1 where nobody knows."""
        known = self.environment.get("cpus_usable") or self.environment.get("cpus")
        return known if type(known) is int and known > 0 else 1

    @property
    def threads(self) -> int:
        """That a client's training uses."""
        known = self.environment.get("engine_threads") or self.environment.get("threads")
        return known if type(known) is int and known > 0 else 1

    def number(self, dotted: str, default: float) -> float:
        value = self._value(dotted)
        right = type(value) in (int, float) and math.isfinite(value)
        return float(value) if right else default

    def text(self, dotted: str) -> str:
        value = self._value(dotted)
        return value if isinstance(value, str) else ""

    def names(self, dotted: str) -> frozenset[str]:
        value = self._value(dotted)
        return frozenset(map(str, value)) if isinstance(value, list | tuple) else frozenset()

    def everybody(self) -> tuple[str, ...]:
        """All clients of an engine's run in its order, also those never asked; nobody where that is unknown."""
        devices = self._network().get("devices")
        count = int(self.number("data.clients", 0))
        if isinstance(devices, Mapping) and devices and len(devices) == self._network().get("clients"):
            return tuple(map(str, devices))
        if self.text("data.partition") in ("", "natural") or not 0 < count <= MOST_CLIENTS:
            return ()
        return tuple(map(str, range(count)))

    def device(self, client: str) -> dict[str, float] | None:
        """The device of a client that is imitated, in the columns of a file of devices; None for none. On the real
        clock that is its link alone, where it is a slow one."""
        network = self._network()
        devices = network.get("devices")
        found = devices.get(client) if isinstance(devices, Mapping) and devices else network.get("nominal")
        found = self.environment.get("link") if self.one_machine else found
        if not isinstance(found, Mapping):
            return None
        return {str(name): float(value) for name, value in found.items() if type(value) in (int, float)}

    def _network(self) -> Mapping[str, Any]:
        network = self.environment.get("network")
        return network if isinstance(network, Mapping) and self.virtual else {}

    def _value(self, dotted: str) -> Any:
        value: Any = self.config
        for word in dotted.split("."):
            value = value.get(word) if isinstance(value, Mapping) else None
        return value
