"""One client after the other, in this process: the plain way, and what the others are held against."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedvitals.capture.failures import message_of, traceback_of
from fedvitals.capture.resources import peak_rss_bytes
from fedvitals.capture.tensors import measuring
from fedvitals.faults.work import LocalWork
from fedvitals.randomness import torch_seed
from fedvitals.train.device import NOMINAL
from fedvitals.train.federation import Federation
from fedvitals.train.flat import FlatModel
from fedvitals.train.lone_rows import needs_company
from fedvitals.train.orders import batch_orders
from fedvitals.train.precision import scores_of
from fedvitals.train.pruning import held_still, prunable
from fedvitals.train.recompute import recompute_activations
from fedvitals.train.sections import TrainSpec
from fedvitals.train.sgd import LocalSGD
from fedvitals.train.threads import made_on
from fedvitals.train.trained import Failed, SampledStep, Trained

DETERMINISTIC = (
    nn.Sequential,
    nn.Flatten,
    nn.Linear,
    nn.ReLU,
    nn.Tanh,
    nn.Conv2d,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.Embedding,
    nn.GRU,
)
_leaked: list[Tensor] = []  # what the fault `memory-leak` holds on to


class ClientCrashError(RuntimeError):
    """What the fault `crash` raises."""


class LocalTrainer:
    """Trains single clients on a model of its own."""

    def __init__(
        self, module: nn.Module, federation: Federation, spec: TrainSpec, seed: int, *, full_steps: bool
    ) -> None:
        self.model = FlatModel(module)
        self._federation = federation
        self._spec = spec
        self._seed = seed
        self._sgd = LocalSGD.of(spec, self.model.trainable)
        self._measured_gradient = measuring(self.model.gradient, self.model.flattener.layout, full=full_steps)
        self._draws = draws_random_numbers(module)
        self._in_company = needs_company(module, federation.x[0])
        if spec.checkpoint:
            recompute_activations(module, draws=self._draws)
        self._scores = scores_of(module, spec.precision)
        self._trainable = [i for i, layer in enumerate(self.model.layers) if layer.trainable]
        self._counted = bool(self.model.integers)

    def attempt(self, work: LocalWork, weights: Tensor, integers: Mapping[str, Tensor]) -> Trained | Failed:
        """Train one client; whatever it raises becomes a Failed."""
        start_ns = time.perf_counter_ns()
        try:
            if work.silent_s > 0:
                return _silent(work, start_ns)
            return self._train(work, weights, integers, start_ns)
        except Exception as error:
            kind, message, text = type(error).__name__, message_of(error), traceback_of(error)
            return Failed(work, "train", kind, message, text, start_ns, time.perf_counter_ns())

    def _train(self, work: LocalWork, weights: Tensor, integers: Mapping[str, Tensor], start_ns: int) -> Trained:
        if work.error is not None:
            raise ClientCrashError(work.error)
        if not self._draws:
            return self._steps(work, weights, integers, start_ns)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(torch_seed(self._seed, "training", work.name, work.attempt))
            return self._steps(work, weights, integers, start_ns)

    def _steps(self, work: LocalWork, weights: Tensor, integers: Mapping[str, Tensor], start_ns: int) -> Trained:
        model, gradient = self.model, self.model.gradient
        model.gather()  # of a client that failed in the middle
        with torch.no_grad():
            model.weights.copy_(weights)
            gradient.zero_()
        model.load_integers(integers)
        model.module.train()
        velocity = self._sgd.velocity(gradient)
        still = held_still(weights, prunable(model)) if work.pruned else None
        losses: list[Tensor] = []
        sampled: list[SampledStep] = []
        wanted = set(work.sample_steps)
        load_ns = 0
        for rows in self._batches(work):
            if work.zero_grad:
                gradient.zero_()
            loss, loading_ns = self._backward(work, rows)
            load_ns += loading_ns
            with torch.no_grad():
                self._hold_frozen(work)
                if still is not None:
                    gradient.mul_(still)
                if len(losses) in wanted:
                    sampled.append(SampledStep(len(losses), (0,), self._measured_gradient()))
                moving = gradient if work.zero_grad else gradient.clone()  # what piles up is left as it is
                self._sgd.step(model.weights, moving, velocity, weights, work.lr)
                for part in self.frozen_parts(work):
                    model.weights[part] = weights[part]  # weight decay would move it
            losses.append(loss)
        return self._finished(work, weights, losses, tuple(sampled), start_ns, load_ns)

    def _backward(self, work: LocalWork, rows: Tensor) -> tuple[Tensor, int]:
        """Add the gradient of these rows' mean loss to what is there; the loss, and the nanoseconds of loading."""
        if self._spec.accumulate == 1:
            return self._backward_at_once(work, rows, 1.0)
        total, load_ns = torch.zeros(()), 0
        for some in torch.split(rows, self._spec.batch_size):
            loss, loading_ns = self._backward_at_once(work, some, len(some) / len(rows))
            total, load_ns = total + loss, load_ns + loading_ns
        return total, load_ns

    def _backward_at_once(self, work: LocalWork, rows: Tensor, share: float) -> tuple[Tensor, int]:
        """The same of rows that have this share in their step."""
        began = time.perf_counter_ns()
        x, y = self._rows(work, rows)
        load_ns = time.perf_counter_ns() - began
        loss = F.cross_entropy(self._scores(x), y)
        if share != 1.0:
            loss = loss * share
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return loss.detach(), load_ns

    def _batches(self, work: LocalWork) -> Iterator[Tensor]:
        """Row numbers of each step, into the client's own rows."""
        own = len(work.y) if work.y is not None else len(self._federation.train_rows[work.client])
        order = torch.from_numpy(batch_orders(self._seed, [work], [own], self._spec.epochs)[0])
        size, usable = self._spec.step_rows, self._usable(own, work)
        for epoch in order:
            for start in range(0, usable, size):
                yield epoch[start : min(start + size, usable)]

    def _usable(self, own: int, work: LocalWork) -> int:
        """How many of its own rows a client gets to in an epoch."""
        size = self._spec.step_rows
        if work.drop_last and own > size:
            return own - own % size
        return own - 1 if self._in_company and own > 1 and own % self._spec.batch_size == 1 else own

    def _rows(self, work: LocalWork, rows: Tensor) -> tuple[Tensor, Tensor]:
        if work.x is not None and work.y is not None:
            x, y = work.x[rows], work.y[rows]
        else:
            mine = self._federation.train_rows[work.client][rows]
            x, y = self._federation.x[mine], self._federation.y[mine]
        return (x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x), y

    def frozen_parts(self, work: LocalWork) -> list[slice]:
        """Where the layers lie that stand still for this client."""
        return [self.model.slices[self._trainable[number]] for number in work.frozen]

    def _hold_frozen(self, work: LocalWork) -> None:
        for part in self.frozen_parts(work):
            self.model.gradient[part] = 0.0

    def _finished(
        self,
        work: LocalWork,
        weights: Tensor,
        losses: list[Tensor],
        sampled: tuple[SampledStep, ...],
        start_ns: int,
        load_ns: int,
    ) -> Trained:
        self.model.gather()
        update = (self.model.weights - weights).unsqueeze(0)
        told = torch.stack(losses).unsqueeze(0).numpy() if losses else np.empty((1, 0), np.float32)
        own = len(work.y) if work.y is not None else len(self._federation.train_rows[work.client])
        train_s = (time.perf_counter_ns() - start_ns - load_ns) / 1e9
        phases_s, more_s = slowed(work, train_s, load_ns / 1e9, update.nbytes)
        if more_s > 0:
            time.sleep(more_s)
        leak(work)
        peak = peak_rss_bytes()  # with what it keeps
        end_ns = time.perf_counter_ns()
        # To the last instant: what the machine held it up after its training is nobody's phase.
        phases_s["other"] = max((end_ns - start_ns) / 1e9 - sum(phases_s.values()), 0.0)
        return Trained(
            works=(work,),
            updates=update,
            losses=told,
            steps=np.array([len(losses)]),
            samples=np.array([own]),
            phases_s={phase: np.array([seconds]) for phase, seconds in phases_s.items()},
            start_ns=[start_ns],
            end_ns=[end_ns],
            sampled=sampled,
            integers=(self.model.integers,) if self._counted else (),
            peak_memory_bytes=peak,
            slots=[0],
        )


