"""When a synchronous round stops waiting, and who was too late for it: a pure function of when clients arrive.

Asking more clients than are needed and going on with the first: Bonawitz et al., Towards Federated Learning at Scale
(MLSys 2019).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Closed(NamedTuple):
    """The end of a round's waiting."""

    at_s: float  # seconds from when the clients began
    late: frozenset[str]


def closed(arrived_s: Mapping[str, float], missing_s: Iterable[float], wanted: int, deadline_s: float = 0.0) -> Closed:
    """The first `wanted` clients within the deadline are in time; 0 has no deadline.

    `arrived_s` is in the order of selection, which decides between equals. `missing_s` says until when clients were
    waited for that did not deliver. A round with all that it wanted closes at once; another waits for everybody whom
    it may yet hear of, at most until its deadline.
    """
    most = deadline_s if deadline_s > 0.0 else math.inf
    quickest = sorted(arrived_s, key=lambda client: arrived_s[client])  # stable: equals stay in their order
    in_time = [client for client in quickest if arrived_s[client] <= most][:wanted]
    late = frozenset(arrived_s).difference(in_time)
    if in_time and len(in_time) == wanted:
        return Closed(arrived_s[in_time[-1]], late)
    return Closed(min(most, max([*arrived_s.values(), *missing_s], default=0.0)), late)
