"""Unusual, not harmful: a client unlike the others, in the way that its data makes it.

Sees: a client that stands at the edge of its cohort in nearly every round, from its first participation on, by the
angle, the norm or the loss of its updates, and whose course shows none of the signs of a fault.

Matters: rare classes or few rows are what a federation is for. Such a client is the first that a threshold throws out,
and the last that should be.

Evidence: the measure by which it stands out, beside the others', and how often.

False alarms: it accuses nobody: it says whom not to accuse. An attacker that is there from the first round and looks
like rare data can hide here.

Do: keep it. Look at FL502 (label skew) for what it may hold; weigh it fairly (FL504).

Papers: TraceFL (Gill, Anwar, Gulzar, ICSE 2025) on how skewed clients are taken for faulty ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.evidence.accusing import beside, in_words
from fedvitals.diagnose.evidence.course import course
from fedvitals.diagnose.evidence.suspicion import suspicions
from fedvitals.diagnose.rule import Sight, WrittenRule
from fedvitals.diagnose.words import listed
from fedvitals.diagnose.writing import see_client, write
from fedvitals.store.table import Ints
from fedvitals.vocabulary import Finding, Severity

TOLD_BY = ("cosine", "norm", "first_loss")
LEAST_SEEN = 5  # participations
FAR = 6.0  # robust standard deviations, on average over all its participations
ALWAYS = 0.8  # of its participations in which it is further out than half of that


def _look(chart: Chart) -> Iterator[Finding]:
    found = chart.shared(course)
    suspected = {one.client for one in chart.shared(suspicions)}
    for name in TOLD_BY:
        scores = found.column(f"{name}.now")
        mean = found.column(f"{name}.ever")
        odd = [
            rows
            for client, rows in enumerate(chart.histories)
            if client not in suspected and _stands_out(scores[rows], mean[rows])
        ]
        if odd:
            yield _told(chart, name, odd)


def _stands_out(scores: np.ndarray, mean: np.ndarray) -> bool:
    seen = np.isfinite(scores)
    if seen.sum() < LEAST_SEEN or not np.isfinite(mean[-1]) or abs(mean[-1]) < FAR:
        return False
    side = np.sign(mean[-1])
    return bool((side * scores[seen] > FAR / 2).mean() >= ALWAYS)


def _told(chart: Chart, name: str, odd: list[Ints]) -> Finding:
    clients = chart.names(chart.participations.client[[rows[0] for rows in odd]])
    value, others, _ = beside(chart, int(odd[0][-1]), name)
    also = f"; the same of {listed(clients[1:])}" if len(clients) > 1 else ""
    return write(
        RULE,
        Severity.INFO,
        f"client {clients[0]} differs from the others in every round and without a sign of a fault: "
        f"{in_words(name, value, others)}{also}",
        rounds=[int(one) for rows in odd for one in chart.participations.round[rows]],
        clients=clients,
        evidence={"measure": name, "value": round(value, 4)},
        next=(see_client(clients[0]), "keep it: rare data is worth having"),
    )


RULE = WrittenRule(
    code="FL505",
    name="unusual, not harmful",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.SKETCHES}),
)
