"""Jobs whose updates are compressed on their way: real bytes, and models that learn all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedvitals.settings import Settings
from fedvitals.train.engine import train
from fedvitals.train.job import Job
from fedvitals.train.result import Result


def _trained(folder: Path, codec: str, **more: object) -> Result:
    job = Job.from_dict({"data": {"source": "digits"}, "train": {"rounds": 12, "clients_per_round": 10, "lr": 0.2}})
    return train(job.replaced({"codec.up": codec, **more}), settings=Settings(dir=str(folder)))


@pytest.mark.parametrize(("codec", "fold"), [("fp16", 2), ("bf16", 2), ("quantize:8", 4), ("quantize:4", 8)])
def test_fewer_bytes_and_nearly_the_same_model(codec: str, fold: int, tmp_path: Path) -> None:
    """Bytes go down as said, less what names and ranges take; accuracy stays within three points."""
    plain, coded = _trained(tmp_path, "identity"), _trained(tmp_path, codec)
    assert plain.bytes_up / coded.bytes_up == pytest.approx(fold, rel=0.12)
    assert coded.bytes_down == plain.bytes_down
    assert coded.accuracy == pytest.approx(plain.accuracy, abs=0.03)
    assert coded.weights_sha256 != plain.weights_sha256


def test_a_codec_gives_the_same_on_every_executor(tmp_path: Path) -> None:
    """Sequential and processes bit by bit: what is encoded does not depend on who came first."""
    found = [_trained(tmp_path, "quantize:8", **{"execute.executor": one}) for one in ("sequential", "processes")]
    assert found[0].weights_sha256 == found[1].weights_sha256
    assert found[0].bytes_up == found[1].bytes_up
