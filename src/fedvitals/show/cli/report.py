"""`fedvitals report RUN -o r.html`: verdict, profile and figures on one page that opens offline."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedvitals.show.cli.options import add_dir, add_json, add_run, opened

name = "report"
summary = "put the findings, the profile and the figures on one page that opens offline"
examples = (
    "fedvitals report last",
    "fedvitals report last -o report.html",
    "fedvitals report last -o report.html --json | jq .size_bytes",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="the page to write (default: RUN.html)")
    add_json(parser, "print JSON instead of words: the file and its size")
    add_dir(parser)


def run(args: argparse.Namespace) -> int:
    from fedvitals.show.cli.terminal import print_json, say
    from fedvitals.show.documents import run_document
    from fedvitals.show.report import write_report
    from fedvitals.show.words import safe, size

    with opened(args) as reader:
        one = reader.run()
        path = args.output if args.output is not None else Path(f"{one.id}.html")
        written = write_report(reader, path)
    if args.json:
        print_json({"run": run_document(one), "file": str(path), "size_bytes": written})
    else:
        say(f"{safe(path)} written, {size(written)}: it opens in any browser, without a network")
    return 0
