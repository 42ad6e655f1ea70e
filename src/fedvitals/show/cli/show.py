"""`fedvitals show RUN`: one run's rounds, clients and failures; one round; one client; layers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fedvitals.errors import FedvitalsError, nearest
from fedvitals.show.cli.options import add_dir, add_json, add_run, natural_number, opened

if TYPE_CHECKING:
    from fedvitals.show.view import View
    from fedvitals.store.protocol import RunReader

name = "show"
summary = "show one run: its rounds, clients and failures"
examples = (
    "fedvitals show last",
    "fedvitals show last --round 5",
    "fedvitals show last --client 3 --layers",
    "fedvitals show last --json | jq '.rounds[-1].accuracy'",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--round", metavar="N", type=natural_number, help="the participations of one round")
    only.add_argument("--client", metavar="ID", help="one client's history over the rounds")
    parser.add_argument(
        "--layers", action="store_true", help="statistics a layer: of the updates shown, else of the global model"
    )
    parser.add_argument("--all", action="store_true", help="every row of long tables, not the last 40")
    add_json(parser)
    add_dir(parser)


def run(args: argparse.Namespace) -> int:
    from fedvitals.show.cli.terminal import MOST_ROWS, print_json, print_lines, print_table

    with opened(args) as reader:
        view = _view(args, reader)
        if args.json:
            print_json(view.document())
            return 0
        print_lines(view.header())
        for table in view.tables():
            print()
            print_table(table, most=None if args.all else MOST_ROWS)
    return 0


def _view(args: argparse.Namespace, reader: RunReader) -> View:
    from fedvitals.show.view import View

    if args.round is not None:
        numbers = [one.number for one in reader.rounds()]
        if args.round not in numbers:
            there = f"it has {min(numbers)} to {max(numbers)}" if numbers else "it has none yet"
            raise FedvitalsError(f"--round {args.round}: run {reader.run().id} has no such round; {there}")
    if args.client is not None:
        clients = reader.clients()
        if args.client not in clients:
            hint = nearest(args.client, clients) if len(clients) <= 100 else ""
            raise FedvitalsError(f"--client {args.client}: run {reader.run().id} has no such client{hint}")
    return View(reader, round=args.round, client=args.client, layers=args.layers)
