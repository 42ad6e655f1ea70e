"""Every rule there is, in the order of the codes."""

from __future__ import annotations

from collections.abc import Sequence

from fedvitals.diagnose import (
    communication,
    failures,
    health,
    heterogeneity,
    integrity,
    learning,
    privacy,
    resources,
    timing,
)
from fedvitals.diagnose.pages import find, nearby
from fedvitals.diagnose.rule import Rule
from fedvitals.errors import FedvitalsError

FAMILIES: dict[str, tuple[Rule, ...]] = {
    "FL1": failures.RULES,
    "FL2": timing.RULES,
    "FL3": communication.RULES,
    "FL4": learning.RULES,
    "FL5": heterogeneity.RULES,
    "FL6": integrity.RULES,
    "FL7": privacy.RULES,
    "FL8": resources.RULES,
    "FL9": health.RULES,
}
FAMILY_NAMES = {
    "FL1": "failures and liveness",
    "FL2": "time",
    "FL3": "communication",
    "FL4": "learning",
    "FL5": "heterogeneity and fairness",
    "FL6": "integrity",
    "FL7": "privacy",
    "FL8": "resources",
    "FL9": "fedvitals' own health",
}
RULES: tuple[Rule, ...] = tuple(rule for family in FAMILIES.values() for rule in family)


def chosen(select: Sequence[str] = (), ignore: Sequence[str] = (), rules: Sequence[Rule] = RULES) -> tuple[Rule, ...]:
    """The rules that are selected (all, when none is named) and not ignored. A word is a code, a family such as FL6,
    or a rule's name."""
    wanted = {rule.code for word in select for rule in _named(word, rules)} if select else {one.code for one in rules}
    unwanted = {rule.code for word in ignore for rule in _named(word, rules)}
    return tuple(rule for rule in rules if rule.code in wanted - unwanted)


def _named(word: str, rules: Sequence[Rule]) -> Sequence[Rule]:
    family = word.strip().upper()
    if family in FAMILIES:
        return [rule for rule in rules if rule.code.startswith(family)]
    try:
        return [find(rules, word)]
    except FedvitalsError:
        known = [*FAMILIES, *(rule.code for rule in rules), *(rule.name for rule in rules)]
        raise FedvitalsError(f"there is no rule or family {word!r}{nearby(word, known)}") from None
