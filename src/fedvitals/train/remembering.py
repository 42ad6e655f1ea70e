"""The server remembers what each client sent last: a few clients then speak for all.

CA2FL: Wang et al., "Tackling the Data Heterogeneity in Asynchronous Federated Learning with Cached Update Calibration",
ICLR 2024; for rounds FedVARP: Jhunjhunwala et al., UAI 2022. A step is the mean of what all clients sent last, and how
those that came now differ from what they had sent before: who happens to be among them matters little once everybody
was heard. A client of whom nothing was heard yet counts in the mean as one that changed nothing, so that the first
steps are those of an average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedvitals.errors import JobError
from fedvitals.train.federation import Federation
from fedvitals.train.job import Job

MOST_BYTES = 4 * 2**30


class Change(NamedTuple):
    """One step's part of the memory as it was before."""

    clients: Sequence[str]
    kept: Sequence[Tensor | None]
    total: Tensor


class Remembered:
    """A client's last update each, float32 [size], and their sum by rows."""

    def __init__(self, samples: Mapping[str, int], size: int) -> None:
        """`samples` are the rows of every client there is; what others send is not kept."""
        self._samples = samples
        self._all = float(sum(samples.values()))
        self._kept: dict[str, Tensor] = {}
        self._total = torch.zeros(size, dtype=torch.float64)  # exact enough to be added to and taken from for long
        self._before: Change | None = None

    @property
    def mean(self) -> Tensor:
        """What the whole federation said last."""
        return (self._total / self._all).float()

    def corrected(self, clients: Sequence[str], updates: Tensor) -> Tensor:
        """Rows whose mean is the step: what each client sent, less what it had sent before, plus the mean of all. They
        are remembered in its place, but for those that are not finite: these are passed on and forgotten."""
        rows = updates + self.mean
        before = [self._kept.get(client) for client in clients]
        self._before = Change(tuple(clients), before, self._total.clone())
        for place, (client, last) in enumerate(zip(clients, before, strict=True)):
            change = updates[place] if last is None else updates[place] - last
            if last is not None:
                rows[place] -= last
            if client in self._samples and bool(change.isfinite().all()):
                self._total += self._samples[client] * change.double()
                self._kept[client] = updates[place].clone()
        return rows

    def roll_back(self) -> None:
        """As it was before the last step."""
        if self._before is None:
            return
        for client, kept in zip(self._before.clients, self._before.kept, strict=True):
            if kept is None:
                self._kept.pop(client, None)
            else:
                self._kept[client] = kept
        self._total, self._before = self._before.total, None


def rows_of_all(job: Job, federation: Federation, size: int, most: int = MOST_BYTES) -> dict[str, int] | None:
    """The rows of every client that may be asked, for a job that remembers. What it may take is known before it
    begins."""
    if not job.server.remember:
        return None
    named = zip(federation.clients, federation.train_rows, strict=True)
    rows = {name: len(own) for name, own in named if name not in job.train.exclude}
    needed = 4 * len(rows) * size
    if needed > most:
        raise JobError(
            f"server.remember = true would keep {size:,} values for each of {len(rows):,} clients, "
            f"{needed / 2**30:.1f} GB; the most is {most / 2**30:.0f} GB: take fewer clients, a smaller model, or "
            f"remember = false"
        )
    return rows
