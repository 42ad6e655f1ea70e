"""What the tests of the recorder share: a run in a real store, a small training, and the run read back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import optimizer as torch_optimizer

import fedvitals
from fedvitals.capture.cohorts import CohortSession
from fedvitals.capture.rounds import RoundSession
from fedvitals.run import Run
from fedvitals.settings import resolve
from fedvitals.store import open_store
from fedvitals.store.protocol import RunReader
from fedvitals.vocabulary import Participation, Span

torch.set_num_threads(1)
HERE = Path(__file__).parent
IDS = ["3", "1", "2"]  # of a cohort


def started(name: str = "watched", **values: Any) -> Run:
    """A run that is recorded, in the test's own store; what memory it takes is for the tests of memory."""
    defaults: dict[str, Any] = {"resources_every_s": 0.0, "memory": "off"}
    run = fedvitals.start(name, **defaults | values)
    assert isinstance(run, Run)
    return run


@contextmanager
def round_of(model: Any = None, number: int = 0, **values: Any) -> Iterator[RoundSession]:
    """One round of a run of its own."""
    with started(**values) as run, run.round(number, model=model) as rnd:
        assert isinstance(rnd, RoundSession)
        yield rnd


@contextmanager
def read(name: str = "last") -> Iterator[RunReader]:
    """The run as it is on disk."""
    with closing(open_store(resolve()).open(name)) as reader:
        yield reader


def only(name: str = "last") -> Participation:
    """The one participation of a run."""
    with read(name) as reader:
        (one,) = reader.participations()
        return one


def by_client(name: str = "last") -> dict[str, Participation]:
    """The last participation of each client."""
    with read(name) as reader:
        return {one.client: one for one in reader.participations()}


def small_model(seed: int = 0) -> nn.Sequential:
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def moved(model: nn.Module, by: float = 0.1, seed: int = 1) -> dict[str, Tensor]:
    """The model's state after a pretended training."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: tensor + by * torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
        if tensor.is_floating_point()
        else tensor.clone()
        for name, tensor in model.state_dict().items()
    }


def flat(state: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([tensor.detach().double().reshape(-1) for tensor in state.values()])


def train(model: nn.Module, batches: Any, lr: float = 0.1) -> Tensor:
    """Some SGD steps; gives the last loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    loss = torch.zeros(())
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]  # torch says no type for it
        optimizer.step()
    return loss


def batches(count: int, seed: int = 3) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(6, 4, generator=generator), torch.randint(0, 3, (6,), generator=generator)) for _ in range(count)
    ]


def in_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, which finds this module too."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"PYTHONPATH": str(HERE)} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class breaks:  # noqa: N801  # reads as `pytest.raises` does
    """A training that must break, with this; what it broke with is in `caught`."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind
        self.caught: BaseException | None = None

    def __enter__(self) -> breaks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        assert kind is not None, f"no {self.kind.__name__} came out of it"
        self.caught = error
        return issubclass(kind, self.kind)


def spans_of(reader: RunReader) -> list[Span]:
    """What the training told of: without the time that recording owns up to."""
    return [span for span in reader.spans() if not span.name.startswith("fl.")]


def hooks() -> int:
    found: Any = torch_optimizer._global_optimizer_pre_hooks  # the one place that knows
    return len(found)


def stacked(model: nn.Module, clients: int = 3) -> dict[str, Tensor]:
    states = [moved(model, seed=seed) for seed in range(clients)]
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def opened(rnd: Any, ids: list[Any], **values: Any) -> CohortSession:
    session = rnd.cohort(ids, **values)
    assert isinstance(session, CohortSession)
    return session
