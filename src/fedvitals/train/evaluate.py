"""Judging a model: mean cross-entropy and accuracy, over some rows or over many clients' rows in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCH = 4096


def evaluate(model: nn.Module, x: Tensor, y: Tensor, rows: Tensor, batch: int = BATCH) -> tuple[float, float]:
    """Loss and accuracy on these rows; NaN for none. A row whose logits are not finite counts as wrong."""
    if len(rows) == 0:
        return float("nan"), float("nan")
    losses, hits = _judged(model, x, y, rows, batch)
    return float(losses.mean()), float(hits.mean())


def evaluate_groups(
    model: nn.Module, x: Tensor, y: Tensor, groups: Sequence[Tensor], batch: int = BATCH
) -> tuple[Tensor, Tensor]:
    """Loss and accuracy [groups] float64 on each group's rows, which may overlap; NaN for an empty group."""
    sizes = torch.tensor([len(rows) for rows in groups], dtype=torch.int64, device=x.device)
    sums = torch.zeros(2, len(groups), dtype=torch.float64, device=x.device)
    if int(sizes.sum()) > 0:
        owner = torch.repeat_interleave(torch.arange(len(groups), device=x.device), sizes)
        sums.index_add_(1, owner, torch.stack(_judged(model, x, y, torch.cat(list(groups)), batch)))
    losses, accuracies = sums / sizes  # 0 / 0 is the NaN of an empty group
    return losses, accuracies


def _judged(model: nn.Module, x: Tensor, y: Tensor, rows: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """Each row's loss and whether it was right, in float64."""
    losses, hits = [], []
    with _evaluating(model), torch.inference_mode():
        for some in torch.split(rows, batch):
            logits, wanted = model(x[some]).float(), y[some]
            losses.append(F.cross_entropy(logits, wanted, reduction="none"))
            hits.append((logits.argmax(dim=1) == wanted) & logits.isfinite().all(dim=1))
        return torch.cat(losses).double(), torch.cat(hits).double()


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, and afterwards every part back in the mode that it had."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
