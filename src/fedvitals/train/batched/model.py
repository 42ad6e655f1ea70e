"""From a module to its batched version: by hand for chains of known layers, by `torch.func` for the rest."""

from __future__ import annotations

import copy
from typing import Protocol

import torch
from torch import Tensor, nn

from fedvitals.train.batched.chain import chain_of
from fedvitals.train.flat import FlatModel
from fedvitals.train.models import SequenceGRU, TokenGRU


class Unbatchable(Exception):  # noqa: N818  # it is an answer, not an error: the reason is shown to the user
    """A model that cannot be trained as a batch of clients, and why."""


class BatchedModel(Protocol):
    """A model of many clients."""

    how: str

    def prepared(self, x: Tensor) -> Tensor:
        """Rows [rows, ...] as the model takes them: what can be done with them once, before any training."""

    def losses_and_gradient(
        self, weights: Tensor, gradient: Tensor, x: Tensor, y: Tensor, share: Tensor | float
    ) -> Tensor:
        """Mean loss of each client [clients]; the gradient is written to `gradient` [clients, size]. `x` are prepared
        rows [clients, rows, ...], and may be written to."""


def batched_model(model: FlatModel, row: Tensor) -> BatchedModel:
    """The batched version of this model; Unbatchable with the reason when there is none. `row` is one of the data's."""
    _refuse_what_cannot_be(model.module)
    chain = chain_of(model)
    if chain is not None and _trouble(chain, model, row) is None:
        return chain
    if type(model.module) in (TokenGRU, SequenceGRU) and model.trainable is None:
        from fedvitals.train.batched.recurrent import BatchedGRU

        return BatchedGRU(model)
    from fedvitals.train.batched.functional import Vmapped

    mapped = Vmapped(model)
    trouble = _changing_buffer(model.module, row) or _trouble(mapped, model, row)
    if trouble is not None:
        raise Unbatchable(trouble)
    return mapped


def _trouble(batched: BatchedModel, model: FlatModel, row: Tensor) -> str | None:
    """Two clients with one row: what cannot be done shows here, and not in the middle of a round."""
    weights = model.weights.expand(2, -1).clone()
    try:
        with torch.no_grad():
            batched.losses_and_gradient(
                weights,
                torch.zeros_like(weights),
                batched.prepared(row.expand(2, *row.shape).clone()).unsqueeze(1),
                torch.zeros(2, 1, dtype=torch.int64),
                1.0,
            )
    except Exception as error:
        return f"{batched.how} cannot run it ({type(error).__name__}: {str(error)[:200]})"
    return None


def _changing_buffer(module: nn.Module, row: Tensor) -> str | None:
    """A buffer that the forward pass writes to is each client's own; what `vmap` makes of it would be lost."""
    trial = copy.deepcopy(module).train()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            trial(row.expand(2, *row.shape).clone())
    except Exception:
        return None  # whatever it is, it is not a matter of batches
    before = dict(module.named_buffers())
    changed = [name for name, buffer in trial.named_buffers() if not torch.equal(buffer, before[name])]
    return f"its forward pass writes to the buffer {changed[0]}, which each client has of its own" if changed else None


def _refuse_what_cannot_be(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise Unbatchable("TorchScript runs with the parameters that it has, and none can be put in their place")
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise Unbatchable("batch normalisation keeps running statistics, which each client must update on its own")
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            raise Unbatchable("dropout draws each client's masks from that client's own random numbers")
