"""`fedvitals explain CODE`: what a finding means, when it is a false alarm, and what to do."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fedvitals.errors import FedvitalsError
from fedvitals.show.cli.options import add_json

if TYPE_CHECKING:
    from fedvitals.diagnose import Rule

name = "explain"
summary = "explain a finding: what it sees, why it matters, what to do"
examples = (
    "fedvitals explain FL601",
    'fedvitals explain "straggler"',
    "fedvitals explain FL6",
    "fedvitals explain --all",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("code", metavar="CODE", nargs="?", help="a finding's code or name, or a family such as FL6")
    parser.add_argument("--all", action="store_true", help="every code, by family, a line each")
    add_json(parser, "print JSON instead of text")


def run(args: argparse.Namespace) -> int:
    from fedvitals.diagnose.pages import find
    from fedvitals.diagnose.registry import FAMILIES, RULES
    from fedvitals.show.cli.terminal import print_json, print_texts
    from fedvitals.show.explanations import page_document, styled_index

    if bool(args.code) == args.all:
        raise FedvitalsError("explain what? A code or a name, such as FL101, or --all for every code there is")
    family = (args.code or "").strip().upper()
    if not args.all and family not in FAMILIES:
        _page(find(RULES, args.code), as_json=args.json)
        return 0
    families = FAMILIES if args.all else {family: FAMILIES[family]}
    if args.json:
        print_json({"findings": [page_document(rule) for rules in families.values() for rule in rules]})
    else:
        print_texts(styled_index(families))
    return 0


def _page(rule: Rule, *, as_json: bool) -> None:
    from fedvitals.diagnose.words import WIDTH
    from fedvitals.show.cli.terminal import print_json, print_texts, text_width
    from fedvitals.show.explanations import page_document, styled_page

    if as_json:
        print_json(page_document(rule))
    else:
        print_texts(styled_page(rule, text_width(WIDTH)))
