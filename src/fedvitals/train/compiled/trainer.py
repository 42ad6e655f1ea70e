"""Many clients through the compiled trainer: what it is told, its threads, and what comes back.

Each client is trained by itself, so what becomes of it depends neither on the others nor on the number of threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from fedvitals.capture.tensors import gradient_statistics
from fedvitals.faults.work import LocalWork
from fedvitals.train.compiled.library import CLIENT, CohortStructure, LayerStructure, ProgramStructure, library
from fedvitals.train.compiled.program import Program
from fedvitals.train.federation import Federation
from fedvitals.train.orders import batch_orders, rows_reached
from fedvitals.train.sections import TrainSpec
from fedvitals.train.trained import Learnt, SampledStep
from fedvitals.vocabulary import Layout

ALIGNED = 64  # bytes: where a thread's room begins
QUICK = 2e10  # multiplications, about half a second's: for longer than that Ctrl-C is not kept waiting


class CompiledTrainer:
    """Trains clients of one federation by one program, on so many threads."""

    how = "compiled layers"

    def __init__(
        self,
        program: Program,
        federation: Federation,
        spec: TrainSpec,
        seed: int,
        layout: Layout,
        *,
        threads: int,
        full_steps: bool,
    ) -> None:
        self._program, self._spec, self._seed = program, spec, seed
        self._layout, self._full_steps = layout, full_steps
        places = [place for layer in program.layers for place in (layer.weight, layer.bias) if place >= 0]
        self._tensors = np.argsort(places)  # from the order in which norms are told to that of the layout
        self._in_order = sorted(places) == places
        self._features = federation.x[0].numel()
        self._x, self._y = self._checked(federation.x.contiguous(), federation.y.contiguous())
        self._numbers = [rows.contiguous() for rows in federation.train_rows]  # alive, so that they stay where they are
        self._numbers_at = np.array([rows.data_ptr() for rows in self._numbers], np.uint64)
        self._layers = (LayerStructure * len(program.layers))(*[layer.structure() for layer in program.layers])
        self._structure = ProgramStructure(
            layers=ctypes.addressof(self._layers),
            count=len(self._layers),
            size=program.size,
            classes=program.classes,
            epochs=spec.epochs,
            **{name: getattr(spec, name) for name in ("momentum", "weight_decay", "clip", "proximal")},
        )
        self._count = threads
        self._make_room(max((len(rows) for rows in federation.train_rows), default=0))
        self._threads: ThreadPoolExecutor | None = None

    @staticmethod
    def takes(work: LocalWork) -> bool:
        """Whether it can train this client: not where a fault changes its gradients, or weights are held still."""
        return work.zero_grad and not work.frozen and not work.pruned

    def train(self, works: Sequence[LocalWork], counts: Sequence[int], received: Tensor) -> Learnt:
        """Train these clients, which have so many rows each."""
        orders = batch_orders(self._seed, works, counts, self._spec.epochs)
        batch, pairs = self._spec.step_rows, zip(works, counts, strict=True)
        usable = np.array([rows_reached(work, rows, batch) for work, rows in pairs], np.int64)
        self._make_room(int(usable.max(initial=0)))
        steps = -(-usable // batch) * self._spec.epochs
        updates = torch.empty(len(works), self._program.size)
        losses = np.full((len(works), int(steps.max(initial=0))), np.nan, np.float32)
        wanted = _wanted(works, steps.tolist())
        asked = np.array([step for own in wanted for step in own], np.int64)
        gradients = torch.empty(len(asked) if self._full_steps else 0, self._program.size)
        norms = np.empty((0 if self._full_steps else len(asked), len(self._tensors)), np.float32)

        clients = np.zeros(len(works), CLIENT)
        each = np.arange(len(works), dtype=np.uint64)
        clients["x"], clients["y"] = self._x.data_ptr(), self._y.data_ptr()
        clients["numbers"] = self._numbers_at[[work.client for work in works]]
        clients["orders"] = orders.ctypes.data + each * orders.strides[0]
        clients["usable"], clients["lr"] = usable, [work.lr for work in works]
        clients["update"] = updates.data_ptr() + each * (4 * self._program.size)
        clients["losses"] = losses.ctypes.data + each * losses.strides[0]
        clients["samples"] = [len(own) for own in wanted]
        before = np.cumsum(clients["samples"]) - clients["samples"]
        clients["wanted"] = asked.ctypes.data + before * 8
        if self._full_steps:
            clients["gradients"] = gradients.data_ptr() + before * (4 * self._program.size)
        else:
            clients["norms"] = norms.ctypes.data + before * norms.strides[0]
        own_rows = self._put_own_rows(works, clients)
        received = received.contiguous()
        self._run(
            CohortStructure(
                program=ctypes.addressof(self._structure),
                received=received.data_ptr(),
                clients=clients.ctypes.data,
                count=len(works),
                order_length=orders.shape[2],
                features=self._features,
            ),
            3.0 * self._program.multiplications * int(usable.sum()) * self._spec.epochs,
        )
        del own_rows
        return Learnt(range(len(works)), updates, losses, steps, self._sampled(wanted, gradients, norms))

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    def _make_room(self, rows: int) -> None:
        """For steps of so many rows, where the job's are no smaller: what nobody has takes no memory."""
        rows = max(1, min(rows, self._spec.step_rows))
        if rows <= self._structure.batch:
            return
        self._structure.batch = rows
        room = library().fedvitals_trainer_room(ctypes.addressof(self._structure), self._features)
        self._rooms = [torch.empty(room + ALIGNED, dtype=torch.uint8) for _ in range(self._count)]
        self._places = [-(-room.data_ptr() // ALIGNED) * ALIGNED for room in self._rooms]

    def _put_own_rows(self, works: Sequence[LocalWork], clients: np.ndarray) -> list[tuple[Tensor, Tensor]]:
        """Clients that bring rows of their own; those must live until the training is over."""
        kept = []
        for place, work in enumerate(works):
            if work.x is not None and work.y is not None:
                x, y = self._checked(work.x.contiguous(), work.y.contiguous())
                clients[place]["x"], clients[place]["y"], clients[place]["numbers"] = x.data_ptr(), y.data_ptr(), 0
                kept.append((x, y))
        return kept

    def _checked(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Rows as the compiled code takes them for granted; ValueError for others. Empty ones are fine."""
        if x.dtype is not torch.float32 or y.dtype is not torch.int64 or not (x.is_cpu and y.is_cpu):
            raise ValueError(f"rows of {x.dtype} with classes of {y.dtype}: float32 and int64 on the CPU are right")
        if x.numel() != len(y) * self._features:
            raise ValueError(f"rows {list(x.shape)} for {len(y)} classes; a row has {self._features} values")
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < self._program.classes:
            raise ValueError(f"classes from {int(y.min())} to {int(y.max())}; the model has {self._program.classes}")
        return x, y

    def _run(self, cohort: CohortStructure, multiplications: float) -> None:
        """On as many threads as there are clients for; Python's lock is free meanwhile."""
        address, train = ctypes.addressof(cohort), library().fedvitals_train
        places = self._places[: max(1, cohort.count)]
        quick = multiplications < QUICK * len(places)
        going = [self._pool().submit(train, address, place) for place in places[quick:]]
        try:
            if quick:
                train(address, places[0])
            wait(going)
        finally:
            cohort.stop = not quick  # of use where waiting was interrupted: they end with the step they are at
            wait(going)

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(len(self._places), "fedvitals-trainer")
        return self._threads

    def _sampled(
        self, wanted: Sequence[tuple[int, ...]], gradients: Tensor, norms: np.ndarray
    ) -> tuple[SampledStep, ...]:
        """Step by step, as they are recorded."""
        if not any(wanted):
            return ()
        if self._full_steps:
            stats = gradient_statistics(gradients, self._layout, full=True)
        else:
            stats = (norms if self._in_order else norms[:, self._tensors])[..., None]
        if all(own is wanted[0] for own in wanted):
            rows, apart = range(len(wanted)), len(wanted[0])
            return tuple(SampledStep(step, rows, stats[place::apart]) for place, step in enumerate(wanted[0]))
        places = [(step, slot) for slot, own in enumerate(wanted) for step in own]
        by_step = sorted(range(len(places)), key=places.__getitem__)
        return tuple(
            SampledStep(step, [places[row][1] for row in rows], stats[rows])
            for step, rows in ((step, list(some)) for step, some in groupby(by_step, lambda row: places[row][0]))
        )


def _wanted(works: Sequence[LocalWork], steps: Sequence[int]) -> list[tuple[int, ...]]:
    """The steps of each client that are to be looked at and that it gets to: one tuple where they are the same."""
    known: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
    distinct: dict[tuple[int, ...], tuple[int, ...]] = {}
    found = []
    for work, count in zip(works, steps, strict=True):
        asked = work.sample_steps, count
        if asked not in known:
            own = tuple(step for step in sorted(set(work.sample_steps)) if step < count)
            known[asked] = distinct.setdefault(own, own)
        found.append(known[asked])
    return found
