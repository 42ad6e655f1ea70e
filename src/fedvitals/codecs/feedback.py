"""Error feedback: what a codec left out of a client's update is added to its next one: nothing is lost, only late.

    codec = parse("feedback(topk:0.01 | quantize:8 | entropy)")
    memory = Memory(codec)                      # one for all clients of a simulation, or one at each client
    sent = memory.encode("hospital 3", update)  # bytes, and the update as the server will decode it
    memory.save("residuals.safetensors")        # and Memory.load(path) after a restart

(F. Seide et al., 1-Bit Stochastic Gradient Descent, 2014; S. Karimireddy et al., Error Feedback Fixes SignSGD, 2019.)
Clients that are away keep theirs, and one whose message was lost takes it back (`Memory.take_back`). `decay` below 1
lets old remains fade, `bound` holds their norm to so many times the update's. With `momentum` they are corrected for it
and it is cleared where values were sent (Y. Lin et al., Deep Gradient Compression, 2018).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedvitals.codecs.protocol import Codec, Update
from fedvitals.errors import CodecError, UndecodableError

MOST_FILE_BYTES = 64 * 2**30


@dataclass(frozen=True, slots=True)
class Feedback:
    """A codec whose users keep what it leaves out. Alone, without a memory, it is the codec inside."""

    inner: Codec
    decay: float = 1.0
    momentum: float = 0.0
    bound: float = 0.0  # 0 has none

    def __post_init__(self) -> None:
        if isinstance(self.inner, Feedback):
            raise CodecError("feedback inside feedback: what is left out can be kept only once")
        if self.inner.lossless:
            raise CodecError(f"feedback around {self.inner.config['id']!r}: a lossless codec leaves nothing out")
        limits = {"decay": (0.0, 1.0), "momentum": (0.0, 0.9999), "bound": (0.0, 1e9)}
        for name, (low, high) in limits.items():
            if not low <= getattr(self, name) <= high:  # NaN neither
                raise CodecError(f"feedback: {name} = {getattr(self, name)} is out of range; right is {low} to {high}")

    @property
    def config(self) -> dict[str, Any]:
        ways = {"decay": self.decay, "momentum": self.momentum, "bound": self.bound}
        return {"id": "feedback", "inner": self.inner.config, **ways}

    @property
    def lossless(self) -> bool:
        return False

    def encode(self, update: Update) -> bytes:
        return self.inner.encode(update)

    def decode(self, data: bytes) -> dict[str, Tensor]:
        return self.inner.decode(data)

    def error_bound(self, update: Update) -> float:
        return self.inner.error_bound(update)


@dataclass(slots=True)
class Remains:
    """What one client keeps: values that were not sent, and its momentum where there is any."""

    left: dict[str, Tensor] = field(default_factory=dict)
    speed: dict[str, Tensor] = field(default_factory=dict)


class Sent(NamedTuple):
    """A message and what it says; and what its client kept before it, for the case that it is lost."""

    data: bytes
    arrived: dict[str, Tensor]
    before: Remains | None = None


class Memory:
    """Encodes the updates of clients, and keeps for each what its messages left out. Any codec will do: one without
    feedback leaves nothing here. Layers that are `exact` go through the codec as they are: nothing is owed of them, and
    no momentum moves them."""

    def __init__(self, codec: Codec, exact: Collection[str] = ()) -> None:
        self.codec = codec
        self._exact = frozenset(exact)
        self._remains: dict[str, Remains] = {}

    @torch.no_grad()  # what is kept would drag the history of every update behind it
    def encode(
        self, client: str, update: Update, codec: Codec | None = None, live: Mapping[str, Tensor] | None = None
    ) -> Sent:
        """One message of a client, perhaps by a variant of the codec. CodecError leaves its memory as it was. `live`:
        masks of layers of which something was cut from the model; what will never travel again is not owed."""
        codec = codec or self.codec
        if not isinstance(codec, Feedback):
            data = codec.encode(update)
            return Sent(data, _decoded(codec, data))
        known = self._remains.get(client)
        before = known or Remains()
        coded = {name: one for name, one in update.items() if one.is_floating_point() and name not in self._exact}
        speed = _pushed(before.speed, coded, codec.momentum) if codec.momentum else {}
        owed = {**update, **_owed(coded, before.left, speed, codec.decay)}
        data = codec.encode(owed)
        arrived = _decoded(codec, data)
        left = {name: owed[name] - arrived[name] for name in coded}
        speed = {name: torch.where(arrived[name] != 0, 0.0, one) for name, one in speed.items()}
        if live:
            left, speed = _only(live, left), _only(live, speed)
        self._remains[client] = Remains(_bounded(left, update, codec.bound), speed)
        return Sent(data, arrived, known)

    def take_back(self, client: str, sent: Sent) -> None:
        """A client's last message was lost, or came too late: of that update nothing counts, as if it had not been
        made. Else its largest values would be gone and the rest would still be owed."""
        if sent.before is None:
            self._remains.pop(client, None)
        else:
            self._remains[client] = sent.before

    def residual_norm(self, client: str) -> float:
        """The length of what is still owed; 0 for a client that owes nothing."""
        remains = self._remains.get(client)
        return _norm(remains.left) if remains else 0.0

    def forget(self, client: str) -> None:
        """A client that will not come back."""
        self._remains.pop(client, None)

    def save(self, path: str | Path) -> None:
        """Everything that is kept, whole or not at all; CodecError where it cannot be written."""
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        clients = sorted(self._remains)
        tensors = {
            f"{number}.{kind}.{name}": tensor.contiguous()
            for number, client in enumerate(clients)
            for kind in ("left", "speed")
            for name, tensor in getattr(self._remains[client], kind).items()
        }
        said = {"clients": json.dumps(clients), "codec": json.dumps(self.codec.config)}
        new = Path(path).with_name(f".{Path(path).name}.new")
        try:
            save_file(tensors, new, metadata=said)
            os.replace(new, path)
        except (OSError, SafetensorError) as error:
            raise CodecError(f"{path} cannot be written: {error}") from None

    @staticmethod
    def load(path: str | Path, codec: Codec, exact: Collection[str] = ()) -> Memory:
        """What was saved; CodecError where it was kept for another codec, or cannot be read."""
        said, tensors = _read(Path(path))
        if said.get("codec") != json.dumps(codec.config):
            raise CodecError(f"{path} was kept for the codec {said.get('codec')}, not for {json.dumps(codec.config)}")
        memory = Memory(codec, exact)
        try:
            clients = [str(client) for client in json.loads(said["clients"])]
            for key, tensor in tensors.items():
                number, kind, name = key.split(".", 2)
                remains = memory._remains.setdefault(clients[int(number)], Remains())
                {"left": remains.left, "speed": remains.speed}[kind][name] = tensor
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise CodecError(f"{path} holds no memory of a codec: {error!r}") from None
        return memory


def _decoded(codec: Codec, data: bytes) -> dict[str, Tensor]:
    try:
        return codec.decode(data)
    except CodecError as error:
        raise UndecodableError(f"what was encoded cannot be decoded: {error}") from error


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        if path.stat().st_size > MOST_FILE_BYTES:
            raise CodecError(f"{path} is larger than any memory of a codec")
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {}), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # not a dict
    except (OSError, SafetensorError) as error:
        raise CodecError(f"{path} cannot be read: {error}") from None


def _pushed(speed: Mapping[str, Tensor], update: Update, momentum: float) -> dict[str, Tensor]:
    """The momentum after this update."""
    return {name: _as(speed.get(name), one) * momentum + one for name, one in update.items()}


def _owed(update: Update, left: Mapping[str, Tensor], speed: Mapping[str, Tensor], decay: float) -> dict[str, Tensor]:
    """What should be sent: the update, or its momentum, and what was left out before."""
    return {name: speed.get(name, one) + decay * _as(left.get(name), one) for name, one in update.items()}


def _as(kept: Tensor | None, like: Tensor) -> Tensor:
    """What is kept of a layer, if that still has its shape; a model that was changed begins anew."""
    return kept if kept is not None and kept.shape == like.shape else torch.zeros_like(like)


def _only(live: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.where(live[name], one, 0.0) if name in live else one for name, one in kept.items()}


def _bounded(left: dict[str, Tensor], update: Update, bound: float) -> dict[str, Tensor]:
    if not bound:
        return left
    most, norm = bound * _norm(update), _norm(left)
    return {name: one * (most / norm) for name, one in left.items()} if norm > most else left


def _norm(tensors: Mapping[str, Tensor]) -> float:
    floats = [one for one in tensors.values() if one.is_floating_point()]
    return math.sqrt(math.fsum(float(one.double().square().sum()) for one in floats))
