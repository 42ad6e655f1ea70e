"""Cohort too small to hide one update.

Sees: rounds whose model was made of one or two clients' updates.

Matters: a sum hides its parts only among several. Of one, the new model minus the old is that client's update; of two,
each learns the other's by taking its own away. Updates can be turned back into training rows.

Evidence: in how many rounds, and the smallest number of clients.

False alarms: none by count; the smallest sizes are a matter of arithmetic. Larger cohorts are not a guarantee either:
the same clients in ever other company can be told apart by differences of sums. At level `open` the server sees each
update anyway, so there it is only told of, and only of rounds with a single client.

Do: apply no round with fewer clients than your threshold; ask more clients than are needed; add noise.

Papers: Bonawitz et al., Practical Secure Aggregation (CCS 2017); Zhu et al., Deep Leakage from Gradients (NeurIPS
2019); So et al., Securing Secure Aggregation: Mitigating Multi-Round Privacy Leakage (AAAI 2023).
"""

from __future__ import annotations

from collections.abc import Iterator

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.rule import CannotSee, WrittenRule
from fedvitals.diagnose.words import ranges
from fedvitals.diagnose.writing import times, write
from fedvitals.vocabulary import Action, Finding, Level, Severity

HIDES_NOTHING = 1  # the sum is the update
HIDES_FROM_OTHERS = 2  # each of the two can take its own away


def _look(chart: Chart) -> Iterator[Finding]:
    told = [one for one in chart.rounds if one.end_ns is not None and one.selected > 0]
    if not told:
        raise CannotSee("the run has no round that ended and says how many clients were asked")
    most = HIDES_NOTHING if chart.level is Level.OPEN else HIDES_FROM_OTHERS
    small = [one for one in told if 1 <= one.used <= most]
    if not small:
        return
    least = min(one.used for one in small)
    what = "the sum is that client's update" if least == 1 else "each of the two can work out the other's update"
    yield write(
        RULE,
        _severity(chart.level, least),
        f"{times(len(small), 'round')} of {len(told)} ({ranges([one.number for one in small])}) summed the updates of "
        f"{times(least, 'client')}{'' if least == most else f' to {most}'}, at level {chart.level}: {what}",
        rounds=[one.number for one in small],
        evidence={"rounds": len(small), "of": len(told), "fewest": least, "level": str(chart.level)},
        next=[Action("apply a round only with enough clients; ask more (server.over_select)", safe=False)],
    )


def _severity(level: Level, least: int) -> Severity:
    """Where sums were promised, a sum of one breaks the promise."""
    if level is Level.OPEN:
        return Severity.INFO
    return Severity.CRITICAL if level is Level.SEALED and least == HIDES_NOTHING else Severity.WARNING


RULE = WrittenRule(code="FL701", name="cohort too small to hide one update", page=__doc__ or "", look=_look)
