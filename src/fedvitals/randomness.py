"""Randomness as a pure function of (seed, purpose, who, which time).

Nothing here draws from, or touches, a global generator: a client's batches depend on its name and attempt alone, not on
the cohort, the executor, or on being watched.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np


def key(seed: int, purpose: str, *parts: str | int) -> int:
    """128 bits that belong to these words and no others."""
    words = "\x1f".join((str(seed), purpose, *(f"{type(p).__name__[0]}{p}" for p in parts)))
    return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=16).digest(), "little")


def keys(seed: int, purpose: str, times: Iterable[tuple[str, int]]) -> np.ndarray:
    """The lower 64 bits of the keys of many, each with which time it is: `key(seed, purpose, name, time)` for each."""
    import numpy as np

    before = f"{seed}\x1f{purpose}\x1fs"
    words = [f"{before}{name}\x1fi{time}".encode() for name, time in times]
    hashed = b"".join([hashlib.blake2b(word, digest_size=16).digest() for word in words])
    return np.frombuffer(hashed, "<u8")[::2].astype(np.uint64)


def stream(seed: int, purpose: str, *parts: str | int) -> np.random.Generator:
    """A generator of its own for this purpose: `stream(42, "batches", "client 7", attempt)`."""
    import numpy as np

    return np.random.Generator(np.random.Philox(key=key(seed, purpose, *parts)))


def chance(seed: int, purpose: str, *parts: str | int) -> float:
    """One number from 0 up to, not including, 1, for a single decision: a generator would cost twenty times as much."""
    return (key(seed, purpose, *parts) >> 75) / 2**53


def torch_seed(seed: int, purpose: str, *parts: str | int) -> int:
    """The same for `torch.manual_seed`, which takes 63 bits."""
    return key(seed, purpose, *parts) >> 65
