"""The identity codec, and what holds of its container."""

from __future__ import annotations

import pytest
import torch

from fedvitals.codecs import agreed, parse, plain_bytes
from fedvitals.codecs.numbers import in_order, raw_bytes
from fedvitals.errors import CodecError

IDENTITY = parse("identity")


def test_what_is_decoded_can_be_written_to_and_is_nobody_elses() -> None:
    """Decoded tensors own their memory: changing one changes neither the bytes nor another decoding."""
    encoded = IDENTITY.encode({"w": torch.zeros(4)})
    first, second = IDENTITY.decode(encoded)["w"], IDENTITY.decode(encoded)["w"]
    first += 1
    assert second.tolist() == [0, 0, 0, 0]
    assert IDENTITY.decode(encoded)["w"].tolist() == [0, 0, 0, 0]


def test_the_cost_of_the_container_is_small() -> None:
    """An update takes its values' bytes plus a few dozen a layer."""
    update = {"layer.weight": torch.zeros(64, 32), "layer.bias": torch.zeros(64)}
    assert len(IDENTITY.encode(update)) - 4 * (64 * 32 + 64) < 40 * len(update)


def test_parameters_and_conjugate_views_are_written_as_values() -> None:
    """A parameter that needs gradients and a lazily conjugated tensor encode as what they show."""
    weight = torch.nn.Parameter(torch.arange(3.0))
    lazy = torch.tensor([1 + 2j]).conj()
    decoded = IDENTITY.decode(IDENTITY.encode({"w": weight, "z": lazy}))
    assert decoded["w"].tolist() == [0.0, 1.0, 2.0]
    assert not decoded["w"].requires_grad
    assert decoded["z"].tolist() == [1 - 2j]


def test_a_single_value_with_a_stride_is_written() -> None:
    """It counts as contiguous; its bytes are not."""
    assert raw_bytes("x", torch.arange(16.0)[::16]) == raw_bytes("x", torch.zeros(1))


def test_tensors_without_plain_values_are_refused_by_name() -> None:
    """Sparse tensors, and tensors on the meta device, have no values to write."""
    for tensor in (torch.eye(2).to_sparse(), torch.empty(2, device="meta")):
        with pytest.raises(CodecError, match="layer 'odd'"):
            IDENTITY.encode({"odd": tensor})


def test_bool_bytes_other_than_zero_and_one_are_refused() -> None:
    """torch would take such a byte for a true that is not equal to true."""
    encoded = bytearray(IDENTITY.encode({"mask": torch.tensor([True])}))
    encoded[-1] = 2
    with pytest.raises(CodecError, match="other bytes than 0 and 1"):
        IDENTITY.decode(bytes(encoded))


def test_byte_order_is_swapped_on_big_endian_machines_only() -> None:
    """Four-byte numbers are turned round on a big-endian machine, and left alone on a little-endian one."""
    raw = torch.arange(8, dtype=torch.uint8)
    assert in_order(raw, 4, "big").tolist() == [3, 2, 1, 0, 7, 6, 5, 4]
    assert in_order(raw, 1, "big").tolist() == raw.tolist()
    assert in_order(raw, 4, "little").tolist() == raw.tolist()


def test_the_size_of_a_plain_message_is_known_without_writing_it() -> None:
    """To the byte, of any types and shapes."""
    like = {"a": torch.ones(3, 4), "b": torch.ones(2, dtype=torch.int64), "c": torch.ones(()), "d": torch.ones(0)}
    assert plain_bytes(like) == len(agreed(parse("identity"), like).encode(like))
