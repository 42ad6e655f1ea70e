"""A selection: clients whose rows teach most in the time they take.

Lai et al., Oort: Efficient Federated Learning via Guided Participant Selection (OSDI 2021), Algorithm 1. Some places
explore clients that were never asked, fewer as time goes on. The others go to clients of high utility: what their rows
have to teach, more where they were not heard of for long, less where they are slower than the pace T. The pace is a
percentile of the durations seen; where learning slackens it gives way to slower clients. The constants are those of
the paper and its code. What is unlike: how fast a client is, is not known before it has been asked once, so those to
explore are drawn by lot; who is worn out is judged by the mean of all, not by a fixed number of rounds; and a client
that was too slow for any round so far counts a quarter, as the pace knows nothing of the rounds' deadline.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from fedvitals.randomness import stream
from fedvitals.train.selections.protocol import Report, wanted

EXPLORED_FIRST, EXPLORED_LEAST, EXPLORED_DECAY = 0.9, 0.2, 0.98
SLOW_POWER = 2.0  # alpha
CUT_OFF = 0.95  # of the lowest utility that would get a place: who is above it takes part in the draw
CLIPPED_AT = 95.0  # percentile: one outlier must not take every place
PACE_FIRST, PACE_STEP, PACE_EVERY = 30.0, 5.0, 20  # percentiles; rounds
UNCERTAINTY = 0.1
LATE = 0.25  # of the score of a client that is too slow for any round there has been
WORN_OUT = 10.0  # participations, beyond three times the mean


class OortSelection:
    """Utility with pacing. In asynchronous training a round is as many participations as the first choice had."""

    def __init__(self, seed: int, clients: int) -> None:
        self._seed = seed
        self._utility = np.zeros(clients)
        self._duration_s = np.full(clients, np.nan)
        self._heard_at = np.zeros(clients)  # in rounds
        self._late = np.zeros(clients, dtype=bool)  # when it was last heard of
        self._in_time_s = 0.0  # the longest that anybody took who was not late
        self._asked = np.zeros(clients)
        self._round_size = 1
        self._pace = PACE_FIRST
        self._paced_at = 0.0
        self._windows: list[float] = [0.0]  # utility gathered, a window of rounds each

    @property
    def rounds(self) -> float:
        """How many there have been."""
        return float(self._asked.sum()) / self._round_size

    @property
    def pace(self) -> float:
        """The percentile of durations above which a client counts as slow."""
        return self._pace

    def choose(self, turn: int, clients: Sequence[int], k: int, busy: Collection[int] = ()) -> list[int]:
        present = np.array(wanted(clients, k))
        self._round_size = max(self._round_size, k)
        self._set_pace()
        chosen = present if k >= len(present) else self._chosen(turn, present, k)
        self._asked[chosen] += 1
        found: list[int] = sorted(chosen.tolist())
        return found

    def heard(self, client: int, report: Report) -> None:
        self._heard_at[client] = self.rounds
        if report.utility is None:  # failing soon is not being quick
            self._duration_s[client] = np.maximum(self._duration_s[client], report.duration_s)  # NaN stays
            return
        self._duration_s[client] = report.duration_s
        self._late[client] = report.late
        self._in_time_s = max(self._in_time_s, 0.0 if report.late else report.duration_s)
        self._utility[client] = report.utility
        self._windows[-1] += report.utility

    def _chosen(self, turn: int, present: np.ndarray, k: int) -> np.ndarray:
        random = stream(self._seed, "selection", turn)
        fresh = present[self._asked[present] == 0]
        known = self._rested(present, k)
        share = max(EXPLORED_LEAST, EXPLORED_FIRST * EXPLORED_DECAY**self.rounds)
        explored = int(share * k + random.random())  # rounded by chance: a single place is explored sometimes
        explored = max(min(explored, len(fresh)), k - len(known))
        best = self._drawn(random, known, k - explored)
        pool = np.setdiff1d(fresh, best)
        if len(pool) < explored:  # hardly anybody is left: the worn out are better than nobody
            pool = np.setdiff1d(present, best)
        return np.concatenate([best, random.choice(pool, size=explored, replace=False)])

    def _rested(self, present: np.ndarray, k: int) -> np.ndarray:
        """Who was asked before and is not worn out. Where too few of them come in time, the worn out are let off: of a
        round of latecomers nothing comes at all."""
        asked, late = self._asked[present], self._too_slow(present)
        worn = asked > WORN_OUT + 3.0 * self._asked.mean()
        rested = (asked > 0) & ~worn
        if np.count_nonzero(rested & ~late) < k:
            rested |= worn & ~late
        found: np.ndarray = present[rested]
        return found

    def _drawn(self, random: np.random.Generator, known: np.ndarray, places: int) -> np.ndarray:
        """By lot among those of the highest scores, in proportion to them."""
        if places < 1:
            return known[:0]
        scores = self._scores(known)
        least = CUT_OFF * np.partition(scores, -places)[-places]
        pool, weights = known[scores >= least], scores[scores >= least] + 1e-12
        drawn: np.ndarray = random.choice(pool, size=places, replace=False, p=weights / weights.sum())
        return drawn

    def _scores(self, clients: np.ndarray) -> np.ndarray:
        utility = self._utility[clients]
        clipped = np.minimum(utility, np.percentile(utility, CLIPPED_AT))
        scaled = clipped / max(float(clipped.max()), 1e-12)  # beside it the term of uncertainty has a meaning
        since = np.maximum(self._heard_at[clients], 1.0)
        scores: np.ndarray = scaled + np.sqrt(UNCERTAINTY * np.log(max(self.rounds, 1.0) + 1.0) / since)
        scores[self._too_slow(clients)] *= LATE
        durations = self._duration_s[clients]
        if np.isnan(durations).all():
            return scores
        pace_s = np.nanpercentile(self._duration_s, self._pace)
        with np.errstate(divide="ignore", invalid="ignore"):
            slow = np.where(durations > pace_s, (pace_s / durations) ** SLOW_POWER, 1.0)
        found: np.ndarray = scores * slow
        return found

    def _too_slow(self, clients: np.ndarray) -> np.ndarray:
        """Who was late and took longer than anybody who was not: its round did not just have enough others."""
        slow: np.ndarray = self._late[clients] & (self._duration_s[clients] > self._in_time_s)
        return slow

    def _set_pace(self) -> None:
        """Where less was learnt than in the window before, slower clients get their chance."""
        if self.rounds - self._paced_at < PACE_EVERY:
            return
        self._paced_at = self.rounds
        if len(self._windows) > 1 and self._windows[-1] < self._windows[-2]:
            self._pace = min(self._pace + PACE_STEP, 100.0)
        self._windows = [self._windows[-1], 0.0]
