"""One client's model is taken.

Sees: rounds after which the global model has moved exactly as far as one of its clients did, who is the same client
each time, or whoever came first or last.

Matters: the others train for nothing: the model is handed from one client to the next, or is trained by one alone, and
nothing is averaged. With rows that are alike it learns all the same, which hides it.

Evidence: in how many rounds, whose model it was, how far it moved, and how far an average moves.

False alarms: an average is as long as one update by chance in less than one round of a thousand, and it takes five. An
aggregation that picks one update on purpose (Krum) is not told where it is the job's, and elsewhere only if it always
picks the same client: then that is what it does.

Do: look at what is put into the global model: a loop that loads `model.state_dict()` once all clients are through loads
the last one's.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.learning.curves import steps_of_model
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.writing import short, times, write
from fedvitals.store.table import Ints
from fedvitals.vocabulary import Action, Finding, Outcome, Severity

LEAST = 5  # rounds
SMALLEST = 3  # clients whose update was used in a round
SAME = 1e-4  # of a norm: what float32 leaves of two that are equal
PICKS_ONE = "krum"
NEARLY_ALL = 0.9  # of the rounds


def _look(chart: Chart) -> Iterator[Finding]:
    server = chart.run.config.get("server")
    if isinstance(server, dict) and server.get("aggregator") == PICKS_ONE:
        return
    judged = _judged(chart)
    if len(judged) < LEAST:
        raise CannotSee(f"it takes {LEAST} rounds of {SMALLEST} clients after which the model is known")
    matches = [(rows, _taken(chart, number, rows)) for number, rows in judged]
    for whose, picked in _ways(chart, matches):
        if len(picked) >= max(LEAST, NEARLY_ALL * len(judged)):
            yield _finding(chart, whose, np.array(picked))
            return


def _judged(chart: Chart) -> list[tuple[int, Ints]]:
    """Rounds whose model is known before and after, and the participations that were used in them, as they came."""
    table, steps = chart.participations, chart.shared(steps_of_model)
    used = (table.outcome == Outcome.USED.value) & (table.update_norm > 0) & np.isfinite(table.update_norm)
    known = [(number, rows[used[rows]]) for number, rows in chart.cohorts if steps.get(number, 0.0) > 0]
    return [
        (number, rows[np.argsort(table.end_ns[rows], kind="stable")]) for number, rows in known if len(rows) >= SMALLEST
    ]


def _taken(chart: Chart, number: int, rows: Ints) -> int:
    """The one participation that is as long as the model's step; -1 where none is, or several are."""
    norms, step = chart.participations.update_norm[rows], chart.shared(steps_of_model)[number]
    like = rows[np.abs(norms - step) <= SAME * step]
    return int(like[0]) if len(like) == 1 else -1


def _ways(chart: Chart, matches: list[tuple[Ints, int]]) -> Iterator[tuple[str, list[int]]]:
    """By which one may be taken, in words, and the participations that were taken so."""
    client = chart.participations.client
    taken = [one for _, one in matches if one >= 0]
    if taken:
        most = int(np.bincount(client[taken]).argmax())
        yield f"client {chart.clients[most]}", [one for one in taken if client[one] == most]
    yield "the client that came last", [one for rows, one in matches if one == rows[-1]]
    yield "the client that came first", [one for rows, one in matches if one == rows[0]]


def _finding(chart: Chart, whose: str, picked: Ints) -> Finding:
    table = chart.participations
    step = float(np.median(table.update_norm[picked]))
    return write(
        RULE,
        Severity.CRITICAL,
        f"the global model moved exactly as far as {whose} did, in {times(len(picked), 'round')} (typically by "
        f"{step:.3g}): what the others learnt is not in it",
        rounds=table.round[picked],
        evidence={"rounds": len(picked), "whose": whose, "step": short(step)},
        next=(Action("average the models of all clients before the global model is loaded", safe=False),),
    )


RULE = WrittenRule(
    code="FL417",
    name="one client's model is taken",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.UPDATES, Sight.MODELS}),
    explains=frozenset({"FL403", "FL404", "FL406", "FL501", "FL503", "FL504"}),
)
