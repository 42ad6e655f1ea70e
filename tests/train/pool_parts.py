"""Clients that train nothing, for tests of the workers that they are in."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedvitals.faults.work import LocalWork
from fedvitals.train.pool import PoolExecutor
from fedvitals.train.trained import Failed, Trained

SIZE = 3


def work_of(client: int, **plan: Any) -> LocalWork:
    return LocalWork(client=client, name=str(client), attempt=0, round=0, lr=0.1, **plan)


def attempt(
    works: Sequence[LocalWork], weights: Tensor, integers: Mapping[str, Tensor], row: int
) -> Iterator[Trained | Failed]:
    """A client's update is the weights plus its number; a plan's `error` says how to go wrong."""
    for work in works:
        if work.error == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if work.error == "leave":
            os._exit(3)
        if work.error == "hang":
            signal.pause()
        if work.error == "raise":
            raise ArithmeticError("not caught by whoever attempts")
        if work.error == "fail":
            yield Failed(work, "train", "ValueError", "as told", "trace", 1, 2)
            continue
        yield Trained(
            works=(work,),
            updates=(weights + work.client).unsqueeze(0),
            losses=np.zeros((1, 2), np.float32),
            steps=np.array([2]),
            samples=np.array([os.getpid()]),
            phases_s={phase: np.zeros(1) for phase in ("train", "load", "upload")},
            start_ns=[0],
            end_ns=[0],
            integers=({"count": integers["count"] + work.client},),
            slots=[0],
        )


def round_of(pool: PoolExecutor, works: Sequence[LocalWork], start: float = 0.0) -> dict[str, Trained | Failed]:
    found: dict[str, Trained | Failed] = {}
    for result in pool.run(works, torch.full((SIZE,), start), {"count": torch.tensor(10)}):
        some = result.works if isinstance(result, Trained) else (result.work,)
        found |= {work.name: result for work in some}
    return found


def updates_of(found: Mapping[str, Trained | Failed]) -> dict[str, float]:
    return {name: float(one.updates[0, 0]) for name, one in found.items() if isinstance(one, Trained)}
