"""Bytes by layer: each message's bytes, dealt out by the values that travelled."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from fedvitals.profile.communication import Communication
from fedvitals.profile.profile import profile_of
from fedvitals.settings import Settings
from fedvitals.store import open_store
from fedvitals.train.engine import train
from fedvitals.train.job import Job


def _sent(folder: Path, codec: str, sketches: bool = True) -> Communication:
    job = Job.from_dict({"data": {"source": "digits"}, "train": {"rounds": 4}, "codec": {"up": codec}})
    train(job, settings=Settings(dir=str(folder), sketches=sketches))
    with closing(open_store(Settings(dir=str(folder))).open("last")) as reader:
        return profile_of(reader).communication


def test_uncompressed_layers_take_their_size(tmp_path: Path) -> None:
    """But for values that happen to be zero; together they are all that went up."""
    found = _sent(tmp_path, "identity")
    whole = found.up.wire_bytes
    assert whole is not None
    assert sum(one.wire_bytes_up or 0.0 for one in found.layers) == pytest.approx(whole)
    assert sum(one.wire_bytes_down or 0.0 for one in found.layers) == pytest.approx(found.down.wire_bytes)
    assert sum(one.raw_bytes_up or 0.0 for one in found.layers) == pytest.approx(found.up.raw_bytes)
    by_size = sorted(found.layers, key=lambda one: one.bytes)
    assert [one.name for one in by_size] == [
        one.name for one in sorted(found.layers, key=lambda one: one.wire_bytes_up or 0.0)
    ]


def test_a_sparse_codec_sends_what_moves(tmp_path: Path) -> None:
    """The last layer moves most: of its values more travel than of the first layer's."""
    found = _sent(tmp_path, "topk:0.05 | entropy")
    rates = {one.name: (one.wire_bytes_up or 0.0) / one.bytes for one in found.layers}
    first, last = found.layers[0].name, found.layers[-2].name
    assert rates[last] > 1.5 * rates[first]
    assert found.up.ratio is not None
    assert found.up.ratio > 10
