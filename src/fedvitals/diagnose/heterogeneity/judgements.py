"""How good the global model is for each client: the evaluations on clients' own rows, round by round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.store.table import Floats, Ints
from fedvitals.vocabulary import Evaluation


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """One round in which clients' own rows were judged."""

    round: int
    clients: tuple[str, ...]
    accuracies: Floats
    samples: Ints  # 0: unknown

    def overall(self) -> float:
        """The accuracy over all rows; over clients where their numbers are unknown."""
        weights = self.samples if self.samples.sum() > 0 else np.ones(len(self.samples))
        return float(np.average(self.accuracies, weights=weights))


def judgements(chart: Chart) -> list[Judgement]:
    """The rounds in which clients were judged by accuracy, in order; the last word on a client in a round counts."""
    by_round: dict[int, dict[str, Evaluation]] = {}
    for one in sorted(chart.evaluations, key=lambda each: each.at_ns):
        if one.client is not None and one.accuracy is not None and np.isfinite(one.accuracy):
            by_round.setdefault(one.round, {})[one.client] = one
    return [_judgement(number, found) for number, found in sorted(by_round.items())]


def _judgement(number: int, found: dict[str, Evaluation]) -> Judgement:
    accuracies = np.array([float(one.accuracy or 0.0) for one in found.values()])
    samples = np.array([one.samples or 0 for one in found.values()], dtype=np.int64)
    return Judgement(number, tuple(found), accuracies, samples)
