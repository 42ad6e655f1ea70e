"""The heights of a run's clients -> from which height on they are accused, and suspected.

Whether anybody is bad is asked first. A client alone must stand as high for that as hardly any sound run's highest.
Several need not: in a sound run the second stands well below the first, and the fourth well below the second, so each
doubling of their number lowers the bar (higher criticism: Donoho and Jin 2004). But in some runs all stand high, and
several of these are nobody in particular: they must be far from most of the run's own clients (an empirical null: Efron
2004), and a gap must lie between them and the rest.

Then who. Near the bar is enough, because the question is no longer whether one in a hundred sound runs looks like this,
but whether one of its clients does. And where several are named, so are those below them down to the widest gap: what
is between them and the next is more than what is among them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedvitals.store.table import Bools, Floats

ACCUSE, SUSPECT = 1.0, 0.0  # where the highest of a sound run stands at its two thresholds
A_DOUBLING = 0.8  # by so much lower is the bar for twice as many
MOST = 0.35  # of a run's clients that can be several of them, rather than what is usual there
FAR = 4.0  # deviations of the lower half from the middle one
LEAST_DEVIATION = 0.3
SIGMA_BELOW = 16  # the percentile that lies a deviation below the middle
GAP, LEAST_GAP = 0.8, 0.5  # in heights: below those who are named beside others, and below several that nobody led
LESS_A_DOUBLING = 1.0  # by so much less high may those stand who are above a gap, for twice as many


@dataclass(frozen=True, slots=True)
class Bar:
    """Heights of one grade."""

    alone: float
    several: float  # less A_DOUBLING for two
    beside: float  # for who is named as well, once somebody is
    above_gap: float  # likewise; less LESS_A_DOUBLING for two


# One alone stands well above its threshold, and so do several, since false alarms of all kinds count together. How
# often all this is right, in lessons that no scorer was taught: `python -m fedvitals.bench.scorer --unseen 1600`.
ACCUSED = Bar(alone=ACCUSE + 0.6, several=1.2, beside=-0.5, above_gap=0.0)
SUSPECTED = Bar(alone=SUSPECT + 0.6, several=0.4, beside=-1.0, above_gap=-0.5)


def limits(heights: Floats) -> tuple[float, float]:
    """From which heights on clients are accused, and suspected, in a run whose clients stand so high."""
    falling = np.sort(heights[np.isfinite(heights)])[::-1]
    if not len(falling):
        return ACCUSED.alone, SUSPECTED.alone
    accuse, suspect = _limit(falling, ACCUSED), _limit(falling, SUSPECTED)
    return accuse, min(accuse, suspect)


def _limit(heights: Floats, bar: Bar) -> float:
    """Of heights that fall; where nobody is named, that of a client alone."""
    top = heights[: max(int(MOST * len(heights)), 1)]
    doublings, apart = np.log2(np.arange(1, len(top) + 1)), top >= _unusual(heights)
    follows = (top >= bar.above_gap - LESS_A_DOUBLING * doublings) & apart
    if heights[0] >= bar.alone:
        return _down_to_gap(heights, bar.beside, follows)[0]
    several = np.flatnonzero((top >= bar.several - A_DOUBLING * doublings) & apart & (doublings > 0))
    if not len(several):
        return bar.alone
    limit, gap = _down_to_gap(heights, float(top[several[-1]]), follows)
    return limit if gap >= LEAST_GAP else bar.alone


def _unusual(heights: Floats) -> float:
    """What is far above most of the run's clients."""
    middle = float(np.median(heights))
    deviation = max(middle - float(np.percentile(heights, SIGMA_BELOW)), LEAST_DEVIATION)
    return middle + FAR * deviation


def _down_to_gap(heights: Floats, limit: float, follows: Bools) -> tuple[float, float]:
    """The height above the widest gap below those who are named already, and that gap, if they are several."""
    named = int((heights >= limit).sum())
    if not 2 <= named <= len(follows):
        return limit, 0.0
    gaps = heights[: len(follows)] - np.append(heights[1:], -np.inf)[: len(follows)]
    ends = follows & (gaps >= GAP)
    ends[: named - 1], ends[named - 1] = False, True
    last = int(np.flatnonzero(ends)[int(gaps[ends].argmax())])
    return min(limit, float(heights[last])), float(gaps[last])
