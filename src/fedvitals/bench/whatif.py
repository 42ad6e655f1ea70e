"""How good what-if predictions are: predicted against measured total time, pair by pair of a job and a change.

A job is run as it is and with each of its changes; the prediction knows only the first run. On the virtual clock once:
it repeats exactly. On the real clock the two take turns, and the median error over the turns counts: a machine that
does other things at the same time is noisy to both. Most of the real jobs wait for slow links or silent clients, as
federations do; those that only compute are as uncertain as the machine is busy. Beside the error: how far off it would
be to predict that nothing changes, or without the engine's seed, which says whom it would have asked.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from statistics import median

from fedvitals.bench.table import Row, spread
from fedvitals.bench.whatif_cases import REAL, VIRTUAL, Case, Change
from fedvitals.profile.profile import Profile, profile_of
from fedvitals.profile.trying import tried
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

    def add(self, change: Change, model: Model, after: Profile) -> None:
        """One more turn; what is predicted knows only the first of the two runs."""
        predicted = change.predict(model)
        other = change.predict(replace(model, draw=as_recorded(model.timeline)))
        if isinstance(predicted, Prediction):
            self.before_s.append(model.profile.wall_s)
            self.predicted_s.append(predicted.predicted_s)
            self.unseeded_s.append(other.predicted_s if isinstance(other, Prediction) else math.nan)
            self.measured_s.append(after.wall_s)

    def errors(self, predicted_s: Sequence[float]) -> list[float]:
        """Of each turn: positive where more was predicted than measured."""
        return [a / b - 1.0 for a, b in zip(predicted_s, self.measured_s, strict=True)]

    @property
    def error(self) -> float:
        """Of the prediction: the median over the turns."""
        return abs(median(self.errors(self.predicted_s)))

    @property
    def unseeded_error(self) -> float:
        """Of the prediction by whom the engine's seed is not known."""
        return abs(median(self.errors(self.unseeded_s)))

    @property
    def unchanged_error(self) -> float:
        """Of the prediction that nothing changes."""
        return abs(median(self.errors(self.before_s)))


def run(quick: bool = False) -> list[Row]:
    """Every pair, and the medians that are held to a goal."""
    virtual, real = (VIRTUAL[:2], REAL[:1]) if quick else (VIRTUAL, REAL)
    rows: list[Row] = []
    for clock, cases, turns in (("virtual clock", virtual, 1), ("real clock", real, 1 if quick else TURNS)):
        pairs = [pair for case in cases for pair in measured(case, turns)]
        rows += [row for pair in pairs for row in pair_rows(clock, pair)]
        rows += summary_rows(clock, pairs)
    return rows


def measured(case: Case, turns: int) -> list[Pair]:
    """The pairs of a job. On the real clock each change takes turns with the job as it is."""
    print(f"{case.name} ...", file=sys.stderr, flush=True)
    job = Job.from_dict(case.job)
    virtual = job.execute.clock == "virtual"
    specs = [change.codec for change in case.changes if change.codec]
    first = model_run(job, specs)
    pairs = []
    for change, changed in _jobs(case, job, first):
        pair = Pair(case.name, change.name)
        for turn in range(1 if virtual else turns):
            before, after = (first, profile_run(changed)) if virtual else _turn(job, changed, specs, turn)
            pair.add(change, before, after)
        pairs += [pair] if pair.predicted_s else []
    return pairs


def _turn(job: Job, changed: Job, specs: Sequence[str], turn: int) -> tuple[Model, Profile]:
    """As it is, and changed; who goes first alternates."""
    if turn % 2:
        after = profile_run(changed)
        return model_run(job, specs), after
    before = model_run(job, specs)
    return before, profile_run(changed)


def _jobs(case: Case, job: Job, model: Model) -> Iterator[tuple[Change, Job]]:
    """The changed jobs. A change that the first run does not tell about is left out, saying so."""
    for change in case.changes:
        predicted = change.predict(model)
        if isinstance(predicted, Prediction):
            yield change, job.replaced(predicted.job or {}, source=change.name)
        else:
            print(f"{case.name}: {change.name} is not predicted: {predicted}", file=sys.stderr)


def profile_run(job: Job) -> Profile:
    """Carries a job out, recorded in a folder of its own."""
    return model_run(job).profile


def model_run(job: Job, specs: Sequence[str] = ()) -> Model:
    """The same, with what these codecs make of the updates that it kept."""
    with tempfile.TemporaryDirectory() as folder, one_thread():
        settings = resolve({"mode": "on", "dir": folder})
        result = train(job, settings=settings)
        with closing(open_store(settings).open(result.run_id or "last")) as reader:
            return Model.of(profile_of(reader), tried(reader, specs))


def pair_rows(clock: str, pair: Pair) -> list[Row]:
    case = f"{clock}: {pair.job}"
    errors = [abs(error) for error in pair.errors(pair.predicted_s)]
    return [
        Row(case, f"{pair.change}: predicted", *spread(pair.predicted_s), "s"),
        Row(case, f"{pair.change}: measured", *spread(pair.measured_s), "s"),
        Row(case, f"{pair.change}: error", pair.error, min(errors), max(errors), "ratio"),
    ]


def summary_rows(clock: str, pairs: Sequence[Pair]) -> list[Row]:
    """Medians over the pairs, with the 10th and 90th percentile."""
    unchanged = [pair.unchanged_error for pair in pairs]
    unseeded = [pair.unseeded_error for pair in pairs if math.isfinite(pair.unseeded_error)]
    return [
        Row(f"{clock}, all", "pairs", len(pairs), len(pairs), len(pairs), "pairs"),
        Row(f"{clock}, all", "error if nothing changed", *spread(unchanged), "ratio"),
        Row(f"{clock}, all", "error with cohorts at random", *spread(unseeded), "ratio"),
        Row(f"{clock}, all", "error", *spread([pair.error for pair in pairs]), "ratio", GOALS[clock], at_least=False),
    ]
