"""`fedvitals sweep JOB --set KEY=A,B,C`: the job in every combination, each a run of its own; a table, a picture and
the Pareto front."""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedvitals.errors import FedvitalsError
from fedvitals.show.cli.options import add_dir, add_json, positive, settings_of

if TYPE_CHECKING:
    from fedvitals.profile.pareto import Trial
    from fedvitals.settings import Settings
    from fedvitals.show.cli.trials import Measured
    from fedvitals.train.job import Job

name = "sweep"
summary = "run a job in many ways: a table, a picture, the Pareto front"
examples = (
    "fedvitals sweep job.toml --set train.batch_size=8,16,32,64,128",
    "fedvitals sweep job.toml --set execute.executor=sequential,vectorised --set train.epochs=1,3 --seeds 3",
    "fedvitals sweep job.toml --set model.hidden=[32],[64],[64,32] --picture sweep.html",
    "fedvitals sweep job.toml --set train.lr=0.01,0.1 --json | jq '.trials[] | select(.front)'",
)
MOST_TRIALS = 1_000

Combination = tuple[tuple[str, str], ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="a job file (TOML)")
    parser.add_argument(
        "--set",
        metavar="KEY=A,B,...",
        action="append",
        default=[],
        help="values that one key of the job takes; given again, every combination is tried",
    )
    parser.add_argument(
        "--seeds", metavar="N", type=positive, default=1, help="run each with so many seeds (default: 1)"
    )
    parser.add_argument("--picture", metavar="FILE", type=Path, help="where the picture goes (default: among the runs)")
    add_json(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    add_dir(parser)


def run(args: argparse.Namespace) -> int:
    from fedvitals.show.cli.terminal import print_json, print_table
    from fedvitals.show.cli.trials import write_picture
    from fedvitals.show.sweeps import sweep_document, sweep_table
    from fedvitals.train.job import Job

    job, settings = Job.load(args.job), settings_of(args)
    combinations = _combinations(args.set, args.seeds)
    plans = [[_planned(job, one, seed) for seed in range(args.seeds)] for one in combinations]
    trials: list[Trial] = []
    for one, jobs in zip(combinations, plans, strict=True):
        trials.append(_trial(one, jobs, settings, quiet=args.quiet, place=f"{len(trials) + 1}/{len(plans)}"))
    if args.json:
        print_json(sweep_document(trials))
    else:
        print_table(sweep_table(trials), most=None)
    write_picture(args.picture or Path(settings.dir) / f"{job.name}-sweep.html", job.name, trials)
    return 2 if all(one.problem for one in trials) else 0


def _combinations(pairs: list[str], seeds: int) -> list[Combination]:
    """Every choice of one value a key."""
    if not pairs:
        raise FedvitalsError("sweep needs what to vary: for example --set train.batch_size=8,16,32")
    keys: dict[str, list[str]] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        values = _values(text)
        if not equals or not key.strip() or not values:
            raise FedvitalsError(f"--set {pair!r} names no values; right is for example --set train.batch_size=8,16,32")
        if key.strip() in keys:
            raise FedvitalsError(f"--set {pair!r} names {key.strip()} again; right is one --set with all its values")
        keys[key.strip()] = list(dict.fromkeys(values))
    found = [tuple(zip(keys, choice, strict=True)) for choice in product(*keys.values())]
    if len(found) * seeds > MOST_TRIALS:
        raise FedvitalsError(f"that makes {len(found) * seeds:,} runs; right are at most {MOST_TRIALS:,}")
    return found


def _values(text: str) -> list[str]:
    """Split at commas, but not inside of brackets."""
    found, depth = [""], 0
    for sign in text:
        depth += (sign == "[") - (sign == "]")
        if sign == "," and depth == 0:
            found.append("")
        else:
            found[-1] += sign
    return [one.strip() for one in found if one.strip()]


def _planned(job: Job, values: Combination, seed: int) -> Job:
    """Checked before anything runs: a wrong key or value ends the command at once."""
    changes: dict[str, Any] = dict(values)
    changes.setdefault("name", f"{job.name}-sweep"[:70])
    planned = job.replaced(changes, source="--set")
    return planned.replaced({"seed": planned.seed + seed})


def _trial(values: Combination, jobs: list[Job], settings: Settings, *, quiet: bool, place: str) -> Trial:
    from fedvitals.show.cli.terminal import say
    from fedvitals.show.cli.trials import already, measured, run_apart

    label = " ".join(f"{key}={value}" for key, value in values)
    done = []
    for job in jobs:
        known = already(job, settings)
        if not quiet:
            say(f"[{place}] {label}" + (" (there already)" if known else ""))
        try:
            done.append(measured(known or run_apart(job, settings), settings))
        except FedvitalsError as error:
            return _without_result(values, str(error))
    return _medians(values, done)


def _medians(values: Combination, done: list[Measured]) -> Trial:
    from statistics import median

    from fedvitals.profile.pareto import Trial

    columns = zip(*(one.numbers for one in done), strict=True)
    known = [[one for one in column if one is not None] for column in columns]
    middles = [median(column) if column else None for column in known]
    return Trial(values, tuple(one.run_id for one in done), *middles)


def _without_result(values: Combination, problem: str) -> Trial:
    from fedvitals.profile.pareto import Trial

    return Trial(values, (), None, None, None, None, None, problem)
