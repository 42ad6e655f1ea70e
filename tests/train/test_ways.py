"""The ways to and from the server: what arrives, what it costs, and what is kept of what was left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from small_jobs import recorded, run, small
from torch import Tensor, nn

from fedvitals.codecs import agreed, parse
from fedvitals.errors import CodecError, FedvitalsError, TrainingError
from fedvitals.train.adaptive import LEAST, MOST, Adaptive
from fedvitals.train.downlink import Downlink
from fedvitals.train.flat import FlatModel
from fedvitals.train.uplink import Uplink
from fedvitals.vocabulary import Outcome


def _model(*more: nn.Module) -> FlatModel:
    torch.manual_seed(0)
    return FlatModel(nn.Sequential(nn.Linear(30, 20), *more, nn.Linear(20, 5)))


def _steps(model: FlatModel, count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(model.size, generator=generator) for _ in range(count)]


def _whole(model: FlatModel) -> int:
    return 3 + 4 * model.size  # three bytes say that it is this model's layers


def test_whoever_comes_back_pays_for_what_they_missed() -> None:
    """Each step once, by its bytes; the first model is nobody's message."""
    model = _model()
    way = Downlink(parse("topk:0.01 | fp16"), model)
    assert way.sent("early") == 0
    sizes = []
    for step in _steps(model, 4):
        before = way.owed("early")
        way.step(step)
        sizes.append(way.owed("early") - before)
    assert min(sizes) > 0
    assert way.sent("early") == sum(sizes)
    assert way.sent("early") == 0
    assert way.sent("late") == sum(sizes)
    assert way.bytes == 2 * sum(sizes)


def test_what_did_not_arrive_is_paid_for_again() -> None:
    """A download that was given up costs its bytes, and the client still misses every step."""
    model = _model()
    way = Downlink(parse("topk:0.01 | fp16"), model)
    first, second = _steps(model, 2)
    way.step(first)
    spent = way.sent("a", arrives=False)
    assert way.owed("a") == spent == way.bytes > 0
    way.step(second)
    assert way.sent("a") > spent
    assert way.owed("a") == 0


def test_nobody_pays_for_more_than_a_model() -> None:
    """After many steps the model itself is less."""
    model = _model()
    way = Downlink(parse("fp16"), model)
    for step in _steps(model, 5):
        way.step(step)
    assert way.owed("anybody") == _whole(model)


def test_uncompressed_every_model_goes_out_whole() -> None:
    """And steps stay as they are."""
    model = _model()
    way = Downlink(parse("identity"), model)
    (step,) = _steps(model, 1)
    assert way.step(step) is step
    assert [way.sent("a"), way.sent("a")] == [_whole(model)] * 2


def test_steps_with_feedback_lose_nothing() -> None:
    """What one leaves out, the next ones bring: the sums draw level."""
    model = _model()
    steps = [torch.full((model.size,), 0.1) for _ in range(60)]
    kept, lost = Downlink(parse("feedback(topk:0.1)"), model), Downlink(parse("topk:0.1"), model)
    wanted = torch.stack(steps).sum(0)
    sums = [torch.stack([way.step(step) for step in steps]).sum(0) for way in (kept, lost)]
    off = [float((wanted - one).norm() / wanted.norm()) for one in sums]
    assert off[0] < 0.2
    assert off[1] > 0.85


def test_a_step_that_is_taken_back_costs_a_model() -> None:
    """Clients that have it need another model, and no sum of steps leads there."""
    model = _model()
    way = Downlink(parse("feedback(topk:0.01)"), model)
    first, second = _steps(model, 2)
    way.step(first)
    way.sent("a")
    way.step(second)
    way.rolled_back()
    assert way.owed("a") == _whole(model)


def test_a_step_that_is_not_finite_stops_the_training() -> None:
    """It cannot be sent, and there is no other; the setting is named."""
    model = _model()
    with pytest.raises(TrainingError, match=r"codec\.down.*'0.weight'"):
        Downlink(parse("fp16"), model).step(torch.full((model.size,), float("nan")))


def test_one_bad_update_costs_nobody_else() -> None:
    """The others arrive, once each, and owe what they would owe without it."""
    model = _model()
    way, alone = (Uplink(parse("feedback(topk:0.1)"), model) for _ in range(2))
    rows = torch.stack(_steps(model, 3))
    rows[1, 5] = float("inf")
    received = way.received(["a", "b", "c"], rows)
    assert list(received.refused) == [1]
    assert "not finite" in str(received.refused[1])
    by_itself = alone.received(["a", "c"], rows[[0, 2]])
    assert torch.equal(received.updates, by_itself.updates)
    assert received.sizes == by_itself.sizes
    assert way.told("a") == alone.told("a") != {}
    assert way.told("b") == {}


def test_counts_go_along_in_the_message() -> None:
    """Buffers that count are bytes too."""
    model = _model(nn.BatchNorm1d(20))
    row = _steps(model, 1)[0].unsqueeze(0)
    assert Uplink(parse("identity"), model).received(["a"], row, [model.integers]).sizes == [_whole(model) + 8]


