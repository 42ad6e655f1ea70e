"""Dropout pattern: the same clients are missing again and again.

Sees: clients that were asked and whose update was not used (failed, dropped, late), more often than chance would have
it given how often the others are missing; from which round on, and whether at a regular distance of rounds. Also
clients that took part until some round and then never again.

Matters: data that is always missing is data that the model never learns: it becomes worse for those clients while the
average looks well. A rhythm points at its reason: a nightly job, a charger, a full disk.

Evidence: how often the client was missing out of how often it was asked, how often the others were, and the chance of
that.

False alarms: at most one run in a hundred for clients that were asked and missing, over all clients and beginnings.
That a client is asked no more may be the selection's doing: such findings are marked as suspects.

Do: ask the site what changed then. Weigh or select so that its data is not forgotten.

Papers: Kairouz et al., Advances and Open Problems in Federated Learning (2021), on availability.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.persistence import RATE, Streak, streaks
from fedvitals.diagnose.rule import Sight, WrittenRule
from fedvitals.diagnose.words import listed
from fedvitals.diagnose.writing import see_client, share, times, write
from fedvitals.store.table import Ints
from fedvitals.vocabulary import Finding, Grade, Outcome, Severity

MISSING = (Outcome.FAILED.value, Outcome.DROPPED.value, Outcome.LATE.value)
LEAST_BEATS = 3  # distances between misses that make a rhythm
MOST_NAMED = 20


def _look(chart: Chart) -> Iterator[Finding]:
    missing = np.isin(chart.participations.outcome, MISSING)
    everyone = np.ones(len(missing), bool)
    for streak in streaks(chart, missing, everyone):
        yield _missing(chart, streak)
    yield from _gone(chart)


def _missing(chart: Chart, streak: Streak) -> Finding:
    table, name = chart.participations, chart.clients[streak.client]
    rounds = table.round[streak.rows]
    beat = rhythm(rounds)
    always = len(streak.rows) == len(streak.seen)
    how = "always" if always else f"in {len(streak.rows)} of {len(streak.seen)} participations"
    regular = f", every {beat} rounds" if beat > 1 and not always else ""
    return write(
        RULE,
        Severity.WARNING,
        f"client {name} is missing {how} from round {int(rounds[0])} on{regular} "
        f"({len(streak.rows)} times; the others are missing in {share(streak.usual)} of theirs at most)",
        grade=Grade.ACCUSED,
        rounds=rounds.tolist(),
        clients=[name],
        evidence={
            "missing": len(streak.rows),
            "asked": len(streak.seen),
            "from_round": int(rounds[0]),
            "every_rounds": beat,
            "others": streak.usual,
            "chance": streak.chance,
        },
        next=[see_client(name)],
    )


def rhythm(rounds: Ints) -> int:
    """The distance between misses where it is always the same, 0 where it is not or there are too few."""
    apart = np.diff(np.unique(rounds))
    return int(apart[0]) if len(apart) >= LEAST_BEATS and np.all(apart == apart[0]) else 0


def _gone(chart: Chart) -> Iterator[Finding]:
    """Clients that were there as often as any and then never again: chance would rarely leave them out so long."""
    table = chart.participations
    numbers = np.unique(table.round)
    if len(numbers) < 2 or len(chart.clients) < 2:
        return
    place = np.searchsorted(numbers, table.round)
    first = np.full(len(chart.clients), len(numbers))
    last = np.zeros(len(chart.clients), int)
    np.minimum.at(first, table.client, place)
    np.maximum.at(last, table.client, place)
    seen = np.bincount(table.client, minlength=len(chart.clients))
    own = (seen - 1) / np.maximum(last - first, 1)
    share_of = np.clip(np.minimum(own, len(table) / (len(numbers) * len(chart.clients))), 0.0, 1 - 1e-6)
    with np.errstate(divide="ignore"):
        chance = np.exp((len(numbers) - 1 - last) * np.log1p(-share_of)) * len(chart.clients)
    cohort = _steady_cohort(chart)
    gone = np.flatnonzero((chance <= RATE) & (seen >= LEAST_BEATS)) if cohort else np.array([], int)
    if not len(gone) or len(gone) > len(chart.clients) / 2:
        return
    names, since = chart.names(gone), numbers[np.minimum(last[gone] + 1, len(numbers) - 1)]
    yield write(
        RULE,
        Severity.INFO,
        f"{times(len(names), 'client')} ({listed(names)}) took part regularly and then no more, from round "
        f"{int(since.min())} on; nothing says whether they were asked",
        grade=Grade.SUSPECT,
        rounds=np.unique(since).tolist(),
        clients=names[:MOST_NAMED],
        evidence={
            "last_rounds": dict(zip(names, numbers[last[gone]].tolist(), strict=True)),
            "chance": float(chance[gone].max()),
        },
        next=[see_client(names[0])],
    )


def _steady_cohort(chart: Chart) -> bool:
    """Whether rounds are of about one size: where a run ends in small rounds, everybody is missing."""
    sizes = np.array([len(rows) for _, rows in chart.cohorts], float)
    half = len(sizes) // 2
    return half >= 1 and math.isclose(float(np.median(sizes[:half])), float(np.median(sizes[half:])), rel_tol=0.5)


RULE = WrittenRule(
    code="FL103",
    name="dropout pattern",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.PARTICIPATIONS}),
)
