"""Memory that is not needed any more is freed, and goes back to the system where a job asks to save memory."""

from __future__ import annotations

import subprocess
import sys
import weakref
from collections.abc import Mapping

import pytest
from small_jobs import EXECUTORS, Told, run, small
from torch import Tensor

from fedvitals.train.hooks import NoHook, RoundUpdates

PROGRAM = """
import ctypes, sys
import torch
from fedvitals.train.heap import give_back_freed_memory

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20

pieces = [torch.ones(2**14) for _ in range(400)]  # 64 kB each: the heap's own
pieces = pieces[1::2]
del_first = torch.ones(8 * 2**20 // 4)
del del_first  # from here on glibc would keep blocks of up to 8 MB
if "give" in sys.argv:
    assert give_back_freed_memory()
before = resident_mb()
blocks = [torch.ones(2**20) for _ in range(40)]
held = resident_mb() - before
blocks = blocks[1::2]
left = resident_mb() - before
before = resident_mb()
if "give" in sys.argv:
    del pieces[::2]
    give_back_freed_memory()
print(held, left, before - resident_mb())
"""


def _measured(*words: str) -> tuple[float, float, float]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True)
    held, left, freed = (float(word) for word in done.stdout.split())
    return held, left, freed


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc and speaks to glibc")
def test_holes_between_blocks_go_back() -> None:
    """Of 160 MB in blocks, every second one freed: half of it is gone, which without the switch stays."""
    held, left, freed = _measured("give")
    assert held > 150
    assert left < 0.6 * held
    assert freed > 4  # of small pieces, 6 MB of which were free in the middle of the heap
    kept_held, kept_left, _ = _measured()
    assert kept_left > 0.9 * kept_held


class _Watch(NoHook, Told):
    """Whether the updates that a hook saw are there when their round is done."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[weakref.ref[Tensor]] = []
        self.held: list[bool] = []

    def before_aggregate(self, round: int, updates: RoundUpdates) -> RoundUpdates:
        self.seen.append(weakref.ref(updates.updates))
        return updates

    def round_done(
        self,
        number: int,
        of: int,
        loss: float | None,
        accuracy: float | None,
        clients: int,
        failed: int,
        elapsed_s: float,
    ) -> None:
        self.held.append(self.seen[-1]() is not None)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("more", [{}, {"codec.up": "feedback(topk:0.1)"}], ids=["plain", "compressed"])
def test_a_rounds_updates_end_with_it(executor: str, more: Mapping[str, object]) -> None:
    """They are as large as the model each, and the next round trains without them."""
    watch = _Watch()
    run(small(more, executor=executor), hook=watch, progress=watch)
    assert watch.held == [False, False]
