"""`fedvitals gc`: make room in the store, by number, age or size."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from fedvitals.show.cli.options import add_dir, add_json, natural_number, settings_of

if TYPE_CHECKING:
    from fedvitals.settings import Settings
    from fedvitals.show.tables import Table
    from fedvitals.store.folder import SQLiteStore
    from fedvitals.store.gc import Removal

name = "gc"
summary = "make room: delete old runs, and blobs that no run needs"
examples = (
    "fedvitals gc --keep 20 --dry-run",
    "fedvitals gc --older-than 30d",
    "fedvitals gc --max-gb 5 --keep 3     # the oldest go first, the newest 3 are safe",
)
DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep", metavar="N", type=natural_number, help="the newest N runs stay; alone, all others are deleted"
    )
    parser.add_argument("--older-than", metavar="AGE", type=days, help="delete runs begun longer ago: 12h, 30d, 8w")
    parser.add_argument("--max-gb", metavar="GB", type=gigabytes, help="delete the oldest until the rest fits")
    parser.add_argument("--dry-run", action="store_true", help="say what would be deleted, and delete nothing")
    add_json(parser)
    add_dir(parser)


def run(args: argparse.Namespace) -> int:
    import time

    from fedvitals.show.cli.terminal import print_json, print_table, say
    from fedvitals.store.gc import Limits, collect

    limits = Limits(args.keep, args.older_than, None if args.max_gb is None else int(args.max_gb * 1e9))
    removals = collect(_folder(settings_of(args)), limits, time.time_ns(), dry_run=args.dry_run)
    if args.json:
        print_json({"dry_run": args.dry_run, "freed_bytes": _freed(removals), "removed": documents(removals)})
        return 0
    if removals:
        print_table(removals_table(removals), most=None)
    say(conclusion(removals, dry_run=args.dry_run))
    if limits == Limits():
        say("runs are deleted only when asked: --keep, --older-than or --max-gb")
    return 0


def _folder(settings: Settings) -> SQLiteStore:
    from fedvitals.errors import StoreError
    from fedvitals.store import open_store
    from fedvitals.store.folder import SQLiteStore

    store = open_store(settings)
    if not isinstance(store, SQLiteStore):
        raise StoreError("gc works on a folder of runs; a database has means of its own")
    return store


def days(text: str) -> float:
    """`12h`, `30d` or `8w` in days, for argparse."""
    number, unit = (text[:-1], text[-1:]) if text[-1:] in DAYS else (text, "d")
    value = _number(number)
    if value is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no age; right is a number with h, d or w, such as 30d")
    return value * DAYS[unit]


def gigabytes(text: str) -> float:
    value = _number(text)
    if value is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of gigabytes, such as 5 or 0.5")
    return value


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _freed(removals: list[Removal]) -> int:
    return sum(one.size_bytes for one in removals)


def documents(removals: list[Removal]) -> list[dict[str, str | int | None]]:
    return [{"run": one.run, "blob": one.blob, "size_bytes": one.size_bytes, "why": one.why} for one in removals]


def removals_table(removals: list[Removal]) -> Table:
    from fedvitals.show.tables import Table
    from fedvitals.show.words import safe, size

    rows = [
        (safe(one.run), f"blob {one.blob[:12]}" if one.blob else "whole run", size(one.size_bytes), safe(one.why))
        for one in removals
    ]
    return Table("", ("run", "what", "size", "why"), tuple(rows), frozenset({"run", "what", "why"}))


def conclusion(removals: list[Removal], *, dry_run: bool) -> str:
    """`2 runs deleted, 3.1 MB freed`."""
    from fedvitals.show.words import plural, size

    if not removals:
        return "nothing to delete"
    runs = sum(one.blob is None for one in removals)
    counts = [plural(runs, "run")] if runs else []
    counts += [plural(len(removals) - runs, "stray blob")] if len(removals) > runs else []
    what, freed = " and ".join(counts), size(_freed(removals))
    return f"{what} would be deleted, freeing {freed}" if dry_run else f"{what} deleted, {freed} freed"
