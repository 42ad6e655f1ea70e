"""`fedvitals runs`: what is in the store."""

from __future__ import annotations

import argparse

from fedvitals.show.cli.options import add_dir, add_json, positive, settings_of

name = "runs"
summary = "list the runs in the store, newest first"
examples = (
    "fedvitals runs",
    "fedvitals runs --limit 5",
    "fedvitals runs --json | jq -r '.runs[] | select(.status == \"cut off\") | .id'",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", metavar="N", type=positive, help="only the N newest")
    add_json(parser)
    add_dir(parser)


def run(args: argparse.Namespace) -> int:
    from fedvitals.show.cli.terminal import print_json, print_table, say
    from fedvitals.show.documents import overview_document
    from fedvitals.show.overview import overviews
    from fedvitals.show.tables import runs_table
    from fedvitals.show.words import plural, safe
    from fedvitals.store import open_store

    settings = settings_of(args)
    found, damaged = overviews(open_store(settings), limit=args.limit)
    if args.json:
        broken = [{"id": run_id, "reason": reason} for run_id, reason in damaged]
        print_json({"runs": [overview_document(one) for one in found], "damaged": broken})
    elif found:
        print_table(runs_table(found), most=None)
    else:
        say(f"no runs in {safe(settings.store or settings.dir)} yet; to make one: fedvitals demo")
    for run_id, reason in damaged:
        say(f"cannot be read: {safe(run_id)}: {safe(reason)}")
    if damaged and not args.json:
        say(f"{plural(len(damaged), 'run')} left out")
    return 0
