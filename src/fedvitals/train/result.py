"""What a training comes to."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """The end of a job: its figures, and the model itself."""

    run_id: str | None  # None when nothing was recorded
    rounds: int
    accuracy: float | None
    loss: float | None
    wall_s: float
    bytes_up: int
    bytes_down: int
    weights_sha256: str
    executor: str
    clients_per_s: float
    failed: int = 0  # participations that failed
    late: int = 0  # that came after their round had closed
    model: nn.Module = field(default_factory=nn.Identity, repr=False)
