"""Used twice: one id for two clients, or one number for two rounds.

Sees: rounds in which two updates under one id were used, of one and the same model; and rounds whose number was begun
again, with another model, after clients had trained in the first.

Matters: a record knows clients by their ids and rounds by their numbers. Two clients under one id have one past, which
is nobody's, and whoever is compared with his past is compared with another's. Two rounds under one number are compared
as one cohort, though their clients had different models, and only the later one's times and counts are kept.

Evidence: the rounds; of ids, in how many of the rounds in which they were there, and their numbers of rows where these
differ; of numbers, how many rounds there were.

False alarms: none by count. Clients that are drawn with replacement come twice now and then: that is only told of
(info). It is a warning where the two have different numbers of rows, where it is the same ids more often than chance
gives in one of a hundred runs, or where an id comes twice in nearly all of its rounds, three at least. A client that
failed and tried again, or whose first update was left out, is not counted, nor is a round that failed and was begun
again. A training without rounds has neither.

Do: give each client an id of its own, such as its rank, its file or its address, and count rounds through where a loop
is run several times. Draw clients without replacement (`replace=False`, `random.sample`).

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.evidence.accusing import SCORED_CODES
from fedvitals.diagnose.persistence import streaks
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.words import listed, ranges
from fedvitals.diagnose.writing import see_client, times, write
from fedvitals.store.table import Bools, Ints
from fedvitals.vocabulary import Action, Finding, Outcome, Round, Severity

LEAST_ROUNDS, NEARLY_ALWAYS = 3, 0.9  # rounds in which an id came twice, and their share of all in which it came
MOST_SHOWN = 20  # clients in the evidence


def _look(chart: Chart) -> Iterator[Finding]:
    ended = {one.number: one for one in chart.rounds if one.end_ns is not None and one.used > 0 <= one.number}
    if _goes_without_rounds(chart) or not ended:
        raise CannotSee("no round has ended that clients were trained in")
    yield from _ids(chart, ended)
    yield from _numbers(chart, ended)


def _goes_without_rounds(chart: Chart) -> bool:
    """Then a client that is fast may come twice in one step, each time with what it was given."""
    server = chart.run.config.get("server")
    mode = server.get("mode") if isinstance(server, Mapping) else None
    return mode == "async" or bool((chart.participations.staleness > 0).any())


@dataclass(frozen=True, slots=True)
class _Twice:
    """An id that came more than once in a round."""

    client: int
    rounds: tuple[int, ...]
    seen: int  # rounds in which it was there
    rows: tuple[int, ...]  # different numbers of them, in one round

    @property
    def always(self) -> bool:
        """Chance draws nobody twice all the time."""
        return len(self.rounds) >= max(LEAST_ROUNDS, NEARLY_ALWAYS * self.seen)


def _ids(chart: Chart, ended: Mapping[int, Round]) -> Iterator[Finding]:
    first, again = _first_and_again(chart, ended)
    found = [_twice(chart, int(client), first, again) for client in np.unique(chart.participations.client[again])]
    often = {one.client for one in streaks(chart, again & first, first)}
    for shared in (True, False):
        some = [one for one in found if (bool(one.rows) or one.always or one.client in often) is shared]
        if some:
            yield _of_ids(chart, some, shared)


def _first_and_again(chart: Chart, ended: Mapping[int, Round]) -> tuple[Bools, Bools]:
    """Rows that are the first of their client in a round, and all rows of clients that were used there again."""
    table = chart.participations
    first, again = np.zeros((2, len(table)), bool)
    used = (table.outcome == Outcome.USED.value) & (chart.update_layouts >= 0) & (table.staleness == 0)
    for number, cohort in chart.cohorts:
        one = ended.get(number)
        rows = cohort[used[cohort] & (table.base_version[cohort] == one.version)] if one else cohort[:0]
        _, places, whose, counts = np.unique(
            table.client[rows], return_index=True, return_inverse=True, return_counts=True
        )
        first[rows[places]] = True
        again[rows[counts[whose] > 1]] = True
    return first, again


def _twice(chart: Chart, client: int, first: Bools, again: Bools) -> _Twice:
    table, rows = chart.participations, chart.histories[client]
    rounds = np.unique(table.round[rows[again[rows]]])
    of_each = (np.unique(table.samples[rows[again[rows] & (table.round[rows] == one)]]) for one in rounds)
    differ = next((some for some in of_each if len(some) > 1 and np.isfinite(some).all()), np.empty(0))
    seen = int(first[rows].sum())
    return _Twice(client, tuple(rounds.tolist()), seen, tuple(int(one) for one in differ))


def _of_ids(chart: Chart, found: list[_Twice], shared: bool) -> Finding:
    found = sorted(found, key=lambda one: -len(one.rounds))
    names, top = chart.names([one.client for one in found]), found[0]
    rows = next((f", of {one.rows[0]:,} and of {one.rows[-1]:,} rows" for one in found if one.rows), "")
    also = f"; the same of {listed(names[1:])}" if len(names) > 1 else ""
    means = "two clients go by one id" if shared else "it was drawn twice, and counts twice, or two go by one id"
    return write(
        RULE,
        Severity.WARNING if shared else Severity.INFO,
        f"two updates and more under the id {names[0]} were used in {len(top.rounds)} of the "
        f"{times(top.seen, 'round')} in which it was there{rows}: {means}, and what is told of its past is told of "
        f"both{also}",
        rounds=[number for one in found for number in one.rounds],
        clients=names,
        evidence={
            name: {"rounds": len(one.rounds), "of": one.seen, "rows": list(one.rows)}
            for name, one in list(zip(names, found, strict=True))[:MOST_SHOWN]
        },
        next=(
            Action(see_client(names[0])),
            Action("give each client an id of its own" if shared else "draw clients without replacement", safe=shared),
        ),
    )


def _numbers(chart: Chart, ended: Mapping[int, Round]) -> Iterator[Finding]:
    table = chart.participations
    failed = {one.round for one in chart.failures if one.client is None}  # and were perhaps begun again
    used = (table.outcome == Outcome.USED.value) & (table.staleness == 0) & (table.base_version >= 0)
    begun: dict[int, int] = {}
    for number, cohort in chart.cohorts:
        one = ended.get(number)
        if one is not None and number not in failed:
            versions: Ints = np.unique(table.base_version[cohort[used[cohort]]])
            begun[number] = int((versions < one.version).sum()) + 1
    again = [number for number, count in begun.items() if count > 1]
    if again:
        whole = sum(begun[number] for number in again)
        yield write(
            RULE,
            Severity.WARNING,
            f"{times(len(again), 'number')} ({ranges(again)}) stood for {whole} rounds, each with a model of its own: "
            "they are told as one, their clients are compared with each other, and only the last one's times are kept",
            rounds=again,
            evidence={"numbers": len(again), "rounds": whole},
            next=(Action("count rounds through: run.round(number, ...) with a number that was not used before"),),
        )


RULE = WrittenRule(
    code="FL906",
    name="id or number used twice",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.PARTICIPATIONS}),
    explains=SCORED_CODES,
)
