"""`fedvitals optimise JOB --target accuracy=0.9`: find cheaper ways to an accuracy, and write the job file of each."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedvitals.errors import EXIT_FAILED, FedvitalsError
from fedvitals.show.cli.options import add_dir, add_json, positive, settings_of

if TYPE_CHECKING:
    from fedvitals.show.cli.searching import Found, Tried
    from fedvitals.train.job import Job

name = "optimise"
summary = "search cheaper ways to an accuracy: the Pareto front, a job file a point"
examples = (
    "fedvitals optimise job.toml --target accuracy=0.9",
    "fedvitals optimise job.toml --target accuracy=0.9 --budget 10min --out better",
    "fedvitals optimise job.toml --target accuracy=0.9 --trials 9 --json | jq '.trials[] | select(.front)'",
)
UNITS_S = {"s": 1.0, "min": 60.0, "h": 3600.0}
MOST_TRIALS = 1_000
WAYS = 27
CLOSEST = 5  # trials that are shown where none reached the target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="a job file (TOML)")
    parser.add_argument(
        "--target", metavar="accuracy=A", type=_target, required=True, help="the accuracy that is to be reached"
    )
    parser.add_argument("--budget", metavar="TIME", type=_budget, help="how long it may search: 90s, 10min, 2h")
    parser.add_argument(
        "--trials", metavar="N", type=positive, default=WAYS, help=f"ways to try beside the job's own (default: {WAYS})"
    )
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="where job files go (default: NAME-optimised)")
    parser.add_argument("--picture", metavar="FILE", type=Path, help="where the picture goes (default: among the runs)")
    add_json(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    add_dir(parser)


def run(args: argparse.Namespace) -> int:
    from fedvitals.show.cli.terminal import say
    from fedvitals.show.cli.trials import write_picture
    from fedvitals.train.job import Job

    job, settings = Job.load(args.job), settings_of(args)
    folder = args.out or Path(f"{job.name}-optimised")
    _check(job, args, folder)
    from fedvitals.show.cli.searching import Budget, Search  # after the job was found to be in order

    tell = (lambda line: None) if args.quiet else say
    found = Search(job, args.target, settings, Budget(args.budget), tell).all(args.trials)
    points = _points(found)
    files = _write(job, points, folder, args.target) if found.reached else []
    _print(found, points, files, args)
    shown = found.reached or _every(found)
    if shown:
        write_picture(
            args.picture or Path(settings.dir) / f"{job.name}-optimise.html", job.name, [one.trial for one in shown]
        )
    if found.reached:
        return 0
    say(_why_not(found, args.target))
    return EXIT_FAILED


def _target(text: str) -> float:
    """An accuracy, for argparse."""
    word, _, number = (part.strip() for part in text.partition("="))
    try:
        value = float(number.removesuffix("%")) / (100.0 if number.endswith("%") else 1.0)
    except ValueError:
        value = math.nan
    if word != "accuracy" or not 0.0 < value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is no target; right is accuracy= and a number above 0, at most 1")
    return value


def _budget(text: str) -> float:
    """A time in seconds, for argparse."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(s|min|h)", text.strip())
    value = float(found[1]) * UNITS_S[found[2]] if found else 0.0
    if value <= 0.0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; right is a number and s, min or h, as in 10min")
    return value


def _check(job: Job, args: argparse.Namespace, folder: Path) -> None:
    """What can be known to be in vain before anything runs."""
    from fedvitals.train.target import IN_A_ROW

    evaluations = math.ceil(job.train.rounds / job.train.evaluate_every)
    if evaluations < IN_A_ROW:
        raise FedvitalsError(
            f"--target has to hold for {IN_A_ROW} evaluations, and train.rounds = {job.train.rounds} with "
            f"train.evaluate_every = {job.train.evaluate_every} has {evaluations}; right is at least "
            f"train.rounds = {IN_A_ROW * job.train.evaluate_every}"
        )
    if args.trials > MOST_TRIALS:
        raise FedvitalsError(f"--trials {args.trials} is out of range; right is at most {MOST_TRIALS:,}")
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not there.is_dir():
        raise FedvitalsError(f"--out {folder}: {there} is not a folder; right is a folder, or a name that is not taken")


def _every(found: Found) -> list[Tried]:
    every = [*([] if found.own is None else [found.own]), *found.others]
    return [one for one in every if one.trial.problem is None]


