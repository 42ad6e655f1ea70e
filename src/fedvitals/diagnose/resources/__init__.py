"""FL8: resources."""

from __future__ import annotations

from fedvitals.diagnose.resources import memory_growth, near_out_of_memory, oversubscribed_cpu
from fedvitals.diagnose.rule import Rule

RULES: tuple[Rule, ...] = (memory_growth.RULE, near_out_of_memory.RULE, oversubscribed_cpu.RULE)
