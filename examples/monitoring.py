"""Monitoring: which client is slow, which fails, which diverges? Seven added lines find out.

A federated loop as one writes it, with three clients that have trouble of their own: client 2 trains with a learning
rate that somebody mistyped, client 4 sits on a busy machine, client 7 has a file of the wrong shape that it stumbles
over now and then. Nothing is logged by hand: the lines that end in `# added` are all. Afterwards: fedvitals doctor last
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fedvitals

ROUNDS, EPOCHS, CLIENTS, RATE = 20, 2, 10, 0.1
pixels, labels = load_digits(return_X_y=True)
x, y = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels)
shuffled = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
test_rows, parts = shuffled[:300], shuffled[300:].chunk(CLIENTS)
torch.manual_seed(0)
global_model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def train(cid: int, number: int, model: nn.Module, batches: Iterable[Tensor]) -> Iterator[Tensor]:
    """The losses of two epochs at one client, with whatever is wrong there."""
    rate = RATE * 60 if cid == 2 and number >= 8 else RATE
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for batch in batches:
        rows = x[batch]
        if cid == 4:
            time.sleep(0.02)
        if cid == 7 and number % 3 == 1:
            rows = rows[:, :60]
        optimizer.zero_grad()
        loss = cross_entropy(model(rows), y[batch])
        loss.backward()  # type: ignore[no-untyped-call]  # torch says no type for it
        optimizer.step()
        yield loss.detach()


def average(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}


with fedvitals.start("monitoring") as run:  # added
    for number in range(ROUNDS):
        with run.round(number, model=global_model) as rnd:  # added
            states = []
            for cid, rows in enumerate(parts):
                try:
                    with rnd.client(cid, samples=len(rows)) as client:  # added
                        model = copy.deepcopy(global_model)
                        client.watch(model)  # added
                        for loss in train(cid, number, model, torch.split(rows, 32) * EPOCHS):
                            client.step(loss)  # added
                        client.submit(model.state_dict(), loss=loss)  # added
                        states.append(model.state_dict())
                except RuntimeError:
                    continue  # the round goes on without it
            global_model.load_state_dict(average(states))
            with torch.no_grad():
                output = global_model(x[test_rows])
            right = (output.argmax(1) == y[test_rows]).float().mean()
            rnd.evaluated(loss=cross_entropy(output, y[test_rows]), accuracy=right)  # added
print(run.diagnose())
