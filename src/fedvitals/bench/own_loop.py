"""A federated loop as a user writes it, with the lines of the recorder in it: what `bench overhead` watches.

`by_hand` is the tutorials' way instead: seven statistics of every layer, each fetched with `.item()`, at every step.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedvitals
from fedvitals.settings import Settings, resolve

CLIENTS, ROWS, FEATURES, CLASSES, EPOCHS, BATCH = 10, 200, 32, 10, 3, 32


class OwnLoop:
    """Ten clients of 200 rows, MLP 32-64-10, as many rounds as take `half_s` unwatched."""

    def __init__(self, half_s: float) -> None:
        generator = torch.Generator().manual_seed(0)
        self._x = torch.randn(CLIENTS, ROWS, FEATURES, generator=generator)
        self._y = torch.randint(0, CLASSES, (CLIENTS, ROWS), generator=generator)
        self._rounds = 2
        off = resolve({"mode": "off"})
        self.go(off)  # the first optimizer of a process loads a thousand modules
        began = time.perf_counter()
        self.go(off)
        self._rounds = max(2, int(1.25 * half_s / ((time.perf_counter() - began) / 2)) + 1)

    def go(self, settings: Settings, *, by_hand: bool = False) -> None:
        model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))
        with fedvitals.start("own-loop", settings=settings) as run:
            for number in range(self._rounds):
                with run.round(number, model=model) as rnd:
                    states = []
                    for client in range(CLIENTS):
                        with rnd.client(client, samples=ROWS) as c:
                            local = copy.deepcopy(model)
                            c.watch(local)
                            optimizer = torch.optim.SGD(local.parameters(), lr=0.05)
                            loss = torch.zeros(())
                            for _ in range(EPOCHS):
                                for x, y in c.batches(self._batches(client)):
                                    optimizer.zero_grad()
                                    loss = F.cross_entropy(local(x), y)
                                    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                                    if by_hand:
                                        statistics_by_hand(local)
                                    optimizer.step()
                            c.submit(local.state_dict(), loss=loss)
                            states.append(local.state_dict())
                    with rnd.phase("aggregate"):
                        model.load_state_dict({k: torch.stack([s[k] for s in states]).mean(0) for k in states[0]})

    def _batches(self, client: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(ROWS)
        for rows in torch.split(order, BATCH):
            yield self._x[client, rows], self._y[client, rows]


def statistics_by_hand(model: nn.Module) -> list[float]:
    found: list[float] = []
    for parameter in model.parameters():
        if parameter.grad is not None:
            g = parameter.grad
            found += [g.mean().item(), g.std().item(), g.norm().item(), g.min().item(), g.max().item()]
            found += [(g == 0).float().mean().item(), torch.isnan(g).sum().item()]
    return found
