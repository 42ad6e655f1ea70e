"""The benches behind our claims measure what they say: small slices of them, without a word on speed."""

from __future__ import annotations

import torch

from fedvitals.bench import batching, durability, engine, overhead
from fedvitals.bench.pairs import cost, pairs
from fedvitals.settings import resolve
from fedvitals.train.compiled.library import library
from fedvitals.vocabulary import Status


def test_a_killed_training_opens_and_says_so() -> None:
    """After kill -9 the run opens, says that it was cut off, and everything in it has its statistics."""
    left = durability.kill_after(0.8)
    assert left.status is Status.CUT_OFF
    assert left.judged
    assert left.told > durability.CLIENTS


def test_overhead_is_measured_with_everything_recorded() -> None:
    """Every participation of a watched half has statistics, a sketch and a sampled step, on both executors."""
    for executor in ("sequential", "vectorised"):
        rows = overhead._engine_case("mlp", executor, 1, 0.02)
        shares = {row.measure: row.value for row in rows if row.unit == "share"}
        assert len(shares) == 3
        assert set(shares.values()) == {1.0}
        assert [row.measure for row in rows if row.unit == "ratio"] == [
            "wall watched / unwatched",
            "cpu watched / unwatched",
        ]


def test_halves_start_from_the_same_weights() -> None:
    """A go leaves the training as it found it, so that both halves of a pair do the same work."""
    ready = overhead.Ready(overhead._job("mlp", "sequential").replaced({"train.rounds": 1}))
    before = ready._training.model.weights.clone()
    ready.go(resolve({"mode": "off"}))
    assert torch.equal(ready._training.model.weights, before)


def test_pairs_take_turns_in_going_first() -> None:
    """Who goes first alternates, and the plain one always comes first in the result."""
    order: list[str] = []
    measured = pairs(lambda: order.append("plain"), lambda: order.append("other"), 3)
    assert order == ["plain", "other", "other", "plain", "plain", "other"]
    assert len(measured) == 3
    assert cost(lambda: sum(range(10_000))).cpu_s >= 0


def test_the_engine_race_gives_speeds_accuracies_and_ratios() -> None:
    """Each contestant has a speed and an accuracy, and the ratios that we promise come with their goals."""
    rows = engine._problem("tutorial", 1, 1, others=False)
    assert all(row.value > 0 for row in rows)
    assert [row.goal for row in rows if row.unit == "times"] == [15.0, 25.0]
    assert sum(row.unit == "clients/s" for row in rows) == sum(row.unit == "share" for row in rows) == 7


def test_batching_compares_ways_to_train_many() -> None:
    """The quick slice gives a ratio for torch, and one for the compiled trainer where there is one."""
    rows = {row.measure: row for row in batching.run(quick=True)}
    ways = ["compiled", "torch"] if library() is not None else ["torch"]
    assert list(rows) == [f"vectorised by {way} / sequential" for way in ways]
    assert all(row.value > 0 and row.goal is None for row in rows.values())
