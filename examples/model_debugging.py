"""Model debugging: why does this model not learn, and which layer is to blame?

Ten sigmoid layers, as one might stack them: the gradient dies on its way back, layer by layer. And client 5 hands its
optimizer only half of the parameters, so that some layers never move there. The lines that end in `# added` show both,
with the statistics of every layer. Afterwards: fedvitals doctor last
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fedvitals

ROUNDS, CLIENTS, DEPTH = 10, 6, 10
pixels, labels = load_digits(return_X_y=True)
x, y = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels)
shuffled = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
test_rows, parts = shuffled[:300], shuffled[300:].chunk(CLIENTS)
torch.manual_seed(0)
middle = [layer for _ in range(DEPTH - 2) for layer in (nn.Linear(32, 32), nn.Sigmoid())]
global_model = nn.Sequential(nn.Linear(64, 32), nn.Sigmoid(), *middle, nn.Linear(32, 10))


def train(cid: int, model: nn.Module, batches: Iterable[Tensor]) -> Tensor:
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters[len(parameters) // 2 :] if cid == 5 else parameters, lr=0.1)
    for batch in batches:
        optimizer.zero_grad()
        loss = cross_entropy(model(x[batch]), y[batch])
        loss.backward()  # type: ignore[no-untyped-call]  # torch says no type for it
        optimizer.step()
    return loss.detach()


def average(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}


with fedvitals.start("model-debugging") as run:  # added
    for number in range(ROUNDS):
        with run.round(number, model=global_model) as rnd:  # added
            states = []
            for cid, rows in enumerate(parts):
                with rnd.client(cid, samples=len(rows)) as client:  # added
                    model = copy.deepcopy(global_model)
                    client.watch(model)  # added
                    loss = train(cid, model, torch.split(rows, 32))
                    client.submit(model.state_dict(), loss=loss)  # added
                    states.append(model.state_dict())
            global_model.load_state_dict(average(states))
            with torch.no_grad():
                output = global_model(x[test_rows])
            right = (output.argmax(1) == y[test_rows]).float().mean()
            rnd.evaluated(loss=cross_entropy(output, y[test_rows]), accuracy=right)  # added
print(run.diagnose())

print(f"\nthe update of client 0 in round {ROUNDS - 1}, layer by layer")
reader = fedvitals.open_store().open("last")
(last,) = [one for one in reader.participations(client="0") if one.round == ROUNDS - 1]
for layer in reader.update_stats(last):
    if layer.layer.endswith("weight"):
        print(f"{layer.layer:<10} norm {layer.norm:.1e}  std {layer.std:.1e}  zeros {layer.zero_ratio:.0%}")
reader.close()
