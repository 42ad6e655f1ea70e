"""Jobs whose updates are compressed on their way: real bytes, and models that learn all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from small_jobs import recorded, run, small
from torch import Tensor

from fedvitals.codecs import Update, parse, register
from fedvitals.codecs.registry import unregister
from fedvitals.errors import CodecError, JobError
from fedvitals.settings import Settings
from fedvitals.train.engine import Training, train
from fedvitals.train.hooks import NoHook, Rollback, RoundUpdates
from fedvitals.train.job import Job
from fedvitals.train.progress import NoProgress
from fedvitals.train.result import Result
from fedvitals.vocabulary import Outcome


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


class Fragile:
    """Everything as it is, but an update of zeros arrives as gibberish."""

    config: ClassVar[dict[str, str]] = {"id": "fragile"}
    lossless = True

    def encode(self, update: Update) -> bytes:
        return parse("identity").encode(update)

    def decode(self, data: bytes) -> dict[str, Tensor]:
        found = parse("identity").decode(data)
        if not any(bool(one.any()) for one in found.values()):
            raise CodecError("damaged update: nothing of it can be read")
        return found

    def error_bound(self, update: Update) -> float:
        return 0.0


@pytest.fixture
def fragile() -> Iterator[None]:
    register("fragile", lambda argument: Fragile())
    yield
    unregister("fragile")


@pytest.mark.usefixtures("fragile")
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_upload_that_cannot_be_decoded_costs_its_client_alone(mode: str, tmp_path: Path) -> None:
    """It is recorded as failed, at the decoding and with the reason; the round goes on with the others."""
    more = {"server.mode": mode, "server.buffer": 5, "server.concurrency": 6, "execute.clock": "virtual"}
    job = small({**more, "codec.up": "fragile", "train.clients_per_round": 6})
    result = run(job.replaced({"faults": [{"kind": "zero-update", "clients": [2]}]}), tmp_path)
    assert result.failed >= 2  # without rounds it may be asked again within a step
    with recorded(tmp_path) as reader:
        found = {(one.client, one.stage, one.kind) for one in reader.failures()}
        messages = {one.message for one in reader.failures()}
        outcomes = {(one.client, one.outcome) for one in reader.participations(round=0)}
    assert found == {("2", "decode", "UndecodableError")}
    assert messages == {"what was encoded cannot be decoded: damaged update: nothing of it can be read"}
    assert outcomes >= {("2", Outcome.FAILED), *((client, Outcome.USED) for client in "01345")}


@pytest.mark.parametrize("codec", ["feedback(topk:0.1)", "feedback(quantize:2)"])
def test_who_is_always_late_owes_nothing(codec: str, tmp_path: Path) -> None:
    """Of an update that is not used, no part comes later: as without a codec."""
    slow = {"kind": "slow-compute", "clients": [0], "strength": 15_000.0}
    more = {"execute.clock": "virtual", "train.clients_per_round": 6, "train.rounds": 24, "server.deadline_s": 0.5}
    result = run(small({**more, "codec.up": codec, "faults": [slow]}), tmp_path)
    assert result.late > 1
    with recorded(tmp_path) as reader:
        owed = {(one.client, "residual_norm" in (one.metrics or "")) for one in reader.participations()}
    assert ("0", False) in owed
    assert ("0", True) not in owed
    assert {client for client, owes in owed if owes} == set("12345")


def test_updates_that_were_too_stale_leave_no_trace(tmp_path: Path) -> None:
    """Without rounds: nobody owes anything of an update that was rejected for its age."""
    slow = {"kind": "slow-compute", "clients": [0], "strength": 15_000.0}
    more = {"server.mode": "async", "server.buffer": 2, "server.concurrency": 6, "server.staleness_bound": 1}
    job = small({**more, "execute.clock": "virtual", "train.rounds": 1200, "codec.up": "feedback(topk:0.1)"})
    run(job.replaced({"faults": [slow], "train.evaluate_every": 600}), tmp_path)
    with recorded(tmp_path) as reader:
        mine = [one for one in reader.participations() if one.client == "0"]
    assert {one.outcome for one in mine} <= {Outcome.REJECTED, Outcome.LATE}
    assert any(one.outcome == Outcome.REJECTED for one in mine)
    assert not any("residual_norm" in (one.metrics or "") for one in mine)


class Nobody(NoHook):
    """Leaves one client out of every round, or takes every round back."""

    def __init__(self, rejected: str | None) -> None:
        self._rejected = rejected
        self._first: dict[str, Tensor] = {}

    def before_aggregate(self, round: int, updates: RoundUpdates) -> RoundUpdates:
        return updates if self._rejected is None else updates.without([self._rejected])

    def after_round(self, round: int, model_state: Mapping[str, Tensor]) -> Rollback | None:
        first = self._first or {name: one.clone() for name, one in model_state.items()}
        self._first = first
        return Rollback(first, "taken back") if self._rejected is None else None


@pytest.mark.parametrize(("rejected", "owing"), [("3", set("01245")), (None, set())])
def test_what_a_hook_takes_out_of_the_model_is_not_owed(rejected: str | None, owing: set[str]) -> None:
    """Neither of a client that was rejected nor of a round that was rolled back does any part come later."""
    job = small({"codec.up": "feedback(topk:0.1)", "train.clients_per_round": 6, "train.rounds": 3})
    training = Training.prepare(job)
    with training.recorded(Settings(mode="off")) as run:
        training.rounds(run, Nobody(rejected), NoProgress(), 0.0)
    memory = training.server.uplink._memory
    assert {client for client in "012345" if memory.residual_norm(client) > 0} == owing
