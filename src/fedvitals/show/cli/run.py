"""`fedvitals run JOB.toml`: run a job, recorded, with live progress."""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import TYPE_CHECKING, Any

from fedvitals.show.cli.options import add_dir, add_json, assignments, next_command, settings_of

if TYPE_CHECKING:
    from fedvitals.diagnose import Diagnosis
    from fedvitals.settings import Settings
    from fedvitals.train.job import Job
    from fedvitals.train.result import Result

name = "run"
summary = "run a job, recorded, with live progress"
examples = (
    "fedvitals run job.toml",
    "fedvitals run job.toml --set train.rounds=5 --set data.alpha=0.1",
    "fedvitals run job.toml --quiet --json | tail -n 1",
    "fedvitals run job.toml --no-record",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help='a job file (TOML); the smallest says [data] source = "digits"')
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="change one key of the job; may be repeated"
    )
    add_json(parser, "end with one line of JSON instead of words")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    add_dir(parser)
    parser.add_argument("--no-record", action="store_true", help="train without recording anything")


def run(args: argparse.Namespace) -> int:
    from fedvitals.show.cli.live import progress
    from fedvitals.train.job import Job

    job = Job.load(args.job).replaced(assignments(args.set), source="--set")
    settings = settings_of(args, mode="off") if args.no_record else settings_of(args)
    from fedvitals.train.engine import train  # brings torch: after the job was found to be in order

    with progress(quiet=args.quiet) as told:
        result = train(job, settings=settings, progress=told)
    diagnosis = None if result.run_id is None else examined(settings, result.run_id)
    _print(job, result, settings, diagnosis, as_json=args.json)
    return 0


def examined(settings: Settings, run_id: str) -> Diagnosis | None:
    """What the doctor says of a run that has just ended; None, and a line on stderr, when it cannot be read."""
    from fedvitals.diagnose import diagnose
    from fedvitals.errors import StoreError
    from fedvitals.show.cli.terminal import say
    from fedvitals.show.words import safe
    from fedvitals.store import open_store

    try:
        with closing(open_store(settings).open(run_id)) as reader:
            return diagnose(reader)
    except StoreError as error:  # the training is done all the same
        say(f"no diagnosis: {safe(error, 2000)}")
        return None


def _print(job: Job, result: Result, settings: Settings, diagnosis: Diagnosis | None, *, as_json: bool) -> None:
    from fedvitals.show.cli.terminal import print_json, print_lines, print_texts
    from fedvitals.show.findings import styled_verdict

    if as_json:
        print_json(result_document(result, diagnosis), one_line=True)
        return
    print_lines(result_lines(job, result, settings))
    if diagnosis is not None:
        print()
        print_texts(styled_verdict(diagnosis))
        print_lines([("next", line) for line in following(diagnosis, settings)])


def following(diagnosis: Diagnosis, settings: Settings) -> list[str]:
    """The commands to type next: the doctor where something was found, else the run itself."""
    if not diagnosis.findings:
        return [next_command("show last", settings)]
    explain = next_command(f"explain {diagnosis.findings[0].code}", settings, on_store=False)
    return [next_command("doctor last", settings), explain]


def result_document(result: Result, diagnosis: Diagnosis | None) -> dict[str, Any]:
    """The line that `run --json` ends with."""
    from fedvitals.diagnose.words import naming
    from fedvitals.show.findings import finding_document

    findings = diagnosis.findings if diagnosis is not None else ()
    return {
        "run": result.run_id,
        "rounds": result.rounds,
        "accuracy": result.accuracy,
        "loss": result.loss,
        "wall_s": result.wall_s,
        "bytes_up": result.bytes_up,
        "bytes_down": result.bytes_down,
        "weights_sha256": result.weights_sha256,
        "findings": [finding_document(one, naming(result.run_id or "")) for one in findings],
    }


def _target_lines(job: Job, result: Result) -> list[tuple[str, str]]:
    """Whether a training that was to end early did."""
    stop_at, rounds = job.train.stop_at, job.train.rounds
    if not stop_at:
        return []
    if result.rounds < rounds:
        return [("target", f"accuracy {stop_at:g} was held (train.stop_at): it ended before its {rounds} rounds")]
    return [("target", f"accuracy {stop_at:g} was not held before the last round (train.stop_at)")]


def result_lines(job: Job, result: Result, settings: Settings) -> list[tuple[str, str]]:
    """What a person reads when a job is done."""
    from fedvitals.show.words import fixed, plural, safe, seconds, size

    lines = [
        ("result", f"loss {fixed(result.loss)}, accuracy {fixed(result.accuracy)}"),
        (
            "took",
            f"{seconds(result.wall_s)} for {plural(result.rounds, 'round')}, {result.clients_per_s:,.0f} clients/s, "
            "set-up included",
        ),
        *_target_lines(job, result),
        ("sent", f"{size(result.bytes_down)} to clients, {size(result.bytes_up)} back"),
        ("weights", f"sha256 {result.weights_sha256[:16]}"),
    ]
    if result.run_id is None:
        return [*lines, ("run", "not recorded")]
    return [*lines, ("run", f"{safe(result.run_id)} in {safe(settings.store or settings.dir)}")]
