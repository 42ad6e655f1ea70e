"""Debugging: where does the NaN come from, and who makes the gradients explode? Ask before the updates are averaged.

Client 1 has a corrupt pixel in each batch, client 3 a learning rate that blows its training up from round 5 on. Without
the lines that end in `# added` the model is lost in the first round. With them each bad update is named and left out,
and the run ends well. Afterwards: fedvitals doctor last
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fedvitals

ROUNDS, EPOCHS, CLIENTS, RATE = 15, 2, 8, 0.1
pixels, labels = load_digits(return_X_y=True)
x, y = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels)
shuffled = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
test_rows, parts = shuffled[:300], shuffled[300:].chunk(CLIENTS)
torch.manual_seed(0)
global_model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def train(cid: int, number: int, model: nn.Module, batches: Iterable[Tensor]) -> Iterator[Tensor]:
    """The losses of two epochs at one client, with whatever is wrong there."""
    rate = RATE * 50 if cid == 3 and number >= 5 else RATE
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for batch in batches:
        rows = x[batch].clone()
        if cid == 1:
            rows[0, 20] = float("nan")
        optimizer.zero_grad()
        loss = cross_entropy(model(rows), y[batch])
        loss.backward()  # type: ignore[no-untyped-call]  # torch says no type for it
        optimizer.step()
        yield loss.detach()


def average(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}


with fedvitals.start("debugging") as run:  # added
    for number in range(ROUNDS):
        with run.round(number, model=global_model) as rnd:  # added
            states = {}
            for cid, rows in enumerate(parts):
                with rnd.client(cid, samples=len(rows)) as client:  # added
                    model = copy.deepcopy(global_model)
                    client.watch(model)  # added
                    for loss in train(cid, number, model, torch.split(rows, 32) * EPOCHS):
                        client.step(loss)  # added
                    client.submit(model.state_dict(), loss=loss)  # added
                    states[cid] = model.state_dict()
            bad = rnd.verdicts()  # added
            rnd.rejected(list(bad))  # added
            global_model.load_state_dict(average([state for cid, state in states.items() if cid not in bad]))
            with torch.no_grad():
                output = global_model(x[test_rows])
            right = (output.argmax(1) == y[test_rows]).float().mean()
            rnd.evaluated(loss=cross_entropy(output, y[test_rows]), accuracy=right)  # added
print(run.diagnose())
print(f"accuracy {right:.3f} after {ROUNDS} rounds")
