"""FL7: privacy."""

from __future__ import annotations

from fedvitals.diagnose.privacy import beyond_level, small_cohort
from fedvitals.diagnose.rule import Rule

RULES: tuple[Rule, ...] = (small_cohort.RULE, beyond_level.RULE)
