"""Multi-Krum as a detector: who lies furthest from its nearest.

Blanchard, El Mhamdi, Guerraoui, Stainer: "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
NeurIPS 2017. With the true number f of bad clients in the round, an update's score is the sum of its squared distances
to the n - f - 2 nearest; the f highest scores are named. Updates that are not finite are infinitely far.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedvitals.bench.faults.detectors.protocol import Sent, Votes
from fedvitals.train.aggregators.distances import inner_products, squared_distances


class MultiKrumDetector:
    """Votes over rounds."""

    name = "multi-krum"

    def __init__(self) -> None:
        self._votes = Votes()

    def named(self, sent: Sent) -> frozenset[str]:
        if sent.bad:
            furthest = krum_scores(sent.updates, sent.bad).argsort(descending=True, stable=True)
            self._votes.count(sent.clients, [sent.clients[row] for row in furthest[: sent.bad].tolist()])
        return self._votes.verdict(sent.bad_so_far)


def krum_scores(updates: Tensor, bad: int) -> Tensor:
    """One a row, in float64."""
    finite = torch.isfinite(updates).all(dim=1)
    scores = torch.full((len(updates),), torch.inf, dtype=torch.float64)
    rows = updates[finite]
    if len(rows) > 1:
        nearest = min(max(1, len(rows) - bad - 2), len(rows) - 1)
        distances = squared_distances(inner_products(rows)).fill_diagonal_(torch.inf)
        scores[finite] = distances.topk(nearest, dim=1, largest=False).values.sum(dim=1)
    return scores
