"""The trainings that every contestant of the engine bench gets: same rows, same clients, same model, same optimizer.

Each is a pure function of its name, so that a worker process or another interpreter can make it again by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedvitals.errors import JobError, nearest
from fedvitals.randomness import stream, torch_seed

Rows = tuple[NDArray[np.float32], NDArray[np.int64]]

SEED = 42
CLASSES = 10
TEST_SHARE = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A federated training: all clients take part in every round, weighted by their rows."""

    name: str
    clients: tuple[Rows, ...]  # x and y of each
    test: Rows
    model: Callable[[], nn.Module]  # the same first weights at every call
    epochs: int
    batch: int
    lr: float
    momentum: float

    @property
    def rows(self) -> int:
        return sum(len(y) for _, y in self.clients)


def named(name: str) -> Problem:
    """One of NAMES."""
    if name not in _MAKERS:
        raise JobError(f"there is no problem {name!r}{nearest(name, list(NAMES))}")
    return _made(name)


@lru_cache(maxsize=4)
def _made(name: str) -> Problem:
    return _MAKERS[name]()


def _tutorial() -> Problem:
    """What federated learning tutorials train: 32 features, 200 rows a client, three passes."""
    clients = tuple(_synthetic("client", index, rows=200) for index in range(100))
    return Problem("tutorial", clients, _synthetic("test", 0, rows=1000), lambda: _mlp(32), 3, 32, 0.1, 0.0)


def _digits() -> Problem:
    """Real scans, 115 to a client; 100 clients out of 1,437 rows, so that rows are shared between clients."""
    clients, test = _dealt(*_scans(), clients=100, rows=115)
    return Problem("digits", clients, test, lambda: _mlp(64), 1, 16, 0.05, 0.9)


def _cnn(batch: int) -> Problem:
    """The same scans enlarged to 28 x 28, two convolutions, 20 clients of 100 rows."""
    x, y = _scans()
    images = np.pad(x.reshape(-1, 8, 8).repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))
    clients, test = _dealt(images[:, None], y, clients=20, rows=100)
    return Problem(f"cnn-batch{batch}", clients, test, lambda: _cnn_of(28, kernel=5), 1, batch, 0.05, 0.9)


def _tiny_cnn() -> Problem:
    """The clients of `digits`, as the pictures that they are: 8 x 8."""
    x, y = _scans()
    clients, test = _dealt(x.reshape(-1, 1, 8, 8), y, clients=100, rows=115)
    return Problem("cnn-8x8", clients, test, lambda: _cnn_of(8, kernel=3), 1, 16, 0.05, 0.9)


def _synthetic(who: str, index: int, rows: int) -> Rows:
    generator = stream(SEED, "bench synthetic", who, index)
    y = generator.integers(0, CLASSES, rows)
    x = generator.standard_normal((rows, 32), dtype=np.float32)
    x[np.arange(rows), y] += 2.0
    return x, y


def _scans() -> Rows:
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    order = stream(SEED, "bench digits").permutation(len(data.target))
    return (data.data[order] / 16).astype(np.float32), data.target[order].astype(np.int64)


def _dealt(x: NDArray[np.float32], y: NDArray[np.int64], clients: int, rows: int) -> tuple[tuple[Rows, ...], Rows]:
    held = round(TEST_SHARE * len(y))
    picks = (
        held + stream(SEED, "bench deal", c).choice(len(y) - held, size=rows, replace=False) for c in range(clients)
    )
    return tuple((x[pick], y[pick]) for pick in picks), (x[:held], y[:held])


def _mlp(features: int) -> nn.Module:
    with _first_weights():
        return nn.Sequential(nn.Flatten(), nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def _cnn_of(side: int, kernel: int) -> nn.Module:
    with _first_weights():
        return nn.Sequential(
            *(nn.Conv2d(1, 8, kernel, padding=kernel // 2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 16, kernel, padding=kernel // 2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(16 * (side // 4) ** 2, CLASSES)),
        )


class _first_weights:  # noqa: N801  # reads as the statement that it is
    """The first weights belong to SEED; the caller's random numbers stay as they were."""

    def __enter__(self) -> None:
        self._kept = torch.random.get_rng_state()
        torch.default_generator.manual_seed(torch_seed(SEED, "bench model"))

    def __exit__(self, *_: object) -> None:
        torch.random.set_rng_state(self._kept)


_MAKERS: dict[str, Callable[[], Problem]] = {
    "tutorial": _tutorial,
    "digits": _digits,
    "cnn-batch10": lambda: _cnn(10),
    "cnn-batch32": lambda: _cnn(32),
    "cnn-8x8": _tiny_cnn,
}
NAMES = tuple(_MAKERS)
