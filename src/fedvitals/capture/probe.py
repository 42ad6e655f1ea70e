"""Gradients of sampled steps: one hook for all optimizers of the process, installed while somebody watches.

The hook finds the watching client by the first parameter of the optimizer that is about to step and that somebody
watches. It runs at every step, so it only counts, until the step comes that is to be looked at. Norms stay on the
device until the participation is summarised.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from fedvitals.capture.governor import Governor
from fedvitals.capture.tensor_bytes import TensorBytes, count
from fedvitals.capture.tensors import Flattener, norms_of, summarise

if TYPE_CHECKING:
    from fedvitals.capture.recorder import Recorder

PATIENCE = 32  # steps after which the governor, who may have changed his mind, is asked again

_lock = threading.Lock()
_watched: dict[int, GradientProbe] = {}  # by the id of a parameter, which the probe keeps alive
_handle: Any = None
_holders = 0  # who need the hook


class Probes:
    """Those of one run. The hook stays until the run is over: putting it in for each client costs more than it does."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._lock = threading.Lock()
        self._holds = self._over = False

    def watching(self, model: nn.Module, layers: Flattener | None = None) -> GradientProbe:
        """A new one, for a participation that begins to train this model; its layers are those of the round's."""
        owner = self._recorder
        with self._lock:
            if not self._holds and not self._over:  # who comes after the run has a hook no longer than the probe
                self._holds = True
                _hold()
        names = None if layers is None else layers.names_by_order(model)
        counts = owner.tensors.due()
        return GradientProbe(model, owner.governor, owner.trouble, counts=counts, of=self, names=names).__enter__()

    def close(self) -> None:
        """The run is over, and so is the watching of clients whose sessions nobody ended."""
        with _lock:
            left = {probe for probe in _watched.values() if probe.of is self}
        for probe in left:
            probe.__exit__(None, None, None)
        with self._lock:
            self._over = True
            if self._holds:
                self._holds = False
                _let_go()


class GradientProbe:
    """Watches one model through one participation. With `counts` it finds out once what the model's tensors take."""

    def __init__(
        self,
        model: nn.Module,
        governor: Governor,
        blame: Callable[[str, Exception], None],
        *,
        counts: bool = False,
        of: Probes | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.of = of
        self._watching = False
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        self._names = [name for name, _ in named] if names is None else [names.get(name, name) for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        self._governor = governor
        self._blame = blame
        self.steps: dict[int, int] = {}  # taken so far, by the id of an optimizer's first parameter that is watched
        self._next = 0 if governor.mode != "off" else sys.maxsize  # the step that is sampled next, at the earliest
        self.due = 0 if counts else self._next  # and that there is anything to do at
        self.sampled: list[int] = []
        self._norms: list[Tensor] = []  # on the gradients' device
        self._full: list[Any] = []
        self._model = weakref.ref(model) if counts else None
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        self.tensor_bytes: TensorBytes | None = None

    @property
    def steps_seen(self) -> int:
        """Optimizer steps. Optimizers that share the model's parameters among them take a step together."""
        return max(self.steps.values(), default=0)

    def __enter__(self) -> GradientProbe:
        _hold()
        with _lock:
            self._watching = True
            for parameter in self._parameters:
                _watched[id(parameter)] = self
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            if not self._watching:  # the run was over first
                return
            self._watching = False
            for parameter in self._parameters:
                if _watched.get(id(parameter)) is self:
                    del _watched[id(parameter)]
        _let_go()
        if self._model is not None:
            self._count(self._model)  # it took one step, or none
        self._parameters = []  # with their gradients, they are not ours to keep alive until the samples are written

    def look(self, number: int, optimizer: torch.optim.Optimizer) -> None:
        """Before a step that is due: at its gradients, unless the governor wants others, and at its optimizer."""
        if self._model is not None:
            self._meet(number, optimizer, self._model)
        if number < self._next or not self._governor.wants(number if self.sampled else 0):
            return  # at least one step of each is wanted: the first with gradients
        began = time.perf_counter_ns()
        try:
            self._sample(number)
        except Exception as error:
            self._blame("gradient sample", error)
            self._next = number + PATIENCE  # the next ones would fail as this one did
            if self._model is None:
                self.due = self._next
        self._governor.spent_ns += time.perf_counter_ns() - began

    def _meet(self, number: int, optimizer: torch.optim.Optimizer, model: weakref.ref[nn.Module]) -> None:
        """An optimizer has its state after its first step; the gradients of the second are there by then."""
        if number == 0:
            self._optimizers.append(weakref.ref(optimizer))
        else:
            self._count(model)

    def _count(self, model: weakref.ref[nn.Module]) -> None:
        self._model, self.due = None, self._next
        began = time.perf_counter_ns()
        try:
            known = model()
            if known is not None:
                self.tensor_bytes = count(known, [one for each in self._optimizers if (one := each()) is not None])
        except Exception as error:
            self._blame("tensor bytes", error)
        self._governor.spent_ns += time.perf_counter_ns() - began

    def _sample(self, number: int) -> None:
        gradients = [parameter.grad for parameter in self._parameters]
        present = [gradient for gradient in gradients if gradient is not None]
        if not present:
            return
        if len(present) < len(gradients):
            pairs = zip(gradients, self._parameters, strict=True)
            present = [torch.zeros_like(p, requires_grad=False) if g is None else g for g, p in pairs]
        if self._governor.whole_statistics:
            whole = [one if one.layout is torch.strided else one.to_dense() for one in present]
            named = dict(zip(self._names, whole, strict=True))
            flattener = Flattener(named)
            self._full.append(summarise(flattener.row(named).unsqueeze(0), flattener.layout).stats[0])
        else:
            self._norms.append(norms_of(present))
        self.sampled.append(number)
        self._next = number + min(self._governor.stride, PATIENCE)
        if self._model is None:
            self.due = self._next

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
            first = id(parameter)
            probe = _watched.get(first)
            if probe is not None:
                number = probe.steps.get(first, 0)
                probe.steps[first] = number + 1
                if number >= probe.due:
                    probe.look(number, optimizer)
                return


def _hold() -> None:
    global _handle, _holders
    with _lock:
        _holders += 1
        if _handle is None:
            _handle = register_optimizer_step_pre_hook(_before_step)


def _let_go() -> None:
    global _handle, _holders
    with _lock:
        _holders -= 1
        if not _holders and _handle is not None:
            _handle.remove()
            _handle = None
