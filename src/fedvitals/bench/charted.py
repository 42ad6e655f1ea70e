"""A training, carried out in a store -> the chart of its run: how the fault bench and the scorer's lessons begin."""

from __future__ import annotations

import time
from contextlib import closing
from typing import NamedTuple

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.charting import read_chart
from fedvitals.errors import TrainingError
from fedvitals.settings import Settings
from fedvitals.store import open_store
from fedvitals.train import local
from fedvitals.train.engine import Training, observing
from fedvitals.train.hooks import NoHook, RoundHook
from fedvitals.train.progress import NoProgress


class Charted(NamedTuple):
    """What a doctor sees of a run, and how it ended."""

    chart: Chart
    accuracy: float | None  # of the last global model
    stopped: str = ""  # why the training could not go on to its end


def charted(training: Training, settings: Settings, hook: RoundHook | None = None) -> Charted:
    """Train and chart. A training that cannot go on is charted as far as it came."""
    stopped, accuracy = "", None
    try:
        with training.recorded(observing(training.job, settings)) as run:
            accuracy = training.carried_out(run, hook or NoHook(), NoProgress(), time.perf_counter()).accuracy
    except TrainingError as error:
        stopped = str(error)
    finally:
        training.executor.close()
        local._leaked.clear()  # what `memory-leak` holds is held by this process, which has more runs to make
    with closing(open_store(settings).open(str(run.id))) as reader:
        return Charted(read_chart(reader), accuracy, stopped)
