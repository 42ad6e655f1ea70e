"""Who can be asked when a round begins: not who is excluded, away, or still at the work of an earlier round."""

from __future__ import annotations

from collections.abc import Sequence

from fedvitals.errors import JobError
from fedvitals.train.keys import refuse_unknown
from fedvitals.train.network import Network

LOOK_AGAIN_S = 60.0  # virtual seconds after which a round that found nobody looks again
MOST_LOOKS = 10_000  # a week of them


class Attendance:
    """The clients of a run. Late ones are busy until they are done, and nobody asks them before."""

    def __init__(self, network: Network, excluded: Sequence[str] = ()) -> None:
        refuse_unknown(excluded, network.clients)
        self._network = network
        self._clients = [number for number, name in enumerate(network.clients) if name not in set(excluded)]
        self._busy: dict[int, int] = {}
        self._steady = all(device.available >= 1.0 for device in network.devices)
        if not self._clients:
            raise JobError(f"train.exclude leaves none of {len(network.clients)} clients")

    def present(self, round: int, now_ns: int, look: int = 0) -> list[int]:
        """Indexes of who is there now."""
        self._busy = {client: until for client, until in self._busy.items() if until > now_ns}
        if self._steady and not self._busy:
            return self._clients
        return [
            client
            for client in self._clients
            if client not in self._busy and self._network.available(client, round, look)
        ]

    def busy(self, client: int, until_ns: int) -> None:
        """This client is at work until then."""
        self._busy[client] = until_ns
