"""The detectors at work: a hook of the engine keeps what they need, and they look at it when the run is over.

They are not asked during the run, because what they take would be counted as the server's time to aggregate.
"""

from __future__ import annotations

import torch

from fedvitals.bench.faults.detectors.feddebug import FedDebug
from fedvitals.bench.faults.detectors.fldetector import FLDetector
from fedvitals.bench.faults.detectors.multi_krum import MultiKrumDetector
from fedvitals.bench.faults.detectors.protocol import Detector, Sent
from fedvitals.train.engine import Training
from fedvitals.train.hooks import NoHook, RoundUpdates

Verdicts = dict[int, frozenset[str]]  # after each round


class Watching(NoHook):
    """Changes nothing; keeps every round as the server has it before it aggregates."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._struck: set[str] = set()
        self._rounds: list[Sent] = []

    def before_aggregate(self, round: int, updates: RoundUpdates) -> RoundUpdates:
        struck = {client for client in updates.clients if self._training.injector.active(client, round)}
        self._struck |= struck
        weights = self._training.model.weights.clone()
        self._rounds.append(Sent(round, updates.clients, updates.updates, weights, len(struck), len(self._struck)))
        return updates

    def verdicts(self) -> dict[str, Verdicts]:
        """Detector -> whom it named after each round."""
        clean = not self._training.injector.culprits()
        detectors: tuple[Detector, ...] = (FedDebug(self._training, clean=clean), FLDetector(), MultiKrumDetector())
        return {detector.name: self._said_by(detector) for detector in detectors}

    def _said_by(self, detector: Detector) -> Verdicts:
        said: Verdicts = {}
        last: frozenset[str] = frozenset()
        for sent in self._rounds:
            if bool(torch.isfinite(sent.weights).all()):  # nothing can be told from what is trained on a dead model
                last = detector.named(sent)
            said[sent.round] = last
        return said
