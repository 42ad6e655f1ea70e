"""`fedvitals bench NAME`: the measurements behind our claims.

A bench is a module of `fedvitals.bench` with a `run`, or a package that exports one. Options beyond `--quick` go to the
benches whose `run` has an argument of that name; others refuse them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedvitals.errors import FedvitalsError, nearest
from fedvitals.show.cli.options import add_json

if TYPE_CHECKING:
    from fedvitals.bench.table import Row
    from fedvitals.show.tables import Table

name = "bench"
summary = "measure what we claim: speed, overhead, size"
examples = (
    "fedvitals bench                      # which there are",
    "fedvitals bench startup",
    "fedvitals bench startup --quick --json | jq '.rows[].value'",
    "fedvitals bench faults --minutes 60  # goes on where it was stopped",
    "fedvitals bench faults --minutes 0 --write docs",
)
OPTIONS = ("minutes", "data", "tuning", "results", "redo", "only", "write")  # what only some benches take


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bench", metavar="NAME", nargs="?", help="which one; without it, the list of all")
    parser.add_argument("--quick", action="store_true", help="fewer repeats: to see that it works, not to quote")
    parser.add_argument(
        "--minutes", metavar="N", type=_minutes, help="faults, codecs: begin nothing after so many minutes"
    )
    parser.add_argument(
        "--data", metavar="FOLDER", help="faults, codecs: where the data sets are (default: ../shared/data)"
    )
    parser.add_argument("--tuning", action="store_true", help="faults: only what rules may be developed on")
    parser.add_argument(
        "--results",
        metavar="FILE",
        help="faults, codecs: where results are kept (default: in .bench; faults --write: beside the page)",
    )
    parser.add_argument("--redo", action="store_true", help="faults: play again what other rules have judged")
    parser.add_argument("--only", metavar="PROBLEM", help="codecs: race this one; the page keeps all else as it is")
    parser.add_argument(
        "--write",
        metavar="FOLDER",
        help="faults, async, codecs, optimise: make its page and picture in this documentation",
    )
    add_json(parser)


def _minutes(text: str) -> float:
    """A number of minutes, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes from 0 up")
    return value


def run(args: argparse.Namespace) -> int:
    from fedvitals.show.cli.terminal import print_json, print_table, say

    known = benches()
    if args.bench is None:
        if args.json:
            print_json({"benches": [{"name": word, "question": question} for word, question in known.items()]})
        else:
            print_table(list_table(known), most=None)
        return 0
    if args.bench not in known:
        raise FedvitalsError(f"there is no bench {args.bench!r}{nearest(args.bench, list(known))}")
    if not args.json:
        say(f"{args.bench}: measuring; this machine should be idle ...")
    rows = _measured(args.bench, args)
    if args.json:
        print_json({"bench": args.bench, "rows": [row.document() for row in rows]})
    else:
        print_table(rows_table(rows), most=None)
    return 0


def _measured(bench: str, args: argparse.Namespace) -> Sequence[Row]:
    from importlib import import_module
    from inspect import signature

    measure = import_module(f"fedvitals.bench.{bench}").run
    asked = ((option, getattr(args, option)) for option in OPTIONS)
    given = {option: value for option, value in asked if value is not None and value is not False}  # 0 was asked for
    for option in given:
        if option not in signature(measure).parameters:
            raise FedvitalsError(f"bench {bench} takes no --{option}")
    rows: Sequence[Row] = measure(quick=args.quick, **given)
    return rows


def benches() -> dict[str, str]:
    """Name and question of each bench, read from the files: importing them all would load torch."""
    from pathlib import Path

    import fedvitals.bench

    folder = Path(str(fedvitals.bench.__file__)).parent
    found = {}
    for path in sorted([*folder.glob("*.py"), *folder.glob("*/__init__.py")]):
        question = _question(path.read_text(encoding="utf-8"))
        if question is not None:
            found[path.parent.name if path.stem == "__init__" else path.stem] = question
    return dict(sorted(found.items()))


def _question(source: str) -> str | None:
    """The first line of a bench's docstring; None for a module that is no bench."""
    import ast

    tree = ast.parse(source)
    made = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    exported = {one.asname for node in tree.body if isinstance(node, ast.ImportFrom) for one in node.names}
    if "run" not in made | exported:
        return None
    return (ast.get_docstring(tree) or "").partition("\n")[0].rstrip(".")


def list_table(known: dict[str, str]) -> Table:
    from fedvitals.show.tables import Table

    return Table("", ("bench", "what it measures"), tuple(known.items()), frozenset({"bench", "what it measures"}))


def rows_table(rows: Sequence[Row]) -> Table:
    """Measurements with their spread, their goal, and whether it was met."""
    from fedvitals.show.tables import Table
    from fedvitals.show.words import number, safe

    drawn = [
        (
            safe(row.case),
            safe(row.measure),
            number(row.value, 4),
            f"{number(row.low, 4)} .. {number(row.high, 4)}",
            safe(row.unit),
            "" if row.goal is None else f"{'at least' if row.at_least else 'at most'} {number(row.goal, 4)}",
            {None: "", True: "met", False: "MISSED"}[row.met],
        )
        for row in rows
    ]
    columns = ("case", "measure", "value", "low .. high", "unit", "goal", "")
    return Table("", columns, tuple(drawn), frozenset({"case", "measure", "unit", "goal", ""}))
