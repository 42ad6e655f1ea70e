"""FL4: learning."""

from __future__ import annotations

from fedvitals.diagnose.learning import (
    bad_initialisation,
    divergence,
    dropped_batch,
    exploding_gradients,
    frozen_layer,
    generalisation_gap,
    missing_zero_grad,
    model_shrinks,
    nonfinite,
    one_taken,
    oscillation,
    plateau,
    rate_too_high,
    rate_too_low,
    slow_convergence,
    stands_still,
    vanishing_gradients,
    weight_explosion,
)
from fedvitals.diagnose.rule import Rule

RULES: tuple[Rule, ...] = (
    bad_initialisation.RULE,
    divergence.RULE,
    oscillation.RULE,
    plateau.RULE,
    nonfinite.RULE,
    slow_convergence.RULE,
    exploding_gradients.RULE,
    vanishing_gradients.RULE,
    frozen_layer.RULE,
    weight_explosion.RULE,
    generalisation_gap.RULE,
    rate_too_high.RULE,
    rate_too_low.RULE,
    missing_zero_grad.RULE,
    dropped_batch.RULE,
    stands_still.RULE,
    one_taken.RULE,
    model_shrinks.RULE,
)
