"""Gradients of sampled steps: one hook for all optimizers of the process, installed while somebody watches.

The hook finds the watching client by the first parameter of the optimizer that is about to step. Norms stay on the
device until the participation is summarised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from fedvitals.capture.governor import Governor
from fedvitals.capture.tensors import Flattener, summarise

_lock = threading.Lock()
_watched: dict[int, GradientProbe] = {}
_handle: Any = None


class GradientProbe:
    """Watches one model through one participation."""

    def __init__(self, model: nn.Module, governor: Governor, blame: Callable[[str, Exception], None]) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._names = [name for name, p in model.named_parameters() if p.requires_grad]
        self._governor = governor
        self._blame = blame
        self.steps_seen = 0
        self.sampled: list[int] = []
        self._norms: list[Tensor] = []
        self._full: list[Any] = []

    def __enter__(self) -> GradientProbe:
        global _handle
        with _lock:
            for parameter in self._parameters:
                _watched[id(parameter)] = self
            if _handle is None and self._parameters:
                _handle = register_optimizer_step_pre_hook(_before_step)
        return self

    def __exit__(self, *_: object) -> None:
        global _handle
        with _lock:
            for parameter in self._parameters:
                if _watched.get(id(parameter)) is self:
                    del _watched[id(parameter)]
            if not _watched and _handle is not None:
                _handle.remove()
                _handle = None

    def step(self) -> None:
        """Called before each optimizer step of the watched model."""
        number = self.steps_seen
        self.steps_seen += 1
        if self._governor.wants(number):
            try:
                self._sample(number)
            except Exception as error:
                self._blame("gradient sample", error)

    @torch.no_grad()
    def _sample(self, number: int) -> None:
        gradients = [p.grad for p in self._parameters]
        if all(g is None for g in gradients):
            return
        present = [
            g if g is not None else torch.zeros_like(p) for g, p in zip(gradients, self._parameters, strict=True)
        ]
        if self._governor.whole_statistics:
            flattener = Flattener(dict(zip(self._names, present, strict=True)))
            rows = flattener.row(dict(zip(self._names, present, strict=True))).unsqueeze(0)
            self._full.append(summarise(rows, flattener.layout).stats[0])
        else:
            # The one call that takes all norms at once; a loop of `.norm()` costs several times as much.
            self._norms.append(torch.stack([n.float() for n in torch._foreach_norm(present)]))
        self.sampled.append(number)

    def results(self) -> tuple[list[str], list[int], Any]:
        """Names of the layers, the sampled steps, and their statistics [steps, layers, fields] on the host."""
        if self._full:
            import numpy as np

            return self._names, self.sampled, np.stack(self._full)
        if not self._norms:
            return self._names, [], None
        return self._names, self.sampled, torch.stack(self._norms).cpu().numpy()[..., None]


def _before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    groups = optimizer.param_groups
    if groups and groups[0]["params"]:
        probe = _watched.get(id(groups[0]["params"][0]))
        if probe is not None:
            probe.step()
