"""Global model biased against some clients.

Sees: the evaluations of the global model on clients' own rows: clients whose error lies above everybody's by more than
their number of rows explains (a binomial tail, corrected for the number of clients), and is at least twice everybody's,
in the last two rounds in which clients were judged.

Matters: the model is good on average and of no use to these clients: their data are unlike the rest, or they hardly
took part.

Evidence: accuracy and rows of each such client, the overall accuracy, the tail's probability, how often it took part.

False alarms: one in a hundred runs that treat all clients alike. Unequal data make honest differences, and early rounds
do: it is information, and a warning where the model is good for everybody else (an error below a tenth) and wrong on
most of that client's rows.

Do: let these clients take part more often, weigh them more, personalise (fine-tune on their rows), look at their data.

Papers: Mohri, Sivek and Suresh 2019, Agnostic federated learning (arXiv:1902.00146); Li et al. 2020, Fair resource
allocation in federated learning (arXiv:1905.10497).
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

FALSE_ALARMS = 0.01  # a run
TWICE = 2.0  # everybody's error
ROUNDS = 2  # in which it must hold, where clients were judged so often
GOOD = 0.1  # error of a model that works for the others
MOSTLY_WRONG = 0.5


def _look(chart: Chart) -> Iterator[Finding]:
    judged = [one for one in judgements(chart) if len(one.clients) > 2 and one.samples.sum() > 0]
    if not judged:
        raise CannotSee("no round has accuracies of three clients on their own, counted rows")
    last = judged[-ROUNDS:]
    hurt = set(last[0].clients)
    for one in last:
        hurt &= _hurt(one)
    if not hurt:
        return
    final = last[-1]
    places = [place for place, name in enumerate(final.clients) if name in hurt]
    overall, errors = 1 - final.overall(), 1 - final.accuracies[places]
    names = tuple(final.clients[place] for place in places)
    grave = overall < GOOD and len(last) == ROUNDS and bool((errors > MOSTLY_WRONG).any())
    told = [
        f"{name} {1 - error:.0%} of {final.samples[place]} rows"
        for name, error, place in zip(names, errors, places, strict=True)
    ]
    yield write(
        RULE,
        Severity.WARNING if grave else Severity.INFO,
        f"the global model is right on {1 - overall:.0%} of all clients' rows, but for {len(names)} of "
        f"{len(final.clients)} far less: "
        f"{listed(told)}",
        grade=Grade.ACCUSED if grave else Grade.SUSPECT,
        rounds=[one.round for one in last],
        clients=names,
        evidence={
            "overall_accuracy": short(1 - overall),
            "accuracies": {name: short(1 - error) for name, error in zip(names, errors, strict=True)},
            "participations": {name: _took_part(chart, name) for name in names},
        },
        next=(
            Action(see_client(names[0])),
            Action("choose these clients more often, weigh them more, or fine-tune on their rows", safe=False),
        ),
    )


def _hurt(one: Judgement) -> set[str]:
    error = 1 - one.overall()
    limit = FALSE_ALARMS / len(one.clients)
    wrong = np.rint((1 - one.accuracies) * one.samples).astype(int)
    return {
        name
        for name, missed, rows in zip(one.clients, wrong.tolist(), one.samples.tolist(), strict=True)
        if rows > 0 and missed > TWICE * error * rows and _tail(missed, rows, error) < limit
    }


def _tail(missed: int, rows: int, error: float) -> float:
    """The probability of so many or more errors, by Chernoff's bound: never too small."""
    share = missed / rows
    if not 0 < error < 1 or share <= error:
        return 1.0
    distance = share * math.log(share / error)
    if share < 1:
        distance += (1 - share) * math.log((1 - share) / (1 - error))
    return math.exp(-rows * distance)


def _took_part(chart: Chart, name: str) -> int:
    return len(chart.histories[chart.clients.index(name)]) if name in chart.clients else 0


RULE = WrittenRule(
    code="FL503",
    name="biased against clients",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.CLIENT_EVALUATIONS}),
    explains=frozenset({"FL504"}),
)
