"""Losses told step by step, and many threads that tell of their clients at once."""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from watching import by_client, flat, only, read, round_of, small_model, started

from fedvitals.capture.draft import Draft
from fedvitals.capture.tensors import Flattener


def test_losses_of_steps_make_first_last_and_mean_and_are_kept() -> None:
    """As tensors, numbers or arrays; the first steps' apart; what is no number is NaN, not an error."""
    losses: list[Any] = [torch.tensor(4.0, requires_grad=True), 2.0, np.float32(3.0), torch.tensor([1.0])]
    with round_of(small_model()) as rnd:
        with rnd.client("told") as c:
            for loss in losses:
                c.step(loss)
            c.submit(small_model(1))
        with rnd.client("odd") as c:
            c.step(torch.zeros(3))
            c.step("much")
            c.submit(small_model(2), loss=torch.zeros(2))
    found = by_client()
    one = found["told"]
    assert (one.loss, one.first_loss, one.last_loss, one.steps) == (2.5, 3.0, 1.0, 4)
    assert (one.bad_step, one.good_step) == (None, None)
    assert (found["odd"].loss, found["odd"].steps, found["odd"].bad_step) == (None, 2, 0)
    with read() as reader:
        (block,) = reader.update_blocks()
    assert block.losses is not None
    assert block.loss_steps is not None
    assert block.losses[0].tolist() == [4.0, 2.0, 3.0, 1.0]
    assert block.loss_steps.tolist() == [[0, 1, 2, 3], [0, 1, -1, -1]]


def test_a_loss_that_is_added_to_in_place_is_kept_as_it_was() -> None:
    """`running += ...` must not change what was told before."""
    running = torch.zeros(())
    with round_of(small_model()) as rnd, rnd.client(1) as c:
        for _ in range(3):
            running += 1.0
            c.step(running)
        c.submit(small_model(1), loss=running)
        running += 10.0
    one = only()
    assert (one.first_loss, one.last_loss, one.loss) == (1.5, 3.0, 3.0)


def test_the_first_bad_loss_is_known_exactly() -> None:
    """Every step's loss was told, so there is no bracket."""
    with round_of(small_model()) as rnd, rnd.client(1) as c:
        for loss in (1.0, 0.9, float("inf"), float("nan"), 1.0):
            c.step(torch.tensor(loss))
        c.submit(small_model(1))
    assert (only().bad_step, only().good_step) == (2, None)


@pytest.mark.parametrize(
    ("losses", "bracket", "expected"),
    [
        ([1.0, 1.0, math.nan, 1.0], (0, 3), (2, None)),
        ([1.0, 1.0, 1.0, math.nan], (1, 2), (2, 1)),
        ([1.0, 1.0, 1.0, 1.0], (1, 2), (2, 1)),
    ],
)
def test_an_exact_bad_loss_goes_before_a_bracket_unless_the_gradient_was_first(
    losses: list[float], bracket: tuple[int, int], expected: tuple[int, int | None]
) -> None:
    """The first bad step is the first, of loss or gradient."""
    draft = Draft("a", 0, 0, 0, 0, own_steps=4, losses=list(losses))
    draft.good_step, draft.bad_step = bracket
    record = draft.record()
    assert (record.bad_step, record.good_step) == expected


def test_many_threads_each_have_a_client_of_their_own() -> None:
    """Sessions of one round in many threads: nothing is lost, mixed up or named twice."""
    model = small_model()
    together = threading.Barrier(8)

    def work(rnd: Any, client: int) -> None:
        together.wait(30)
        for attempt in range(3):
            local = small_model(1 + client)
            with rnd.client(client, samples=client) as c:
                c.watch(local)
                for _ in c.batches(range(client)):
                    c.step(float(client))
                c.submit(local, loss=client + attempt)

    with round_of(model) as rnd:
        threads = [threading.Thread(target=work, args=(rnd, client)) for client in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    with read() as reader:
        found = reader.participations()
        layouts = reader.layouts()
        (record,) = reader.rounds()
    assert sorted((int(one.client), one.attempt) for one in found) == [(c, a) for c in range(8) for a in range(3)]
    for one in found:
        client = int(one.client)
        expected = float(
            torch.linalg.vector_norm(flat(small_model(1 + client).state_dict()) - flat(model.state_dict()))
        )
        assert (one.samples, one.loss, one.steps) == (client, client + one.attempt, client or None)
        assert one.update_norm == pytest.approx(expected, rel=1e-5)
    assert [layout.id for layout in layouts] == [0]
    assert (record.selected, record.used) == (8, 24)


def test_two_new_kinds_of_models_at_once_get_two_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two layouts get one number, even when two threads are naming theirs at the same moment."""
    naming = threading.Barrier(2)

    def meeting(source: Any, number: int, choice: Any) -> Flattener:
        with suppress(threading.BrokenBarrierError):
            naming.wait(0.3)  # together, if both are let in; alone, if they are kept apart
        return Flattener(source, number, choice)

    def work(run: Any, width: int) -> None:
        with run.client(width) as c:
            c.watch(nn.Linear(width, 2))
            c.submit(nn.Linear(width, 2))

    monkeypatch.setattr("fedvitals.capture.models.Flattener", meeting)
    with started() as run:
        threads = [threading.Thread(target=work, args=(run, width)) for width in (3, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    with read() as reader:
        assert sorted(layout.id for layout in reader.layouts()) == [0, 1]
        for one in reader.participations():
            assert [entry.size for entry in reader.update_stats(one)] == [2 * int(one.client), 2]
