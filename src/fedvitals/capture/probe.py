"""Gradients of sampled steps: one hook for all optimizers of the process, installed while somebody watches.

The hook finds the watching client by the first parameter of the optimizer that is about to step and that somebody
watches. Norms stay on the device until the participation is summarised.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from fedvitals.capture.governor import Governor
from fedvitals.capture.tensors import Flattener, summarise

HALVES = (torch.float16, torch.bfloat16)

_lock = threading.Lock()
_watched: dict[int, GradientProbe] = {}  # by the id of a parameter, which the probe keeps alive
_handle: Any = None


class GradientProbe:
    """Watches one model through one participation."""

    def __init__(self, model: nn.Module, governor: Governor, blame: Callable[[str, Exception], None]) -> None:
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        self._names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        self._governor = governor
        self._blame = blame
        self._steps: Counter[int] = Counter()
        self.sampled: list[int] = []
        self._norms: list[Tensor] = []
        self._full: list[Any] = []

    @property
    def steps_seen(self) -> int:
        """Optimizer steps. Optimizers that share the model's parameters among them take a step together."""
        return max(self._steps.values(), default=0)

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

    def step(self, first: int = 0) -> None:
        """Called before each step of an optimizer of the watched model; `first` tells such optimizers apart."""
        number = self._steps[first]
        self._steps[first] = number + 1
        if self._is_due(number):
            began = time.perf_counter_ns()
            try:
                self._sample(number)
            except Exception as error:
                self._blame("gradient sample", error)
            self._governor.spent_ns += time.perf_counter_ns() - began

    def _is_due(self, number: int) -> bool:
        if not self.sampled:  # at least one step of each participation: the first that has gradients
            return self._governor.wants(0)
        return number > self.sampled[-1] and self._governor.wants(number)

    @torch.no_grad()
    def _sample(self, number: int) -> None:
        gradients = [p.grad for p in self._parameters]
        if all(g is None for g in gradients):
            return
        present = [
            g if g is not None else torch.zeros_like(p) for g, p in zip(gradients, self._parameters, strict=True)
        ]
        if self._governor.whole_statistics:
            named = dict(zip(self._names, present, strict=True))
            flattener = Flattener(named)
            self._full.append(summarise(flattener.row(named).unsqueeze(0), flattener.layout).stats[0])
        else:
            self._norms.append(_norms(present))
        self.sampled.append(number)

    def results(self) -> tuple[list[str], list[int], Any]:
        """Names of the layers, the sampled steps, and their statistics [steps, layers, fields] on the host."""
        if self._full:
            import numpy as np

            return self._names, self.sampled, np.stack(self._full)
        if not self._norms:
            return self._names, [], None
        return self._names, self.sampled, torch.stack(self._norms).cpu().numpy()[..., None]


def _norms(gradients: list[Tensor]) -> Tensor:
    """The norm of each. One call takes all at once; a loop of `.norm()` costs several times as much."""
    # A half overflows at 65,504, and a norm that is infinite for that alone would be called a bad step.
    wide = [g.float() if g.dtype in HALVES else g for g in gradients]
    device = wide[0].device
    return torch.stack([norm.to(device=device, dtype=torch.float32) for norm in torch._foreach_norm(wide)])


def _before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            probe = _watched.get(id(parameter))
            if probe is not None:
                probe.step(id(parameter))
                return
