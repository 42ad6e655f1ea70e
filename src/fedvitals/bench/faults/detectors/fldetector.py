"""FLDetector's consistency score: whose updates do not follow from its own earlier ones.

Zhang, Cao, Jia, Gong: "FLDetector: Defending Federated Learning Against Model Poisoning Attacks via Detecting Malicious
Clients", KDD 2022. A client's gradient is predicted from its last one and the model's step since, by a Hessian that
L-BFGS makes of the last ten steps of the model and of the mean gradient. Its score is the distance of prediction and
gradient, as a share of all clients' distances, averaged over its last ten participations. As published, a gap statistic
says whether there are bad clients and 2-means which; here their true number is given, and so many of the highest scores
are named. Clients that pass over rounds are predicted from their last participation, wherever that was.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import NamedTuple

import torch
from torch import Tensor

from fedvitals.bench.faults.detectors.protocol import WINDOW, Sent

LEAST_STEPS = 2  # of the model, before its curvature can be told


class Past(NamedTuple):
    """A client's last participation."""

    gradient: Tensor
    weights: Tensor  # of the model it trained on


class FLDetector:
    """Scores over rounds."""

    name = "FLDetector"

    def __init__(self) -> None:
        self._past: dict[str, Past] = {}
        self._steps: deque[Tensor] = deque(maxlen=WINDOW)
        self._changes: deque[Tensor] = deque(maxlen=WINDOW)
        self._mean: Past | None = None
        self._scores: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=WINDOW))

    def named(self, sent: Sent) -> frozenset[str]:
        weights = sent.weights.clone()
        gradients = -sent.updates.to(torch.float32)
        finite = torch.isfinite(gradients).all(dim=1)
        self._score(sent.clients, gradients, finite, weights)
        self._remember(sent.clients, gradients, finite, weights)
        means = {client: sum(scores) / len(scores) for client, scores in self._scores.items()}
        return frozenset(sorted(means, key=lambda client: means[client], reverse=True)[: sent.bad_so_far])

    def _score(self, clients: tuple[str, ...], gradients: Tensor, finite: Tensor, weights: Tensor) -> None:
        known = [row for row, client in enumerate(clients) if client in self._past and bool(finite[row])]
        if known and len(self._steps) >= LEAST_STEPS:
            bend = LBFGS(torch.stack(list(self._steps)), torch.stack(list(self._changes)))
            last = [self._past[clients[row]] for row in known]
            moved = torch.stack([weights - past.weights for past in last])
            predicted = torch.stack([past.gradient for past in last]) + bend.times(moved)
            distances = (predicted - gradients[known]).norm(dim=1)
            shares = distances / distances.sum().clamp(min=1e-30)
            for row, share in zip(known, shares.tolist(), strict=True):
                self._scores[clients[row]].append(share)
        for row in (~finite).nonzero().flatten().tolist():
            self._scores[clients[row]].append(1.0)  # as far from any prediction as can be

    def _remember(self, clients: tuple[str, ...], gradients: Tensor, finite: Tensor, weights: Tensor) -> None:
        for row in finite.nonzero().flatten().tolist():
            self._past[clients[row]] = Past(gradients[row].clone(), weights)
        if not bool(finite.any()) or not bool(torch.isfinite(weights).all()):
            return
        mean = gradients[finite].mean(dim=0)
        if self._mean is not None:
            step, change = weights - self._mean.weights, mean - self._mean.gradient
            if float(step.norm()) > 0:
                self._steps.append(step)
                self._changes.append(change)
        self._mean = Past(mean, weights)


class LBFGS:
    """A Hessian known by what it does to a few steps: the compact form of Byrd, Nocedal and Schnabel, 1994."""

    def __init__(self, steps: Tensor, changes: Tensor) -> None:
        s, y = steps.to(torch.float64).T, changes.to(torch.float64).T  # [size, pairs]
        products = s.T @ y
        lower = torch.tril(products, -1)
        self._sigma = float(products[-1, -1] / (s[:, -1] @ s[:, -1]))
        self._both = torch.cat([self._sigma * s, y], dim=1)
        top = torch.cat([self._sigma * (s.T @ s), lower], dim=1)
        bottom = torch.cat([lower.T, -torch.diag(products.diagonal())], dim=1)
        self._middle = torch.linalg.pinv(torch.cat([top, bottom]))

    def times(self, vectors: Tensor) -> Tensor:
        """[rows, size]: the Hessian times each row."""
        v = vectors.to(torch.float64)
        bent: Tensor = self._sigma * v - (v @ self._both) @ self._middle.T @ self._both.T
        return bent.to(torch.float32)
