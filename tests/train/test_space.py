"""The ways in which a job could be trained: each is a job, no other way is dropped without a word."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvitals.codecs import parse
from fedvitals.train.job import Job
from fedvitals.train.space import Way, changes, own_way, space_of, steps_for, ways

VIRTUAL = Job().replaced({"execute.clock": "virtual"})


def _changed(job: Job, count: int, update_size: float | None = 0.02) -> list[dict[str, Any]]:
    return [changes(job, way) for way in ways(space_of(job, update_size), count)]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    clients=st.integers(1, 40),
    cohort=st.integers(1, 40),
    epochs=st.integers(1, 5),
    batch_size=st.integers(1, 64),
    mode=st.sampled_from(["sync", "async"]),
    count=st.integers(1, 40),
)
def test_every_way_is_another_job_that_can_be_trained(
    seed: int, clients: int, cohort: int, epochs: int, batch_size: int, mode: str, count: int
) -> None:
    """Within the job's clients; each is there once, and the job itself is not among them."""
    job = Job.from_dict(
        {
            "seed": seed,
            "data": {"source": "synthetic", "clients": clients},
            "train": {"clients_per_round": min(cohort, clients), "epochs": epochs, "batch_size": batch_size},
            "server": {"mode": mode, "buffer": min(cohort, clients), "concurrency": clients},
            "execute": {"clock": "virtual"},
        }
    )
    found = _changed(job, count)
    jobs = [job.replaced(one) for one in found]
    assert 0 < len(found) <= count
    assert job not in jobs
    assert all(one not in jobs[:place] for place, one in enumerate(jobs))
    assert all(one.train.clients_per_round <= clients for one in jobs)
    for one in jobs:
        parse(one.codec.up), parse(one.codec.down)


def test_more_ways_are_the_same_and_some_further() -> None:
    """So that a longer search takes up a shorter one; another seed combines otherwise."""
    some, more = _changed(VIRTUAL, 20), _changed(VIRTUAL, 40)
    assert len(more) == 40
    assert more[:20] == some
    assert _changed(VIRTUAL.replaced({"seed": 1}), 40) != more


def test_each_choice_is_tried_by_itself() -> None:
    """With codecs both ways; the first of each kind come first, and combinations between them. The step of the grid is
    taken from the size of the updates."""
    found = _changed(VIRTUAL, 27)
    assert found[:10:2] == [
        {"codec.up": "feedback(grid:0.1 | entropy)", "codec.down": "feedback(grid:0.2 | entropy)"},
        {"train.clients_per_round": 10},
        {"train.epochs": 12},
        {"train.batch_size": 16},
        {"server.mode": "async", "server.concurrency": 5, "server.buffer": 2},
    ]
    for right in ({"codec.up": "fp16", "codec.down": "fp16"}, {"train.clients_per_round": 2}, {"train.epochs": 2}):
        assert right in found


def test_what_the_job_cannot_take_is_left_out_with_the_reason() -> None:
    """Asynchrony where clients do not work at the same time, or with what belongs to rounds; unknown sizes of steps."""
    space = space_of(Job(), None)
    assert space.choices["mode"] == ()
    assert space.left_out == (
        'server.mode = async: on the real clock it needs execute.executor = "processes"',
        "codec.up and codec.down = grid: no update has a size from which a step could be taken",
    )
    assert space_of(Job().replaced({"execute.executor": "processes"}), 0.1).choices["mode"] == ("async",)
    (reason,) = space_of(VIRTUAL.replaced({"server.over_select": 1.5}), 0.1).left_out
    assert reason.startswith("server.mode = async: ")
    assert "server.over_select = 1.5 is for rounds" in reason


def test_codecs_of_an_extra_that_is_not_there_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is said which, and what to install."""
    monkeypatch.setitem(sys.modules, "constriction", None)
    space = space_of(VIRTUAL, 0.02)
    assert space.choices["up"] == ("quantize:8", "fp16")
    (reason,) = space.left_out
    assert "codec.up = feedback(ternary:0.02 | entropy)" in reason
    assert "pip install 'fedvitals[codecs]'" in reason
    assert not any("entropy" in str(one) for one in _changed(VIRTUAL, 30))


def test_a_job_that_adapts_keeps_codecs_with_a_share() -> None:
    """Others have nothing to adapt."""
    job = VIRTUAL.replaced({"codec.up": "topk:0.1", "codec.adapt": True, "server.deadline_s": 10})
    space = space_of(job, 0.02)
    assert space.choices["up"] == (
        "feedback(topk:0.05 | quantize:8 | entropy)",
        "feedback(ternary:0.02 | entropy)",
    )
    assert any("codec.up = fp16" in one for one in space.left_out)


def test_steps_without_rounds_take_as_many_updates() -> None:
    """A step for two of five clients: two and a half times as many, judged as often."""
    own = own_way(VIRTUAL)
    without = Way(own.up, own.down, 1.0, own.epochs, own.batch_size, "async")
    assert steps_for(VIRTUAL, own, 10) == (10, 1)
    assert steps_for(VIRTUAL, without, 10) == (25, 3)
