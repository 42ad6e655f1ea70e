"""The engine: a job in, its federation out. The rows are loaded, dealt to clients, and fingerprinted."""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from fedvitals.errors import JobError
from fedvitals.train.data import Rows, load
from fedvitals.train.federation import Federation
from fedvitals.train.job import Job
from fedvitals.train.partition import Numbers, hold_out, partition


def build(job: Job) -> Federation:
    """The federation of a job: the same job gives the same one, bit for bit."""
    rows = load(job.data, job.seed, job.model.kind)
    held = partition(job.data, rows.y, job.seed, rows.client)
    if job.train.clients_per_round > len(held):
        raise JobError(
            f"train.clients_per_round = {job.train.clients_per_round}, but {job.data.source} gives {len(held)} "
            f"clients; right is at most {len(held)}"
        )
    names = _names(rows, job.data.partition == "natural", list(held))
    rows, compact = _compacted(rows, list(held.values()))
    pairs = zip(held, compact, strict=True)
    split = [hold_out(mine, job.data.holdout, job.seed, number) for number, mine in pairs]
    return _federation(rows, names, split)


def _federation(rows: Rows, names: tuple[str, ...], split: list[tuple[Numbers, Numbers]]) -> Federation:
    x = torch.from_numpy(np.concatenate([rows.x, rows.x_test]))
    y = torch.from_numpy(np.concatenate([rows.y, rows.y_test]))
    train = tuple(torch.from_numpy(mine) for mine, _ in split)
    holdout = tuple(torch.from_numpy(own) for _, own in split)
    test = torch.arange(len(rows.y), len(y))
    return Federation(
        x=x,
        y=y,
        clients=names,
        train_rows=train,
        holdout_rows=holdout,
        test_rows=test,
        classes=rows.classes,
        kind=rows.kind,
        vocabulary=rows.vocabulary,
        digest=_digest(x, y, names, train, holdout, test),
    )


def _names(rows: Rows, natural: bool, numbers: list[int]) -> tuple[str, ...]:
    if not (natural and rows.client_names):
        return tuple(str(number) for number in numbers)
    names = tuple(rows.client_names[number].strip()[:200] or str(number) for number in numbers)
    if len(set(names)) == len(names):
        return names
    return tuple(f"{name} ({number})" for name, number in zip(names, numbers, strict=True))


def _compacted(rows: Rows, held: list[Numbers]) -> tuple[Rows, list[Numbers]]:
    """Only the rows that someone holds: a few clients of a large source need not keep all of it in memory."""
    used = np.unique(np.concatenate(held))
    if len(used) == len(rows.y):
        return rows, held
    fewer = Rows(rows.x[used], rows.y[used], rows.x_test, rows.y_test, rows.kind, rows.classes, rows.vocabulary)
    return fewer, [np.searchsorted(used, mine) for mine in held]


def _digest(
    x: torch.Tensor,
    y: torch.Tensor,
    names: tuple[str, ...],
    train: tuple[torch.Tensor, ...],
    holdout: tuple[torch.Tensor, ...],
    test: torch.Tensor,
) -> str:
    """SHA-256 over shapes, rows, names and who holds what."""
    digest = hashlib.sha256(repr((tuple(x.shape), str(x.dtype), names)).encode())
    for part in (x, y, *train, *holdout, test):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part.numpy().reshape(-1).data)
    return digest.hexdigest()
