"""Ways to choose clients, carried out: what the engine tells them, and what they make of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from small_jobs import recorded, run, small

from fedvitals.train.sections import SELECTIONS

MANY: dict[str, Any] = {
    "data.clients": 20,
    "data.rows": 20,
    "train.rounds": 20,
    "train.evaluate_every": 20,
    "execute.clock": "virtual",
}
SLOW = [{"kind": "slow-compute", "clients": list(range(10)), "strength": 500.0}]


def _asked(folder: Path) -> Counter[str]:
    with recorded(folder) as reader:
        return Counter(one.client for one in reader.participations())


@pytest.mark.parametrize("selection", [name for name in SELECTIONS if name != "pisces"])
def test_a_repeat_asks_the_same_clients(selection: str, tmp_path: Path) -> None:
    """On every executor, whoever watches; with clients that come, go, fail and are late."""
    faults = [{"kind": "crash", "clients": [4]}]
    job = {
        **MANY,
        "server.selection": selection,
        "network.profile": "mobile",
        "server.deadline_s": 2.0,
        "faults": faults,
    }
    first = run(small(job, executor="vectorised"), tmp_path)
    assert run(small(job, executor="vectorised")).weights_sha256 == first.weights_sha256
    asked = _asked(tmp_path)
    run(small(job, executor="sequential"), tmp_path)
    assert _asked(tmp_path) == asked


@pytest.mark.parametrize("more", [{}, {"server.mode": "async", "server.buffer": 4, "server.concurrency": 8}])
def test_what_failures_took_this_machine_is_nothing_to_the_virtual_clock(more: dict[str, object]) -> None:
    """Two in five fail at once: the training goes on, and repeats ask the same clients."""
    job = {**MANY, **more, "data.clients": 40, "train.clients_per_round": 10, "server.selection": "oort"}
    job |= {"execute.clock": "virtual", "faults": [{"kind": "crash", "share": 0.4}]}
    first, again = (run(small(job)) for _ in range(2))
    assert first.rounds == 20
    assert first.weights_sha256 == again.weights_sha256


def test_oort_asks_quick_clients_more_than_the_lot_does(tmp_path: Path) -> None:
    """Half of the clients are 500 times slower, which it learns from what came of them."""
    shares = []
    for selection in ("random", "oort"):
        result = run(small({**MANY, "server.selection": selection, "faults": SLOW}, executor="vectorised"), tmp_path)
        asked = _asked(tmp_path)
        shares.append(sum(asked[str(client)] for client in range(10)) / asked.total())
        assert result.rounds == 20
    assert shares[0] == pytest.approx(0.5, abs=0.15)
    assert shares[1] < shares[0] - 0.1


def test_in_turn_everybody_is_asked_equally_often(tmp_path: Path) -> None:
    """Four a round of twenty clients, twenty rounds: four times each."""
    run(small({**MANY, "server.selection": "round-robin"}, executor="vectorised"), tmp_path)
    assert set(_asked(tmp_path).values()) == {4}


def test_a_floor_holds_in_a_job(tmp_path: Path) -> None:
    """With all places for those who were asked least, no two clients are more than one turn apart."""
    job = {**MANY, "train.rounds": 13, "server.selection": "oort", "server.floor": 1.0, "faults": SLOW}
    run(small(job, executor="vectorised"), tmp_path)
    counts = _asked(tmp_path).values()
    assert max(counts) - min(counts) == 1