def test_names_are_not_sent_where_both_ends_know_them() -> None:
    """A message is what its values take, and three bytes; another model's is refused."""
    model = _model()
    update = model.named(_steps(model, 1)[0])
    codec = agreed(parse("feedback(quantize:8)"), update)
    data = codec.encode(update)
    assert len(parse("quantize:8").encode(update)) - len(data) > 30
    plain = parse("quantize:8").decode(parse("quantize:8").encode(update))
    assert all(torch.equal(tensor, plain[name]) for name, tensor in codec.decode(data).items())
    with pytest.raises(CodecError, match="encoded for other layers"):
        agreed(parse("quantize:8"), {"w": torch.zeros(3)}).decode(data)
    with pytest.raises(CodecError, match="other layers than the 4"):
        codec.encode({"w": torch.zeros(3)})


def test_a_sum_of_missed_steps_is_one_message() -> None:
    """Where the codec's sums lie on its own grid: less than the messages one by one, and exactly their sum."""
    model = _model()
    way, apart = Downlink(parse("grid:0.5 | entropy"), model), Downlink(parse("topk:0.05 | entropy"), model)
    steps = [step.clamp(-1.2, 1.2) for step in _steps(model, 6)]
    single, others = [], []
    for step in steps:
        way.step(step)
        single.append(way.sent("always"))
        apart.step(step)
        others.append(apart.sent("always"))
    assert 0 < way.owed("away") < 0.7 * sum(single)
    assert apart.owed("away") == min(_whole(model), sum(others))
    codec = parse("grid:0.5 | entropy")
    sums = torch.stack([codec.decode(codec.encode({"w": step}))["w"] for step in steps]).sum(0)
    assert torch.equal(codec.decode(codec.encode({"w": sums}))["w"], sums)


def test_a_share_follows_the_link() -> None:
    """Twice the time that was left, twice the share; never more than all, nor nothing."""
    pace = Adaptive(parse("feedback(topk:0.1:layer | fp16 | entropy)"), deadline_s=10.0)
    assert pace.share("a") == 0.1
    pace.heard("a", {"download": 1.0, "train": 3.0, "upload": 2.0})  # 8 s less 4: twice as long
    assert pace.share("a") == pytest.approx(0.2)
    assert pace.share("b") == 0.1
    pace.heard("a", {"train": 9.0, "upload": 5.0})
    assert pace.share("a") == LEAST
    for _ in range(3):
        pace.heard("a", {"train": 1.0, "upload": 1e-5})
    assert pace.share("a") == MOST


def test_a_codec_without_a_share_cannot_adapt() -> None:
    """The message says which can."""
    with pytest.raises(CodecError, match="'quantize' has no share of values to choose: take topk"):
        Adaptive(parse("quantize:8"), 1.0)


def test_adapting_needs_a_deadline() -> None:
    """Without one there is nothing to adapt to."""
    with pytest.raises(FedvitalsError, match=r"codec\.adapt = true .*server\.deadline_s above 0"):
        small({"codec.adapt": True, "codec.up": "topk:0.1"})


def test_adapting_needs_links_that_are_imitated() -> None:
    """On the real clock no upload takes any time, and shares would stay as they are, whatever the job says."""
    own_workers = {"execute.executor": "processes", "execute.workers": 8, "server.deadline_s": 5.0}
    with pytest.raises(FedvitalsError, match=r'codec\.adapt = true .*execute\.clock = "virtual"'):
        small({"codec.adapt": True, "codec.up": "topk:0.1", **own_workers})


def test_slow_links_send_less_and_come_in_time(tmp_path: Path) -> None:
    """A job whose uploads take longer than its deadline: adapting, clients that were late are in time afterwards."""
    devices = tmp_path / "devices.csv"
    links = "".join(f"{client},{0.1 if client < 2 else 0.5},0\n" for client in range(6))
    devices.write_text(f"client,up_mbps,latency_ms\n{links}")
    changes = {
        "train.rounds": 8,
        "train.clients_per_round": 6,
        "model.hidden": [64],
        "execute.clock": "virtual",
        "network.profile": str(devices),
        "codec.up": "feedback(topk:0.5 | quantize:8)",
    }
    free = run(small(changes), tmp_path / "free")
    with recorded(tmp_path / "free") as reader:
        slow_s = min(one.duration_s for one in reader.participations() if one.client in "01")
        quick_s = max(one.duration_s for one in reader.participations() if one.client not in "01")
    deadline = {"server.deadline_s": (slow_s + quick_s) / 2}
    used = {}
    for name, adapt in (("fixed", False), ("adapted", True)):
        run(small({**changes, **deadline, "codec.adapt": adapt}), tmp_path / name)
        with recorded(tmp_path / name) as reader:
            slow = [one for client in ("0", "1") for one in reader.participations(client=client)]
        used[name] = sum(one.outcome == Outcome.USED for one in slow)
    assert free.late == 0
    assert used["fixed"] == 0
    assert used["adapted"] >= 6
    told = [json.loads(one.metrics or "{}") for one in slow if one.client == "0"]
    assert told[0]["share"] == 0.5
    assert told[-1]["share"] < 0.5
    assert told[-1]["residual_norm"] > 0
