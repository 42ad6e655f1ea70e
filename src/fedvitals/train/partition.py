"""The engine: labels in, one list of row numbers a client out.

Every row goes to exactly one client, every client has at least `min_rows`, and the same seed deals the same way. A draw
that leaves a client short is repaired by moving rows from the largest client, so that no alpha, however small, makes
this loop for long.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from fedvitals.errors import DataError
from fedvitals.randomness import stream
from fedvitals.train.sections import DataSpec

Numbers = NDArray[np.int64]


def partition(data: DataSpec, y: Numbers, seed: int, client: Numbers | None = None) -> dict[int, Numbers]:
    """Sorted row numbers by client number. `client` is the natural client of each row, where the source has it."""
    if data.partition == "natural":
        return _natural(data, client)
    _refuse_too_many(data, len(y))
    generator = stream(seed, "partition", data.partition)
    dealt = {"iid": _iid, "dirichlet": _dirichlet, "shards": _shards, "quantity": _quantity}[data.partition](
        data, y, generator
    )
    _repair(dealt, data.min_rows, generator)
    return {index: np.sort(rows) for index, rows in enumerate(dealt)}


def hold_out(rows: Numbers, share: float, seed: int, client: int) -> tuple[Numbers, Numbers]:
    """A client's rows as (training, held out). With 5 rows or more and any share at all, at least one is held out."""
    count = round(share * len(rows)) if len(rows) >= 5 else 0
    if share > 0 and len(rows) >= 5:
        count = min(max(count, 1), len(rows) - 1)
    mixed = stream(seed, "holdout", client).permutation(rows)
    return np.sort(mixed[count:]), np.sort(mixed[:count])


def _iid(data: DataSpec, y: Numbers, generator: np.random.Generator) -> list[Numbers]:
    return np.array_split(generator.permutation(len(y)), data.clients)


def _dirichlet(data: DataSpec, y: Numbers, generator: np.random.Generator) -> list[Numbers]:
    """Each class is dealt by its own draw of shares (Hsu, Qi and Brown 2019, arXiv:1909.06335)."""
    dealt: list[list[Numbers]] = [[] for _ in range(data.clients)]
    for label in np.unique(y):
        members = generator.permutation(np.flatnonzero(y == label))
        shares = generator.dirichlet(np.full(data.clients, data.alpha))
        for pile, part in zip(dealt, _cut(members, shares), strict=True):
            pile.append(part)
    return [np.concatenate(pile) for pile in dealt]


def _shards(data: DataSpec, y: Numbers, generator: np.random.Generator) -> list[Numbers]:
    """Rows sorted by label, cut into equal pieces, some pieces each (McMahan et al. 2017, arXiv:1602.05629)."""
    mixed = generator.permutation(len(y))
    by_label = mixed[np.argsort(y[mixed], kind="stable")]
    pieces = np.array_split(by_label, data.clients * data.shards_per_client)
    order = generator.permutation(len(pieces)).reshape(data.clients, data.shards_per_client)
    return [np.concatenate([pieces[piece] for piece in mine]) for mine in order]


def _quantity(data: DataSpec, y: Numbers, generator: np.random.Generator) -> list[Numbers]:
    """Log-normal sizes, labels alike."""
    weights = generator.lognormal(0.0, data.sigma, data.clients)
    return _cut(generator.permutation(len(y)), weights / weights.sum())


def _natural(data: DataSpec, client: Numbers | None) -> dict[int, Numbers]:
    """The first `clients` natural clients, in order of their number, that have `min_rows`; 0 takes all of them."""
    if client is None:
        raise DataError(
            f'{data.source}: partition = "natural" needs an array `client` with the client of each training row; '
            "without it take iid, dirichlet, shards or quantity"
        )
    numbers, counts = np.unique(client, return_counts=True)
    enough = numbers[counts >= data.min_rows]
    if len(enough) < max(data.clients, 1):
        raise DataError(
            f"{data.source}: {len(enough)} of its {len(numbers)} clients have data.min_rows = {data.min_rows} rows or "
            f"more, but data.clients = {data.clients}; ask for at most {len(enough)} clients, or for fewer rows"
        )
    chosen = enough[: data.clients or None]
    order = np.argsort(client, kind="stable")
    starts = np.searchsorted(client[order], chosen)
    ends = np.searchsorted(client[order], chosen, side="right")
    return {int(who): order[a:b] for who, a, b in zip(chosen, starts, ends, strict=True)}


def _cut(rows: Numbers, shares: NDArray[np.float64]) -> list[Numbers]:
    """Pieces of these shares; together they are all the rows."""
    ends = np.round(np.cumsum(shares / shares.sum())[:-1] * len(rows)).astype(np.int64)
    return np.split(rows, ends)


def _repair(dealt: list[Numbers], least: int, generator: np.random.Generator) -> None:
    """Move rows, drawn at random, from whoever has most to whoever has too few."""
    largest = [(-len(rows), index) for index, rows in enumerate(dealt)]
    heapq.heapify(largest)
    for index, rows in enumerate(dealt):
        missing = least - len(rows)
        while missing > 0:
            size, donor = heapq.heappop(largest)
            if -size != len(dealt[donor]):  # has changed since it was put here
                heapq.heappush(largest, (-len(dealt[donor]), donor))
                continue
            next_size = -largest[0][0] if largest else 0
            give = max(1, min(missing, -size - next_size))  # there are rows for all, so the donor keeps enough
            mixed = generator.permutation(dealt[donor])
            dealt[index] = np.concatenate([dealt[index], mixed[:give]])
            dealt[donor] = mixed[give:]
            heapq.heappush(largest, (-len(dealt[donor]), donor))
            missing -= give


def _refuse_too_many(data: DataSpec, rows: int) -> None:
    if data.clients * data.min_rows > rows:
        fewer = f"data.clients = {rows // data.min_rows}" if rows >= data.min_rows else "more rows"
        smaller = f" or data.min_rows = {rows // data.clients}" if rows >= data.clients else ""
        raise DataError(
            f"{data.source}: {data.clients} clients of at least {data.min_rows} rows need "
            f"{data.clients * data.min_rows:,} rows, but there are {rows:,}; right would be {fewer}{smaller}"
        )
