"""Aggregators: their laws, and what a bad row does to each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedvitals.errors import JobError, TrainingError
from fedvitals.train.aggregate import AGGREGATORS, Aggregator, make
from fedvitals.train.aggregators.krum import nearest_count

ROBUST = ("median", "trimmed-mean", "krum", "multi-krum", "geometric-median")
AVERAGING = ("fedavg", "fedavgm", "fedadam")
NAN, INF = float("nan"), float("inf")

quick = settings(max_examples=60, deadline=None)


@st.composite
def cohorts(draw: st.DrawFn, least: int = 1) -> tuple[Tensor, Tensor]:
    """Updates of a few clients, a few values each, and their sample counts."""
    clients, values = draw(st.integers(least, 9)), draw(st.integers(1, 5))
    number = st.floats(-100, 100, width=32)
    flat = draw(st.lists(number, min_size=clients * values, max_size=clients * values))
    samples = draw(st.lists(st.integers(1, 1000), min_size=clients, max_size=clients))
    return torch.tensor(flat).reshape(clients, values), torch.tensor(samples, dtype=torch.float32)


def first_step(name: str, updates: Tensor, weights: Tensor | None = None, lr: float = 1.0) -> Tensor:
    aggregator = make(name, lr)
    given_weights = torch.ones(len(updates)) if weights is None else weights
    return aggregator.apply(updates, given_weights, aggregator.init(updates.shape[-1]))[0]


@pytest.mark.parametrize("name", [*AVERAGING, "median", "trimmed-mean", "geometric-median"])
@quick
@given(cohort=cohorts(), random=st.randoms(use_true_random=False))
def test_the_order_of_clients_does_not_matter(name: str, cohort: tuple[Tensor, Tensor], random: object) -> None:
    """Shuffling clients with their weights changes the step by float error at most."""
    updates, weights = cohort
    order = list(range(len(updates)))
    random.shuffle(order)  # type: ignore[attr-defined]  # Hypothesis hands a random.Random
    shuffled = first_step(name, updates[order], weights[order])
    torch.testing.assert_close(shuffled, first_step(name, updates, weights), rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["krum", "multi-krum"])
def test_the_order_of_clients_does_not_matter_to_krum(name: str) -> None:
    """Where no two scores are equal, shuffling gives the same step."""
    generator = torch.Generator().manual_seed(3)
    updates = torch.randn(9, 40, generator=generator)
    order = torch.randperm(9, generator=generator)
    torch.testing.assert_close(first_step(name, updates[order]), first_step(name, updates))


@quick
@given(cohort=cohorts())
def test_the_weighted_mean_stays_inside_its_inputs(cohort: tuple[Tensor, Tensor]) -> None:
    """FedAvg is the mean by samples, and no value leaves the range of the clients' values."""
    updates, weights = cohort
    step = first_step("fedavg", updates, weights)
    np.testing.assert_allclose(step, np.average(updates.double(), axis=0, weights=weights), rtol=1e-4, atol=1e-4)
    assert bool((step >= updates.amin(0) - 1e-4).all())
    assert bool((step <= updates.amax(0) + 1e-4).all())


@pytest.mark.parametrize("name", ["median", "trimmed-mean"])
@quick
@given(cohort=cohorts())
def test_each_value_stays_between_the_clients_values(name: str, cohort: tuple[Tensor, Tensor]) -> None:
    """Median and trimmed mean lie between minimum and maximum of each value, exactly."""
    step = first_step(name, cohort[0])
    assert bool((step >= cohort[0].amin(0)).all())
    assert bool((step <= cohort[0].amax(0)).all())


@quick
@given(cohort=cohorts())
def test_the_median_is_numpys(cohort: tuple[Tensor, Tensor]) -> None:
    """The median agrees with an independent implementation, for odd and even cohorts."""
    expected = np.median(cohort[0].double(), axis=0).astype(np.float32)  # as near as the step itself can come
    np.testing.assert_allclose(first_step("median", cohort[0]), expected, rtol=1e-6)


def test_the_trimmed_mean_leaves_out_a_tenth_on_each_side() -> None:
    """One of three, one of nineteen, two of twenty on each side; none of two."""
    for clients, cut in ((2, 0), (3, 1), (19, 1), (20, 2)):
        values = torch.arange(float(clients)).square()[:, None]
        kept = values[cut : clients - cut]
        assert float(first_step("trimmed-mean", values)) == pytest.approx(float(kept.mean()))


