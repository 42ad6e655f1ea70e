"""FL9: fedvitals' own health."""

from __future__ import annotations

from fedvitals.diagnose.rule import Rule

RULES: tuple[Rule, ...] = ()
