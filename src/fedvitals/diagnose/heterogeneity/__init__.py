"""FL5: heterogeneity and fairness."""

from __future__ import annotations

from fedvitals.diagnose.heterogeneity import (
    biased_against,
    client_drift,
    data_quality,
    inputs_apart,
    label_skew,
    loss_scale,
    outweighs,
    unusual,
    worst_decile,
)
from fedvitals.diagnose.rule import Rule

RULES: tuple[Rule, ...] = (
    client_drift.RULE,
    label_skew.RULE,
    biased_against.RULE,
    worst_decile.RULE,
    unusual.RULE,
    inputs_apart.RULE,
    data_quality.RULE,
    outweighs.RULE,
    loss_scale.RULE,
)
