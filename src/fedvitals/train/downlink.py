"""The way out: the server's steps as they reach the clients, and what a client pays to catch up.

Compressed, it is the step that travels and never the model: every client adds the same decoded steps to the same first
model, which follows from the job's seed, and the server goes by what they have (F. Sattler et al., Robust and
Communication-Efficient Federated Learning, 2019). A client that comes back pays for each step that it missed; or for
their sum, where the codec writes sums as it writes steps; or for the whole model, where that is least.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedvitals.codecs import Codec, Memory, agreed, is_additive, plain_bytes
from fedvitals.errors import CodecError, TrainingError
from fedvitals.train.flat import FlatModel
from fedvitals.train.pruning import live_bits, live_codec, live_layers, live_values

MOST_WAYS = 256  # kept: each is as large as the model
SERVER = "server"  # whose remains a lossy codec with feedback leaves


class Downlink:
    """Counts versions of the global model: one a step."""

    def __init__(self, codec: Codec, model: FlatModel) -> None:
        self.bytes = 0
        self._model = model
        self._plain = codec.config == {"id": "identity"}
        self._masks: dict[str, Tensor] = {}  # values of the model that were not cut, by layer
        self._memory = Memory(agreed(codec, model.whole(), model.statistics), model.statistics)
        self._codec = self._memory.codec  # for what is left of the model
        self._whole = self._newcomers_bytes()
        self._sizes: list[int] = []  # of all steps' messages
        self._sums = is_additive(codec) and not self._plain
        self._way = torch.zeros(model.size if self._sums else 0)  # the sum of all steps, where such a sum is a message
        self._ways: dict[int, Tensor] = {0: self._way}  # the same until versions that somebody has
        self._owed: dict[int, int] = {}  # bytes from a version to the one of now, where they were asked for
        self._seen: dict[str, int] = {}  # the version that a client has
        self._whole_from = 0  # no steps lead on from versions before this one

    def step(self, step: Tensor) -> Tensor:
        """A step of the server as it arrives everywhere."""
        if self._plain:
            return step
        try:
            named = self._model.named(step) | self._model.integers
            sent = self._memory.encode(SERVER, named, self._codec, self._masks)
        except CodecError as error:
            number = len(self._sizes)
            raise TrainingError(f"step {number} of the global model cannot be sent (codec.down): {error}") from error
        self._sizes.append(len(sent.data))
        self._owed.clear()
        arrived = self._model.from_named(sent.arrived)
        if self._sums:
            self._way = self._way + arrived
        return arrived

    def prune(self, live: Tensor) -> None:
        """Only these values, bool [size], are left of the model and of the steps to come. Who follows the steps has the
        same weights, and finds the same ones to cut; who needs the whole model is told which live."""
        self._masks = live_layers(self._model, live)
        like = live_values(self._model.whole(), self._masks)
        self._codec = live_codec(agreed(self._memory.codec, like), self._masks)
        self._whole = self._newcomers_bytes()
        self._owed.clear()

    def _newcomers_bytes(self) -> int:
        """Of the whole model, for a client that knows nothing: live values, and which they are."""
        told = live_values(self._model.whole(), self._masks) | live_bits(self._masks)
        return plain_bytes(told)

    def rolled_back(self) -> None:
        """The last step is taken back: whoever comes next needs the whole model."""
        self._memory.forget(SERVER)
        self._whole_from = len(self._sizes)
        self._owed.clear()

    def owed(self, client: str) -> int:
        """Bytes that a client would have to take in now."""
        if self._plain:
            return self._whole
        here = self._seen.get(client, 0)
        if here not in self._owed:
            self._owed[here] = self._least_from(here)
        return self._owed[here]

    def sent(self, client: str, *, arrives: bool = True) -> int:
        """A client takes in the model of now: the bytes that this took. Where it does not arrive, they are spent, and
        the client has what it had."""
        size = self.owed(client)
        self.bytes += size
        if not arrives:
            return size
        self._seen[client] = len(self._sizes)
        if self._sums:
            self._remember(self._seen[client])
        return size

    def _remember(self, version: int) -> None:
        """How far it is to a version, as long as somebody has it; of very many, those that were left last."""
        if version in self._ways:
            return
        held = {0, version, *self._seen.values()}
        kept = sorted(one for one in self._ways if one in held)[-MOST_WAYS:]
        self._ways = {one: self._ways[one] for one in kept} | {version: self._way}

    def _least_from(self, here: int) -> int:
        """The least that leads from a version to the one of now."""
        if here < self._whole_from:
            return self._whole
        ways = [self._whole, sum(self._sizes[here:])]
        if self._sums and here in self._ways and len(self._sizes) - here > 1:
            between = self._model.named(self._way - self._ways[here]) | self._model.integers
            ways.append(len(self._codec.encode(between)))
        return min(ways)
