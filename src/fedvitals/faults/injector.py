"""What can go wrong, at work: which fault strikes whom in which round, and what comes of it.

Everything is a function of the run's seed, the client, the attempt and the round, so the same job goes wrong in the
same way on every executor. The one memory is that of clients which send old updates again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from fedvitals.errors import JobError, nearest
from fedvitals.faults.fault import DataFault, Fault, Layers, Owner, Sending, ServerFault, UpdateFault, WorkFault
from fedvitals.faults.registry import make
from fedvitals.faults.spec import FaultSpec, refuse_duplicates
from fedvitals.faults.training import FrozenLayer
from fedvitals.faults.work import LocalWork
from fedvitals.randomness import stream


class Planted(NamedTuple):
    """A fault and whom it strikes."""

    spec: FaultSpec
    fault: Fault
    clients: frozenset[str]

    def strikes(self, client: str, round: int) -> bool:
        return client in self.clients and self.spec.strikes_in(round)


class Injector:
    """The faults of one run. `trainable_layers` are (name, shape), `classes` 0: as many as a client's labels show."""

    def __init__(
        self,
        specs: Sequence[FaultSpec],
        clients: Sequence[str],
        seed: int,
        *,
        trainable_layers: Layers,
        classes: int = 0,
    ) -> None:
        refuse_duplicates(specs)
        self._seed, self._classes, self._layers = seed, classes, tuple(trainable_layers)
        self._planted = tuple(Planted(spec, make(spec), _struck(spec, clients, seed)) for spec in specs)
        for planted in self._planted:
            if isinstance(planted.fault, FrozenLayer):
                planted.fault.layer(self._layers)  # refuses now what could not be done later
        self._spoilt: dict[str, tuple[tuple[int, ...], Tensor, Tensor]] = {}
        self._past = self._memories()

    def active(self, client: str, round: int) -> tuple[str, ...]:
        """Kinds of the faults that strike this client in this round; empty: it is honest."""
        return tuple(planted.spec.kind for planted in self._planted if planted.strikes(client, round))

    def culprits(self) -> dict[str, tuple[str, ...]]:
        """Each client that any fault strikes in any round, with the kinds. A server's faults have no client."""
        struck = sorted(set().union(*(planted.clients for planted in self._planted)))
        return {
            client: tuple(dict.fromkeys(planted.spec.kind for planted in self._planted if client in planted.clients))
            for client in struck
        }

    def plan(self, work: LocalWork, x_rows: Callable[[], tuple[Tensor, Tensor]]) -> LocalWork:
        """The work as it will go wrong. `x_rows` gives the client's own rows and labels; it is called only when a data
        fault needs them. Spoilt rows are kept for the next time: they must not be written to."""
        data: list[int] = []
        for index, planted in enumerate(self._planted):
            if not planted.strikes(work.name, work.round):
                continue
            if isinstance(planted.fault, WorkFault):
                work = planted.fault.planned(work, self._layers)
            elif isinstance(planted.fault, DataFault):
                data.append(index)
        if not data:
            return work
        x, y = self._rows(work.name, tuple(data), x_rows)
        return replace(work, x=x, y=y)

    def needs_cohort(self, client: str, round: int) -> bool:
        """Whether `tamper` must be told the honest updates of the round."""
        return any(fault.needs_cohort for fault in self._update_faults(client, round))

    def tampers(self, client: str, round: int) -> bool:
        """Whether this client's update will be changed on its way."""
        return bool(self._update_faults(client, round))

    def tamper(self, name: str, attempt: int, round: int, update: Tensor, others: Sequence[Tensor] = ()) -> Tensor:
        """What the client sends instead of this update: a new tensor. `others` are the honest updates of the round, in
        an order that is the same for every client. Call `observe` with the honest update after this, not before."""
        sent = update
        for fault in self._update_faults(name, round):
            sending = Sending(self._seed, name, attempt, round, others, self._past.get(name, ()))
            sent = fault.sent(sent, sending)
        return update.clone() if sent is update else sent

    def observe(self, name: str, update: Tensor) -> None:
        """Remember a client's own honest update, where it may send it again later. Once a participation, struck or not,
        after `tamper`."""
        if name in self._past:
            self._past[name].append(update.detach().clone())

    def aggregation_delay_s(self, round: int) -> float:
        """By how much the server is held up in this round."""
        return sum(
            planted.fault.delay_s()
            for planted in self._planted
            if isinstance(planted.fault, ServerFault) and planted.spec.strikes_in(round)
        )

    def _update_faults(self, client: str, round: int) -> list[UpdateFault]:
        return [
            planted.fault
            for planted in self._planted
            if isinstance(planted.fault, UpdateFault) and planted.strikes(client, round)
        ]

    def _rows(
        self, name: str, faults: tuple[int, ...], x_rows: Callable[[], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """One set of spoilt rows a client is kept; it is made anew when other faults strike."""
        kept = self._spoilt.get(name)
        if kept is not None and kept[0] == faults:
            return kept[1], kept[2]
        x, y = x_rows()
        owner = Owner(self._seed, name, max(self._classes, int(y.max()) + 1, 2))
        for index in faults:
            fault = self._planted[index].fault
            assert isinstance(fault, DataFault)
            x, y = fault.spoilt(x, y, owner)
        self._spoilt[name] = (faults, x, y)
        return x, y

    def _memories(self) -> dict[str, deque[Tensor]]:
        longest: dict[str, int] = {}
        for planted in self._planted:
            if isinstance(planted.fault, UpdateFault) and planted.fault.needs_past:
                for client in planted.clients:
                    longest[client] = max(longest.get(client, 0), int(planted.fault.strength))
        return {client: deque(maxlen=length) for client, length in longest.items()}


def _struck(spec: FaultSpec, clients: Sequence[str], seed: int) -> frozenset[str]:
    for client in spec.clients:
        if client not in clients:
            raise JobError(f"faults: {spec.kind} is for client {client!r}, who is not there{_who(client, clients)}")
    if spec.share is None:
        return frozenset(spec.clients)
    count = max(1, round(spec.share * len(clients)))
    order = stream(seed, "fault share", spec.kind).permutation(len(clients))
    return frozenset(clients[index] for index in order[:count])


def _who(client: str, clients: Sequence[str]) -> str:
    """A near name, or how many there are: a list of a thousand ids helps nobody."""
    if len(clients) <= 20:
        return nearest(client, list(clients))
    hint = nearest(client, list(clients)) if len(clients) <= 5000 else ""
    return hint if "did you mean" in hint else f"; the {len(clients)} clients begin with {', '.join(clients[:5])}"
