"""Memory in use at the end of rounds: the same after each in a training that keeps nothing."""

from __future__ import annotations

import copy
import gc
import json

import pytest
import torch
from torch import nn
from watching import batches, read, small_model, started, train

from fedvitals.capture.clients import ClientSession
from fedvitals.capture.heap import FIRST, Heap, _mallinfo
from fedvitals.diagnose.charting import read_chart
from fedvitals.diagnose.diagnosis import examine
from fedvitals.diagnose.registry import chosen
from fedvitals.vocabulary import Finding

pytestmark = pytest.mark.skipif(_mallinfo() is None, reason="this C library does not tell what it has handed out")


def heaps(name: str = "last") -> dict[int, int]:
    """Bytes by round."""
    with read(name) as reader:
        told = [json.loads(one.attributes or "{}") for one in reader.spans() if one.name == "fl.heap"]
    return {one["round"]: one["heap_bytes"] for one in told}


def trained(name: str, rounds: int, leak: int = 0) -> dict[int, int]:
    """A small federated training that keeps so many floats more after each round."""
    model = nn.Sequential(nn.Linear(4, 200), nn.ReLU(), nn.Linear(200, 3))
    kept = []
    gc.collect()  # the garbage of other tests is not this training's
    with started(name, memory="exact") as run:
        for number in range(rounds):
            with run.round(number, model=model) as rnd:
                for client in range(3):
                    with rnd.client(client) as c:
                        local = copy.deepcopy(model)
                        c.watch(local)
                        train(local, batches(3))
                        c.submit(local.state_dict())
                if leak:
                    kept.append(torch.ones(leak))
    return heaps(name)


def found(name: str) -> tuple[Finding, ...]:
    with read(name) as reader:
        return examine(read_chart(reader), chosen(("FL801",))).findings


def test_a_leak_of_1_mb_a_round_is_found_within_10_rounds() -> None:
    """With its size, and nobody accused: it is the server's."""
    used = trained("leak", 10, leak=250_000)
    assert len(used) >= 8
    (one,) = found("leak")
    assert (one.code, one.clients) == ("FL801", ())
    assert one.evidence["bytes_a_round"] == pytest.approx(1e6, rel=0.1)


@pytest.mark.parametrize("attempt", range(3))
def test_a_training_that_keeps_nothing_is_no_leak(attempt: int) -> None:
    """After the first rounds the memory in use hardly moves."""
    used = trained("clean", 10)
    later = [size for number, size in used.items() if number >= 2]
    assert max(later) - min(later) < 1_000_000
    assert found("clean") == ()


def test_what_the_recorder_holds_is_taken_off() -> None:
    """Models that it remembers and updates that wait are no leak of the training's."""
    big = nn.Linear(1000, 500)
    with started(memory="exact") as run:
        for number in range(8):
            with run.round(number, model=big) as rnd, rnd.client("a") as c:
                c.submit({name: tensor + number for name, tensor in big.state_dict().items()})
        assert run.recorder.held_bytes() >= 8 * 2_000_000
    sizes = list(heaps().values())
    assert max(sizes[2:]) - min(sizes[2:]) < 8_000_000


def test_later_it_is_asked_for_less_often() -> None:
    """At the end of every round at first; not in runs without memory."""
    with started(memory="exact") as run:
        for number in range(FIRST + 50):
            with run.round(number, model=small_model()):
                pass
    assert list(range(FIRST)) == sorted(heaps())[:FIRST]
    assert len(heaps()) < FIRST + 40
    with started("none", memory="off") as run, run.round(0):
        pass
    assert heaps("none") == {}


def test_a_busy_recorder_is_passed_over_but_not_for_ever() -> None:
    """What it takes while it works is nobody's leak."""
    with started(memory="exact") as run:
        own = Heap(run.recorder)
        with run.recorder.pending._flushing:
            for number in range(3):
                own.round_over(number)
    assert list(heaps()) == [2]


def test_a_watched_model_is_not_kept_alive_until_its_samples_are_written() -> None:
    """Its parameters and gradients can be freed as soon as the client is done."""
    with started() as run, run.round(0) as rnd, rnd.client("a") as c:
        assert isinstance(c, ClientSession)
        model = small_model()
        c.watch(model)
        train(model, batches(1))
        probe = c.draft.probe
        c.submit(model.state_dict())
        assert probe._parameters == []
        assert probe.steps_seen == 1
