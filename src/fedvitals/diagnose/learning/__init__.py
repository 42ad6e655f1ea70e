"""FL4: learning."""

from __future__ import annotations

from fedvitals.diagnose.rule import Rule

RULES: tuple[Rule, ...] = ()
