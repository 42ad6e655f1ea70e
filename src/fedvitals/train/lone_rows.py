"""Batch normalisation has nothing to go by in a batch of one row, and torch refuses to train on it.

So the last batch of an epoch is left out where it would be a single row: else a client whose rows are one more than
fill its batches would fail in every round. What is made of single rows altogether is refused before it begins.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from fedvitals.errors import JobError
from fedvitals.train.federation import Federation
from fedvitals.train.job import Job


def needs_company(module: nn.Module, row: Tensor) -> bool:
    """Whether it cannot train on this row alone. The pixels of a picture are company enough: so it is tried."""
    if not any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in module.modules()):
        return False
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            copy.deepcopy(module).train()(row.unsqueeze(0).clone())
    except ValueError:
        return True
    except Exception:
        return False  # whatever it is, it is not a matter of single rows, and training will tell
    return False


def refuse_single_rows(job: Job, module: nn.Module, federation: Federation) -> None:
    """Where batches or clients of one row cannot be trained on."""
    small = [
        name
        for name, rows in zip(federation.clients, federation.train_rows, strict=True)
        if len(rows) < 2 and name not in job.train.exclude
    ]
    if (job.train.batch_size > 1 and not small) or not needs_company(module, federation.x[0]):
        return
    if job.train.batch_size == 1:
        raise JobError(
            "train.batch_size = 1: this model normalises over a batch, which takes at least two rows; take a "
            'batch_size of 2 or more, or model.norm = "group"'
        )
    others = f", as do {len(small) - 1} more" if len(small) > 1 else ""
    raise JobError(
        f"client {small[0]!r} trains on one row{others}: this model normalises over a batch, which takes at least two; "
        'raise data.min_rows, lower data.holdout, or take model.norm = "group"'
    )
