"""Slow convergence.

Sees: a loss that falls steadily all through the run and is, at the end, still above two thirds of where it began, or
of guessing: at the pace of the last half, as many rounds again would not bring it to half.

Matters: nothing is broken; it is only far from done. More rounds, or larger steps, would bring more than any repair.

Evidence: the loss at the start and the end, the fall a round, rounds to half at that pace.

False alarms: it is information, never more, and stands under a plateau (FL404) of the same rounds. It
asks for a fall that Mann and Kendall's test sees at one in a thousand.

Do: more rounds, a higher learning rate, more epochs a round, server momentum.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.coded import advice
from fedvitals.diagnose.learning.curves import beginning, learning_curve, trend
from fedvitals.diagnose.robust import slope
from fedvitals.diagnose.rule import WrittenRule
from fedvitals.diagnose.writing import short, write
from fedvitals.vocabulary import Action, Finding, Grade, Severity

LEAST = 10  # rounds
FALLS = -3.09  # Mann and Kendall's score, one-sided at one in a thousand
MANY = 10  # times as many rounds as there were: beyond it a pace foretells nothing
FAR = 2 / 3  # of the loss at the start, or of guessing


def _look(chart: Chart) -> Iterator[Finding]:
    curve = learning_curve(chart, LEAST).finite
    if len(curve) < LEAST or trend(curve.values) > FALLS:
        return
    start, end = float(curve.values[0]), curve.level(-3, None)
    half = len(curve) // 2
    pace = -slope(curve.rounds[half:].astype(float), curve.values[half:])
    if not start > end > FAR * beginning(chart, curve) > 0 or not pace > 0:
        return
    missing = (end - start / 2) / pace
    gone = int(curve.rounds[-1] - curve.rounds[0])
    if missing < gone:
        return
    yield write(
        RULE,
        Severity.INFO,
        f"the {curve.of} falls steadily but slowly, from {start:.4g} to {end:.4g} in {gone} rounds; at the pace of the "
        f"last half {_outlook(missing, gone)}",
        grade=Grade.ACCUSED,
        rounds=curve.rounds[half:],  # whose pace it is: a plateau of the same rounds explains it
        evidence={
            "start": short(start),
            "end": short(end),
            "fall_a_round": short(pace),
            "rounds_to_half": short(missing),
        },
        next=(*advice(chart), Action("more rounds, a higher learning rate or more epochs a round", safe=False)),
    )


def _outlook(missing: float, gone: int) -> str:
    if missing > MANY * gone:
        return "it does not get to half of the start in ten times as many"
    return f"it takes {missing:.0f} more to half of the start"


RULE = WrittenRule(code="FL406", name="slow convergence", page=__doc__ or "", look=_look)
