"""Client and server apart: a ticket goes out with the model, telemetry comes back with the update.

The two functions stand for two machines; between them go bytes and nothing else. Run it, then: fedvitals show last
"""

from __future__ import annotations

import copy

import torch
from torch import nn

import fedvitals
from fedvitals.testing import toy_federation

federation = toy_federation(clients=3, rows=60)


def client(cid: str, ticket: bytes, received: nn.Module) -> tuple[dict[str, torch.Tensor], bytes]:
    """On the client: train, record, and give back the update with what was recorded."""
    rows = federation.train_rows[int(cid)]
    model = copy.deepcopy(received)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with fedvitals.client_session(ticket, model=received) as session:
        session.watch(model)
        for batch in session.batches(rows.reshape(3, 20)):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(federation.x[batch]), federation.y[batch])
            loss.backward()  # type: ignore[no-untyped-call]  # torch says no type for it
            optimizer.step()
            session.step(loss)
        session.submit(model.state_dict(), loss=loss)
    return model.state_dict(), session.to_bytes()


def server(rounds: int = 3) -> None:
    """On the server: hand out tickets, take in telemetry, average."""
    global_model = nn.Linear(6, 3)
    with fedvitals.start("client-and-server") as run:
        for number in range(rounds):
            with run.round(number, model=global_model) as rnd:
                states = []
                for cid in federation.clients:
                    state, telemetry = client(cid, rnd.ticket(cid), global_model)
                    rnd.merge(telemetry, client=cid)
                    states.append(state)
                with rnd.phase("aggregate"):
                    mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
                    global_model.load_state_dict(mean)
                loss, accuracy = judged(global_model)
                rnd.evaluated(loss=loss, accuracy=accuracy)


@torch.no_grad()
def judged(model: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and accuracy on rows that no client has."""
    output, labels = model(federation.x[federation.test_rows]), federation.y[federation.test_rows]
    return nn.functional.cross_entropy(output, labels), (output.argmax(1) == labels).float().mean()


if __name__ == "__main__":
    server()
