"""What a model's tensors take, counted from the tensors themselves."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn
from watching import batches, moved, read, small_model, started, train

from fedvitals.capture.tensor_bytes import MOST_COUNTS, TensorBytes, count

SMALL = 4 * (4 * 5 + 5 + 5 * 3 + 3)  # bytes of `small_model`


def counts(name: str = "last") -> list[tuple[int | None, str | None, dict[str, Any]]]:
    with read(name) as reader:
        spans = [one for one in reader.spans() if one.name == "fl.tensors"]
    return [(one.round, one.client, json.loads(one.attributes or "{}")) for one in spans]


def stepped(model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
    for x, y in batches(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]  # torch says no type
        optimizer.step()
    return model


def test_parameters_gradients_buffers_and_state_are_told_apart() -> None:
    """Adam keeps two moments of each parameter, and a step count for each."""
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    fresh = count(model)
    assert fresh == TensorBytes(4 * (4 * 5 + 5 + 5 + 5 + 5 * 3 + 3), 0, 4 * 5 * 2 + 8, None)
    optimizer = torch.optim.Adam(model.parameters())
    stepped(model, optimizer)
    found = count(model, [optimizer])
    assert found == fresh._replace(gradients=fresh.parameters, optimizer=2 * fresh.parameters + 4 * 6)


def test_a_storage_is_counted_once() -> None:
    """Tied weights, and gradients that are views of one bucket."""
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    model[1].weight = model[0].weight
    assert count(model).parameters == 4 * 64
    bucket = torch.zeros(1000)
    untied = nn.Linear(10, 10)
    untied.weight.grad, untied.bias.grad = bucket[:100].view(10, 10), bucket[100:110]
    assert count(untied).gradients == 4 * 1000


def test_what_is_no_module_is_counted_as_a_whole() -> None:
    """A state dict, a list of arrays, sparse gradients."""
    model = small_model()
    assert count(model.state_dict()) == TensorBytes(SMALL)
    assert count([tensor.numpy() for tensor in model.state_dict().values()]) == TensorBytes(SMALL)
    table = nn.Embedding(100, 4, sparse=True)
    table(torch.tensor([1, 2])).sum().backward()
    assert count(table).gradients == 2 * 8 + 2 * 4 * 4


def test_a_watched_client_tells_it_with_its_optimizer() -> None:
    """Though the optimizer is gone when the client ends; once, because the next client's are the same."""
    with started(memory="exact") as run, run.round(3, model=small_model()) as rnd:
        for client in ("a", "b"):
            with rnd.client(client) as c:
                model = small_model()
                c.watch(model)
                stepped(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
                c.submit(moved(model))
    parts = {"parameters_bytes": SMALL, "gradients_bytes": SMALL, "buffers_bytes": 0, "optimizer_bytes": SMALL}
    assert counts() == [
        (None, None, {"parameters_bytes": SMALL, "gradients_bytes": 0, "buffers_bytes": 0}),
        (3, "a", parts),
    ]


def test_a_count_that_changes_is_kept_again() -> None:
    """Another optimizer, another layout; never more than there is room for."""
    with started(memory="exact") as run, run.round(0) as rnd:
        for client, momentum in (("a", 0.0), ("b", 0.9)):
            with rnd.client(client) as c:
                model = small_model()
                c.watch(model)
                stepped(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum))
        tensors = run.recorder.tensors
        for size in range(MOST_COUNTS * 2):
            tensors.keep(TensorBytes(size), round=0)
    found = counts()
    assert [(client, told["optimizer_bytes"]) for _, client, told in found[:2]] == [("a", 0), ("b", SMALL)]
    assert len(found) == MOST_COUNTS


def test_one_step_is_enough() -> None:
    """The optimizer's state is counted at the end, as long as the optimizer lives."""
    with started(memory="exact") as run, run.round(0) as rnd, rnd.client("a") as c:
        model = small_model()
        c.watch(model)
        train(model, batches(1))  # its optimizer is gone by now
    ((_, _, told),) = counts()
    assert told == {"parameters_bytes": SMALL, "gradients_bytes": SMALL, "buffers_bytes": 0}
