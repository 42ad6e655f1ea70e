"""Jobs whose updates are compressed on their way: real bytes, and models that learn all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedvitals.errors import JobError
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


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"codec.up": "topk:2"}, r'codec\.up = "topk:2": codec .topk. takes a share above 0'),
        ({"codec.down": "entropy | fp16"}, r"codec\.down = .*: codec .fp16. cannot come after .entropy."),
        ({"codec.up": "topq:0.1"}, r"codec\.up = .*there is no codec .topq."),
        (
            {"codec.adapt": True, "server.deadline_s": 1.0, "execute.clock": "virtual"},
            r"codec\.adapt = true with codec\.up = .*no share of values to choose",
        ),
    ],
)
def test_a_codec_that_cannot_be_is_refused_by_its_key(changes: dict[str, object], says: str, tmp_path: Path) -> None:
    """Before anything is written."""
    with pytest.raises(JobError, match=says):
        train(Job().replaced(changes), settings=Settings(dir=str(tmp_path / "runs")))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("codec", ["feedback(topk:0.1 | quantize:8 | entropy)", "feedback(ternary:0.05)", "grid:0.001"])
def test_compressed_both_ways_it_learns(codec: str, tmp_path: Path) -> None:
    """A tenth of the bytes or less, and a model that is nearly as good."""
    more = {"codec.down": codec, "train.rounds": 25}
    plain = _trained(tmp_path, "identity", **{"train.rounds": 25})
    coded = _trained(tmp_path, codec, **more)
    assert coded.bytes_up + coded.bytes_down < 0.3 * (plain.bytes_up + plain.bytes_down)
    assert coded.accuracy is not None
    assert plain.accuracy is not None
    assert coded.accuracy > plain.accuracy - 0.05


def test_feedback_gives_the_same_on_every_executor(tmp_path: Path) -> None:
    """What a client still owes depends on its own updates, not on who trained it."""
    codec = "feedback(topk:0.1 | quantize:8)"
    found = [
        _trained(tmp_path, codec, **{"execute.executor": one, "codec.down": codec})
        for one in ("sequential", "processes")
    ]
    assert found[0].weights_sha256 == found[1].weights_sha256
    assert (found[0].bytes_up, found[0].bytes_down) == (found[1].bytes_up, found[1].bytes_down)
