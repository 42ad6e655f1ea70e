"""Duplicated updates: several clients send the same update.

Sees: updates of different clients in one round whose sketches are equal, or so near to each other (noise of up to 3%)
that honest neighbours are at least ten times further apart, with norms and the first matrix to match. Where more than
half of a cohort is nearly alike it is not judged; where that half is equal to the last bit, it is told of the run.

Matters: one opinion counted twice. A free rider copies whoever is honest; a sybil speaks with many mouths.

Evidence: the groups by round, and whether they are equal to the last bit.

False alarms: two clients with the same rows and the same seed are alike by right, and clients with a few rows of one
and the same class nearly so. What is nearly the same once is a suspicion; again, an accusation.

Do: find out whether they share data or a machine; where all are equal, whether each is given rows of its own. Who
copied whom can't be told from one round; when the same client is alike to different ones in several rounds, it is the
copier and it alone is named.

Papers: Fung, Yoon, Beschastnikh, "The limitations of federated learning in sybil settings" (FoolsGold), RAID 2020.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.cohorts import well
from fedvitals.diagnose.evidence.accusing import SCORED_CODES
from fedvitals.diagnose.evidence.repeats import MOST_REPEATS, Group, copies, repeated
from fedvitals.diagnose.rule import Sight, WrittenRule
from fedvitals.diagnose.words import listed
from fedvitals.diagnose.writing import times, write
from fedvitals.vocabulary import Action, Finding, Grade, Severity

MOST_SHOWN = 20  # groups in the evidence
SEVERAL = 3  # clients, of which two may be alike by right
OFTEN = 0.5  # of the most frequent member's groups: who is in so many is no chance victim


def _look(chart: Chart) -> Iterator[Finding]:
    yield from _all_equal(chart)
    healthy = chart.shared(well)  # of a model that has died, honest updates are nearly the same
    groups = [one for one in chart.shared(copies) if one.exact or healthy[list(one.rows)].all()]
    if not groups:
        return
    members = [tuple(dict.fromkeys(chart.names(chart.participations.client[list(one.rows)]))) for one in groups]
    named = _copiers(members)
    exact = all(one.exact for one in groups)
    once = not exact and max(Counter(name for group in members for name in group).values()) < 2
    alike = "the same update" if exact else "nearly the same update"
    partners = sorted({name for group in members for name in group} - set(named))
    whom = f", each time another's: {listed(partners)}" if partners else ""
    yield write(
        RULE,
        Severity.INFO if once else Severity.WARNING,
        f"clients {listed(members[0])} sent {alike} in round {groups[0].round}; it happened {times(len(groups))}"
        f"{f' with {listed(named)}{whom}' if len(groups) > 1 else ''}",
        grade=Grade.CERTAIN if exact else Grade.SUSPECT if once else Grade.ACCUSED,
        rounds=[one.round for one in groups],
        clients=named,
        evidence={"groups": _shown(groups, members), "exact": exact, "partners": partners},
        next=(
            f"fedvitals show RUN --round {groups[0].round}",
            Action(f"count {listed(named)} once, or not at all", safe=False),
        ),
    )


def _all_equal(chart: Chart) -> Iterator[Finding]:
    """Rounds in which more than half of three clients and more sent one and the same update."""
    first, table = chart.shared(repeated), chart.participations
    rounds: list[int] = []
    counts: list[tuple[int, int]] = []
    for number, cohort in chart.cohorts:
        rows = cohort[table.update_norm[cohort] > 0]
        most = int(np.unique(first[rows], return_counts=True)[1].max(initial=0))
        if most >= SEVERAL and most > MOST_REPEATS * len(rows):
            rounds.append(number)
            counts.append((most, len(rows)))
    if rounds:
        yield write(
            RULE,
            Severity.WARNING,
            f"{counts[0][0]} of {counts[0][1]} clients sent the same update to the last bit in round {rounds[0]}; it "
            f"was so in {times(len(rounds), 'round')}: they train on the same rows in the same order, or do not train",
            rounds=rounds,
            evidence={"rounds": len(rounds), "equal": counts[0][0], "of": counts[0][1]},
            next=[f"fedvitals show RUN --round {rounds[0]}", "look at how rows are given to clients"],
        )


def _copiers(groups: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Who is in group after group; everybody, where nobody stands out."""
    counts = Counter(name for group in groups for name in group)
    most = max(counts.values())
    often = tuple(name for name, count in counts.items() if count > OFTEN * most)
    everybody = tuple(counts)
    return often if most >= 2 and len(often) < len(everybody) else everybody


def _shown(groups: Sequence[Group], members: Sequence[tuple[str, ...]]) -> list[dict[str, object]]:
    pairs = list(zip(groups, members, strict=True))[:MOST_SHOWN]
    return [{"round": one.round, "clients": list(names), "exact": one.exact} for one, names in pairs]


RULE = WrittenRule(
    code="FL606",
    name="duplicated updates",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.SKETCHES}),
    explains=frozenset({"FL414"}) | SCORED_CODES,
)
