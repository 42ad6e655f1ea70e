"""Divergence.

Sees: a loss that leaves where it had come to and does not return: the evaluation's, or the clients' on receipt where
nothing is evaluated. The last rounds lie above the best by more than half of all progress made, by a quarter of the
best at least, and by more than the series' own noise; or it was above twice its beginning for three rounds; or it is
not finite any more.

Matters: the model gets worse by training. What comes after is lost.

Evidence: the loss at the start, at its best and at the end, since when it rises, and how far the server moved the model
beside the longest update, where that is further than any average moves it.

False alarms: the noise is taken from the series itself (second differences) and asked six times over. A loss that rises
while the clients' own losses go on falling is not this but a generalisation gap (FL411).

Do: look for what explains it above this finding: a client, a learning rate. Where the server moves the model further
than its clients do, divide what is summed by the sum of its weights. Otherwise lower the learning rate, clip gradients,
fewer epochs.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.learning.curves import Curve, learning_curve, overshoots, received
from fedvitals.diagnose.rule import WrittenRule
from fedvitals.diagnose.writing import factor, short, write
from fedvitals.vocabulary import Action, Finding, Grade, Severity

LEAST = 4  # rounds
LAST = 3  # rounds whose median is the end
HALF = 0.5  # of the progress made: losing more than that is not a swing
NOTABLE = 1.25  # times the best
NOISES = 6.0
BLOWN = 2.0  # times the loss at the start


def _look(chart: Chart) -> Iterator[Finding]:
    curve = learning_curve(chart, LEAST)
    finite = curve.finite
    if len(finite) < len(curve) and not np.isfinite(curve.values[-1]):
        yield _found(chart, curve, int(np.argmax(~np.isfinite(curve.values))), float(curve.values[-1]))
        return
    end = finite.level(-LAST, None)
    if (_rose(finite, end) or _blew_up(finite)) and _clients_agree(chart, finite):
        yield _found(chart, finite, _since(finite), end)


def _rose(curve: Curve, end: float) -> bool:
    best, start = float(curve.values.min()), float(curve.values[0])
    rise = end - best
    lasting = len(curve) - int(np.argmin(curve.values)) > LAST
    lost = rise > HALF * (start - best) and rise > (NOTABLE - 1) * abs(best) and rise > NOISES * curve.noise
    return lasting and lost


def _blew_up(curve: Curve) -> bool:
    """It was far above its beginning for several rounds, wherever it went afterwards."""
    above = curve.values > BLOWN * abs(float(curve.values[0]))
    return int(above.sum()) >= LAST


def _clients_agree(chart: Chart, curve: Curve) -> bool:
    """The clients' losses on receipt rose as well, where they are known: otherwise it is on other rows only."""
    own = received(chart)
    if curve.of == own.of or len(own.finite) < LEAST:
        return True
    values = own.finite.values
    return (
        bool(np.median(values[-LAST:]) > NOTABLE * values.min()) or _blew_up(own.finite) or len(own.finite) < len(own)
    )


def _since(curve: Curve) -> int:
    return int(np.argmin(curve.values)) + 1


def _found(chart: Chart, curve: Curve, place: int, end: float) -> Finding:
    known = curve.values[np.isfinite(curve.values)]
    best, start = float(known.min()) if len(known) else np.nan, float(curve.values[0])
    since = int(curve.rounds[min(place, len(curve) - 1)])
    why = (
        f"the {curve.of} rose from {best:.4g} at its best to {end:.4g} (it began at {start:.4g}), from round {since} on"
    )
    if not np.isfinite(end):
        why = f"the {curve.of} is {end} from round {since} on; its best was {best:.4g}, it began at {start:.4g}"
    overshot = _overshot(chart, since)
    if overshot:
        why += (
            f"; the server moved the model up to {factor(overshot)} as far as its longest update: no average does that"
        )
    mend = "lower the learning rate, or clip gradients (train.clip = 1.0)"
    return write(
        RULE,
        Severity.CRITICAL,
        why,
        grade=Grade.ACCUSED if np.isfinite(end) else Grade.CERTAIN,
        rounds=[int(one) for one in curve.rounds if one >= since],
        evidence={
            "start": short(start),
            "best": short(best),
            "end": short(end),
            "since_round": since,
            "overshot": short(overshot),
        },
        next=(
            Action(f"fedvitals show RUN --round {since}"),
            Action(
                "divide what is summed by the sum of its weights; lower server.lr" if overshot else mend, safe=False
            ),
        ),
    )


def _overshot(chart: Chart, since: int) -> float:
    """How many times as far as its longest update the model was moved, at most, in the round from which on the loss
    rises and the two before; 0 where an average would have done so too."""
    found = chart.shared(overshoots).items()
    return max((ratio for number, ratio in found if since - LAST < number <= since), default=0.0)


RULE = WrittenRule(
    code="FL402",
    name="divergence",
    page=__doc__ or "",
    look=_look,
    explains=frozenset({"FL403", "FL404", "FL406", "FL407", "FL410", "FL411", "FL501", "FL503", "FL504"}),
)
