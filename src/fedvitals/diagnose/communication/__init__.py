"""FL3: communication."""

from __future__ import annotations

from fedvitals.diagnose.communication import remains_grow, transfer_failed, update_size_changed, upload_dominates
from fedvitals.diagnose.rule import Rule

RULES: tuple[Rule, ...] = (upload_dominates.RULE, transfer_failed.RULE, update_size_changed.RULE, remains_grow.RULE)
