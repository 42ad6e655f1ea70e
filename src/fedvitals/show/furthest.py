"""Which client lies furthest from the others, measure by measure: recorded facts side by side, not a diagnosis.

Somebody is always furthest. Whether that is far is for the reader to judge, so the others' range stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from fedvitals.show.tables import Table, by_client, middle
from fedvitals.show.words import fixed, safe, seconds
from fedvitals.vocabulary import Participation


class Measure(NamedTuple):
    """A number that every participation has."""

    name: str
    field: str
    highest: bool  # False: the lowest is the remarkable one
    words: Callable[[float], str]


class Furthest(NamedTuple):
    """The client with the most remarkable middle value, and the range of the others."""

    measure: Measure
    client: str
    value: float
    others_low: float
    others_high: float


MEASURES = (
    Measure("lowest cosine to the others", "cosine", False, lambda value: fixed(value, 2)),
    Measure("highest loss at its first steps", "first_loss", True, lambda value: fixed(value, 2)),
    Measure("largest update", "update_norm", True, lambda value: fixed(value, 2)),
    Measure("longest training", "train_s", True, seconds),
)


def furthest(participations: Iterable[Participation], measures: Sequence[Measure] = MEASURES) -> list[Furthest]:
    """One entry a measure that at least three clients have."""
    grouped = by_client(participations)
    found = []
    for measure in measures:
        middles = {client: middle(getattr(one, measure.field) for one in own) for client, own in grouped.items()}
        there = {client: value for client, value in middles.items() if value is not None}
        if len(there) >= 3:
            found.append(_furthest(measure, there))
    return found


def _furthest(measure: Measure, middles: dict[str, float]) -> Furthest:
    sign = 1.0 if measure.highest else -1.0
    client = max(middles, key=lambda one: math.inf if math.isnan(middles[one]) else sign * middles[one])
    others = [value for one, value in middles.items() if one != client and not math.isnan(value)] or [math.nan]
    return Furthest(measure, client, middles[client], min(others), max(others))


def furthest_table(found: Sequence[Furthest]) -> Table:
    rows = [
        (
            one.measure.name,
            safe(one.client, 40),
            one.measure.words(one.value),
            f"{one.measure.words(one.others_low)} to {one.measure.words(one.others_high)}",
        )
        for one in found
    ]
    columns = ("measure", "client", "value", "the others")
    title = "furthest from the others (middle of each client's rounds)"
    return Table(title, columns, tuple(rows), frozenset({"measure"}))
