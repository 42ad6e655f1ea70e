"""Slow links on the real clock: what is waited for is the message that the codec makes, not the update."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from fedvitals.codecs import parse
from fedvitals.settings import resolve
from fedvitals.store import open_store
from fedvitals.train.device import NOMINAL
from fedvitals.train.engine import train
from fedvitals.train.flat import FlatModel
from fedvitals.train.job import Job
from fedvitals.train.uplink import Uplink

SLOWER = 2.0


def _job(**changes: Any) -> Job:
    job = {
        "data": {"source": "synthetic", "clients": 3, "rows": 20},
        "model": {"kind": "mlp", "hidden": [300]},
        "train": {"rounds": 2, "clients_per_round": 3, "epochs": 1},
        "execute": {"executor": "sequential"},
        "faults": [{"kind": "slow-link", "clients": ["1"], "strength": SLOWER}],
    }
    return Job.from_dict(job).replaced(changes)


def _uploads(folder: Path, job: Job) -> list[tuple[float, int]]:
    """Seconds and bytes of the slow client's uploads, by round."""
    settings = resolve({"mode": "on", "dir": str(folder)})
    result = train(job, settings=settings)
    with closing(open_store(settings).open(result.run_id or "last")) as reader:
        slow = [one for one in reader.participations() if one.client == "1"]
        assert reader.run().environment["link"]["up_mbps"] == 100.0
    return [(one.upload_s or 0.0, int(one.wire_bytes_up or 0)) for one in slow]


@pytest.mark.parametrize("executor", ["sequential", "vectorised", "processes"])
@pytest.mark.parametrize("codec", ["identity", "quantize:8"])
def test_a_slow_link_is_waited_for_by_the_codec_s_bytes(codec: str, executor: str, tmp_path: Path) -> None:
    """On every executor, from the first message on where the codec's bytes follow from the shapes."""
    found = _uploads(tmp_path, _job(**{"codec.up": codec, "execute.executor": executor}))
    assert len(found) == 2
    for seconds, size in found:
        more_s = NOMINAL.upload_s(size, SLOWER) - NOMINAL.upload_s(size)
        assert seconds == pytest.approx(more_s, rel=1e-6)


def test_a_message_is_expected_to_be_as_large_as_the_last() -> None:
    """Before the first it is what the model's own weights take."""
    model = FlatModel(torch.nn.Linear(30, 20))
    uplink = Uplink(parse("threshold:0.5"), model)
    first = uplink.expected("a")
    update = torch.zeros(1, model.size)
    update[0, :100] = 1.0
    sent = uplink.received(["a"], update).sizes[0]
    assert (uplink.expected("a"), uplink.expected("b")) == (sent, first)
    assert sent != first


def test_what_cannot_be_encoded_is_expected_as_it_is() -> None:
    """A model whose weights no codec takes counts its own bytes."""
    model = FlatModel(torch.nn.Linear(3, 2))
    with torch.no_grad():
        model.weights[0] = float("nan")
    assert Uplink(parse("quantize:8"), model).expected("a") == 4 * model.size
