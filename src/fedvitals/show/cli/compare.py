"""`fedvitals compare A B [C ...]`: what changed between runs, and whether it is more than noise."""

from __future__ import annotations

import argparse
import math
from contextlib import closing
from typing import TYPE_CHECKING

from fedvitals.errors import FedvitalsError
from fedvitals.show.cli.options import add_dir, add_json, store_of

if TYPE_CHECKING:
    from fedvitals.profile.comparison.compare import Comparison
    from fedvitals.profile.comparison.summary import Summary
    from fedvitals.store.protocol import Store

name = "compare"
summary = "what changed between runs, and whether it is more than noise"
examples = (
    "fedvitals compare before after",
    "fedvitals compare before after --fail-on-regression 5%",
    "fedvitals compare a-seed1 a-seed2 a-seed3 b-seed1 b-seed2 b-seed3  # seeds tell more than rounds",
    "fedvitals compare before after --json | jq '.others[].differences[] | select(.real)'",
)
MOST = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ids", metavar="RUN", nargs="+", help="runs: ids, starts of them, names, or `last`; two or more"
    )
    parser.add_argument(
        "--fail-on-regression",
        metavar="SHARE",
        type=_share,
        help="exit 1 where something is really worse than in the first by more than this, as in 5%%",
    )
    add_json(parser)
    add_dir(parser)


def _share(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no share; right is for example 5% or 0.05")
    return value


def run(args: argparse.Namespace) -> int:
    from fedvitals.profile.comparison.compare import compare
    from fedvitals.show.cli.terminal import print_json
    from fedvitals.show.comparisons import comparison_document
    from fedvitals.show.words import plural

    if not 2 <= len(args.ids) <= MOST:
        raise FedvitalsError(f"compare was given {plural(len(args.ids), 'run')}; right are 2 to {MOST}")
    store = store_of(args)
    comparison = compare([_summary(store, one) for one in args.ids])
    if args.json:
        print_json(comparison_document(comparison, args.fail_on_regression))
    else:
        _print(comparison)
    return _exit_code(comparison, args.fail_on_regression, quiet=args.json)


def _summary(store: Store, run_id: str) -> Summary:
    from fedvitals.diagnose import diagnose
    from fedvitals.profile.comparison.summary import summary_of
    from fedvitals.profile.profile import profile_of

    with closing(store.open(run_id)) as reader:
        return summary_of(profile_of(reader), reader, diagnose(reader).findings)


def _print(comparison: Comparison) -> None:
    from fedvitals.show import comparisons
    from fedvitals.show.cli.terminal import print_lines, print_table

    print_lines([("first", comparisons.names_of(comparison.first))])
    for one in comparison.others:
        print()
        print_lines([("this", comparisons.names_of(one.runs)), *comparisons.lines_of(one)])
        for table in (comparisons.config_table(one), comparisons.differences_table(one)):
            if table.rows:
                print()
                print_table(table, most=None)


def _exit_code(comparison: Comparison, beyond: float | None, *, quiet: bool) -> int:
    from fedvitals.show.cli.terminal import say

    worse = [] if beyond is None else comparison.regressions(beyond)
    if worse and not quiet:
        say(f"worse by more than {beyond:.0%}: {', '.join(sorted({one.measure for one in worse}))}")
    return 1 if worse else 0