def _points(found: Found) -> list[Tried]:
    """The front of what reached the target, quickest first; the most accurate where nothing did."""
    from fedvitals.profile.pareto import front

    if not found.reached:
        return sorted(_every(found), key=lambda one: -(one.trial.accuracy or 0.0))[:CLOSEST]
    best = front([one.trial for one in found.reached])
    points = [one for one, is_best in zip(found.reached, best, strict=True) if is_best]
    return sorted(points, key=lambda one: one.trial.costs)


def _write(job: Job, points: list[Tried], folder: Path, target: float) -> list[Path]:
    """A job file a point; says which files of an earlier search stay beside them."""
    from fedvitals.show.cli.searching import as_file
    from fedvitals.show.cli.terminal import say
    from fedvitals.show.optimised import described
    from fedvitals.show.whole_file import whole_file
    from fedvitals.show.words import safe, seconds, size
    from fedvitals.train.job_file import job_file

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedvitalsError(f"--out {folder}: {error.strerror or error}") from error
    files = [folder / f"point-{number}.toml" for number in range(1, len(points) + 1)]
    for path, one in zip(files, points, strict=True):
        trial = one.trial
        remark = (
            f"{safe(described(trial), 2000)}\naccuracy {target:g} in {seconds(trial.wall_s)}, {size(trial.wire_bytes)} "
            f"and {size(trial.memory_bytes)} of memory: run {safe(trial.runs[0])}"
        )
        with whole_file(path, "--out") as file:
            file.write(job_file(as_file(job, one), remark))
    for left in sorted(set(folder.glob("point-*.toml")) - set(files)):
        say(f"{safe(left)} is of an earlier search")
    return files


def _print(found: Found, points: list[Tried], files: list[Path], args: argparse.Namespace) -> None:
    from fedvitals.show.cli.terminal import print_json, print_lines, print_table
    from fedvitals.show.optimised import optimised_table

    if args.json:
        print_json(_document(found, points, files, args))
        return
    own = None if found.own is None else found.own.trial
    names = [str(path) for path in files] or [""] * len(points)
    title = "Pareto front" if found.reached else "nothing reached the target; closest came"
    print_table(optimised_table(title, own, [one.trial for one in points], names), most=None)
    print()
    print_lines(_lines(found, args.target))


def _lines(found: Found, target: float) -> list[tuple[str, str]]:
    from fedvitals.show.optimised import described
    from fedvitals.show.words import plural, safe

    own = found.own is not None and found.own.standing.reached
    tried, reached = len(found.others), len(found.reached) - own
    lines = [
        ("target", f"accuracy {target:g}; the job as it is {'reached' if own else 'did not reach'} it"),
        ("tried", f"{plural(tried, 'other way')}, of which {reached} reached it"),
    ]
    failed = [one.trial for one in found.others if one.trial.problem is not None]
    lines += [("failed", safe(f"{described(one)}: {one.problem}", 400)) for one in failed]
    if found.not_tried:
        lines.append(
            ("not tried", f"{plural(len(found.not_tried), 'trial')}, for want of time; the same command goes on")
        )
    lines += [("not tried", safe(one, 400)) for one in found.not_tried]
    return lines + [("left out", safe(one, 400)) for one in found.left_out]


def _document(found: Found, points: list[Tried], files: list[Path], args: argparse.Namespace) -> dict[str, Any]:
    from fedvitals.show.optimised import standing_document

    by_run = {one.trial.runs: str(path) for one, path in zip(points, files, strict=False)}
    own = None if found.own is None else found.own.trial
    every = [*([] if found.own is None else [found.own]), *found.others]
    return {
        "target": {"accuracy": args.target},
        "reached": bool(found.reached),
        "trials": [standing_document(one.standing, own, by_run.get(one.trial.runs)) for one in every],
        "not_tried": found.not_tried,
        "left_out": list(found.left_out),
    }


def _why_not(found: Found, target: float) -> str:
    from fedvitals.show.optimised import described

    known = [one for one in _every(found) if one.trial.accuracy is not None]
    if not known:
        return f"--target accuracy={target:g} was not reached: --budget was over before the job as it is was done"
    best = max(known, key=lambda one: one.trial.accuracy or 0.0)
    return (
        f"--target accuracy={target:g} was not reached: the best was {best.trial.accuracy:.4f}, with "
        f"{described(best.trial)} in {best.job.train.rounds} rounds; try a larger train.rounds, another train.lr or "
        f"model, a longer --budget, or a lower --target"
    )
