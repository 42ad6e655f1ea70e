"""How good what-if predictions are: predicted against measured total time, pair by pair of a job and a change.

A job is run as it is and with each of its changes; the prediction knows only the first. On the virtual clock once: it
repeats exactly. On the real clock in turns (as it is, then each change, then the other way round), several times, and
medians count: a machine that does other things at the same time is noisy to all of them. An error is the difference
of the medians as a share of the measured one. Beside it: how far off it would be to predict that nothing changes, or to
predict without the engine's seed, from which it is known whom it would have asked.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from statistics import median

from fedvitals.bench.table import Row, spread
from fedvitals.bench.whatif_cases import REAL, VIRTUAL, Case, with_thinned
from fedvitals.profile.profile import Profile, profile_of
from fedvitals.profile.whatif.cohorts import as_recorded
from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.prediction import Prediction
from fedvitals.settings import resolve
from fedvitals.store import open_store
from fedvitals.train.engine import train
from fedvitals.train.job import Job
from fedvitals.train.threads import one_thread

GOALS = {"virtual clock": 0.05, "real clock": 0.10}
TURNS = 5


@dataclass(slots=True)
class Pair:
    """One job and one change, over all turns."""

    job: str
    change: str
    before_s: list[float] = field(default_factory=list)
    predicted_s: list[float] = field(default_factory=list)
    measured_s: list[float] = field(default_factory=list)
    unseeded_s: list[float] = field(default_factory=list)  # predicted without knowing how clients are chosen

    @property
    def error(self) -> float:
        """Of the prediction."""
        return abs(median(self.predicted_s) / median(self.measured_s) - 1.0)

    @property
    def unseeded_error(self) -> float:
        """Of the prediction by whom the engine's seed is not known."""
        return abs(median(self.unseeded_s) / median(self.measured_s) - 1.0)

    @property
    def unchanged_error(self) -> float:
        """Of the prediction that nothing changes."""
        return abs(median(self.before_s) / median(self.measured_s) - 1.0)


def run(quick: bool = False) -> list[Row]:
    """Every pair, and the medians that are held to a goal."""
    with_thinned()
    virtual, real = (VIRTUAL[:2], REAL[:1]) if quick else (VIRTUAL, REAL)
    rows: list[Row] = []
    for clock, cases, turns in (("virtual clock", virtual, 1), ("real clock", real, 1 if quick else TURNS)):
        pairs = [pair for case in cases for pair in measured(case, turns)]
        rows += [row for pair in pairs for row in pair_rows(clock, pair)]
        rows += summary_rows(clock, pairs)
    return rows


def measured(case: Case, turns: int) -> list[Pair]:
    """The pairs of a job, whose runs take turns. A change that this run does not tell about is left out, saying so."""
    print(f"{case.name} ...", file=sys.stderr, flush=True)
    job = Job.from_dict(case.job)
    pairs = {change.name: Pair(case.name, change.name) for change in case.changes}
    changed = dict(_jobs(case, job))
    for turn in range(turns):
        order = [None, *changed] if turn % 2 == 0 else [*reversed(changed), None]
        took = {name: profile_run(changed[name] if name is not None else job) for name in order}
        model = Model.of(took[None])
        unseeded = replace(model, draw=as_recorded(model.timeline))
        for change in case.changes:
            predicted, other = change.predict(model), change.predict(unseeded)
            if isinstance(predicted, Prediction) and change.name in changed:
                pair = pairs[change.name]
                pair.before_s.append(model.profile.wall_s)
                pair.predicted_s.append(predicted.predicted_s)
                pair.measured_s.append(took[change.name].wall_s)
                pair.unseeded_s += [other.predicted_s] if isinstance(other, Prediction) else []
    return [pair for pair in pairs.values() if pair.predicted_s]


def _jobs(case: Case, job: Job) -> Iterator[tuple[str, Job]]:
    """The changed jobs, as a first run's predictions name them: which client is slowest does not change by turns."""
    model = Model.of(profile_run(job))
    for change in case.changes:
        predicted = change.predict(model)
        if isinstance(predicted, Prediction):
            yield change.name, job.replaced(change.job or predicted.job or {}, source=change.name)
        else:
            print(f"{case.name}: {change.name} is not predicted: {predicted}", file=sys.stderr)


def profile_run(job: Job) -> Profile:
    """Carries a job out, recorded in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, one_thread():
        settings = resolve({"mode": "on", "dir": folder})
        result = train(job, settings=settings)
        with closing(open_store(settings).open(result.run_id or "last")) as reader:
            return profile_of(reader)


def pair_rows(clock: str, pair: Pair) -> list[Row]:
    case = f"{clock}: {pair.job}"
    errors = [abs(a / b - 1.0) for a, b in zip(pair.predicted_s, pair.measured_s, strict=True)]
    return [
        Row(case, f"{pair.change}: predicted", *spread(pair.predicted_s), "s"),
        Row(case, f"{pair.change}: measured", *spread(pair.measured_s), "s"),
        Row(case, f"{pair.change}: error", pair.error, min(errors), max(errors), "ratio"),
    ]


def summary_rows(clock: str, pairs: Sequence[Pair]) -> list[Row]:
    """Medians over the pairs, with the 10th and 90th percentile."""
    unchanged = [pair.unchanged_error for pair in pairs]
    unseeded = [pair.unseeded_error for pair in pairs if pair.unseeded_s]
    return [
        Row(f"{clock}, all", "pairs", len(pairs), len(pairs), len(pairs), "pairs"),
        Row(f"{clock}, all", "error if nothing changed", *spread(unchanged), "ratio"),
        Row(f"{clock}, all", "error with cohorts at random", *spread(unseeded), "ratio"),
        Row(f"{clock}, all", "error", *spread([pair.error for pair in pairs]), "ratio", GOALS[clock], at_least=False),
    ]
