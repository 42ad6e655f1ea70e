"""FL5: heterogeneity and fairness."""

from __future__ import annotations

from fedvitals.diagnose.heterogeneity import biased_against, client_drift, label_skew, worst_decile
from fedvitals.diagnose.rule import Rule

RULES: tuple[Rule, ...] = (
    client_drift.RULE,
    label_skew.RULE,
    biased_against.RULE,
    worst_decile.RULE,
)
