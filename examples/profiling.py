"""Profiling: where does a round go, who is it waiting for, and what would make it shorter?

A federated loop with real bytes: the model is sent as bytes and comes back as bytes. Client 3 reads its rows from a
slow disk. The lines that end in `# added` tell which part of the work is which: the more of it is told, the less stays
unexplained. Afterwards: fedvitals profile last, fedvitals report last -o report.html,
fedvitals export last --to perfetto -o trace.json
"""

from __future__ import annotations

import copy
import io
import time
from collections.abc import Iterator

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import fedvitals

ROUNDS, CLIENTS, RATE = 10, 6, 0.1
pixels, labels = load_digits(return_X_y=True)
x, y = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels)
shuffled = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
test_rows, parts = shuffled[:300], shuffled[300:].chunk(CLIENTS)
torch.manual_seed(0)
global_model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


class Rows(Dataset[tuple[Tensor, Tensor]]):
    """One client's rows, from its disk."""

    def __init__(self, rows: Tensor, *, slow: bool) -> None:
        self.rows, self.slow = rows, slow

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        if self.slow:
            time.sleep(0.0002)
        return x[self.rows[place]], y[self.rows[place]]


def packed(model: nn.Module) -> bytes:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.getvalue()


def unpacked(data: bytes) -> dict[str, Tensor]:
    state: dict[str, Tensor] = torch.load(io.BytesIO(data), weights_only=True)
    return state


def train(model: nn.Module, batches: Iterator[tuple[Tensor, Tensor]]) -> Tensor:
    for rows, right in batches:
        loss = cross_entropy(model(rows), right)
        weights: list[Tensor] = list(model.parameters())
        with torch.no_grad():
            torch._foreach_add_(weights, torch.autograd.grad(loss, weights), alpha=-RATE)
    return loss.detach()


with fedvitals.start("profiling") as run:  # added
    for number in range(ROUNDS):
        with run.round(number, model=global_model) as rnd:  # added
            received = []
            with rnd.phase("encode"):  # added
                sent = packed(global_model)
            for cid, rows in enumerate(parts):
                with rnd.client(cid, samples=len(rows)) as client:  # added
                    with client.phase("download", bytes=len(sent)):  # added
                        model = copy.deepcopy(global_model)
                        model.load_state_dict(unpacked(sent))
                    with client.phase("train"):  # added
                        loader = DataLoader(Rows(rows, slow=cid == 3), batch_size=32)
                        loss = train(model, client.batches(loader))  # added: `client.batches(...)`
                    with client.phase("encode"):  # added
                        data = packed(model)
                    client.submit(model.state_dict(), loss=loss, wire_bytes=len(data))  # added
                    received.append(data)
            with rnd.phase("decode"):  # added
                states = [unpacked(data) for data in received]
            with rnd.phase("aggregate"):  # added
                mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
                global_model.load_state_dict(mean)
            with rnd.phase("evaluate"), torch.no_grad():  # added
                output = global_model(x[test_rows])
                right = (output.argmax(1) == y[test_rows]).float().mean()
                rnd.evaluated(loss=cross_entropy(output, y[test_rows]), accuracy=right)  # added
print(run.profile())
