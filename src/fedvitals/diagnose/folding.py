"""Many findings -> few: what follows from one cause stands under it, and the gravest cause comes first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fedvitals.vocabulary import Finding, Grade, Severity

_SEVERITIES = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}
_GRADES = {Grade.CERTAIN: 0, Grade.ACCUSED: 1, Grade.SUSPECT: 2}
_OF_ALL = frozenset({"FL412", "FL413", "FL414"})  # ways to train that everybody may share, and be seen by
_HARM = "641583279"  # families, most harmful first: a poisoned model before a slow one


def fold(findings: Iterable[Finding], explains: Mapping[str, frozenset[str]]) -> tuple[Finding, ...]:
    """The causes, gravest first, each with what follows from it. `explains` says for a code what it can cause."""
    ordered = sorted(findings, key=_harm)
    owners: list[int | None] = [None] * len(ordered)
    for place in reversed(range(len(ordered))):  # the least harm first: of two that explain each other, it folds
        owners[place] = _owner(place, ordered, owners, explains)
    return tuple(
        replace(cause, symptoms=(*cause.symptoms, *_under(place, ordered, owners)))
        for place, cause in enumerate(ordered)
        if owners[place] is None
    )


def _harm(finding: Finding) -> tuple[int, int, int, int, str]:
    family = finding.code[2:3]
    place = _HARM.index(family) if family and family in _HARM else len(_HARM)
    return (
        _SEVERITIES[finding.severity],
        _GRADES[finding.grade],
        place,
        min(finding.rounds, default=0),
        finding.code,
    )


def _owner(
    symptom: int, findings: Sequence[Finding], owners: Sequence[int | None], explains: Mapping[str, frozenset[str]]
) -> int | None:
    """The gravest finding that this one follows from, and that does not itself stand under it: nothing is lost in a
    circle of causes."""
    for place, cause in enumerate(findings):
        if place != symptom and _follows(findings[symptom], cause, explains) and symptom not in _above(place, owners):
            return place
    return None


def _above(place: int, owners: Sequence[int | None]) -> list[int]:
    """What this one stands under, upwards."""
    found: list[int] = []
    owner = owners[place]
    while owner is not None:
        found.append(owner)
        owner = owners[owner]
    return found


def _follows(symptom: Finding, cause: Finding, explains: Mapping[str, frozenset[str]]) -> bool:
    """It is of a kind that this cause gives, does not begin earlier, and is not about other clients. Who is accused is
    accused of what he did: a finding about the run says nothing of that, unless it is how all of them train."""
    if symptom.code not in explains.get(cause.code, frozenset()):
        return False
    if cause.severity is Severity.INFO and symptom.severity is not Severity.INFO:
        return False  # what harms is never hidden under what may be nothing
    if cause.rounds and symptom.rounds and min(symptom.rounds) < min(cause.rounds):
        return False
    if symptom.clients and not cause.clients:
        return symptom.grade is not Grade.ACCUSED or cause.code in _OF_ALL
    return set(symptom.clients) <= set(cause.clients)


def _under(place: int, findings: Sequence[Finding], owners: Sequence[int | None]) -> list[Finding]:
    """What stands under this one, and what stands under that, flat: a reader wants one list."""
    found: list[Finding] = []
    for other, owner in enumerate(owners):
        if owner == place:
            found += [findings[other], *_under(other, findings, owners)]
    return found
