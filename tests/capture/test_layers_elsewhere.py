"""What a server takes for the layers of its model is what its clients on other machines take for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from watching import only, read, round_of

import fedvitals


class Tied(nn.Module):
    """Embeds and reads out by one and the same weight, and counts the batches of its norm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.norm, self.out = nn.Embedding(9, 4), nn.BatchNorm1d(4), nn.Linear(4, 9, bias=False)
        self.out.weight = self.embedding.weight


def on_the_wire(model: nn.Module) -> list[Any]:
    return [value.numpy().copy() for value in model.state_dict().values()]


def averaged(model: nn.Module) -> list[Any]:
    return [value * 1.0 for value in on_the_wire(model)]


FORMS: dict[str, Callable[[nn.Module], Any]] = {
    "module": lambda model: model,
    "arrays": on_the_wire,
    "averaged": averaged,
    "dict": lambda model: dict(zip(model.state_dict(), on_the_wire(model), strict=True)),
}


def trained(ticket: bytes, form: str) -> bytes:
    model, received = Tied(), FORMS[form](Tied())
    with fedvitals.client_session(ticket, model=received) as c:
        c.watch(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.out(model.norm(model.embedding(torch.arange(9)))).pow(2).mean().backward()
        optimizer.step()
        c.submit(FORMS[form](model))
    return c.to_bytes()


def sketch() -> tuple[list[float], float]:
    with read() as reader:
        assert reader.failures() == []
        (block,) = reader.update_blocks()
    assert block.sketches is not None
    return block.sketches[0].tolist(), only().update_norm or 0.0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("given", ["module", "arrays"])
def test_a_shared_weight_is_counted_alike_on_both_sides(given: str, form: str) -> None:
    """Once for a module and twice for arrays, as the server has it; a counter that an average made a float is none."""
    with round_of(FORMS[given](Tied())) as rnd:
        rnd.merge(trained(rnd.ticket("a"), given), client="a")
    expected, norm = sketch()
    with round_of(FORMS[given](Tied())) as rnd:
        rnd.merge(trained(rnd.ticket("a"), form), client="a")
    found, same = sketch()
    assert norm > 0
    assert same == pytest.approx(norm)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("words", [{"tensors": "7"}, {"left_out": None}, {"left_out": [-1, 10**9]}, {"left_out": [[]]}])
def test_what_a_ticket_says_of_layers_stops_no_client(words: dict[str, Any]) -> None:
    """It is one more thing that may be wrong: the participation is there, whatever can be told of its layers."""
    with round_of(Tied()) as rnd:
        ticket = json.dumps(json.loads(rnd.ticket("a")) | words).encode()
        rnd.merge(trained(ticket, "arrays"), client="a")
    assert (only().outcome, only().steps) == ("used", 1)


def test_a_ticket_is_never_too_long_to_be_read() -> None:
    """Of a model with very many counters it does not say which they are."""
    model = [torch.zeros(2), *[torch.tensor(0)] * 5_000]
    with round_of(model) as rnd:
        with fedvitals.client_session(rnd.ticket("a"), model=model) as c:
            c.submit(model)
        rnd.merge(c.to_bytes(), client="a")
    assert only().update_norm == 0.0
