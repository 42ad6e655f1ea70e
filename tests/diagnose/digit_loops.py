"""A loop of one's own on digits, by the public door: what is done to a client's rows is the test's business."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from charted import Clock, looped
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fedvitals.diagnose.chart import Chart
from fedvitals.run import Run

ROWS, BATCH, EPOCHS = 140, 16, 2
Seen = Callable[[int, int, Tensor, Tensor], tuple[Tensor, Tensor]]  # round, client, inputs, labels


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def judged(net: nn.Module, inputs: Tensor, labels: Tensor) -> dict[str, Any]:
    """Its loss and accuracy on these rows."""
    with torch.no_grad():
        scores = net(inputs)
        right = (scores.argmax(dim=1) == labels).float().mean()
        return {"loss": float(nn.functional.cross_entropy(scores, labels)), "accuracy": float(right)}


def digit_loop(
    folder: Path, net: nn.Module, *, seed: int, clients: int = 10, rounds: int = 14, seen: Seen | None = None
) -> Chart:
    """Trains `net` where it lies. Each client has ROWS rows, drawn from the seed; there are twelve clients at most."""
    torch.manual_seed(seed)
    digits = load_digits()
    inputs, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    parts = torch.split(torch.randperm(len(labels))[: clients * ROWS], ROWS)

    def loop(run: Run, clock: Clock) -> None:
        for number in range(rounds):
            states = []
            with run.round(number, model=net) as rnd:
                for client, part in enumerate(parts):
                    rows = inputs[part], labels[part]
                    x, y = rows if seen is None else seen(number, client, *rows)
                    local = copy.deepcopy(net)
                    optimizer = torch.optim.SGD(local.parameters(), lr=0.1)
                    with rnd.client(client, samples=ROWS) as c:
                        c.watch(local)
                        epochs = [torch.split(torch.randperm(ROWS), BATCH) for _ in range(EPOCHS)]
                        for some in c.batches([batch for epoch in epochs for batch in epoch]):
                            loss = nn.functional.cross_entropy(local(x[some]), y[some])
                            optimizer.zero_grad()
                            loss.backward()  # type: ignore[no-untyped-call]
                            optimizer.step()
                            c.step(loss.item())
                        c.submit(local.state_dict())
                    states.append(local.state_dict())
                net.load_state_dict({name: sum(one[name] for one in states) / len(states) for name in states[0]})
                rnd.evaluated(**judged(net, inputs, labels))

    return looped(folder, loop)
