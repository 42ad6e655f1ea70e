"""FL1: failures and liveness."""

from __future__ import annotations

from fedvitals.diagnose.failures import (
    client_raised,
    client_timed_out,
    data_or_shape,
    dropout_pattern,
    ended_early,
    every_client_fails,
    received_differs,
    round_stalled,
    too_few_clients,
)
from fedvitals.diagnose.rule import Rule

RULES: tuple[Rule, ...] = (
    client_raised.RULE,
    client_timed_out.RULE,
    dropout_pattern.RULE,
    round_stalled.RULE,
    too_few_clients.RULE,
    every_client_fails.RULE,
    data_or_shape.RULE,
    received_differs.RULE,
    ended_early.RULE,
)
