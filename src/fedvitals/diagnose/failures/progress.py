"""How far a run has come by its own last word: what the rules about rounds and runs that do not end share."""

from __future__ import annotations

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.writing import times
from fedvitals.vocabulary import Round


def last_ns(chart: Chart) -> int:
    """The run's own last word: no clock is looked at."""
    found = [one.start_ns for one in chart.rounds[-1:]]
    found += [one.at_ns for one in chart.resources[-1:]]
    found += [one.at_ns for one in chart.logs[-1:]]
    found += [one.at_ns for one in chart.failures[-1:]]
    found += [one.end_ns for one in chart.spans if one.end_ns is not None]
    ends = chart.participations.end_s
    ends = ends[np.isfinite(ends)]
    return max([*found, int(ends.max() * 1e9) if len(ends) else 0, chart.run.ended_ns or 0])


def heard(chart: Chart, one: Round) -> int:
    """How many clients of this round were heard of."""
    return int(np.sum(chart.participations.round == one.number))


def heard_in_words(chart: Chart, one: Round) -> str:
    """The same beside how many were asked, where that is known."""
    if one.selected:
        return f"{heard(chart, one)} of {one.selected} clients were heard of"
    return f"{times(heard(chart, one), 'client')} heard of"
