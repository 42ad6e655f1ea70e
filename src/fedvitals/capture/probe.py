"""Gradients of sampled steps: one hook for all optimizers of the process, installed while somebody watches.

The hook finds the watching client by the first parameter of the optimizer that is about to step and that somebody
watches. Norms stay on the device until the participation is summarised.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from fedvitals.capture.governor import Governor
from fedvitals.capture.tensor_bytes import TensorBytes, count
from fedvitals.capture.tensors import Flattener, norms_of, summarise

PATIENCE = 32  # steps after which the governor, who may have changed his mind, is asked again

_lock = threading.Lock()
_watched: dict[int, GradientProbe] = {}  # by the id of a parameter, which the probe keeps alive
_handle: Any = None


class GradientProbe:
    """Watches one model through one participation. With `counts` it finds out once what the model's tensors take."""

    def __init__(
        self, model: nn.Module, governor: Governor, blame: Callable[[str, Exception], None], *, counts: bool = False
    ) -> None:
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        self._names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        self._governor = governor
        self._blame = blame
        self._steps: dict[int, int] = {}
        self.sampled: list[int] = []
        self._next = 0  # the step that is looked at next, at the earliest
        self._norms: list[Tensor] = []  # on the gradients' device
        self._full: list[Any] = []
        self._model = weakref.ref(model)
        self._counts = counts
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        self.tensor_bytes: TensorBytes | None = None

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
        if self._counts and self.tensor_bytes is None:
            self._count()  # it took one step, or none
        self._parameters = []  # with their gradients, they are not ours to keep alive until the samples are written

    def step(self, first: int = 0, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Called before each step of an optimizer of the watched model; `first` tells such optimizers apart."""
        number = self._steps.get(first, 0)
        self._steps[first] = number + 1
        if number <= 1 and self._counts and optimizer is not None:
            if number == 0:
                self._optimizers.append(weakref.ref(optimizer))
            else:  # an optimizer has its state after its first step; the gradients of the second are there by now
                self._count()
        if number < self._next:
            return  # nearly always: this runs at every step
        if self._governor.wants(number if self.sampled else 0):  # at least one step of each: the first with gradients
            began = time.perf_counter_ns()
            try:
                self._sample(number)
            except Exception as error:
                self._blame("gradient sample", error)
            self._governor.spent_ns += time.perf_counter_ns() - began

    def _count(self) -> None:
        began = time.perf_counter_ns()
        try:
            model = self._model()
            if model is not None:
                self.tensor_bytes = count(model, [one for known in self._optimizers if (one := known()) is not None])
        except Exception as error:
            self._blame("tensor bytes", error)
        self._governor.spent_ns += time.perf_counter_ns() - began

    @torch.no_grad()
    def _sample(self, number: int) -> None:
        gradients = [parameter.grad for parameter in self._parameters]
        present = [gradient for gradient in gradients if gradient is not None]
        if not present:
            return
        if len(present) < len(gradients):
            pairs = zip(gradients, self._parameters, strict=True)
            present = [torch.zeros_like(p) if g is None else g for g, p in pairs]
        if self._governor.whole_statistics:
            named = dict(zip(self._names, present, strict=True))
            flattener = Flattener(named)
            self._full.append(summarise(flattener.row(named).unsqueeze(0), flattener.layout).stats[0])
        else:
            self._norms.append(norms_of(present))
        self.sampled.append(number)
        self._next = number + min(self._governor.stride, PATIENCE)

    def results(self) -> tuple[list[str], list[int], Any]:
        """Names of the layers, the sampled steps, and their statistics [steps, layers, fields] on the host."""
        if self._full:
            import numpy as np

            return self._names, self.sampled, np.stack(self._full)
        if not self._norms:
            return self._names, [], None
        return self._names, self.sampled, torch.stack(self._norms).cpu().numpy()[..., None]


def _before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            probe = _watched.get(id(parameter))
            if probe is not None:
                probe.step(id(parameter), optimizer)
                return
