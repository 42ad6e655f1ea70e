"""The overhead governor: how often gradients may be looked at, so that recording stays inside its budget.

It compares the time spent in the recorder's own calls, and the writer's CPU time, with the time that passed. Below half
of the budget it looks twice as often, above nine tenths half as often; one step of each participation is always taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_STRIDE = 1 << 16
REVIEW_EVERY_NS = 50_000_000


class Governor:
    """Decides which steps to sample. `mode` is the setting `steps`."""

    def __init__(
        self,
        budget: float,
        mode: str,
        *,
        writer_cpu_s: Callable[[], float] = lambda: 0.0,
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.budget = budget
        self.mode = mode
        self.spent_ns = 0
        self.stride = LONGEST_STRIDE if mode == "governed" else 1
        self.tight = False  # at the last review, nearly all of the budget was spent
        self._writer_cpu_s = writer_cpu_s
        self._now_ns = now_ns
        self._began_ns = self._reviewed_ns = now_ns()
        self._at_review = 0.0

    def wants(self, step: int) -> bool:
        """Whether this step of a participation is to be looked at."""
        return self.mode != "off" and step % self.stride == 0

    def plan(self, steps: int) -> tuple[int, ...]:
        """The steps to look at, of a participation that will take so many."""
        self.review()
        return () if self.mode == "off" else tuple(range(0, steps, self.stride))

    @property
    def whole_statistics(self) -> bool:
        return self.mode == "full"

    def elapsed_s(self) -> float:
        """Since the recording began, on the machine's clock."""
        return (self._now_ns() - self._began_ns) / 1e9

    def overhead(self) -> float:
        """The share of the time so far that recording took."""
        elapsed = self._now_ns() - self._began_ns
        return (self.spent_ns + self._writer_cpu_s() * 1e9) / elapsed if elapsed > 0 else 0.0

    def review(self) -> None:
        """Widen or narrow the stride by what the last stretch cost; cheap enough to call often."""
        now = self._now_ns()
        elapsed = now - self._reviewed_ns
        if self.mode != "governed" or elapsed < REVIEW_EVERY_NS:
            return
        spent = self.spent_ns + self._writer_cpu_s() * 1e9
        share = (spent - self._at_review) / elapsed
        self._reviewed_ns, self._at_review = now, spent
        worst = max(share, self.overhead())  # a costly start is paid back before anything is spent on detail
        self.tight = worst > 0.9 * self.budget
        if self.tight:
            self.stride = min(self.stride * 2, LONGEST_STRIDE)
        elif worst < 0.5 * self.budget:
            self.stride = max(self.stride // 2, 1)