@quick
@given(cohort=cohorts())
def test_krum_returns_one_of_its_inputs(cohort: tuple[Tensor, Tensor]) -> None:
    """The step of krum is a client's update, bit for bit."""
    step = first_step("krum", cohort[0])
    assert any(torch.equal(step, row) for row in cohort[0])


def test_krum_scores_as_the_paper_says() -> None:
    """The chosen row has the least sum of squared distances to its n - f - 2 nearest, by a plain loop."""
    updates = torch.randn(11, 6, generator=torch.Generator().manual_seed(5))
    near = 11 - (11 - 3) // 2 - 2
    scores = [sorted(float((a - b).square().sum()) for b in updates)[1 : near + 1] for a in updates]
    best = min(range(11), key=lambda row: sum(scores[row]))
    assert torch.equal(first_step("krum", updates), updates[best])
    assert [nearest_count(n) for n in (1, 2, 3, 4, 5, 10, 11)] == [1, 1, 1, 2, 2, 5, 5]


def test_multi_krum_is_the_mean_of_the_best() -> None:
    """Of seven clients, two of them far off, it averages three of the near ones."""
    updates = torch.tensor([[1.0], [1.1], [0.9], [1.05], [0.95], [90.0], [-90.0]])
    assert 0.9 < float(first_step("multi-krum", updates)) < 1.1


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("huge", [1e3, 1e30])
def test_a_minority_of_huge_outliers_does_not_move_a_robust_step(name: str, huge: float) -> None:
    """One client of ten (four, where the method stands that) sends something enormous; the step stays near the rest."""
    generator = torch.Generator().manual_seed(1)
    bad = {"trimmed-mean": 1, "krum": 3, "multi-krum": 3}.get(name, 4)
    updates = 1.0 + 0.1 * torch.randn(10, 50, generator=generator)
    updates[:bad] = huge
    assert float((first_step(name, updates) - 1.0).abs().max()) < 0.5
    assert float((first_step("fedavg", updates) - 1.0).abs().max()) > 50


@quick
@given(cohort=cohorts(least=3), outlier=st.sampled_from([1e4, 1e9, 3e19, 1e30, 1e38]))
def test_the_geometric_median_resists_one_outlier(cohort: tuple[Tensor, Tensor], outlier: float) -> None:
    """With one of at least three equal clients anywhere at all, the point stays within reach of the others."""
    updates = cohort[0].clone()
    updates[0] = outlier
    assert float(first_step("geometric-median", updates).norm()) < 20 * (1 + float(updates[1:].norm(dim=1).max()))


def test_the_geometric_median_is_where_the_pulls_cancel() -> None:
    """At the median the weighted unit vectors towards the clients add up to nothing: what defines it."""
    updates = torch.randn(8, 4, generator=torch.Generator().manual_seed(2))
    weights = torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0])
    towards = updates.double() - first_step("geometric-median", updates, weights).double()
    pull = (weights[:, None] * towards / towards.norm(dim=1, keepdim=True)).sum(0)
    assert float(pull.norm()) < 1e-3


def test_a_client_at_the_geometric_median_is_no_division_by_zero() -> None:
    """Where the point falls on a client, the smoothing keeps it finite and there."""
    updates = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
    assert float(first_step("geometric-median", updates).norm()) < 1e-5


@pytest.mark.parametrize("name", AVERAGING)
@pytest.mark.parametrize("bad", [NAN, INF])
def test_averages_pass_on_what_is_not_finite(name: str, bad: float) -> None:
    """A NaN or infinity of one client is in the step, for the recorder to see, and only in its own value."""
    updates = torch.ones(3, 2)
    updates[1, 0] = bad
    step = first_step(name, updates)
    assert not bool(step[0].isfinite())
    assert bool(step[1].isfinite())


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_robust_steps_leave_out_rows_that_are_not_finite(name: str, bad: float) -> None:
    """A broken row changes nothing: the step is that of the cohort without it."""
    updates = torch.randn(6, 5, generator=torch.Generator().manual_seed(4))
    broken = torch.cat((updates[:2], torch.full((1, 5), bad), updates[2:]))
    broken[2, 1:] = 0.5  # one bad value is enough
    assert torch.equal(first_step(name, broken), first_step(name, updates))


@pytest.mark.parametrize("name", ROBUST)
def test_a_round_without_a_finite_row_is_refused(name: str) -> None:
    """A robust step of nothing would be a lie; the error says so."""
    with pytest.raises(TrainingError, match="all 2 updates"):
        first_step(name, torch.full((2, 3), NAN))


