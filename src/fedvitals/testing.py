"""A test kit for users of fedvitals: exact time, a pretended accelerator, a toy federation, leak checks, contracts.

Light to import: torch and pytest come in only with what needs them. Whoever writes a store, a codec or a rule of their
own subclasses `StoreContract`, `CodecContract` or `RuleContract` and gets the tests that ours pass.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedvitals.capture.accelerator import DeviceMemory, DeviceSample

if TYPE_CHECKING:
    from fedvitals.codecs.contract import CodecContract as CodecContract
    from fedvitals.diagnose.contract import RuleContract as RuleContract
    from fedvitals.store.contract import StoreContract as StoreContract
    from fedvitals.train.federation import Federation

THREAD_PREFIX = "fedvitals-"
_CONTRACTS = {
    "StoreContract": "fedvitals.store.contract",
    "CodecContract": "fedvitals.codecs.contract",
    "RuleContract": "fedvitals.diagnose.contract",
}
__all__ = [
    "FakeClock",
    "FakeAccelerator",
    "Footprint",
    "assert_nothing_left",
    "toy_federation",
    *_CONTRACTS,
]

if not TYPE_CHECKING:  # a type checker would take it as leave for any name

    def __getattr__(name: str) -> Any:
        if name in _CONTRACTS:
            return getattr(import_module(_CONTRACTS[name]), name)
        raise AttributeError(f"module 'fedvitals.testing' has no attribute {name!r}")


class FakeClock:
    """Time that passes only when told to: `fedvitals.start("t", now_ns=clock.now_ns)` gives exact durations."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        return self._now_ns

    def advance(self, seconds: float) -> None:
        """Let so much time pass."""
        if seconds < 0:
            raise ValueError(f"time does not go back: advance({seconds!r})")
        self._now_ns += round(seconds * 1e9)

    def sleep(self, seconds: float) -> None:
        """The same, under the name that an engine's clock has."""
        self.advance(seconds)


class FakeAccelerator:
    """Devices that report what a test says. Each call of `samples` gives the next of `readings`, the last for ever."""

    def __init__(self, *readings: Sequence[DeviceSample]) -> None:
        self._readings = [list(reading) for reading in readings] or [[]]
        self.asked = 0

    def samples(self) -> list[DeviceSample]:
        reading = self._readings[min(self.asked, len(self._readings) - 1)]
        self.asked += 1
        return list(reading)

    def memory(self) -> list[DeviceMemory]:
        """Takes the next reading, too."""
        return [DeviceMemory(one.device, one.used_bytes or 0, one.peak_bytes or 0) for one in self.samples()]


@dataclass(frozen=True, slots=True)
class Footprint:
    """What fedvitals has installed in this process, at one instant."""

    threads: frozenset[str]
    hooks: frozenset[int]
    handlers: frozenset[int]
    files: frozenset[str]

    @classmethod
    def now(cls, folder: Path | None = None) -> Footprint:
        """`folder`: also the files below it that are open."""
        return cls(
            threads=frozenset(one.name for one in threading.enumerate() if one.name.startswith(THREAD_PREFIX)),
            hooks=_optimizer_hooks(),
            handlers=frozenset(map(id, logging.getLogger().handlers)),
            files=frozenset() if folder is None else _open_files(folder),
        )

    def left_since(self, before: Footprint) -> list[str]:
        """What is there now and was not before, in words."""
        pairs = (
            ("thread", self.threads - before.threads),
            ("torch optimizer hook", self.hooks - before.hooks),
            ("handler of the root logger", self.handlers ^ before.handlers),
            ("open file", self.files - before.files),
        )
        return [f"{what} {one}" for what, ones in pairs for one in sorted(ones, key=str)]


def assert_nothing_left(before: Footprint | None = None, folder: Path | None = None) -> None:
    """Fail when a thread, hook, log handler or open file of fedvitals outlived its run.

    `before` is a `Footprint.now()` taken before the code under test; without it any thread or hook of ours counts.
    """
    none: frozenset[Any] = frozenset()
    start = before or Footprint(none, none, frozenset(map(id, logging.getLogger().handlers)), none)
    left = Footprint.now(folder).left_since(start)
    if left:
        gc.collect()  # what only the collector had not come to yet is no leak
        left = Footprint.now(folder).left_since(start)
    assert not left, "left behind: " + "; ".join(left)


def toy_federation(clients: int = 4, rows: int = 24, features: int = 6, classes: int = 3, seed: int = 0) -> Federation:
    """A federation that a linear model learns in a few rounds: a cloud a class, the same for all clients."""
    import torch

    from fedvitals.randomness import torch_seed
    from fedvitals.train.federation import Federation

    generator = torch.Generator().manual_seed(torch_seed(seed, "toy federation"))
    test_rows = max(classes, rows)
    total = clients * rows + test_rows
    y = torch.arange(total) % classes
    centres = 3.0 * torch.randn(classes, features, generator=generator)
    x = centres[y] + torch.randn(total, features, generator=generator)
    return Federation(
        x=x,
        y=y,
        clients=tuple(str(index) for index in range(clients)),
        train_rows=tuple(torch.arange(clients * rows).reshape(clients, rows)),
        holdout_rows=tuple(torch.empty(0, dtype=torch.int64) for _ in range(clients)),
        test_rows=torch.arange(clients * rows, total),
        classes=classes,
        kind="vector",
    )


def _optimizer_hooks() -> frozenset[int]:
    """Hooks on every optimizer of the process; a process without torch has none."""
    optimizer = sys.modules.get("torch.optim.optimizer")
    found: set[int] = set()
    for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
        found.update(getattr(optimizer, name, None) or {})
    return frozenset(found)


def _open_files(folder: Path) -> frozenset[str]:
    import psutil

    below = folder.resolve()
    paths = (Path(one.path) for one in psutil.Process().open_files())
    return frozenset(str(path) for path in paths if path.is_relative_to(below))
