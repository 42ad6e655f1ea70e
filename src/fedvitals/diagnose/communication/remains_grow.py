"""Remains of updates grow.

Sees: what error feedback keeps of clients' updates (`residual_norm`, which the engine records, and which a loop of your
own may hand to `c.submit`), participation after participation, against the updates themselves.

Matters: feedback repairs what a codec leaves out only while it is sent soon. Where each message takes away less than
the update adds, the remains become a second, old update that is larger than the new one: clients send steps that were
right many rounds ago, and the training slows down, sways or diverges.

Evidence: the remains of a client's later participations against its earlier ones, over clients in the middle; how many
times its update they are; how many clients they grew in.

False alarms: remains grow from nothing at first, so each client's first participations are left out; the rest must have
grown by half or more in the middle of the clients, be larger than an update, and grow in more clients than chance has
one run in a hundred. A training whose updates grow by themselves has growing remains as well, and its own finding.

Do: send more (a larger share, more bits, a smaller step of the grid), let old remains fade (`decay=0.9` in `feedback`),
or hold them to the update's size (`bound=5`).

Papers: S. Karimireddy et al., Error Feedback Fixes SignSGD, 2019; F. Sattler et al., Robust and Communication-Efficient
Federated Learning from Non-IID Data, 2019 (remains that grow stale under partial participation).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.robust import median
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.writing import factor, times, write
from fedvitals.vocabulary import Finding, Grade, Severity

SETTLING = 2  # first participations of a client, in which remains grow by nature
LEAST = 4  # later ones
GROWN = 1.5  # in the middle of the clients: the second half of the later ones against the first
LARGE = 1.0  # times the update
RATE = 0.01


def _look(chart: Chart) -> Iterator[Finding]:
    table = chart.participations
    known = table.residual_norm > 0
    if not known.any():
        raise CannotSee("no remains of updates were recorded: nobody uses error feedback, or nobody says so")
    grown, sizes = [], []
    for rows in chart.histories:
        mine = rows[known[rows]][SETTLING:]
        if len(mine) >= LEAST:
            early, late = np.array_split(table.residual_norm[mine], 2)
            grown.append(math.log(median(late) / median(early)))
            sizes.append(median(table.residual_norm[mine[-len(late) :]] / table.update_norm[mine[-len(late) :]]))
    if not grown:
        raise CannotSee(f"no client sent {SETTLING + LEAST} updates with remains")
    rising = sum(one > 0 for one in grown)
    middle, large = math.exp(median(np.array(grown))), median(np.array(sizes))
    if middle < GROWN or large < LARGE or _chance(rising, len(grown)) > RATE:
        return
    yield write(
        RULE,
        Severity.WARNING,
        f"what is left out of updates grew {factor(middle)} from the earlier to the later half of the rounds, in "
        f"{rising} of {times(len(grown), 'client')}, and is {factor(large)} an update",
        grade=Grade.CERTAIN,
        rounds=[int(table.round[known].max())],
        evidence={"grew": middle, "of_update": large, "clients": len(grown), "growing": rising},
        next=["send more: a larger share or more bits in codec.up", 'codec.up = "feedback(..., decay=0.9, bound=5)"'],
    )


def _chance(rising: int, clients: int) -> float:
    """Of so many or more growing where each is as likely to shrink. One client alone is judged by its growth."""
    if clients == 1:
        return 0.0
    return float(sum(math.comb(clients, count) for count in range(rising, clients + 1)) / 2**clients)


RULE = WrittenRule(
    code="FL304",
    name="remains of updates grow",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.PARTICIPATIONS}),
)
