"""What a codec must do: an update (named tensors) to real bytes, and those bytes to an update.

Rules for every codec; `contract.CodecContract` holds them:
- `decode` takes bytes from strangers. It raises `CodecError` for whatever it cannot read, and takes no memory for a
  length or shape before that is checked against the bytes at hand.
- No value moves further than `error_bound` says. A codec whose bound is always 0 is lossless.
- Values that are not finite: a lossless codec passes them through, so that whoever records the update sees them; a
  lossy one refuses, naming the layer, because no bound could hold (`require_finite`).
- A codec is a value: equal to any other with the same `config`, and `registry.from_config` makes it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from fedvitals.errors import CodecError

Update = Mapping[str, Tensor]


@runtime_checkable
class Codec(Protocol):
    """One way of writing an update."""

    @property
    def config(self) -> dict[str, Any]:
        """JSON-able: `id`, and what else is needed to make this codec again."""

    @property
    def lossless(self) -> bool:
        """Whether decoding gives back the same bits, non-finite ones included."""

    def encode(self, update: Update) -> bytes:
        """The update as bytes; CodecError names the layer that cannot be written."""

    def decode(self, data: bytes) -> dict[str, Tensor]:
        """The update that `encode` was given, as near as `error_bound` says, on the CPU."""

    def error_bound(self, update: Update) -> float:
        """The largest absolute difference that a round trip of this update may make to any of its values."""


def require_finite(update: Update) -> None:
    """For lossy codecs: refuse an update with NaN or infinite values, naming the first layer that has them."""
    for name, tensor in update.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            count = int((~tensor.isfinite()).sum())
            raise CodecError(
                f"layer {name!r} has {count} values that are not finite; a lossy codec cannot write them "
                "(codec = 'identity' passes them through)"
            )
