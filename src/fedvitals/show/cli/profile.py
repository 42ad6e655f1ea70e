"""`fedvitals profile RUN`: where the time and the bytes went, who was waited for, and what would make it shorter."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fedvitals.show.cli.options import add_dir, add_json, add_run, opened

if TYPE_CHECKING:
    from fedvitals.profile.profile import Profile

name = "profile"
summary = "where a run's time, memory and bytes went; the bottleneck; what-if"
examples = (
    "fedvitals profile last",
    "fedvitals profile last --target 0.9",
    "fedvitals profile last --all",
    "fedvitals profile last --json | jq .breakdown_s",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--target",
        metavar="ACCURACY",
        type=_accuracy,
        action="append",
        default=[],
        help="rounds, time and bytes until the global model was this good; may be given again",
    )
    parser.add_argument("--all", action="store_true", help="every client and round, not only the longest")
    add_json(parser)
    add_dir(parser)


def _accuracy(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 < value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is no accuracy; right is a number above 0 and at most 1")
    return value


def run(args: argparse.Namespace) -> int:
    from fedvitals.profile.learning import reached
    from fedvitals.profile.profile import profile_of
    from fedvitals.show.cli.terminal import print_json
    from fedvitals.show.profiles import profile_document

    with opened(args) as reader:
        profile = profile_of(reader)
        targets = [reached(profile.timeline, profile.evaluations, target) for target in args.target]
        if args.json:
            print_json(profile_document(profile, (), targets))
            return 0
        _print(profile, args)
    return 0


def _print(profile: Profile, args: argparse.Namespace) -> None:
    from fedvitals.profile.learning import reached
    from fedvitals.show import profiles
    from fedvitals.show.cli.terminal import print_lines, print_table
    from fedvitals.show.words import plural, safe, seconds

    run = profile.run
    lines = [
        ("run", f"{safe(run.name)}   {safe(run.id)}"),
        ("wall", f"{seconds(profile.wall_s)}, {plural(len(profile.rounds), 'round')}, {run.status.value}"),
    ]
    trend = profiles.trend_line(profile.rounds)
    lines += [("trend", trend)] if trend else []
    lines += [
        ("target", profiles.reached_line(one, reached(profile.timeline, profile.evaluations, one)))
        for one in args.target
    ]
    lines += [("note", safe(note)) for note in profile.notes]
    print_lines(lines)
    most = None if args.all else profiles.MOST_CLIENTS
    tables = [
        profiles.breakdown_table(profile.breakdown_s, profile.wall_s),
        profiles.clients_table(profile.clients, most),
        profiles.rounds_table(profile.rounds, most),
        profiles.bytes_table(profile),
    ]
    for table in tables:
        if table.rows:
            print()
            print_table(table, most=None)
    print()
    verdict = [("bottleneck", profiles.verdict_line(profile))]
    if profile.bottleneck is not None:
        verdict.append(("why", safe(profile.bottleneck.why, 400)))
    print_lines(verdict)
