"""The engine without rounds: what an update counts that began with an older model.

Xie, Koyejo and Gupta, "Asynchronous Federated Optimization", arXiv:1903.03934, 5.2; Nguyen et al., "Federated Learning
with Buffered Asynchronous Aggregation", AISTATS 2022, which takes the polynomial one with power 0.5.
"""

from __future__ import annotations

from fedvitals.train.sections import ServerSpec


def weight(server: ServerSpec, staleness: int) -> float:
    """From 1, for an update of the model as it is, down towards 0."""
    if server.staleness_weight == "constant":
        return 1.0
    if server.staleness_weight == "hinge":
        beyond = max(staleness - server.staleness_hinge, 0)
        return 1.0 / (1.0 + server.staleness_power * beyond)
    return float((1.0 + staleness) ** -server.staleness_power)


def too_stale(server: ServerSpec, staleness: int) -> bool:
    """Whether an update is left out for its age."""
    return 0 < server.staleness_bound < staleness
