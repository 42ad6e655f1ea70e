"""Model stands still.

Sees: rounds whose updates were used and which left the global model as it was, to the last bit; and rounds in which
every client sent back the model that it had been given. Running statistics of normalisation layers that the global
model never changes while the updates of most clients do.

Matters: all rounds are the first one again. Losses, times and exit codes look like those of a training, and nothing is
learnt. With the statistics of its first day a model is evaluated, and used, as another one than was trained.

Evidence: the rounds in a row, how many updates they used, their median length, and whether the evaluation gets better
all the same, which tells that the recorder is shown another model than the one that is trained.

False alarms: an exact rule. A server that takes its rounds back on purpose, and a robust aggregation that picks the one
client that sent nothing, look the same, and are the same to the model. Clients that have nothing left to learn are not
judged, nor are models that are lost already. Where clients keep statistics of their own on purpose, leave them out of
what is submitted, or evaluate the clients' models: the global one is of no use with statistics of nobody.

Do: average the whole `state_dict()`, not the parameters alone. Put the average into the model that the next round
starts from, and give `run.round` that one. Where updates are nothing: look at whether the optimizer holds the
parameters of the model that is trained and sent, and at its rate.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.cohorts import spoilt
from fedvitals.diagnose.learning.curves import evaluated, trend
from fedvitals.diagnose.learnt import all_learnt
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.words import listed, ranges
from fedvitals.diagnose.writing import short, times, write
from fedvitals.store.table import Ints
from fedvitals.vocabulary import Action, Finding, Outcome, Severity

LEAST = 3  # rounds in a row
RUNNING = ("running_mean", "running_var")  # as torch names them
MOST = 0.5  # of the updates
FALLS = -1.645  # Mann and Kendall's score, one-sided at one in twenty


def _look(chart: Chart) -> Iterator[Finding]:
    used = _used(chart)
    if len(used) < LEAST:
        raise CannotSee(f"it takes {LEAST} rounds whose updates were used and are known")
    norms = chart.participations.update_norm
    nothing = [number for number, rows in used.items() if not norms[rows].any()]
    if len(still := _longest(nothing, used)) >= LEAST:
        yield _nothing_sent(chart, still, used)
    moved = {number for number in used if number not in set(nothing)}
    if len(still := _longest(_unmoved(chart, moved), used)) >= LEAST:
        yield _not_applied(chart, still, used)
    elif kept := _statistics_kept(chart, used):
        yield _not_averaged(chart, kept, used)


def _used(chart: Chart) -> dict[int, Ints]:
    """For each round the participations whose update was used and is finite, where anything was left to learn."""
    table = chart.participations
    judged = (table.outcome == Outcome.USED.value) & np.isfinite(table.update_norm)
    judged &= ~chart.shared(all_learnt) & ~chart.shared(spoilt)
    return {number: rows[judged[rows]] for number, rows in chart.cohorts if judged[rows].any()}


def _unmoved(chart: Chart, numbers: set[int]) -> list[int]:
    """Those of the rounds after which the next one began with the same model."""
    pairs = pairwise(sorted(chart.rounds, key=lambda one: one.number))
    same = (one.number for one, after in pairs if one.fingerprint is not None and one.fingerprint == after.fingerprint)
    return [number for number in same if number in numbers]


def _longest(numbers: Iterable[int], of: Iterable[int]) -> list[int]:
    """The longest row of these without another round of all between them."""
    wanted = set(numbers)
    best: list[int] = []
    current: list[int] = []
    for number in sorted(of):
        current = [*current, number] if number in wanted else []
        best = max(best, current, key=len)
    return best


def _statistics_kept(chart: Chart, used: dict[int, Ints]) -> list[int]:
    """Layers of running statistics that are the same in all global models while most updates move them."""
    updates = chart.updates
    models = [one for one in chart.models if updates is not None and one.layout == updates.layout.id]
    if updates is None or len(models) <= LEAST:
        return []
    rows = np.concatenate([rows[updates.present[rows]] for rows in used.values()])
    same = np.all([np.array_equal(one.stats, models[0].stats, equal_nan=True) for one in models])
    if same or not len(rows):
        return []
    kept = np.all([(one.stats == models[0].stats).all(axis=1) for one in models], axis=0)
    moved = (updates.norms[rows] > 0).mean(axis=0) > MOST
    return [
        place for place in np.flatnonzero(kept & moved).tolist() if updates.layout.layers[place].name.endswith(RUNNING)
    ]


def _not_averaged(chart: Chart, kept: Sequence[int], used: dict[int, Ints]) -> Finding:
    layout = chart.updates.layout.layers if chart.updates is not None else ()
    names = tuple(layout[place].name for place in kept)
    return write(
        RULE,
        Severity.WARNING,
        f"{listed(names)} of the global model never changed in {times(len(used), 'round')} whose updates moved them: "
        "running statistics are not averaged, and the model is evaluated with those of its beginning",
        rounds=used,
        layers=names,
        evidence={"rounds": len(used), "layers": len(names)},
        next=(Action("average the whole state_dict(), with its running statistics", safe=False),),
    )


def _nothing_sent(chart: Chart, still: Sequence[int], used: dict[int, Ints]) -> Finding:
    rows = np.concatenate([used[number] for number in still])
    return write(
        RULE,
        Severity.CRITICAL,
        f"every client sent back the model that it was given, in {times(len(still), 'round')} ({ranges(still)}) and "
        f"{times(len(rows), 'participation')}: their training changes nothing",
        rounds=still,
        evidence={"rounds": len(still), "updates": len(rows), "update_norm": 0.0},
        next=["look at whether the optimizer holds the parameters of the model that is sent, and at its learning rate"],
    )


def _not_applied(chart: Chart, still: Sequence[int], used: dict[int, Ints]) -> Finding:
    rows = np.concatenate([used[number] for number in still])
    length = float(np.median(chart.participations.update_norm[rows]))
    judged = evaluated(chart)
    elsewhere = trend(judged.values[np.isin(judged.rounds, still)]) < FALLS
    cause = "what is averaged does not reach it"
    if elsewhere:
        cause = (
            "but its evaluation gets better, so another model is trained than run.round is given, and what "
            "is recorded of updates is about the wrong one"
        )
    return write(
        RULE,
        Severity.WARNING if elsewhere else Severity.CRITICAL,
        f"the global model is the same to the last bit after each of {times(len(still), 'round')} ({ranges(still)}), "
        f"which used {times(len(rows), 'update')} with a norm of {length:.3g}: {cause}",
        rounds=still,
        evidence={"rounds": len(still), "updates": len(rows), "update_norm": short(length), "better": elsewhere},
        next=(
            Action("give run.round(number, model=...) the model that its clients start from")
            if elsewhere
            else Action("put the average into it: global_model.load_state_dict(average)", safe=False),
        ),
    )


RULE = WrittenRule(
    code="FL416",
    name="model stands still",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.UPDATES}),
    explains=frozenset({"FL404", "FL406", "FL409", "FL411", "FL413", "FL501", "FL605"}),
)
