"""How many threads torch has: small tensors are slower on two, and the last bits of a result depend on their number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many inside, as many as before after."""
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread inside, as many as before after."""
    with threads(1):
        yield


def made_on(count: int, results: Iterator[T]) -> Iterator[T]:
    """The results, each made on so many threads; whoever takes them has their own in between."""
    while True:
        with threads(count):
            try:
                result = next(results)
            except StopIteration:
                return
        yield result
