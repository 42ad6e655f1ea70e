"""FL6: integrity."""

from __future__ import annotations

from fedvitals.diagnose.integrity import (
    backdoor,
    duplicated_updates,
    flipped_labels,
    noise_update,
    scaled_update,
    sign_flip,
    stale_update,
    zero_update,
)
from fedvitals.diagnose.rule import Rule

RULES: tuple[Rule, ...] = (
    sign_flip.RULE,
    scaled_update.RULE,
    noise_update.RULE,
    zero_update.RULE,
    stale_update.RULE,
    duplicated_updates.RULE,
    flipped_labels.RULE,
    backdoor.RULE,
)
