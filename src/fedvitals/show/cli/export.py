"""`fedvitals export RUN --to FORMAT`: a run in the format of another tool."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedvitals.errors import FedvitalsError, nearest
from fedvitals.show.cli.options import add_dir, add_json, add_run, opened

name = "export"
summary = "write a run in the format of another tool: perfetto"
examples = (
    "fedvitals export last --to perfetto",
    "fedvitals export last --to perfetto -o trace.json.gz     # packed",
    "fedvitals export last --to perfetto --rounds 10-19",
)
FORMATS = {"perfetto": ".perfetto.json"}  # and how a file's name ends


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--to", metavar="FORMAT", required=True, help=f"one of: {', '.join(FORMATS)}")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="the file to write; .gz packs it (default: RUN and the format)",
    )
    parser.add_argument("--rounds", metavar="FIRST-LAST", type=_rounds, help="only these rounds: 10-19, or 7")
    add_json(parser, "print JSON instead of words: the file, its size and its events")
    add_dir(parser)


def _rounds(text: str) -> range:
    first, dash, last = text.partition("-")
    try:
        found = range(int(first), int(last if dash else first) + 1)
    except ValueError:
        found = range(0)
    if not found or found[0] < 0:
        raise argparse.ArgumentTypeError(f"{text!r} names no rounds; right is 10-19, or 7")
    return found


def run(args: argparse.Namespace) -> int:
    from fedvitals.export.perfetto import write_trace
    from fedvitals.show.cli.terminal import print_json, say
    from fedvitals.show.documents import run_document
    from fedvitals.show.whole_file import whole_file
    from fedvitals.show.words import plural, safe, size

    if args.to not in FORMATS:
        raise FedvitalsError(f"--to {args.to!r} is no format{nearest(args.to, list(FORMATS))}")
    with opened(args) as reader:
        one = reader.run()
        path = args.output if args.output is not None else Path(f"{one.id}{FORMATS[args.to]}")
        with whole_file(path, "-o") as file:
            written = write_trace(reader, file, rounds=args.rounds)
            if args.rounds is not None and not written.rounds:
                raise FedvitalsError(f"--rounds: the run has none of the rounds {args.rounds[0]} to {args.rounds[-1]}")
    took = path.stat().st_size
    if args.json:
        print_json({"run": run_document(one), "file": str(path), "size_bytes": took, **written._asdict()})
        return 0
    say(f"{safe(path)} written, {size(took)}: {plural(written.events, 'event')} of {plural(written.rounds, 'round')}")
    if written.left_out:
        say(f"{written.left_out:,} of them left out: too much went on at once in one place")
    return 0
