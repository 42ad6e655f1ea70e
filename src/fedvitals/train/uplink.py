"""The way in: updates as they arrive at the server, through the job's codec, with what it leaves out kept a client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedvitals.codecs import Codec, Memory, Sent, agreed, plain_bytes, with_share
from fedvitals.errors import CodecError, UndecodableError
from fedvitals.train.adaptive import Adaptive
from fedvitals.train.flat import FlatModel
from fedvitals.train.pruning import live_codec, live_layers, live_values


@dataclass(slots=True, eq=False)
class Received:
    """Updates after the wire, a row each, and the bytes each took; by row of those that were sent, who was refused."""

    updates: Tensor
    sizes: list[int]
    refused: dict[int, CodecError] = field(default_factory=dict)


def stage_of(error: CodecError) -> str:
    """Where a message failed: at its client, or here."""
    return "decode" if isinstance(error, UndecodableError) else "encode"


class Uplink:
    """One message a client a round."""

    def __init__(self, codec: Codec, model: FlatModel, adaptive: Adaptive | None = None) -> None:
        self.bytes = 0  # of messages that came
        self._model = model
        self._memory = Memory(agreed(codec, model.whole(), model.statistics), model.statistics)
        self._adaptive = adaptive
        self._last: dict[str, int] = {}  # bytes of each client's last message
        self._on_the_way: dict[str, Sent] = {}  # messages of which it is not known yet whether they are used
        self._in_last_step: dict[str, Sent] = {}  # messages that could still be taken back
        self._first = 0  # bytes that a first message is expected to take, once anybody asked
        self._shares: dict[str, float] = {}  # of each client's last message, where they are chosen
        self._live: Tensor | None = None  # values of the model that were not cut
        self._masks: dict[str, Tensor] = {}  # the same by layer
        # Identity writes equally many bytes for every update of this model, and gives back what it was given.
        self._plain = codec.config == {"id": "identity"}
        self._size = plain_bytes(model.whole()) if self._plain else 0

    def received(
        self, clients: Sequence[str], updates: Tensor, integers: Sequence[Mapping[str, Tensor]] = ()
    ) -> Received:
        """Updates [clients, size] as they arrive. One that the codec cannot take is refused, and costs nobody else."""
        if self._plain:
            arrived = updates if self._live is None else torch.where(self._live, updates, 0.0)
            return Received(arrived, [self._size] * len(updates))
        rows: list[Tensor] = []
        found = Received(updates[:0], [])
        for place, (client, update) in enumerate(zip(clients, updates, strict=True)):
            counted = integers[place] if integers else self._model.integers
            try:
                named = self._model.named(update) | dict(counted)
                sent = self._memory.encode(client, named, self._codec(client), self._masks)
            except CodecError as error:
                found.refused[place] = error
                continue
            rows.append(self._model.from_named(sent.arrived))
            found.sizes.append(len(sent.data))
            self._last[client] = len(sent.data)
            self._on_the_way[client] = Sent(b"", {}, sent.before)
        found.updates = torch.stack(rows) if rows else found.updates
        return found

    def came(self, sizes: Sequence[int]) -> None:
        """Messages of so many bytes are here, used or not: others broke off, or were still on their way at the end."""
        self.bytes += sum(sizes)

    def lost(self, client: str) -> None:
        """A client's message broke off, came too late or was rejected: its memory is as it was before that."""
        sent = self._on_the_way.pop(client, None)
        if sent is not None:
            self._memory.take_back(client, sent)

    def used(self, clients: Sequence[str]) -> None:
        """These messages are in the model."""
        sent = {client: self._on_the_way.pop(client, None) for client in clients}
        self._in_last_step = {client: one for client, one in sent.items() if one is not None}

    def rolled_back(self) -> None:
        """What was in the model is out of it again: as if the last messages had not been sent."""
        for client, sent in self._in_last_step.items():
            self._memory.take_back(client, sent)
        self._in_last_step = {}

    def prune(self, live: Tensor) -> None:
        """From now on only these values travel, bool [size]: clients know them by what arrives as 0."""
        self._live, self._masks, self._first = live, live_layers(self._model, live), 0
        if self._plain:
            self._size = len(self._for_live(self._memory.codec).encode(self._model.whole()))

    def _for_live(self, codec: Codec) -> Codec:
        """The codec for what is left of the model."""
        if not self._masks:
            return codec
        return live_codec(agreed(codec, live_values(self._model.whole(), self._masks)), self._masks)

    def expected(self, client: str) -> int:
        """Bytes of a client's next message: as its last one, or as the model itself would take, or uncompressed."""
        if self._plain:
            return self._size
        if client not in self._last and not self._first:
            whole = self._model.whole()
            try:
                self._first = len(self._for_live(self._memory.codec).encode(whole))
            except CodecError:
                self._first = sum(tensor.nbytes for tensor in whole.values())
        return self._last.get(client, self._first)

    def heard(self, client: str, phases_s: Mapping[str, float]) -> None:
        """How long a client's round took, for the next one's share."""
        if self._adaptive is not None:
            self._adaptive.heard(client, phases_s)

    @property
    def tells(self) -> bool:
        """Whether there is anything worth recording of any message."""
        return not self._plain

    def told(self, client: str) -> dict[str, float]:
        """What is worth recording of a client's last message: what it still owes, and the share that it sent."""
        owed = self._memory.residual_norm(client)
        told = {"residual_norm": owed} if owed else {}
        return told | ({"share": self._shares[client]} if client in self._shares else {})

    def _codec(self, client: str) -> Codec:
        codec = self._memory.codec
        if self._adaptive is not None:
            self._shares[client] = self._adaptive.share(client)
            codec = with_share(codec, self._shares[client])
        return self._for_live(codec)
