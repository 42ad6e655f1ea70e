"""What a codec leaves out is sent later: nothing is lost, whoever is away, and across a restart."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from fedvitals.codecs import Codec, Feedback, Memory, Update, parse
from fedvitals.errors import CodecError, UndecodableError


def updates(count: int, seed: int = 0) -> list[dict[str, Tensor]]:
    torch.manual_seed(seed)
    return [{"w": torch.randn(20, 10), "b": torch.randn(10), "seen": torch.tensor(n)} for n in range(count)]


def total(parts: list[dict[str, Tensor]]) -> Tensor:
    return torch.stack([torch.cat([one["w"].flatten(), one["b"]]) for one in parts]).sum(0)


def test_what_arrives_and_what_is_owed_is_all_there_was() -> None:
    """The sum of messages and the remains is the sum of updates, whatever the codec left out of each."""
    memory = Memory(parse("feedback(topk:0.05 | quantize:4 | entropy)"))
    given = updates(30)
    arrived = [memory.encode("a", one).arrived for one in given]
    owed = total(given) - total(arrived)
    assert memory.residual_norm("a") == pytest.approx(float(owed.norm()), rel=1e-4)
    assert [int(one["seen"]) for one in arrived] == list(range(30))


def test_without_feedback_what_is_left_out_is_lost() -> None:
    """The same codec alone ends far from the sum; with feedback it owes a small part of it."""
    given = [{"w": torch.randn(200, generator=torch.Generator().manual_seed(1)) + 1.0} for _ in range(60)]
    plain, kept = Memory(parse("topk:0.05")), Memory(parse("feedback(topk:0.05)"))
    whole = torch.stack([one["w"] for one in given]).sum(0)
    off = {
        name: float((whole - torch.stack([memory.encode("a", one).arrived["w"] for one in given]).sum(0)).norm())
        for name, memory in (("plain", plain), ("kept", kept))
    }
    assert off["kept"] < 0.5 * off["plain"]
    assert plain.residual_norm("a") == 0.0


def test_clients_that_are_away_keep_theirs() -> None:
    """A client's messages depend on its own updates alone, however many others come between."""
    alone, among = Memory(parse("feedback(topk:0.1)")), Memory(parse("feedback(topk:0.1)"))
    for number, one in enumerate(updates(8)):
        first = alone.encode("a", one)
        for other in range(number):
            among.encode(f"other {other}", updates(1, seed=other)[0])
        assert among.encode("a", one).data == first.data


def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    """A memory that was saved and loaded goes on with the same bytes."""
    codec = parse("feedback(topk:0.1 | fp16, momentum=0.9)")
    memory = Memory(codec)
    for client, one in zip(["a", "b/../c", "ü", "a"], updates(4), strict=True):
        memory.encode(client, one)
    memory.save(tmp_path / "kept.safetensors")
    again = Memory.load(tmp_path / "kept.safetensors", codec)
    (last,) = updates(1, seed=9)
    for client in ("a", "b/../c", "ü", "new"):
        assert again.encode(client, last).data == memory.encode(client, last).data


def test_a_memory_of_another_codec_is_refused(tmp_path: Path) -> None:
    """And so is a file that is none."""
    Memory(parse("feedback(topk:0.1)")).save(tmp_path / "kept")
    with pytest.raises(CodecError, match=r"was kept for the codec .*0\.1"):
        Memory.load(tmp_path / "kept", parse("feedback(topk:0.2)"))
    (tmp_path / "bad").write_bytes(b"nothing of the kind")
    with pytest.raises(CodecError, match="cannot be read"):
        Memory.load(tmp_path / "bad", parse("feedback(topk:0.1)"))
    with pytest.raises(CodecError, match="cannot be read"):
        Memory.load(tmp_path / "not there", parse("feedback(topk:0.1)"))


def test_an_update_that_is_refused_changes_no_memory() -> None:
    """A NaN is the client's trouble of one round; what it owed before, it still owes."""
    memory = Memory(parse("feedback(topk:0.1)"))
    memory.encode("a", {"w": torch.randn(50)})
    before = memory.residual_norm("a")
    with pytest.raises(CodecError, match="'w' has 1 values that are not finite"):
        memory.encode("a", {"w": torch.tensor([1.0, float("nan")])})
    assert memory.residual_norm("a") == before > 0


