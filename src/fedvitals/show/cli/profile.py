"""`fedvitals profile RUN`: where the time and the bytes went, who was waited for, and what would make it shorter."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fedvitals.show.cli.options import add_dir, add_json, add_run, opened, positive, settings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedvitals.profile.communication import Encoded
    from fedvitals.profile.memory import MemoryProfile
    from fedvitals.profile.profile import Profile
    from fedvitals.profile.whatif.prediction import Verified
    from fedvitals.profile.whatif.registry import WhatIf
    from fedvitals.store.protocol import RunReader

name = "profile"
summary = "where a run's time, memory and bytes went; the bottleneck; what-if"
examples = (
    "fedvitals profile last",
    "fedvitals profile last --target 0.9",
    "fedvitals profile last --all",
    "fedvitals profile last --verify      # runs the job with the 3 best changes",
    "fedvitals profile last --codec all   # needs updates that were kept",
    "fedvitals profile last --json | jq .breakdown_s",
)
BEST = 3


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
    parser.add_argument(
        "--codec",
        metavar="SPEC",
        action="append",
        default=[],
        help="what this codec would have sent, where updates were kept; may be given again; 'all': each that is known",
    )
    parser.add_argument("--all", action="store_true", help="every client and round, not only the longest")
    parser.add_argument(
        "--verify",
        metavar="N",
        nargs="?",
        const=BEST,
        type=positive,
        help=f"run the job with the N best changes that can be made ({BEST} without a number), in a temporary folder, "
        "and hold the predictions against it",
    )
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
    from dataclasses import asdict

    from fedvitals.profile.learning import reached
    from fedvitals.profile.memory import memory_profile
    from fedvitals.profile.profile import profile_of
    from fedvitals.profile.trying import MOST_TRIED, tried
    from fedvitals.profile.whatif.changes.compress import OFFERED
    from fedvitals.profile.whatif.registry import what_if
    from fedvitals.show.cli.encoding import kept_line
    from fedvitals.show.cli.terminal import print_json
    from fedvitals.show.memories import memory_document
    from fedvitals.show.profiles import profile_document

    with opened(args) as reader:
        profile, memory = profile_of(reader), memory_profile(reader)
        codecs = _encoded(reader, args.codec)
        kept = kept_line(reader)
        known = what_if(profile, tried=tried(reader, [codec for codec, _ in OFFERED], MOST_TRIED))
    if args.json:
        verified = _verified(profile, known, args)
        targets = [reached(profile.timeline, profile.evaluations, target) for target in args.target]
        document = profile_document(profile, known.predictions, targets, known.declined, verified)
        print_json({**document, "memory": memory_document(memory), "codecs": [asdict(one) for one in codecs]})
        return 0
    if args.verify is not None:
        from fedvitals.show.cli.verifying import job_of

        job_of(profile)  # refuses before anything is said
    _print(profile, memory, codecs, kept, args)
    _print_changes(known, _verified(profile, known, args))
    return 0


def _encoded(reader: RunReader, specs: Sequence[str]) -> list[Encoded]:
    if not specs:
        return []
    from fedvitals.show.cli.encoding import encoded

    return encoded(reader, specs)


def _verified(profile: Profile, known: WhatIf, args: argparse.Namespace) -> list[Verified] | None:
    """None where nobody asked for it."""
    if args.verify is None:
        return None
    from fedvitals.show.cli.verifying import verify

    return verify(profile, known.predictions, args.verify, settings_of(args))


def _print(
    profile: Profile, memory: MemoryProfile, codecs: Sequence[Encoded], kept: str | None, args: argparse.Namespace
) -> None:
    from fedvitals.profile.learning import reached
    from fedvitals.show import memories, profiles
    from fedvitals.show.cli.terminal import print_lines, print_table
    from fedvitals.show.words import plural, safe, seconds

    run = profile.run
    lines = [
        ("run", f"{safe(run.name)}   {safe(run.id)}"),
        ("wall", f"{seconds(profile.wall_s)}, {plural(len(profile.rounds), 'round')}, {run.status.value}"),
    ]
    lines += profiles.course_lines(profile.course)
    lines += [
        ("target", profiles.reached_line(one, reached(profile.timeline, profile.evaluations, one)))
        for one in args.target
    ]
    skipped = memories.skipped_line(memory)
    lines += memories.memory_lines(memory) + ([("", skipped)] if skipped else [])
    lines += [("updates", kept)] if kept else []
    lines += [("note", safe(note)) for note in profile.notes]
    print_lines(lines)
    most = None if args.all else profiles.MOST_CLIENTS
    tables = [
        profiles.breakdown_table(profile.breakdown_s, profile.wall_s, profile.clients_breakdown_s),
        profiles.clients_table(profile.clients, most),
        *([profiles.own_times_table(profile.clients)] if args.all else []),
        profiles.rounds_table(profile.rounds, most),
        profiles.bytes_table(profile),
        *([profiles.client_bytes_table(profile), profiles.layers_table(profile)] if args.all else []),
        profiles.codecs_table(codecs),
        *memories.memory_tables(memory),
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


def _print_changes(known: WhatIf, verified: Sequence[Verified] | None) -> None:
    from fedvitals.show import profiles
    from fedvitals.show.cli.terminal import print_lines, print_table

    lines = profiles.assumption_lines(known.predictions, known.declined)
    if known.predictions:
        print()
        print_table(profiles.predictions_table(known.predictions), most=None)
    if lines:
        print()
        print_lines(lines)
    if verified:
        print()
        print_table(profiles.verified_table(verified), most=None)
