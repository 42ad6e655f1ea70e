"""Label skew, seen from the updates.

Sees: which units of the last layer a client's updates push up, beside its cohort, over its participations: a client's
rows raise the units of the labels that it holds and lower the others. No data are needed. The spread between clients is
compared with the spread of the same client from round to round.

Matters: skewed labels make clients drift, swings with few clients a round, and models biased against rare labels. It
also explains why an honest client looks odd: rules about integrity allow for it.

Evidence: how many times larger the spread between clients is than one client's own; for the most one-sided clients, the
units they push up.

False alarms: it is information. Noise alone makes a ratio near one; five is asked, with at least four clients seen
three times each.

Do: more clients a round, fewer epochs, a proximal term; weigh or choose clients so that a round holds all labels.

Papers: Wainakh et al. 2021, Label leakage from gradients in distributed machine learning; Hsu, Qi and Brown 2019
(arXiv:1909.06335).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.writing import changing, short, write
from fedvitals.store.table import Floats, Ints
from fedvitals.vocabulary import Finding, Grade, Severity

CLIENTS, TIMES = 4, 3  # seen so often, at least
RATIO = 5.0  # between clients over within
SIDED = (
    0.15  # spread over the units of a typical client's pushes, as shares of an update: below it, rows are nearly alike
)
MOST_NAMED = 5
PUSHED = 1.0  # standard deviation over the units above the client's mean


def _look(chart: Chart) -> Iterator[Finding]:
    pushes = _pushes(chart)
    clients, means, within = _means(chart, pushes)
    if len(clients) < CLIENTS:
        raise CannotSee(f"it takes {CLIENTS} clients with {TIMES} updates each to see which units they push")
    between = float(means.var(axis=0, ddof=1).sum())
    ratio = between / within if within > 0 else 0.0
    sides = means.std(axis=1)
    if ratio < RATIO or np.median(sides) < SIDED:
        return
    order = np.argsort(-sides)[:MOST_NAMED]
    named = {chart.clients[clients[one]]: _units(means[one]) for one in order}
    told = "; ".join(f"client {name} units {', '.join(map(str, units))}" for name, units in named.items())
    yield write(
        RULE,
        Severity.INFO,
        f"clients push different units of the last layer, {ratio:.0f} times more than chance: their labels are "
        f"not alike "
        f"(most one-sided: {told})",
        grade=Grade.CERTAIN,
        evidence={
            "between_to_within_ratio": short(ratio),
            "spread": short(float(np.median(sides))),
            "clients": len(clients),
            "pushed_units": named,
        },
        next=changing(
            "more clients a round (train.clients_per_round), fewer epochs",
            "a proximal term: train.proximal = 0.01",
        ),
    )


def _pushes(chart: Chart) -> Floats:
    """[rows, units]: what each update adds to a unit's row, as a share of the row's and the matrix's lengths, less the
    round's median."""
    updates = chart.updates
    assert updates is not None
    assert updates.unit_sums is not None
    sums = updates.unit_sums.astype(np.float64)
    away = np.full(sums.shape, np.nan)
    for _, rows in chart.cohorts:
        known = rows[np.isfinite(sums[rows]).all(axis=1)]
        if len(known) > 1:
            away[known] = sums[known] - np.median(sums[known], axis=0)
    return away


def _means(chart: Chart, pushes: Floats) -> tuple[Ints, Floats, float]:
    """Clients seen often enough, their mean pushes, and the variance that such means have by a client's own noise."""
    known = np.isfinite(pushes).all(axis=1)
    client = chart.participations.client
    size = len(chart.clients)
    count = np.bincount(client[known], minlength=size)
    often = np.flatnonzero(count >= TIMES)
    mine, pushed = client[known], pushes[known]
    sums = np.stack([np.bincount(mine, unit, size) for unit in pushed.T], axis=1)
    means = sums / np.maximum(count, 1)[:, None]
    squares = np.bincount(mine, ((pushed - means[mine]) ** 2).sum(axis=1), size)
    noise = squares[often] / np.maximum(count[often] - 1, 1) / count[often]
    return often, means[often], float(np.median(noise)) if len(often) else 0.0


def _units(pushes: Floats) -> list[int]:
    """The units it pushes up most, at least one."""
    up = np.flatnonzero(pushes > pushes.mean() + PUSHED * pushes.std())
    return sorted(int(one) for one in (up if len(up) else [np.argmax(pushes)]))


RULE = WrittenRule(
    code="FL502",
    name="label skew",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.UPDATES, Sight.UNITS}),
    explains=frozenset({"FL501", "FL505"}),
)
