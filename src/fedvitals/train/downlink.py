"""The way out: the server's steps as they reach the clients, and what a client pays to catch up.

Compressed, it is the step that travels and never the model: every client adds the same decoded steps to the same first
model, which follows from the job's seed, and the server goes by what they have (F. Sattler et al., Robust and
Communication-Efficient Federated Learning, 2019). A client that comes back pays for each step that it missed; or for
their sum, where the codec writes sums as it writes steps; or for the whole model, where that is least.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedvitals.codecs import Codec, Memory, agreed, is_additive, parse
from fedvitals.errors import CodecError, TrainingError
from fedvitals.train.flat import FlatModel
from fedvitals.train.pruning import live_bits, live_codec, live_layers, live_values

SERVER = "server"  # whose remains a lossy codec with feedback leaves


class Downlink:
    """Counts versions of the global model: one a step."""

    def __init__(self, codec: Codec, model: FlatModel) -> None:
        self.bytes = 0
        self._model = model
        self._plain = codec.config == {"id": "identity"}
        self._masks: dict[str, Tensor] = {}  # values of the model that were not cut, by layer
        self._memory = Memory(agreed(codec, self._of_the_model()))
        self._codec = self._memory.codec  # for what is left of the model
        self._whole = self._newcomers_bytes()
        self._messages: list[bytes] = []  # of all steps
        self._codecs: list[Codec] = []  # that wrote them
        self._sums = is_additive(codec)
        self._owed: dict[tuple[int, int], int] = {}  # bytes from one version to another, where they were asked for
        self._seen: dict[str, int] = {}  # the version that a client has
        self._whole_from = 0  # no steps lead on from versions before this one

    def step(self, step: Tensor) -> Tensor:
        """A step of the server as it arrives everywhere."""
        if self._plain:
            return step
        try:
            sent = self._memory.encode(SERVER, self._model.named(step) | self._model.integers, self._codec)
        except CodecError as error:
            number = len(self._messages)
            raise TrainingError(f"step {number} of the global model cannot be sent (codec.down): {error}") from error
        self._messages.append(sent.data)
        self._codecs.append(self._codec)
        return self._model.from_named(sent.arrived)

    def prune(self, live: Tensor) -> None:
        """Only these values, bool [size], are left of the model and of the steps to come. Who follows the steps has the
        same weights, and finds the same ones to cut; who needs the whole model is told which live."""
        self._masks = live_layers(self._model, live)
        like = live_values(self._of_the_model(), self._masks)
        self._codec = live_codec(agreed(self._memory.codec, like), self._masks)
        self._whole = self._newcomers_bytes()

    def _of_the_model(self) -> dict[str, Tensor]:
        return self._model.named(self._model.weights) | self._model.integers

    def _newcomers_bytes(self) -> int:
        """Of the whole model, for a client that knows nothing: live values, and which they are."""
        told = live_values(self._of_the_model(), self._masks) | live_bits(self._masks)
        return len(agreed(parse("identity"), told).encode(told))

    def rolled_back(self) -> None:
        """The last step is taken back: whoever comes next needs the whole model."""
        self._memory.forget(SERVER)
        self._whole_from = len(self._messages)

    def owed(self, client: str) -> int:
        """Bytes that a client would have to take in now."""
        if self._plain:
            return self._whole
        here, there = self._seen.get(client, 0), len(self._messages)
        if (here, there) not in self._owed:
            self._owed[here, there] = self._between(here, there)
        return self._owed[here, there]

    def sent(self, client: str) -> int:
        """A client takes in the model of now: the bytes that this took."""
        size = self.owed(client)
        self._seen[client] = len(self._messages)
        self.bytes += size
        return size

    def _between(self, here: int, there: int) -> int:
        """The least that leads from one version to another."""
        if here < self._whole_from:
            return self._whole
        missed = self._messages[here:there]
        ways = [self._whole, sum(len(message) for message in missed)]
        if self._sums and len(missed) > 1:
            arrived = [codec.decode(data) for codec, data in zip(self._codecs[here:there], missed, strict=True)]
            total = {name: torch.stack([one[name] for one in arrived]).sum(0) for name in arrived[0]}
            ways.append(len(self._codec.encode(total)))
        return min(ways)
