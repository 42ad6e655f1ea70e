"""GRUs with a client axis (Cho et al. 2014, in torch's form). The backward pass is autograd's: the loop over time costs
more than its bookkeeping."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedvitals.train.flat import FlatModel
from fedvitals.train.models import SequenceGRU, TokenGRU


class BatchedGRU:
    """TokenGRU and SequenceGRU, of one layer and one direction."""

    how = "hand-batched GRU"

    def __init__(self, model: FlatModel) -> None:
        module = model.module
        assert isinstance(module, TokenGRU | SequenceGRU)
        self._parts = {layer.name: (part, layer.shape) for layer, part in zip(model.layers, model.slices, strict=True)}
        self._tokens = isinstance(module, TokenGRU)
        self._hidden = module.gru.hidden_size

    def prepared(self, x: Tensor) -> Tensor:
        return x

    def losses_and_gradient(
        self, weights: Tensor, gradient: Tensor, x: Tensor, y: Tensor, share: Tensor | float
    ) -> Tensor:
        with torch.enable_grad():
            leaf = weights.detach().requires_grad_()
            logits = self._logits(leaf, x)
            each = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view(y.shape)
            weighted = each * share if isinstance(share, float) else torch.where(share > 0, each * share, 0.0)
            losses = weighted.sum(1)
            (found,) = torch.autograd.grad(losses.sum(), leaf)
        gradient.copy_(found)
        return losses.detach()

    def _logits(self, weights: Tensor, x: Tensor) -> Tensor:
        inputs = self._embedded(weights, x) if self._tokens else x
        state = self._last_state(weights, inputs)
        head = self._view(weights, "head.weight").transpose(1, 2)
        return torch.baddbmm(self._view(weights, "head.bias").unsqueeze(1), state, head)

    def _embedded(self, weights: Tensor, tokens: Tensor) -> Tensor:
        """One table of all clients' vectors, with each client's tokens moved to its own part of it."""
        table = self._view(weights, "embedding.weight")
        clients, words, _ = table.shape
        own = torch.arange(clients, device=tokens.device).view(-1, 1, 1) * words
        return F.embedding(tokens + own, table.flatten(0, 1))

    def _last_state(self, weights: Tensor, inputs: Tensor) -> Tensor:
        clients, rows, length, features = inputs.shape
        into = self._view(weights, "gru.weight_ih_l0").transpose(1, 2)
        again = self._view(weights, "gru.weight_hh_l0").transpose(1, 2)
        bias_in = self._view(weights, "gru.bias_ih_l0").unsqueeze(1)
        bias = self._view(weights, "gru.bias_hh_l0").unsqueeze(1)
        seen = torch.baddbmm(bias_in, inputs.reshape(clients, rows * length, features), into)
        steps = seen.view(clients, rows, length, -1).unbind(2)
        state = torch.zeros(clients, rows, self._hidden)
        gates = 2 * self._hidden
        for now in steps:
            before = torch.baddbmm(bias, state, again)
            reset, update = torch.sigmoid(now[..., :gates] + before[..., :gates]).chunk(2, dim=-1)
            new = torch.tanh(now[..., gates:] + reset * before[..., gates:])
            state = new + update * (state - new)
        return state

    def _view(self, weights: Tensor, name: str) -> Tensor:
        part, shape = self._parts[name]
        return weights[:, part].view(len(weights), *shape)
