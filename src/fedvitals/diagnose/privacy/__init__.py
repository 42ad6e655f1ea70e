"""FL7: privacy."""

from __future__ import annotations

from fedvitals.diagnose.rule import Rule

RULES: tuple[Rule, ...] = ()
