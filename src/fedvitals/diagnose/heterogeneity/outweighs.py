"""One client outweighs all others.

Sees: a client that has nearly all rows of the rounds in which it takes part (more than four fifths, of three clients or
more), in nearly each of them, by the numbers of rows that were told.

Matters: where updates are averaged by rows, the model of such a round is that client's own: the others train and are
not heard, nobody's check by the cohort holds for it, and its update can be read off the new model.

Evidence: its share of the rows in the typical round, its rows and those of all others, in how many rounds, and whether
the model moved as far as an average by rows moves it.

False alarms: a matter of counting. Rows that are really dealt out like that look the same: that is then so. Nothing is
told where the model moved as an average does that counts every client alike.

Do: look whether the client tells rows or something else (tokens, bytes, steps). Bound the weights, or count all clients
alike; where one client holds nearly all rows, ask what the others are there for, and weigh them so that they are heard.

Papers: Li, Sanjabi, Beirami, Smith, "Fair resource allocation in federated learning", ICLR 2020.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.learning.curves import steps_of_model
from fedvitals.diagnose.robust import median
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.words import listed
from fedvitals.diagnose.writing import changing, see_client, share, short, times, write
from fedvitals.store.table import Bools, Floats, Ints
from fedvitals.vocabulary import Action, Finding, Outcome, Severity

NEARLY_ALL = 0.8  # of the rows of a round
LEAST_CLIENTS = 3  # in a round: of two, one has more
LEAST_ROUNDS = 3
NEARLY_ALWAYS = 0.9  # of the rounds in which it takes part
COUNT_ALIKE = frozenset({"median", "trimmed-mean", "krum", "multi-krum"})  # aggregators of the engine
AS_FAR = 1.2  # times, up or down: then the model moved as far as that


def _look(chart: Chart) -> Iterator[Finding]:
    server = chart.run.config.get("server")
    aggregator = server.get("aggregator") if isinstance(server, Mapping) else None
    if isinstance(aggregator, str) and aggregator in COUNT_ALIKE:
        raise CannotSee("this server does not weigh clients by their rows")
    shares, asked = _shares(chart)
    if not asked.any():
        raise CannotSee(f"no round tells the numbers of rows of {LEAST_CLIENTS} clients")
    table = chart.participations
    count = len(chart.clients)
    most = shares > NEARLY_ALL
    hits, of = (np.bincount(table.client[rows], minlength=count) for rows in (most, asked))
    whose = np.flatnonzero((hits >= LEAST_ROUNDS) & (hits >= NEARLY_ALWAYS * of))
    rows = np.flatnonzero(most & np.isin(table.client, whose))
    if not len(rows):
        return
    moves = _moves(chart, rows)
    if moves.alike > moves.by_rows:
        return
    order = whose[np.argsort(-hits[whose], kind="stable")]
    names, top = chart.names(order), rows[table.client[rows] == order[0]]
    own, typical = median(table.samples[top]), median(shares[top])
    also = f"; the same of {listed(names[1:])}" if len(names) > 1 else ""
    moved = ", and the model moves as far as such an average moves it" if moves.by_rows > len(rows) / 2 else ""
    yield write(
        RULE,
        Severity.WARNING,
        f"client {names[0]} has {share(typical)} of the rows in {len(top)} of the {times(int(of[order[0]]), 'round')} "
        f"in which it takes part (typically {own:,.0f}, all others together {own / typical - own:,.0f}): averaged by "
        f"rows, the model is nearly that client's own{moved}{also}",
        rounds=table.round[rows],
        clients=names,
        evidence={
            "share": short(typical),
            "rows": short(own),
            "rows_of_others": short(own / typical - own),
            "rounds": len(top),
            "of": int(of[order[0]]),
            "moved_by_rows": moves.by_rows,
        },
        next=(
            Action(f"look whether client {names[0]} tells rows, or tokens, bytes or steps"),
            Action(see_client(names[0])),
            *changing("bound the weights of clients, or count all of them alike"),
        ),
    )


def _shares(chart: Chart) -> tuple[Floats, Bools]:
    """Of the rows of its round, what each participation has; and where that is known."""
    table = chart.participations
    shares, asked = np.zeros(len(table)), np.zeros(len(table), bool)
    used = table.outcome == Outcome.USED.value
    for _, cohort in chart.cohorts:
        rows = cohort[used[cohort]]
        total = table.samples[rows].sum()
        if len(np.unique(table.client[rows])) >= LEAST_CLIENTS and (table.samples[rows] >= 0).all() and total > 0:
            shares[rows], asked[rows] = table.samples[rows] / total, True
    return shares, asked


@dataclass(frozen=True, slots=True)
class _Moves:
    """In how many rounds the model moved as far as one average moves it, and not as the other does."""

    by_rows: int
    alike: int


def _moves(chart: Chart, rows: Ints) -> _Moves:
    steps, table = chart.shared(steps_of_model), chart.participations
    cohorts, by_rows, alike = dict(chart.cohorts), 0, 0
    for number in np.unique(table.round[rows]).tolist():
        cohort = cohorts[number]
        cohort = cohort[table.outcome[cohort] == Outcome.USED.value]
        sent = _sent(chart, cohort)
        if sent is None or not steps.get(number, 0.0) > 0:
            continue
        weighed, equal = (
            float(np.linalg.norm(weights @ sent)) / steps[number]
            for weights in (table.samples[cohort] / table.samples[cohort].sum(), np.full(len(cohort), 1 / len(cohort)))
        )
        fits = [1 / AS_FAR < one < AS_FAR for one in (weighed, equal)]
        by_rows, alike = by_rows + (fits == [True, False]), alike + (fits == [False, True])
    return _Moves(by_rows, alike)


def _sent(chart: Chart, rows: Ints) -> Floats | None:
    """Sketches of these updates as long as they are; None where one is not known."""
    updates = chart.updates
    if updates is None or updates.sketches is None or not updates.present[rows].all():
        return None
    sent: Floats = updates.sketches[rows].astype(np.float64) * chart.participations.update_norm[rows, None]
    return sent if np.isfinite(sent).all() else None


RULE = WrittenRule(
    code="FL508",
    name="one client outweighs",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.PARTICIPATIONS}),
)
