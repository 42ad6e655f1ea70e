"""Inputs apart: a client's features are not what the others' are.

Sees: a client whose first gradient, taken of the very model that the others received, and whose update are both several
times as long as theirs and as any of its own before: inputs of another scale do that, and neither a learning rate nor
labels do. Or one whose first gradients become five times as long from one participation to the next, beside the
others', and stay so, where hardly any client's ever had. Else the norms, the layer profile and the losses that inputs
of another scale or in another order leave, beside the others and its own past: those in another order only where the
update does not undo what the others do, as other labels of the same inputs would (FL507).

Matters: pixels of 0 to 255 among pixels of 0 to 1, or columns in another order, make one client's update wrong for all.

Evidence: by how many times both are longer, and the rounds from then on in which the gradient is; else the measures
that carried it, beside those of the others and its own before.

False alarms: without a fault a first gradient was five times as long as three quarters of the others' and as the
client's own before, and the update too, of clients with a dozen rows only, and once: so gradients must stay twice as
long as theirs. Where only gradients leap, it is by five robust deviations of the changes that all clients showed in
earlier rounds, of which less than one in two hundred was half as large. Where that is not so, the threshold was taken
from the largest scores over all clients and rounds of runs without a fault; the rates measured on data never used for
that are on the page of the fault bench. It compares with the cohort and with the client's own past, so a client whose
data really changed looks guilty too.

Do: compare means and spreads of the features with another client; look at the order of columns and at the vocabulary.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.cohorts import SMALLEST, first_gradients, lasting, well
from fedvitals.diagnose.evidence.accusing import (
    HARMS,
    REORDERED,
    SCORED_CODES,
    SEE,
    about,
    accusations,
    check_comparable,
)
from fedvitals.diagnose.evidence.breaks import steeper
from fedvitals.diagnose.evidence.broken import broken, times_its_own
from fedvitals.diagnose.learning.rates import blamed
from fedvitals.diagnose.rule import Sight, WrittenRule
from fedvitals.diagnose.words import listed
from fedvitals.diagnose.writing import factor, short, write
from fedvitals.store.table import Bools, Floats, Ints
from fedvitals.vocabulary import Action, Finding, Grade, Severity

FAR = 5.0  # times as long as three quarters of the cohort's, and as the client's own before
STILL = 2.0  # times as long as those, in most participations from then on
MOST_OTHERS = 0.75  # of a cohort: the rest may be bad too
FOLLOWS = HARMS | (SCORED_CODES - {"FL506"}) | {"FL407", "FL408", "FL409", "FL411", "FL412"}
LOOKS = "trains on inputs that are not like the others' (their scale or their order)"  # where only the scorer says so
ADVICE = (
    Action(SEE),
    Action("check how {clients} scale and order features"),
    Action("leave {clients} out", safe=False),
)


def _look(chart: Chart) -> Iterator[Finding]:
    gradients, lengths = _times(chart, chart.shared(first_gradients)), _times(chart, chart.participations.update_norm)
    far = blamed(chart, (gradients > FAR) & (lengths > FAR) & chart.shared(well))
    rows = np.flatnonzero(_stays(chart, far))
    if len(rows):
        yield _of_clients(chart, rows, gradients, lengths)
    else:
        check_comparable(chart)
    clients = np.unique(chart.participations.client[rows]).tolist()
    leapt = [one for one in chart.shared(steeper) if one.client not in clients]
    yield from broken(chart, RULE, leapt, f"{LOOKS}: its first gradients are ", times_its_own, Severity.WARNING, ADVICE)
    named = chart.names([*clients, *(one.client for one in leapt)])
    yield from accusations(chart, RULE, ("unnormalised-input", REORDERED), LOOKS, Severity.WARNING, ADVICE, but=named)


def _stays(chart: Chart, far: Bools) -> Bools:
    """Of clients whose gradients are longer than most from then on too, all participations in which they are: inputs
    stay as they are, and a row that is hard to learn is hard once."""
    gradients = chart.shared(first_gradients)
    with np.errstate(divide="ignore", invalid="ignore"):
        longer = gradients / _usual(chart, gradients) > STILL
    return lasting(chart, far | (longer & _since(chart, far)), np.isfinite(gradients) & chart.shared(well))


def _since(chart: Chart, marked: Bools) -> Bools:
    """Participations from the client's first marked one on."""
    found = np.zeros(len(marked), bool)
    for client in np.unique(chart.participations.client[marked]):
        rows = chart.histories[client]
        found[rows[int(np.argmax(marked[rows])) :]] = True
    return found


def _usual(chart: Chart, values: Floats) -> Floats:
    """What most of each participation's cohort do not exceed; NaN where there are too few to say."""
    usual = np.full(len(values), np.nan)
    for _, rows in chart.cohorts:
        known = values[rows][np.isfinite(values[rows])]
        if len(known) >= SMALLEST:
            usual[rows] = np.quantile(known, MOST_OTHERS)
    return usual


def _times(chart: Chart, values: Floats) -> Floats:
    """How many times as long as most of its cohort's and as the longest of its own before; NaN: not known."""
    usual = _usual(chart, values)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = values / np.fmax(usual, _longest_before(chart, values))
    return np.where(np.isnan(usual), np.nan, found)


def _longest_before(chart: Chart, values: Floats) -> Floats:
    found = np.full(len(values), np.nan)
    for rows in chart.histories:
        found[rows[1:]] = np.fmax.accumulate(values[rows])[:-1]
    return found


def _of_clients(chart: Chart, rows: Ints, gradients: Floats, lengths: Floats) -> Finding:
    table = chart.participations
    clients, first = np.unique(table.client[rows], return_index=True)
    first = rows[first]
    order = np.argsort(-gradients[first])
    names, top = chart.names(clients[order]), int(first[order[0]])
    also = f"; the same of {listed(names[1:])}" if len(names) > 1 else ""
    earlier = table.attempt[chart.histories[int(table.client[top])]] < table.attempt[top]
    before = " and as its own before" if earlier.any() else ""
    return write(
        RULE,
        Severity.WARNING,
        f"client {names[0]}'s first gradient of round {table.round[top]}, of the model that all received, is "
        f"{factor(gradients[top])} as long as the others'{before}, and its update "
        f"{factor(lengths[top])}: its inputs are of another scale{also}",
        grade=Grade.ACCUSED,
        rounds=table.round[rows],
        clients=names,
        evidence={
            chart.clients[int(table.client[row])]: {
                "gradient_ratio": short(float(gradients[row])),
                "update_ratio": short(float(lengths[row])),
                "noticed_in_round": int(table.round[row]),
            }
            for row in first
        },
        next=[about(one, names) for one in ADVICE],
    )


RULE = WrittenRule(
    code="FL506",
    name="inputs apart",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.SKETCHES}),
    explains=FOLLOWS,
)