class SequentialExecutor:
    """The local trainer, client after client."""

    name = "sequential"

    def __init__(self, trainer: LocalTrainer, threads: int = 1) -> None:
        self._trainer = trainer
        self._threads = threads  # as many as a worker would have: else its last bits would be others

    def run(
        self, works: Sequence[LocalWork], weights: Tensor, integers: Mapping[str, Tensor]
    ) -> Iterator[Trained | Failed]:
        return made_on(self._threads, (self._trainer.attempt(work, weights, integers) for work in works))

    def close(self) -> None:
        """Nothing is held beyond memory."""


def is_slow(work: LocalWork) -> bool:
    """Whether its device, disk or link is slower than it would be."""
    return max(work.compute_factor, work.load_factor, work.link_factor) > 1.0


def slowed(work: LocalWork, train_s: float, load_s: float, size_bytes: int) -> tuple[dict[str, float], float]:
    """What a slow device, disk and link make of measured seconds and an update of so many bytes, by phase; and how much
    longer that is, to be waited for in earnest. Where a codec makes a message of the update, its bytes count."""
    size_bytes = work.message_bytes or size_bytes
    more_train = max(work.compute_factor - 1.0, 0.0) * train_s
    more_load = max(work.load_factor - 1.0, 0.0) * train_s
    link = NOMINAL.upload_s(size_bytes, max(work.link_factor, 1.0)) - NOMINAL.upload_s(size_bytes)
    phases_s = {"train": train_s + more_train, "load": load_s + more_load, "upload": link}
    return phases_s, more_train + more_load + link


def leak(work: LocalWork) -> None:
    """Hold on to what this participation keeps for good."""
    if work.leak_bytes:
        _leaked.append(torch.ones(work.leak_bytes, dtype=torch.uint8))


def _silent(work: LocalWork, start_ns: int) -> Failed:
    time.sleep(work.silent_s)
    return Failed(work, "wait", "timeout", unanswered(work), None, start_ns, time.perf_counter_ns())


def unanswered(work: LocalWork) -> str:
    """What is said of a client that the server gave up on."""
    return f"no answer within {work.silent_s:g} s"


def draws_random_numbers(module: nn.Module) -> bool:
    """Whether a forward pass may draw random numbers: dropout does, and nobody knows of a user's own layer."""
    return any(type(part) not in DETERMINISTIC and not _own_model(part) for part in module.modules())


def _own_model(part: nn.Module) -> bool:
    return type(part).__module__ == "fedvitals.train.models"
