"""What a client is about to do in one participation: the plan that an executor carries out and a fault may change."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, eq=False)
class LocalWork:
    """One participation, planned. Plain values and tensors, so that it can go to a worker process."""

    client: int  # index into the federation
    name: str  # its id, as recorded
    attempt: int
    round: int
    lr: float
    drop_last: bool = False  # leave out the last, smaller batch of each epoch
    zero_grad: bool = True  # False: gradients pile up over the steps
    frozen: tuple[int, ...] = ()  # indexes of trainable layers that do not move
    x: torch.Tensor | None = None  # rows to train on instead of the federation's
    y: torch.Tensor | None = None
    error: str | None = None  # raise this instead of training
    silent_s: float = 0.0  # never answers: the server gives up after so long
    compute_factor: float = 1.0  # its computer is so many times slower
    link_factor: float = 1.0  # its link is so many times slower
    message_bytes: int = 0  # that its update is expected to take on the wire; 0: as many as it has itself
    load_factor: float = 1.0  # waiting for its data takes so many times its training time more, minus one
    leak_bytes: int = 0  # memory it keeps for good
    sample_steps: tuple[int, ...] = ()  # steps whose gradients the recorder wants to see
    pruned: bool = False  # weights that arrive as 0 were cut, and are held still
