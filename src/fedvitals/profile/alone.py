"""How long each client worked while no other did: by so much a round would be shorter without it, at most.

Where clients work side by side that is the straggler's end; where they come one after the other it is all of a
client's time.
"""

from __future__ import annotations

import numpy as np

from fedvitals.profile.timeline import Works
from fedvitals.store.table import Floats


def alone_s(works: Works) -> Floats:
    """Seconds, one a work."""
    count = len(works)
    found = np.zeros(count)
    instants = np.concatenate([works.start_ns, works.end_ns])
    order = np.argsort(instants, kind="stable")
    begins = np.repeat([1, -1], count)
    going_on = np.cumsum(begins[order])
    whose = np.cumsum((begins * np.tile(np.arange(count), 2))[order])  # where one goes on, the sum is its number
    lasted = np.diff(instants[order], append=0)
    single = np.flatnonzero((going_on == 1) & (lasted > 0))
    np.add.at(found, whose[single], lasted[single] / 1e9)
    return found
