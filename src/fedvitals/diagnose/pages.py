"""A rule's docstring -> its `explain` page, and the words to search it by.

A page is a title line and paragraphs, each begun by one of SECTIONS and a colon:

    Client raised an exception.

    Sees: ...
    Matters: ...
    Evidence: ...
    False alarms: ...
    Do: ...
    Papers: ... (or none)
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence

from fedvitals.diagnose.rule import Rule
from fedvitals.errors import FedvitalsError

MOST_GUESSES = 3
FEW_LETTERS = 3  # are inside too many names
SECTIONS = ("Sees", "Matters", "Evidence", "False alarms", "Do", "Papers")


def sections(rule: Rule) -> dict[str, str]:
    """The paragraphs of a page by their first words, in the order written; "" is the title."""
    found: dict[str, str] = {}
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(rule.page)):
        text = " ".join(paragraph.split())
        head, colon, rest = text.partition(":")
        known = head if colon and head in SECTIONS else ""
        body = rest.strip() if known else text
        found[known] = f"{found[known]} {body}" if known in found else body
    return found


def find(rules: Sequence[Rule], wanted: str) -> Rule:
    """The rule with this code or name; FedvitalsError with the nearest ones otherwise."""
    for rule in rules:
        if wanted.strip().lower() in (rule.code.lower(), rule.name.lower()):
            return rule
    known = [rule.code for rule in rules] + [rule.name for rule in rules]
    raise FedvitalsError(f"there is no finding {wanted!r}{nearby(wanted, known)}")


def _letters(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def nearby(word: str, known: Sequence[str]) -> str:
    """The few that are meant most likely: codes are so alike that one guess is mostly wrong."""
    import difflib

    by_letters = {_letters(one): one for one in known}
    wanted = _letters(word)
    inside = [one for one in by_letters if len(wanted) > FEW_LETTERS and wanted in one][:MOST_GUESSES]
    close = [by_letters[one] for one in inside or difflib.get_close_matches(wanted, list(by_letters), MOST_GUESSES)]
    if not close:
        return "; `fedvitals explain --all` lists all there are"
    *others, last = map(repr, close)
    return f"; did you mean {', '.join(others)} or {last}?" if others else f"; did you mean {last}?"
