"""`fedvitals bench NAME`: the measurements behind our claims. A bench is a module of `fedvitals.bench` with a `run`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bench", metavar="NAME", nargs="?", help="which one; without it, the list of all")
    parser.add_argument("--quick", action="store_true", help="fewer repeats: to see that it works, not to quote")
    add_json(parser)


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
    rows = _measured(args.bench, quick=args.quick)
    if args.json:
        print_json({"bench": args.bench, "rows": [row_document(row) for row in rows]})
    else:
        print_table(rows_table(rows), most=None)
    return 0


def _measured(bench: str, *, quick: bool) -> Sequence[Row]:
    from importlib import import_module

    rows: Sequence[Row] = import_module(f"fedvitals.bench.{bench}").run(quick=quick)
    return rows


def benches() -> dict[str, str]:
    """Name and question of each bench, read from the files: importing them all would load torch."""
    from pathlib import Path

    import fedvitals.bench

    found = {}
    for path in sorted(Path(str(fedvitals.bench.__file__)).parent.glob("*.py")):
        question = _question(path.read_text(encoding="utf-8"))
        if question is not None:
            found[path.stem] = question
    return found


def _question(source: str) -> str | None:
    """The first line of a bench's docstring; None for a module that is no bench."""
    import ast

    tree = ast.parse(source)
    if not any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
        return None
    return (ast.get_docstring(tree) or "").partition("\n")[0].rstrip(".")


def list_table(known: dict[str, str]) -> Table:
    from fedvitals.show.tables import Table

    return Table("", ("bench", "what it measures"), tuple(known.items()), frozenset({"bench", "what it measures"}))


def row_document(row: Row) -> dict[str, Any]:
    keys = ("case", "measure", "value", "low", "high", "unit", "goal")
    return {key: getattr(row, key) for key in keys}


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
