"""The ground: what is wrong. A finding, how bad and how sure it is, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fedvitals.vocabulary.records import JSONObject


class Severity(StrEnum):
    """How bad a finding is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Grade(StrEnum):
    """How sure a finding is: an exact rule, an accusation, or a suspicion."""

    CERTAIN = "certain"
    ACCUSED = "accused"
    SUSPECT = "suspect"


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do about a finding; `safe` ones do not change the training."""

    text: str
    safe: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, who caused it, how sure that is, and what to do."""

    code: str
    name: str
    severity: Severity
    grade: Grade
    rounds: tuple[int, ...]
    clients: tuple[str, ...]
    layers: tuple[str, ...]
    why: str
    evidence: JSONObject
    next: tuple[Action, ...]
    proof: JSONObject | None = None
    symptoms: tuple[Finding, ...] = ()  # what follows from it, folded under it