def test_remains_are_held_to_their_bound() -> None:
    """However much is left out, it is never more than so many times the update."""
    memory = Memory(parse("feedback(topk:0.01, bound=0.5)"))
    for _ in range(20):
        one = {"w": torch.ones(500)}
        memory.encode("a", one)
        assert memory.residual_norm("a") <= 0.5 * float(one["w"].norm()) * 1.0001


def test_momentum_is_cleared_where_values_were_sent() -> None:
    """Two updates, one place sent: there the second is the update alone, elsewhere momentum has grown."""
    memory = Memory(parse("feedback(topk:0.5, momentum=0.5)"))
    first = memory.encode("a", {"w": torch.tensor([4.0, 1.0])}).arrived["w"]
    assert first.tolist() == [4.0, 0.0]
    second = memory.encode("a", {"w": torch.tensor([1.0, 1.0])}).arrived["w"]
    assert second.tolist() == [0.0, 2.5]  # 1 left, and 0.5 * 1 + 1 of momentum; at the first place only 1


def test_a_model_that_changed_begins_anew() -> None:
    """What was kept of a layer with another shape is no use."""
    memory = Memory(parse("feedback(topk:0.1)"))
    memory.encode("a", {"w": torch.randn(50)})
    assert memory.encode("a", {"w": torch.randn(3, 4)}).arrived["w"].shape == (3, 4)
    memory.forget("a")
    assert memory.residual_norm("a") == 0.0


@pytest.mark.parametrize("spec", ["feedback(topk:0.1)", "feedback(topk:0.1, momentum=0.9, bound=2)", "topk:0.1"])
def test_a_message_that_was_lost_is_as_if_it_had_not_been(spec: str) -> None:
    """Neither what it said nor what it left out counts; later messages are those of a client that was away."""
    first, lost, last = updates(3)
    went, away = Memory(parse(spec)), Memory(parse(spec))
    for memory in (went, away):
        memory.encode("a", first)
    went.take_back("a", went.encode("a", lost))
    went.take_back("new", went.encode("new", lost))
    assert went.residual_norm("a") == away.residual_norm("a")
    assert went.residual_norm("new") == 0.0
    for client in ("a", "new"):
        assert went.encode(client, last).data == away.encode(client, last).data


def test_layers_that_go_through_as_they_are_do_so_after_a_restart(tmp_path: Path) -> None:
    """No momentum moves running statistics, before or after."""
    codec = parse("feedback(topk:0.5, momentum=0.9)")
    memory = Memory(codec, exact=["b"])
    memory.encode("a", updates(1)[0])
    memory.save(tmp_path / "kept")
    again = Memory.load(tmp_path / "kept", codec, exact=["b"])
    (last,) = updates(1, seed=4)
    assert again.encode("a", last).data == memory.encode("a", last).data


class _Unreadable:
    """Writes what nobody can read."""

    config: ClassVar[dict[str, str]] = {"id": "unreadable"}
    lossless = False

    def encode(self, update: Update) -> bytes:
        return b"gibberish"

    def decode(self, data: bytes) -> dict[str, Tensor]:
        raise CodecError(f"damaged update: {data!r}")

    def error_bound(self, update: Update) -> float:
        return 0.0


@pytest.mark.parametrize("codec", [_Unreadable(), Feedback(_Unreadable())])
def test_what_cannot_be_decoded_is_told_from_what_cannot_be_encoded(codec: Codec) -> None:
    """And leaves nothing behind."""
    memory = Memory(codec)
    with pytest.raises(UndecodableError, match="what was encoded cannot be decoded: damaged update: b'gibberish'"):
        memory.encode("a", updates(1)[0])
    assert memory.residual_norm("a") == 0.0


def test_a_memory_keeps_no_history_of_updates() -> None:
    """Of updates that torch could differentiate only the values: histories would grow from round to round."""
    memory, weight = Memory(parse("feedback(topk:0.1, momentum=0.5)")), torch.ones(10, requires_grad=True)
    for _ in range(2):
        sent = memory.encode("a", {"w": weight * torch.arange(10.0)})
    kept = memory._remains["a"]
    assert not any(one.requires_grad for one in (kept.left["w"], kept.speed["w"], sent.arrived["w"]))


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """In the words of this package."""
    with pytest.raises(CodecError, match="cannot be written"):
        Memory(parse("feedback(topk:0.1)")).save(tmp_path / "nowhere" / "remains.safetensors")
