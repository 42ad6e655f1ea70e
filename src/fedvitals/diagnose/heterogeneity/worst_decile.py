"""Unfair worst decile.

Sees: the accuracies of the global model on clients' own rows: the mean of the worst tenth against the median, where it
lies further below than the rows' chance explains; and whether that distance grows from one such evaluation to the next.

Matters: an average hides whom a model does not serve. The worst tenth is what these users get.

Evidence: mean of the worst tenth, median, their distance now and before, what chance gives, the clients.

False alarms: with few rows a client some are bad by chance: the distance is compared with that of as many clients of
the same accuracy and the same rows (normal approximation, the tenth's expected mean), twice over. Unequal data make
honest differences, so it is information; FL503 names the clients whom a good model fails.

Do: weigh or choose the worst clients more (q-FedAvg, agnostic FL), fine-tune for them, look at their data.

Papers: Li et al. 2020, Fair resource allocation in federated learning (arXiv:1905.10497).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.heterogeneity.judgements import Judgement, judgements
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.words import listed
from fedvitals.diagnose.writing import see_client, short, write
from fedvitals.vocabulary import Action, Finding, Grade, Severity

TENTH = 0.1
LEAST = 10  # clients that make a tenth
TAIL_MEAN = 1.755  # of the worst tenth of a normal distribution, in standard deviations below the mean
TWICE = 2.0
NOTABLE = 0.1  # of accuracy: below that nobody minds


def _look(chart: Chart) -> Iterator[Finding]:
    judged = [one for one in judgements(chart) if len(one.clients) >= LEAST]
    if not judged:
        raise CannotSee(f"no round has accuracies of {LEAST} clients on their own rows")
    last = judged[-1]
    gap, worst = _gap(last)
    if gap < max(NOTABLE, TWICE * _by_chance(last)):
        return
    before = _gap(judged[-2])[0] if len(judged) > 1 else math.nan
    middle = float(np.median(last.accuracies))
    names = tuple(last.clients[one] for one in worst)
    yield write(
        RULE,
        Severity.INFO,
        f"the worst tenth of {len(last.clients)} clients has a mean accuracy of {middle - gap:.0%}, the median "
        f"client {middle:.0%} "
        f"(chance gives {middle - _by_chance(last):.0%}): {listed(names)}",
        grade=Grade.SUSPECT,
        rounds=(last.round,),
        clients=names,
        evidence={
            "worst_decile_accuracy": short(middle - gap),
            "median_accuracy": short(middle),
            "gap": short(gap),
            "gap_before": short(before),
            "gap_by_chance": short(_by_chance(last)),
        },
        next=(
            Action(see_client(names[0])),
            Action("choose or weigh the worst clients more, or fine-tune on their rows", safe=False),
        ),
    )


def _gap(one: Judgement) -> tuple[float, list[int]]:
    """The median less the mean of the worst tenth, and who they are."""
    count = max(1, round(TENTH * len(one.clients)))
    worst = np.argsort(one.accuracies, kind="stable")[:count]
    return float(np.median(one.accuracies) - one.accuracies[worst].mean()), [int(place) for place in worst]


def _by_chance(one: Judgement) -> float:
    """The gap of clients that are all served alike, with these numbers of rows."""
    rows = one.samples[one.samples > 0]
    if not len(rows):
        return 0.0
    overall = min(max(one.overall(), 0.01), 0.99)
    return TAIL_MEAN * math.sqrt(overall * (1 - overall) * float(np.mean(1 / rows)))


RULE = WrittenRule(
    code="FL504",
    name="unfair worst decile",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.CLIENT_EVALUATIONS}),
)
