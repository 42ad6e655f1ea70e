"""Codecs tried on kept updates: the bytes that the engine would have sent."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from fedvitals.profile.trying import kept_updates, once_tried, read_updates, tried
from fedvitals.settings import Settings
from fedvitals.store import SQLiteStore
from fedvitals.train.engine import train
from fedvitals.train.job import Job

SPECS = (
    "identity",
    "fp16",
    "quantize:4",
    "topk:0.1 | quantize:8 | entropy",
    "ternary:0.05",
    "feedback(topk:0.05 | quantize:8)",
)


def _trained(folder: Path, norm: str, **changes: Any) -> None:
    """One round, so that all updates are differences from the same model, whatever the codec."""
    job = Job().replaced(
        {
            "data.source": "synthetic",
            "data.clients": 4,
            "data.rows": 30,
            "data.partition": "iid",
            "model.norm": norm,
            "model.hidden": [16, 16],
            "train.rounds": 1,
            "train.clients_per_round": 4,
            "observe.keep_updates": True,
            "execute.executor": "sequential",
            **changes,
        }
    )
    train(job, settings=Settings(dir=str(folder)))


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_what_is_tried_is_what_the_engine_sends(norm: str, tmp_path: Path) -> None:
    """To the byte, of a model with running statistics and counts too: those go through any codec as they are."""
    _trained(tmp_path / "plain", norm)
    with closing(SQLiteStore(tmp_path / "plain").open("last")) as reader:
        found = tried(reader, SPECS)
        updates = read_updates(reader, kept_updates(reader))
    assert len(updates.messages) == 4
    assert updates.statistics == (
        {f"{layer}.running_{what}" for layer in (2, 5) for what in ("mean", "var")} if norm == "batch" else set()
    )
    for number, spec in enumerate(SPECS):
        folder = tmp_path / str(number)
        _trained(folder, norm, **{"codec.up": spec})
        with closing(SQLiteStore(folder).open("last")) as reader:
            sent = [one.wire_bytes_up or 0 for one in reader.participations()]
        assert found[spec].bytes == pytest.approx(sum(sent) / len(sent), abs=1e-6), spec


def frozen(shape: tuple[int, ...], classes: int) -> nn.Module:
    first = nn.Linear(shape[0], 8).requires_grad_(False)
    return nn.Sequential(first, nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))


def test_weights_that_never_move_are_no_statistics(tmp_path: Path) -> None:
    """Nobody sends them apart."""
    _trained(tmp_path / "plain", "none", **{"model.kind": f"{__name__}:frozen"})
    _trained(tmp_path / "coded", "none", **{"model.kind": f"{__name__}:frozen", "codec.up": "topk:0.1"})
    with closing(SQLiteStore(tmp_path / "plain").open("last")) as reader:
        updates = read_updates(reader, kept_updates(reader))
    with closing(SQLiteStore(tmp_path / "coded").open("last")) as reader:
        sent = [one.wire_bytes_up or 0 for one in reader.participations()]
    assert updates.statistics == {"1.running_mean", "1.running_var"}
    assert once_tried("topk:0.1", updates).bytes == sum(sent) / len(sent)


def test_some_of_many_are_taken_and_timed(tmp_path: Path) -> None:
    """Evenly; the time is the clock's."""
    _trained(tmp_path, "none")
    with closing(SQLiteStore(tmp_path).open("last")) as reader:
        updates = read_updates(reader, kept_updates(reader), most=2)
    assert len(updates.messages) == 2
    assert updates.raw_bytes == sum(tensor.nbytes for tensor in updates.messages[0].values())
    ticks = iter([1.0, 4.0])
    assert once_tried("fp16", updates, lambda: next(ticks)).seconds == 1.5
