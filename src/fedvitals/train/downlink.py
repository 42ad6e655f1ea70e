"""The way out: the server's steps as they reach the clients, and what a client pays to catch up.

Compressed, it is the step that travels and never the model: every client adds the same decoded steps to the same first
model, which follows from the job's seed, and the server goes by what they have. A client that comes back pays for each
step that it missed, or for the whole model where that is less (F. Sattler et al., 2019).
"""

from __future__ import annotations

from torch import Tensor

from fedvitals.codecs import Codec, Memory, parse
from fedvitals.errors import CodecError, TrainingError
from fedvitals.train.flat import FlatModel
from fedvitals.train.pruning import live_codec, live_layers, model_bytes

SERVER = "server"  # whose remains a lossy codec with feedback leaves


class Downlink:
    """Counts versions of the global model: one a step."""

    def __init__(self, codec: Codec, model: FlatModel) -> None:
        self.bytes = 0
        self._model = model
        self._plain = codec.config == {"id": "identity"}
        self._memory = Memory(codec)
        self._whole = len(parse("identity").encode(model.named(model.weights) | model.integers))
        self._ends = [0]  # bytes of all steps until each version
        self._seen: dict[str, int] = {}  # the version that a client has
        self._masks: dict[str, Tensor] = {}  # values of the model that were not cut, by layer

    def step(self, step: Tensor) -> Tensor:
        """A step of the server as it arrives everywhere."""
        if self._plain:
            return step
        try:
            codec = live_codec(self._memory.codec, self._masks)
            sent = self._memory.encode(SERVER, self._model.named(step) | self._model.integers, codec)
        except CodecError as error:
            number = len(self._ends) - 1
            raise TrainingError(f"step {number} of the global model cannot be sent (codec.down): {error}") from error
        self._ends.append(self._ends[-1] + len(sent.data))
        return self._model.from_named(sent.arrived)

    def prune(self, live: Tensor) -> None:
        """Only these values, bool [size], are left of the model and of the steps to come. Who follows the steps has the
        same weights, and finds the same ones to cut; who needs the whole model is told which live."""
        self._masks = live_layers(self._model, live)
        self._whole = model_bytes(parse("identity"), self._model, live)

    def rolled_back(self) -> None:
        """The last step is taken back: whoever comes next needs the whole model."""
        if not self._plain:
            self._ends[-1] = self._ends[-2] + self._whole
            self._memory.forget(SERVER)

    def owed(self, client: str) -> int:
        """Bytes that a client would have to take in now."""
        if self._plain:
            return self._whole
        return min(self._whole, self._ends[-1] - self._ends[self._seen.get(client, 0)])

    def sent(self, client: str) -> int:
        """A client takes in the model of now: the bytes that this took."""
        size = self.owed(client)
        self._seen[client] = len(self._ends) - 1
        self.bytes += size
        return size
