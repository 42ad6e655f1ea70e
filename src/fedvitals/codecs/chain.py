"""Codecs one after the other: the first turns tensors into bytes, each later one packs the bytes of the one before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedvitals.codecs.protocol import Codec, Update
from fedvitals.errors import CodecError

_BYTES = "bytes"  # the one layer that a later stage sees


@dataclass(frozen=True, slots=True)
class Chain:
    """`first | second | ...`. What follows the first must be lossless: it sees bytes, and each one counts."""

    stages: tuple[Codec, ...]

    def __post_init__(self) -> None:
        if not self.stages:
            raise CodecError("a chain of codecs needs at least one")
        for stage in self.stages[1:]:
            if not stage.lossless:
                raise CodecError(f"codec {stage.config['id']!r} loses precision: it can only stand first in a chain")

    @property
    def config(self) -> dict[str, Any]:
        return {"id": "chain", "stages": [stage.config for stage in self.stages]}

    @property
    def lossless(self) -> bool:
        return self.stages[0].lossless

    def encode(self, update: Update) -> bytes:
        data = self.stages[0].encode(update)
        for stage in self.stages[1:]:
            data = stage.encode({_BYTES: _wrapped(data)})
        return data

    def decode(self, data: bytes) -> dict[str, Tensor]:
        for stage in reversed(self.stages[1:]):
            data = _unwrapped(stage.decode(data))
        return self.stages[0].decode(data)

    def error_bound(self, update: Update) -> float:
        return self.stages[0].error_bound(update)


def _wrapped(data: bytes) -> Tensor:
    if not data:  # frombuffer refuses nothing at all
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _unwrapped(packed: dict[str, Tensor]) -> bytes:
    inner = packed.get(_BYTES)
    if inner is None or len(packed) != 1 or inner.dtype is not torch.uint8 or inner.dim() != 1:
        raise CodecError("damaged update: what was packed is not the bytes of another codec")
    return inner.numpy().tobytes()
