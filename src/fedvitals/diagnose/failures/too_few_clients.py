"""Too few clients.

Sees: rounds whose model was made of well fewer clients than were asked (less than half, in most rounds of a stretch),
and runs whose rounds are made of one or two clients.

Matters: the average of one or two updates is those clients' opinion: it swings with who was asked, and hides nobody.
When half of the clients fall away, the model is trained for those that remain.

Evidence: how many were asked and used, in how many rounds.

False alarms: a run with one or two clients a round by choice is only told of (info), once.

Do: find out what became of the others (FL101, FL102), ask more clients a round, or ask some more than are needed.

Papers: Charles et al., On Large-Cohort Training for Federated Learning (NeurIPS 2021).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.rule import CannotSee, WrittenRule
from fedvitals.diagnose.words import ranges
from fedvitals.diagnose.writing import times, write
from fedvitals.vocabulary import Action, Finding, Grade, Severity

WELL_BELOW = 0.5  # less than half of who was asked: most are missing
FEW = 2  # of two, each is half of the result
MORE = Action("ask more clients a round (train.clients_per_round, server.over_select)", safe=False)


def _look(chart: Chart) -> Iterator[Finding]:
    ended = [one for one in chart.rounds if one.end_ns is not None and one.selected > 0]
    if not ended:
        raise CannotSee("the run has no round that ended and says how many clients were asked")
    number = np.array([one.number for one in ended])
    asked, used = np.array([one.selected for one in ended]), np.array([one.used for one in ended])
    lost = (used < WELL_BELOW * asked) & (used > 0)
    if lost.any():
        yield write(
            RULE,
            Severity.WARNING,
            f"{times(int(lost.sum()), 'round')} ({ranges(number[lost].tolist())}) used "
            f"{int(np.median(used[lost]))} of {int(np.median(asked[lost]))} clients asked",
            rounds=number[lost].tolist(),
            evidence={
                "rounds": int(lost.sum()),
                "used": int(np.median(used[lost])),
                "asked": int(np.median(asked[lost])),
            },
            next=["fedvitals show RUN", MORE],
        )
    few = (used <= FEW) & (used > 0) & ~lost
    if few.sum() > len(ended) / 2:
        used_each, known = int(np.median(used[few])), len(chart.clients)
        those = "a model is made of them alone" if used_each == known else "their result is that of who was asked"
        yield write(
            RULE,
            Severity.INFO,
            f"{few.sum()} of {times(len(ended), 'round')} averaged the updates of {used_each} of "
            f"{times(known, 'client')}: {those}",
            grade=Grade.CERTAIN,
            rounds=number[few].tolist(),
            evidence={"rounds": int(few.sum()), "used": used_each, "clients": known},
            next=[MORE if known > FEW else "leave it so, where these are all clients that there are"],
        )


RULE = WrittenRule(code="FL105", name="too few clients", page=__doc__ or "", look=_look)
