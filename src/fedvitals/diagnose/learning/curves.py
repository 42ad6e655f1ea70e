"""How the whole run learns, round by round: the global model's loss, and clients' losses on receiving it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.cohorts import received_losses
from fedvitals.diagnose.guessing import chance, may_be_cross_entropy
from fedvitals.diagnose.robust import TO_SIGMA, median
from fedvitals.diagnose.rule import CannotSee
from fedvitals.store.table import Floats, Ints

MOST_COMPARED = 300  # values of a series that are compared with each other, pair by pair
ALIKE = math.log(1.5)  # two losses of one model, on other rows but by the same measure
FIRST_ROUNDS = 4  # that are asked for it: later on, what was learnt by heart sets training and evaluation apart
OVERSHOT = 2.0  # times the longest update: a mean stays below one of it, and a server's rate is rarely above two


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A value a round, in the order of the rounds; some may not be finite. `of` says what it is."""

    of: str
    rounds: Ints
    values: Floats

    @property
    def finite(self) -> Curve:
        seen = np.isfinite(self.values)
        return Curve(self.of, self.rounds[seen], self.values[seen])

    def __len__(self) -> int:
        return len(self.values)

    @property
    def noise(self) -> float:
        """The deviation of one value from the way that its neighbours go (from second differences, robustly)."""
        values = self.finite.values
        if len(values) < 4:
            return 0.0
        bends = values[2:] - 2 * values[1:-1] + values[:-2]
        return TO_SIGMA * float(np.median(np.abs(bends))) / math.sqrt(6)

    def level(self, start: int | None, end: int | None) -> float:
        """The median of a stretch."""
        return median(self.values[start:end])


def evaluated(chart: Chart) -> Curve:
    """The global model's loss on the split it is judged on most often; the last word of each round counts."""
    splits = Counter(one.split for one in chart.judged if one.loss is not None)
    wanted = splits.most_common(1)[0][0] if splits else None
    by_round = {one.round: one.loss for one in chart.judged if one.split == wanted and one.loss is not None}
    return _curve("evaluation loss", by_round)


def accuracies(chart: Chart) -> Curve:
    """The same of the accuracy."""
    splits = Counter(one.split for one in chart.judged if one.accuracy is not None)
    wanted = splits.most_common(1)[0][0] if splits else None
    by_round = {one.round: one.accuracy for one in chart.judged if one.split == wanted and one.accuracy is not None}
    return _curve("accuracy", by_round)


def received(chart: Chart) -> Curve:
    """The median over each round's clients of the loss of the model they received, on their own rows."""
    losses = received_losses(chart)
    medians: dict[int, float] = {}
    for number, rows in chart.cohorts:
        known = losses[rows][~np.isnan(losses[rows])]
        if known.size:
            medians[number] = float(np.median(known))
    return _curve("clients' loss", medians)


def learning_curve(chart: Chart, least: int) -> Curve:
    """The evaluation loss with, before it, the loss on receipt of the first model, where both measure alike; the
    clients' losses where nothing was evaluated. CannotSee where fewer than `least` rounds are known."""
    judged, own = chart.shared(evaluated), chart.shared(received)
    if len(judged) >= least:
        before = len(own) and own.rounds[0] <= judged.rounds[0] and chart.shared(measure_alike)
        first = own.values[:1] if before else np.empty(0)
        first = first[np.isfinite(first)]
        rounds = np.concatenate([judged.rounds[:1] - 1] * len(first) + [judged.rounds])
        return Curve(judged.of, rounds, np.concatenate([first, judged.values]))
    if len(own) >= least:
        return own
    raise CannotSee(f"{max(len(judged), len(own))} rounds have a loss; it takes {least} to see how it goes")


def measure_alike(chart: Chart) -> bool:
    """Whether evaluations and clients give about the same loss to the same models: what a round ends with is evaluated,
    and received in the next. Clients may train by another loss, or know their rows by heart from an earlier run."""
    judged, own = chart.shared(evaluated).finite, chart.shared(received).finite
    after = dict(zip((judged.rounds + 1).tolist(), judged.values.tolist(), strict=True))
    pairs = [
        (one, after[number])
        for number, one in zip(own.rounds.tolist(), own.values.tolist(), strict=True)
        if number in after
    ]
    ratios = [abs(math.log(one / other)) for one, other in pairs[:FIRST_ROUNDS] if one > 0 and other > 0]
    return bool(ratios) and bool(np.median(ratios) < ALIKE)


def beginning(chart: Chart, curve: Curve) -> float:
    """What progress is measured by: the curve's first value, or the loss of guessing where that is larger, as in a run
    that goes on from a trained model."""
    guess = chance(chart)
    first = float(curve.values[0])
    return max(first, guess) if guess is not None and may_be_cross_entropy(chart) else first


def steps_of_model(chart: Chart) -> dict[int, float]:
    """How far the global model moved in each round: the next version's distance from it."""
    models = sorted(chart.models, key=lambda one: one.version)
    return {now.round: after.drift_last for now, after in pairwise(models)}


def overshoots(chart: Chart) -> dict[int, float]:
    """Rounds in which the server moved the model further than any average moves it, and how many times as far as the
    longest update."""
    steps, norms = chart.shared(steps_of_model), chart.participations.update_norm
    longest = {number: float(norms[rows].max()) for number, rows in chart.cohorts if number in steps}
    ratios = {number: steps[number] / one for number, one in longest.items() if one > 0}
    return {number: one for number, one in ratios.items() if OVERSHOT < one < math.inf}


def trend(values: Floats) -> float:
    """Mann and Kendall's test: how many standard deviations the order of the values lies from no trend; up is above
    0."""
    if len(values) > MOST_COMPARED:
        values = values[np.linspace(0, len(values) - 1, MOST_COMPARED).astype(int)]
    count = len(values)
    if count < 3:
        return 0.0
    left, right = np.triu_indices(count, 1)
    total = float(np.sign(values[right] - values[left]).sum())
    return total / math.sqrt(count * (count - 1) * (2 * count + 5) / 18)


def _curve(of: str, by_round: dict[int, float]) -> Curve:
    rounds = sorted(by_round)
    values = np.array([by_round[one] for one in rounds], dtype=np.float64)
    return Curve(of, np.array(rounds, dtype=np.int64), values)
