"""FL6: integrity."""

from __future__ import annotations

from fedvitals.diagnose.rule import Rule

RULES: tuple[Rule, ...] = ()
