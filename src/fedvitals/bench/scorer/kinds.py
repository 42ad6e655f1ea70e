"""The kinds of fault that the scorer tells apart, and how a job asks for each.

Each name of KINDS is a lesson; SCORED says under which kind it is named, ALARMS which kinds an alarm is taught on: what
is sent and what is taught look different, and whatever is odd in any way has an alarm of its own. WATCHED says which
clocks watch an alarm: every pair of the two has its share of the false alarms, so a pair that finds nothing new costs
all others; these are what was left of all pairs, chosen by what they find, and how soon, in lessons of families that
the scorer was not fitted on. What an
exact rule finds is taught to none: those lessons only show that such clients are nobody else's fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS: Mapping[str, Mapping[str, Any]] = {
    "sign-flip": {"kind": "sign-flip"},
    "scaled-update": {"kind": "scaled-update"},
    "gaussian-update": {"kind": "gaussian-update"},
    "label-flip": {"kind": "label-flip"},
    "label-flip-third": {"kind": "label-flip", "strength": 1 / 3},
    "label-noise": {"kind": "label-noise"},
    "backdoor": {"kind": "backdoor"},
    "exploding-lr": {"kind": "exploding-lr"},
    "unnormalised-input": {"kind": "unnormalised-input"},
    "swapped-features": {"kind": "swapped-features"},
    "missing-zero-grad": {"kind": "missing-zero-grad"},
    "tiny-lr": {"kind": "tiny-lr"},
    "stale-update": {"kind": "stale-update"},
    "duplicate": {"kind": "duplicate"},
    "duplicate-noise": {"kind": "duplicate", "strength": 0.01},
    "zero-update": {"kind": "zero-update"},
    "frozen-layer": {"kind": "frozen-layer"},
}
HALVES: Mapping[str, float] = {
    "scaled-update": 2.5,
    "exploding-lr": 50.0,
    "label-noise": 0.15,
    "backdoor": 0.15,
    "label-flip": 0.5,
    "sign-flip": 0.5,
    "gaussian-update": 0.5,
    "unnormalised-input": 25.0,
}
EXACT = frozenset({"stale-update", "duplicate", "duplicate-noise", "zero-update", "frozen-layer"})
SCORED: Mapping[str, str] = {
    kind: "label-flip" if kind.startswith("label-flip") else kind for kind in KINDS if kind not in EXACT
}
ALARMS: Mapping[str, frozenset[str]] = {
    "any": frozenset(SCORED.values()),
    "sent": frozenset({"sign-flip", "scaled-update", "gaussian-update"}),
    "taught": frozenset({"label-flip", "label-noise", "backdoor", "swapped-features"}),
}
WATCHED: Mapping[str, frozenset[str]] = {
    "any": frozenset({"now", "two", "mean3", "rise5"}),
    "sent": frozenset({"two", "mean3"}),
    "taught": frozenset({"mean5", "rise5"}),
}
