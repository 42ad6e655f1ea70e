"""FL6: integrity."""

from __future__ import annotations

from fedvitals.diagnose.integrity import (
    duplicated_updates,
    stale_update,
    zero_update,
)
from fedvitals.diagnose.rule import Rule

RULES: tuple[Rule, ...] = (
    zero_update.RULE,
    stale_update.RULE,
    duplicated_updates.RULE,
)
