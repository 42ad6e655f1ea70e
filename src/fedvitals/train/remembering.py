"""The server remembers what each client sent last: a few clients then speak for all.

CA2FL: Wang et al., "Tackling the Data Heterogeneity in Asynchronous Federated Learning with Cached Update Calibration",
ICLR 2024; for rounds FedVARP: Jhunjhunwala et al., UAI 2022. A step is the mean of what all clients sent last, and how
those that came now differ from what they had sent before: who happens to be among them matters little once everybody
was heard. Unlike there, the mean is of those that were heard, and who comes for the first time counts as without a
memory: so the first steps are no longer ones where the clients that were not heard yet come first.
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
    rows: int
    total: Tensor


class Remembered:
    """A client's last update each, float32 [size], and their sum by rows."""

    def __init__(self, samples: Mapping[str, int], size: int) -> None:
        """`samples` are the rows of every client there is; what others send is not kept."""
        self._samples = samples
        self._kept: dict[str, Tensor] = {}
        self._rows = 0  # of those that were heard
        self._total = torch.zeros(size, dtype=torch.float64)  # exact enough to be added to and taken from for long
        self._before: Change | None = None

    @property
    def mean(self) -> Tensor:
        """What all that were heard sent last."""
        return (self._total / max(self._rows, 1)).float()

    def corrected(self, clients: Sequence[str], updates: Tensor) -> Tensor:
        """Rows whose mean is the step: what each client sent, less what it had sent before, plus the mean of all. They
        are remembered in its place, but for those that are not finite: these are passed on and forgotten."""
        last = [self._kept.get(client) for client in clients]
        self._before = Change(tuple(clients), last, self._rows, self._total.clone())
        mean = self.mean
        known = [sent if before is None else sent + (mean - before) for sent, before in zip(updates, last, strict=True)]
        for client, sent, before in zip(clients, updates, last, strict=True):
            if client in self._samples and bool(sent.isfinite().all()):
                self._keep(client, sent.clone(), before)
        return torch.stack(known)

    def _keep(self, client: str, sent: Tensor, before: Tensor | None) -> None:
        rows = self._samples[client]
        change = sent.double() if before is None else sent.double() - before.double()
        self._total += rows * change
        self._rows += rows if before is None else 0
        self._kept[client] = sent

    def roll_back(self) -> None:
        """As it was before the last step."""
        if self._before is None:
            return
        for client, kept in zip(self._before.clients, self._before.kept, strict=True):
            if kept is None:
                self._kept.pop(client, None)
            else:
                self._kept[client] = kept
        self._rows, self._total, self._before = self._before.rows, self._before.total, None


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
