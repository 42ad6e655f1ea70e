"""FL1: failures and liveness."""

from __future__ import annotations

from fedvitals.diagnose.failures import client_raised
from fedvitals.diagnose.rule import Rule

RULES: tuple[Rule, ...] = (client_raised.RULE,)
