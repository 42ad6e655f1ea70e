"""The engine: a job and its federation in, the first global model out, the same for the same seed.

`mlp`, `logistic` and `cnn` are plain `nn.Sequential`s of standard layers, which the vectorised executor reads layer by
layer to make its batched version.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from fedvitals.capture.environment import memory_bytes
from fedvitals.capture.tensors import Flattener
from fedvitals.errors import JobError
from fedvitals.randomness import torch_seed
from fedvitals.train.federation import Federation
from fedvitals.train.job import Job
from fedvitals.train.model_size import require_that_it_fits
from fedvitals.train.named import named_function
from fedvitals.train.sections import ModelSpec


class TokenGRU(nn.Module):
    """Tokens -> vectors -> GRU -> classes, judged by the last state."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.gru = nn.GRU(embedding, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.gru(self.embedding(tokens))
        scores: torch.Tensor = self.head(states[:, -1])
        return scores


class SequenceGRU(nn.Module):
    """Rows of [time, channels] -> GRU -> classes, judged by the last state."""

    def __init__(self, channels: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.gru = nn.GRU(channels, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.gru(x)
        scores: torch.Tensor = self.head(states[:, -1])
        return scores


def build_model(job: Job, federation: Federation) -> nn.Module:
    """The first global model, on the CPU, in training mode. The caller's random numbers stay as they were."""
    require_that_it_fits(job.model, federation, memory_bytes())
    with _own_randomness(torch_seed(job.seed, "model")):
        model = _made(job.model, federation)
        _check_output(job.model.kind, model, federation)
    return model.train()


def _made(spec: ModelSpec, federation: Federation) -> nn.Module:
    shape, classes = federation.input_shape, federation.classes
    if spec.kind in ("mlp", "logistic"):
        sizes = spec.hidden if spec.kind == "mlp" else ()
        return nn.Sequential(nn.Flatten(), *_dense(_product(shape), sizes, classes, spec.dropout, spec.norm))
    if spec.kind == "cnn":
        return _cnn(spec, federation)
    if spec.kind == "gru":
        return _gru(spec, federation)
    function = named_function(spec.kind, "model.kind")
    try:
        model = function(shape, classes)
    except Exception as error:
        raise JobError(f"model.kind = {spec.kind!r}: {type(error).__name__} when called: {error}") from error
    if not isinstance(model, nn.Module):
        raise JobError(f"model.kind = {spec.kind!r} gave a {type(model).__name__}; right is a torch.nn.Module")
    try:
        copied = copy.deepcopy(model)  # the function may keep it, and give it again for the clients
    except Exception as error:
        if function(shape, classes) is model:
            raise JobError(
                f"model.kind = {spec.kind!r} gives the same module again, which cannot be copied ({error}): make a new "
                "one at each call"
            ) from error
        return model
    # A copy gives each parameter memory of its own: one that lay in another's is for `FlatModel` to judge.
    return copied if Flattener(copied).layout == Flattener(model).layout else model


def _dense(
    inputs: int, sizes: tuple[int, ...], classes: int, dropout: float, norm: str = "none"
) -> Iterator[nn.Module]:
    for size in sizes:
        yield nn.Linear(inputs, size)
        yield from _norm(norm, size, pictures=False)
        yield nn.ReLU(inplace=True)  # nobody else needs what goes in
        if dropout > 0:
            yield nn.Dropout(dropout)
        inputs = size
    yield nn.Linear(inputs, classes)


def _cnn(spec: ModelSpec, federation: Federation) -> nn.Sequential:
    if len(federation.input_shape) != 3:
        raise JobError(f'model.kind = "cnn" needs rows of [channels, height, width], not {federation.input_shape}')
    inputs, height, width = federation.input_shape
    layers: list[nn.Module] = []
    for size in spec.channels:
        layers.append(nn.Conv2d(inputs, size, spec.kernel, padding=spec.kernel // 2))
        layers.extend(_norm(spec.norm, size, pictures=True))
        if min(height, width) >= 2:
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
        layers.append(
            nn.ReLU(inplace=True)
        )  # after pooling: both keep the order, so it is the same from a quarter of the work
        inputs = size
    dense = _dense(inputs * height * width, spec.hidden, federation.classes, spec.dropout)
    return nn.Sequential(*layers, nn.Flatten(), *dense)


def _gru(spec: ModelSpec, federation: Federation) -> nn.Module:
    size = spec.hidden[0]
    if federation.kind == "tokens":
        return TokenGRU(federation.vocabulary, spec.embedding, size, federation.classes)
    if len(federation.input_shape) != 2:
        raise JobError(f'model.kind = "gru" needs tokens or rows of [time, channels], not {federation.input_shape}')
    return SequenceGRU(federation.input_shape[1], size, federation.classes)


def _norm(norm: str, size: int, *, pictures: bool) -> Iterator[nn.Module]:
    if norm == "batch":
        yield nn.BatchNorm2d(size) if pictures else nn.BatchNorm1d(size)
    elif norm == "group":
        # At most 8 groups. A group of one would wipe out a single activation, and of two single ones only the sign of
        # their difference would be left: a step that a last bit takes one way or the other.
        least = 2 if pictures else 4
        yield nn.GroupNorm(next((groups for groups in (8, 4, 2) if size % (least * groups) == 0), 1), size)


def _check_output(kind: str, model: nn.Module, federation: Federation) -> None:
    """One row through the model: its answer must be one score a class."""
    model.eval()
    with torch.no_grad():
        try:
            scores = model(federation.x[:1])
        except Exception as error:
            raise JobError(
                f"model.kind = {kind!r} cannot read a row of shape {list(federation.input_shape)}: {error}"
            ) from error
    found = list(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
    if found != [1, federation.classes]:
        raise JobError(
            f"model.kind = {kind!r} answers one row with {found}; right is [1, {federation.classes}]: a score a class"
        )


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for side in shape:
        total *= side
    return total


@contextmanager
def _own_randomness(seed: int) -> Iterator[None]:
    """Seed the CPU's generator inside, and put it back after. `torch.manual_seed` would seed the GPUs' as well."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
