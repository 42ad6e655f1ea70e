"""The rules' pages to documents, to coloured text, and to the reference."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedvitals.diagnose import Rule
from fedvitals.diagnose.pages import SECTIONS, sections
from fedvitals.diagnose.registry import FAMILIES, FAMILY_NAMES

if TYPE_CHECKING:
    from rich.text import Text

MARGIN = max(map(len, SECTIONS)) + 3


def page_document(rule: Rule) -> dict[str, Any]:
    return {
        "code": rule.code,
        "name": rule.name,
        "title": one_line(rule),
        "needs": sorted(sight.value for sight in rule.needs),
        "explains": sorted(rule.explains),
        "sections": {head: text for head, text in sections(rule).items() if head},
    }


def one_line(rule: Rule) -> str:
    """The page's first sentence, without its full stop."""
    return sections(rule).get("", rule.name).strip().rstrip(".")


def page_parts(rule: Rule) -> Iterator[tuple[str, str]]:
    """What a page says, heading by heading: the rule's own sections, then what it needs and what follows from it."""
    for head, text in sections(rule).items():
        if head:
            yield head, text
    if rule.needs:
        yield "Needs", ", ".join(sorted(rule.needs))
    if rule.explains:
        yield "Explains", ", ".join(sorted(rule.explains))


def styled_page(rule: Rule, width: int) -> Iterator[Text]:
    from rich.text import Text

    yield Text(f"{rule.code} {rule.name}", style="bold")
    yield from (Text(line) for line in textwrap.wrap(f"{one_line(rule)}.", width))
    for head, text in page_parts(rule):
        yield Text("")
        wrapped = textwrap.wrap(text, width - MARGIN, break_long_words=False, break_on_hyphens=False) or [""]
        yield Text(f"{head:<{MARGIN}}", style="bold").append(wrapped[0], style="not bold")
        yield from (Text(" " * MARGIN + line) for line in wrapped[1:])


def styled_index(families: Mapping[str, Sequence[Rule]] = FAMILIES) -> Iterator[Text]:
    """Every code of these families, a line each."""
    from rich.text import Text

    for number, (family, rules) in enumerate(families.items()):
        if number:
            yield Text("")
        yield Text(f"{family} {FAMILY_NAMES[family]}", style="bold cyan")
        width = max((len(rule.name) for rule in rules), default=0)
        for rule in rules:
            yield Text(f"  {rule.code}  {rule.name:<{width}}  ").append(one_line(rule), style="dim")