@pytest.mark.parametrize("name", AGGREGATORS)
@pytest.mark.parametrize(
    ("updates", "weights", "says"),
    [
        (torch.empty(0, 3), torch.empty(0), "no update to aggregate"),
        (torch.ones(2, 3), torch.ones(3), r"found \[2, 3\] and \[3\]"),
        (torch.ones(3), torch.ones(3), "must be"),
        (torch.ones(2, 3), torch.zeros(2), "sum is 0"),
        (torch.ones(2, 3), torch.tensor([3.0, -1.0]), "counts are >= 0"),
        (torch.ones(2, 3), torch.tensor([3.0, NAN]), "sum is nan"),
    ],
)
def test_a_round_that_cannot_be_aggregated_is_refused(name: str, updates: Tensor, weights: Tensor, says: str) -> None:
    """Every aggregator says what is wrong with shapes and weights."""
    with pytest.raises(TrainingError, match=says):
        first_step(name, updates, weights)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_the_step_is_a_function_of_its_arguments(name: str) -> None:
    """Repeats, thread counts and the memory's layout change no bit; arguments are left as they were."""
    updates = torch.randn(20, 3001, generator=torch.Generator().manual_seed(6))
    weights = torch.arange(1.0, 21.0)
    before = updates.clone(), weights.clone()
    wanted = first_step(name, updates, weights)
    threads = torch.get_num_threads()
    for count, laid_out in ((1, updates), (2, updates), (1, updates.T.contiguous().T)):
        torch.set_num_threads(count)
        assert torch.equal(first_step(name, laid_out, weights), wanted)
    torch.set_num_threads(threads)
    assert torch.equal(updates, before[0])
    assert torch.equal(weights, before[1])


@pytest.mark.parametrize("name", AGGREGATORS)
def test_state_can_be_kept_and_handed_in_again(name: str) -> None:
    """Going on from a copy of the state gives the next step bit for bit, and the old state is not written to."""
    aggregator = make(name, 0.5)
    updates, weights = torch.randn(5, 7, generator=torch.Generator().manual_seed(7)), torch.ones(5)
    _, state = aggregator.apply(updates, weights, aggregator.init(7))
    kept = {key: value.clone() for key, value in state.items()}
    second = aggregator.apply(updates, weights, state)[0]
    assert torch.equal(aggregator.apply(updates, weights, kept)[0], second)
    assert all(torch.equal(state[key], kept[key]) for key in kept)


@pytest.mark.parametrize("name", ["fedavg", "fedavgm", *ROBUST])
def test_the_learning_rate_scales_the_step(name: str) -> None:
    """Half the rate is half the step."""
    updates = torch.randn(5, 7, generator=torch.Generator().manual_seed(8))
    assert torch.equal(first_step(name, updates, lr=0.5), 0.5 * first_step(name, updates))


def test_momentum_adds_up() -> None:
    """FedAvgM on the same update: 1, 1.9, 2.71 times it."""
    assert three_steps(make("fedavgm", 1.0), [2.0, 2.0, 2.0]) == pytest.approx([2.0, 3.8, 5.42])


def test_adam_follows_the_papers_recurrences() -> None:
    """FedAdam against Algorithm 2 written out with plain numbers."""
    first, second, wanted = 0.0, 1e-6, []
    for delta in (1.0, 2.0, 3.0):
        first, second = 0.9 * first + 0.1 * delta, 0.99 * second + 0.01 * delta**2
        wanted.append(0.1 * first / (second**0.5 + 1e-3))
    assert three_steps(make("fedadam", 0.1), [1.0, 2.0, 3.0]) == pytest.approx(wanted, rel=1e-5)


def three_steps(aggregator: Aggregator, updates: Sequence[float]) -> list[float]:
    state, steps = aggregator.init(1), []
    for update in updates:
        step, state = aggregator.apply(torch.full((2, 1), update), torch.ones(2), state)
        steps.append(float(step))
    return steps


def test_an_unknown_name_or_rate_is_refused() -> None:
    """The error names what would be right."""
    with pytest.raises(JobError, match="did you mean 'trimmed-mean'"):
        make("trimed-mean", 1.0)
    for lr in (-1.0, NAN, INF):
        with pytest.raises(JobError, match=r"server\.lr"):
            make("fedavg", lr)


def test_a_rate_that_is_not_named_is_the_aggregators_own() -> None:
    """An average and a vote are taken as they are; Adam steps by a hundredth; a client's model is mixed in in part."""
    rates = {name: getattr(make(name), "lr", 1.0) for name in AGGREGATORS}
    assert rates.pop("fedadam") == 0.01
    assert rates.pop("fedasync") == 0.6
    assert set(rates.values()) == {1.0}
    assert getattr(make("fedadam", 0.5), "lr", None) == 0.5
