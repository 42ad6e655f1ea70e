"""FL4: learning."""

from __future__ import annotations

from fedvitals.diagnose.learning import (
    dropped_batch,
    frozen_layer,
    missing_zero_grad,
    nonfinite,
    rate_too_high,
    rate_too_low,
)
from fedvitals.diagnose.rule import Rule

RULES: tuple[Rule, ...] = (
    nonfinite.RULE,
    frozen_layer.RULE,
    rate_too_high.RULE,
    rate_too_low.RULE,
    missing_zero_grad.RULE,
    dropped_batch.RULE,
)
