"""Optimisation: fewer bytes for the same accuracy, by sending differences, and by keeping what was left out.

A federated loop with ten clients, three times: uncompressed, with a tenth of each client's *weights*, and with a
twentieth of its *differences* in 8 bits; both times what was left out is added to its next message. Every message is
made of real bytes. The lines that end in `# added` record the three runs. Afterwards: fedvitals runs, and
fedvitals compare with two of their names.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fedvitals
from fedvitals.codecs import Memory, parse

ROUNDS, CLIENTS, ROWS, FEATURES, CLASSES, RATE = 30, 10, 200, 64, 10, 0.01
WAYS = {
    "uncompressed": Memory(parse("identity")),
    "weights": Memory(parse("feedback(topk:0.1:layer)")),
    "differences": Memory(parse("feedback(topk:0.05 | quantize:8 | entropy)")),
}


def rows(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noise, and 2 more at the feature that the label names."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(count, FEATURES, generator=generator), torch.randint(0, CLASSES, (count,), generator=generator)
    x[torch.arange(count), y] += 2.0
    return x, y


def trained(start: nn.Module, x: Tensor, y: Tensor, seed: int) -> nn.Module:
    local = copy.deepcopy(start)
    optimizer = torch.optim.SGD(local.parameters(), lr=RATE, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(3):
        for batch in torch.randperm(len(y), generator=generator).chunk(-(-len(y) // 32)):
            optimizer.zero_grad()
            loss = cross_entropy(local(x[batch]), y[batch])
            loss.backward()  # type: ignore[no-untyped-call]  # torch says no type for it
            nn.utils.clip_grad_norm_(local.parameters(), 1.0)
            optimizer.step()
    return local


def sent(
    memory: Memory, client: int, before: dict[str, Tensor], after: dict[str, Tensor], *, whole: bool
) -> tuple[dict[str, Tensor], int]:
    """What arrives of a client's new weights, and the bytes that it took."""
    if whole:  # the mistake: what is left out is missing from the model, and what comes later belongs to an older one
        message = memory.encode(str(client), after)
        return message.arrived, len(message.data)
    message = memory.encode(str(client), {name: after[name] - before[name] for name in after})
    return {name: before[name] + message.arrived[name] for name in after}, len(message.data)


def federation(way: str, memory: Memory) -> tuple[float, int]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    data, (x_test, y_test) = [rows(ROWS, seed) for seed in range(CLIENTS)], rows(5000, CLIENTS)
    uploaded, accuracy = 0, 0.0
    with fedvitals.start(way) as run:  # added
        for r in range(ROUNDS):
            before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            arrived = []
            with run.round(r, model=model) as rnd:  # added
                for client, (x, y) in enumerate(data):
                    with rnd.client(client, samples=ROWS) as c:  # added
                        local = trained(model, x, y, r * CLIENTS + client)
                        with c.phase("encode"):  # added
                            state, size = sent(memory, client, before, local.state_dict(), whole=way == "weights")
                        with c.phase("upload", bytes=size):  # added
                            arrived.append(state)
                            uploaded += size
                        c.submit(state)  # added
                with rnd.phase("aggregate"):  # added
                    model.load_state_dict(
                        {name: torch.stack([one[name] for one in arrived]).mean(0) for name in before}
                    )
                with rnd.phase("evaluate"), torch.no_grad():  # added
                    accuracy = float((model(x_test).argmax(1) == y_test).float().mean())
                rnd.evaluated(accuracy=accuracy)  # added
    return accuracy, uploaded


def main() -> None:
    torch.set_num_threads(1)
    for way, memory in WAYS.items():
        accuracy, uploaded = federation(way, memory)
        print(f"{way:<14} accuracy {accuracy:.3f}   {uploaded / 1e6:8.3f} MB uploaded")


if __name__ == "__main__":
    main()
