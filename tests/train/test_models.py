"""The first model: its layers, its seed, and models of the user's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedvitals.errors import JobError
from fedvitals.train.federation import Federation
from fedvitals.train.job import Job
from fedvitals.train.models import SequenceGRU, TokenGRU, build_model


def _federation(*shape: int, classes: int = 10, tokens: int = 0) -> Federation:
    kinds = {1: "vector", 2: "sequence", 3: "image"}
    x = torch.randint(0, tokens, (12, *shape)) if tokens else torch.randn(12, *shape)
    rows = torch.arange(12)
    return Federation(
        x=x,
        y=torch.zeros(12, dtype=torch.int64),
        clients=("0",),
        train_rows=(rows,),
        holdout_rows=(rows[:0],),
        test_rows=rows[:0],
        classes=classes,
        kind="tokens" if tokens else kinds[len(shape)],
        vocabulary=tokens,
    )


def _model(federation: Federation, seed: int = 42, **model: Any) -> nn.Module:
    return build_model(Job.from_dict({"seed": seed, "model": model}), federation)


def _layers(model: nn.Module) -> list[str]:
    assert type(model) is nn.Sequential
    return [type(layer).__name__ for layer in model]


def test_dense_models_are_plain_sequentials() -> None:
    """An mlp is Flatten, Linear, ReLU, ...; logistic regression is one Linear."""
    mlp = _model(_federation(64), hidden=[32, 16], norm="batch", dropout=0.1)
    block = ["Linear", "BatchNorm1d", "ReLU", "Dropout"]
    assert _layers(mlp) == ["Flatten", *block, *block, "Linear"]
    assert _layers(_model(_federation(64), kind="logistic")) == ["Flatten", "Linear"]
    assert _layers(_model(_federation(64))) == ["Flatten", "Linear", "ReLU", "Linear"]
    assert [list(p.shape) for p in _model(_federation(32)).parameters()] == [[64, 32], [64], [10, 64], [10]]


def test_cnn() -> None:
    """Convolution, norm, ReLU and pooling a channel count; pooling stops when the picture is one pixel wide."""
    cnn = _model(_federation(1, 28, 28), kind="cnn", norm="group")
    block = ["Conv2d", "GroupNorm", "MaxPool2d", "ReLU"]
    assert _layers(cnn) == [*block, *block, "Flatten", "Linear", "ReLU", "Linear"]
    small = _model(_federation(3, 4, 2), kind="cnn", channels=[4, 4, 4], kernel=3, hidden=[])
    assert _layers(small).count("MaxPool2d") == 1
    assert small(torch.randn(5, 3, 4, 2)).shape == (5, 10)


def test_group_norm_groups_hold_at_least_four() -> None:
    """Any width gets groups that divide it; two units to a group would leave the sign of their difference alone."""
    for width in (2, 3, 6, 7, 8, 16, 40, 64):
        model = _model(_federation(5), hidden=[width], norm="group")
        norm = next(layer for layer in model.modules() if isinstance(layer, nn.GroupNorm))
        assert width % norm.num_groups == 0
        assert norm.num_groups == 1 or width // norm.num_groups >= 4


def test_gru_for_tokens_and_for_sequences() -> None:
    """Tokens go through an embedding, floats do not; both answer with a score a class."""
    tokens = _model(_federation(9, tokens=63, classes=63), kind="gru", embedding=4, hidden=[16])
    assert isinstance(tokens, TokenGRU)
    assert tokens.embedding.weight.shape == (63, 4)
    assert tokens(torch.randint(0, 63, (3, 9))).shape == (3, 63)
    floats = _model(_federation(128, 6, classes=7), kind="gru")
    assert isinstance(floats, SequenceGRU)
    assert floats(torch.randn(3, 128, 6)).shape == (3, 7)


def test_a_gru_judges_by_its_last_state() -> None:
    """Its answer is the head applied to the GRU's final hidden state."""
    model = _model(_federation(9, tokens=5), kind="gru").eval()
    assert isinstance(model, TokenGRU)
    x = torch.randint(0, 5, (4, 9))
    _, last = model.gru(model.embedding(x))
    assert torch.allclose(model(x), model.head(last[0]))


@pytest.mark.parametrize("kind", ["mlp", "cnn", "gru", "logistic"])
def test_the_seed_alone_decides(kind: str) -> None:
    """Same seed, same weights, wherever the global generator stands; another seed, others; it is left as it was."""
    federation = _federation(1, 8, 8) if kind == "cnn" else _federation(8, 8) if kind == "gru" else _federation(64)
    torch.manual_seed(1)
    first = _model(federation, kind=kind)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    again = _model(federation, kind=kind)
    assert torch.equal(torch.get_rng_state(), state)
    pairs = list(zip(first.parameters(), again.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    other = _model(federation, seed=7, kind=kind)
    assert not torch.equal(next(first.parameters()), next(other.parameters()))
    assert first.training


OWN = """
import torch
from torch import nn
class Flat(nn.Module):
    def __init__(self, size, out):
        super().__init__()
        self.dropout, self.head = nn.Dropout(0.5), nn.Linear(size, out)
    def forward(self, x): return self.head(self.dropout(x.flatten(1)))
def good(shape, classes): return Flat(shape[0], classes)
def wide(shape, classes): return Flat(shape[0], classes + 1)
def blind(shape, classes): return Flat(shape[0] + 1, classes)
def pair(shape, classes):
    class Two(Flat):
        def forward(self, x): return x, x
    return Two(shape[0], classes)
def lazy(shape): return None
def none(shape, classes): return None
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of models in the working folder."""
    (tmp_path / "models_of_a_test.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.delitem(sys.modules, "models_of_a_test", raising=False)
    return "models_of_a_test"


def test_a_model_of_the_users_own(own: str) -> None:
    """It is called with the shape of a row and the classes, under the job's seed, and comes back in training mode."""
    federation = _federation(20)
    state = torch.get_rng_state()
    model = _model(federation, kind=f"{own}:good")
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    again = _model(_federation(20), kind=f"{own}:good")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wide", r"answers one row with \[1, 11\]; right is \[1, 10\]"),
        ("blind", r"cannot read a row of shape \[20\]"),
        ("pair", "answers one row with tuple"),
        ("lazy", "TypeError when called"),
        ("none", "gave a NoneType; right is a torch.nn.Module"),
        ("gone", "is not in that module"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(own: str, name: str, words: str) -> None:
    """Before any training, with its name and what would be right."""
    with pytest.raises(JobError, match=words) as caught:
        _model(_federation(20), kind=f"{own}:{name}")
    assert f"{own}:{name}" in str(caught.value)


def test_a_model_for_other_rows_is_refused() -> None:
    """A cnn wants three axes, a gru two."""
    with pytest.raises(JobError, match=r"needs rows of \[channels, height, width\]"):
        _model(_federation(20), kind="cnn")
    with pytest.raises(JobError, match="needs tokens or rows of"):
        _model(_federation(20), kind="gru")
