"""What a stale update counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.train.asynchronous.staleness import too_stale, weight
from fedvitals.train.sections import ServerSpec

KINDS = st.sampled_from(["polynomial", "constant", "hinge"])


@given(kind=KINDS, power=st.floats(0, 10), hinge=st.integers(0, 50), staleness=st.integers(0, 10_000))
def test_older_never_counts_more(kind: str, power: float, hinge: int, staleness: int) -> None:
    """A fresh update counts whole; each version behind costs something or nothing, and never all."""
    server = ServerSpec(staleness_weight=kind, staleness_power=power, staleness_hinge=hinge)
    assert weight(server, 0) == 1.0
    assert 0.0 <= weight(server, staleness + 1) <= weight(server, staleness) <= 1.0


@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        ("polynomial", [1.0, 0.25, 1 / 9, 1 / 16, 1 / 25]),
        ("constant", [1.0] * 5),
        ("hinge", [1.0, 1.0, 1.0, 1 / 3, 1 / 5]),
    ],
)
def test_the_papers_weights(kind: str, weights: list[float]) -> None:
    """As in FedAsync, 5.2, with a = 2 and b = 2."""
    server = ServerSpec(staleness_weight=kind, staleness_power=2.0, staleness_hinge=2)
    assert [weight(server, staleness) for staleness in range(5)] == pytest.approx(weights)


@given(bound=st.integers(0, 100), staleness=st.integers(0, 200))
def test_a_bound_of_zero_is_none(bound: int, staleness: int) -> None:
    """Else an update may be as many versions behind as it says."""
    assert too_stale(ServerSpec(staleness_bound=bound), staleness) == (bound > 0 and staleness > bound)
