"""A PyTorch loop of one's own, recorded: the five lines that end in `# added` are all that fedvitals needs.

It prints what was recorded of the last round. Afterwards: fedvitals show last
"""

from __future__ import annotations

import copy

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fedvitals

pixels, labels = load_digits(return_X_y=True)
x, y = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels)
shuffled = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
test_rows, clients = shuffled[:300], shuffled[300:].chunk(5)
torch.manual_seed(0)
global_model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def train(model: nn.Module, rows: Tensor) -> Tensor:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for batch in torch.split(rows, 32):
        optimizer.zero_grad()
        loss = cross_entropy(model(x[batch]), y[batch])
        loss.backward()  # type: ignore[no-untyped-call]  # torch says no type for it
        optimizer.step()
    return loss.detach()


def average(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}


with fedvitals.start("minimal-loop") as run:  # added
    for number in range(10):
        with run.round(number, model=global_model) as rnd:  # added
            states = []
            for cid, rows in enumerate(clients):
                with rnd.client(cid, samples=len(rows)) as client:  # added
                    model = copy.deepcopy(global_model)
                    loss = train(model, rows)
                    client.submit(model.state_dict(), loss=loss)  # added
                    states.append(model.state_dict())
            global_model.load_state_dict(average(states))
            with torch.no_grad():
                right = (global_model(x[test_rows]).argmax(1) == y[test_rows]).float().mean()
            rnd.evaluated(accuracy=right)  # added

reader = fedvitals.open_store().open("last")
print(f"accuracy {reader.evaluations()[-1].accuracy:.3f} after {len(reader.rounds())} rounds")
for one in reader.participations(round=9):
    print(f"client {one.client}: loss {one.loss:.3f}, update {one.update_norm:.3f} long, {one.duration_s * 1e3:.1f} ms")
reader.close()
