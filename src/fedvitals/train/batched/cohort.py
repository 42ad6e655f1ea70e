"""A cohort as one program of torch's: weights stacked on a client axis, unequal clients padded and masked."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedvitals.capture.tensors import gradient_statistics
from fedvitals.faults.work import LocalWork
from fedvitals.train.batched.model import batched_model
from fedvitals.train.batched.schedule import Schedule, Step, most_steps_first
from fedvitals.train.federation import Federation
from fedvitals.train.local import LocalTrainer
from fedvitals.train.pruning import held_still, prunable
from fedvitals.train.sections import TrainSpec
from fedvitals.train.sgd import LocalSGD
from fedvitals.train.trained import Learnt, SampledStep

PREPARED_BYTES = 256 * 2**20  # of rows that are kept as the model takes them, beside the rows themselves


class HandBatched:
    """Trains many clients at once, whatever a fault does to them. `local` lends its model."""

    def __init__(
        self, local: LocalTrainer, federation: Federation, spec: TrainSpec, seed: int, *, full_steps: bool
    ) -> None:
        self._local = local
        self._federation = federation
        self._spec = spec
        self._seed = seed
        self._full_steps = full_steps
        self._model = batched_model(local.model, federation.x[0])
        self._sgd = LocalSGD.of(spec, local.model.trainable)
        self._layout = local.model.flattener.layout
        self._rows = [rows.numpy() for rows in federation.train_rows]
        self._x = self._prepared_once()
        self._memory: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def how(self) -> str:
        return self._model.how

    @torch.no_grad()
    def train(self, works: Sequence[LocalWork], counts: Sequence[int], received: Tensor) -> Learnt:
        """Train these clients, which have so many rows each."""
        order = most_steps_first(works, counts, self._spec.step_rows)
        works, counts = [works[i] for i in order], [counts[i] for i in order]
        rows = [None if w.y is not None else self._rows[w.client] for w in works]
        schedule = Schedule(self._seed, works, rows, counts, self._spec.epochs, self._spec.step_rows)
        batch = _Batch(self, works, received, schedule)
        for number in range(len(schedule)):
            batch.step(number)
        losses = batch.losses.t().contiguous().numpy()
        return Learnt(order, batch.weights - batch.received, losses, schedule.steps, tuple(batch.sampled))

    def _prepared_once(self) -> Tensor | None:
        """All rows as the model takes them, where they take little memory; else each batch is prepared by itself."""
        x = self._federation.x
        grows = self._model.prepared(x[:1]).numel() / max(x[:1].numel(), 1)
        return self._model.prepared(x) if grows * x.nbytes <= PREPARED_BYTES else None

    def rows(self, numbers: Tensor) -> Tensor:
        """These rows of the federation as the model takes them."""
        if self._x is None:
            return self._model.prepared(self._federation.x.index_select(0, numbers))
        return self._x.index_select(0, numbers)

    def matrices(self, clients: int, size: int) -> tuple[Tensor, Tensor]:
        """Weights and gradients of a batch, kept from round to round: fresh memory costs page faults."""
        if clients not in self._memory:
            self._memory = {clients: (torch.empty(clients, size), torch.zeros(clients, size))}
        return self._memory[clients]


class _Batch:
    """The state of one batch while it is trained."""

    def __init__(self, trainer: HandBatched, works: Sequence[LocalWork], received: Tensor, schedule: Schedule) -> None:
        self._trainer = trainer
        self._works = works
        self._schedule = schedule
        self.received = received
        self.weights, self._gradient = trainer.matrices(len(works), len(received))
        self.weights.copy_(received.expand_as(self.weights))
        self._velocity = trainer._sgd.velocity(self.weights)
        self.losses = torch.full((len(schedule), len(works)), float("nan"))
        self.sampled: list[SampledStep] = []
        self._wanted = frozenset(step for work in works for step in work.sample_steps)
        rates = {work.lr for work in works}
        self._lr: float | Tensor = rates.pop() if len(rates) == 1 else torch.tensor([[work.lr] for work in works])
        self._own_rows = [i for i, work in enumerate(works) if work.y is not None]
        self._piling = [i for i, work in enumerate(works) if not work.zero_grad]
        self._piled = torch.zeros(len(self._piling), len(received))
        pruned = any(work.pruned for work in works)
        self._still = held_still(received, prunable(trainer._local.model)) if pruned else None
        self._frozen = [(i, part) for i, work in enumerate(works) for part in trainer._local.frozen_parts(work)]

    def step(self, number: int) -> None:
        step = self._schedule.step(number)
        active = step.active
        weights, gradient = self.weights[:active], self._gradient[:active]
        self.losses[number, :active] = self._losses_and_gradient(step, weights, gradient)
        if self._still is not None:
            gradient.mul_(self._still)
        if self._piling or self._frozen:
            self._tampered(gradient)
        if number in self._wanted:
            self._sample(number, gradient)
        velocity = None if self._velocity is None else self._velocity[:active]
        lr = self._lr[:active] if isinstance(self._lr, Tensor) else self._lr
        self._trainer._sgd.step(weights, gradient, velocity, self.received, lr)
        for client, part in self._frozen:
            self.weights[client, part] = self.received[part]  # weight decay would move it

    def _losses_and_gradient(self, step: Step, weights: Tensor, gradient: Tensor) -> Tensor:
        model = self._trainer._model
        if self._trainer._spec.accumulate == 1:
            return model.losses_and_gradient(weights, gradient, *self._data(step), step.share)
        losses, total = torch.zeros(step.active), torch.zeros_like(gradient)
        for some in step.parts(self._trainer._spec.batch_size):
            losses += model.losses_and_gradient(weights, gradient, *self._data(some), some.share)
            total += gradient
        gradient.copy_(total)
        return losses

    def _data(self, step: Step) -> tuple[Tensor, Tensor]:
        federation, shape = self._trainer._federation, step.rows.shape
        numbers = step.rows.reshape(-1)
        x = self._trainer.rows(numbers)
        x = x.view(*shape, *x.shape[1:])
        y = federation.y.index_select(0, numbers).view(shape)
        for client in self._own_rows:
            if client < step.active:
                self._put_own_rows(client, step, x, y)
        return x, y

    def _put_own_rows(self, client: int, step: Step, x: Tensor, y: Tensor) -> None:
        work, rows = self._works[client], step.own[client]
        if work.x is None or work.y is None:
            return
        x[client], y[client] = self._trainer._model.prepared(work.x[rows]), work.y[rows]
        if isinstance(step.share, Tensor):
            x[client, step.share[client] == 0] = 0  # a spoilt row that only fills up must not spoil the batch

    def _tampered(self, gradient: Tensor) -> None:
        """What faults do to gradients: pile up, or stay zero."""
        for slot, client in enumerate(self._piling):
            if client < len(gradient):
                gradient[client] = self._piled[slot].add_(gradient[client])
        for client, part in self._frozen:
            if client < len(gradient):
                gradient[client, part] = 0.0

    def _sample(self, number: int, gradient: Tensor) -> None:
        stats = gradient_statistics(gradient, self._trainer._layout, full=self._trainer._full_steps)
        slots = [i for i in range(len(gradient)) if number in self._works[i].sample_steps]
        chosen = stats if len(slots) == len(gradient) else stats[slots]
        self.sampled.append(SampledStep(number, tuple(slots), chosen))
