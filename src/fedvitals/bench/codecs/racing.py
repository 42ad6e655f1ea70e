"""The codec bench: one training, with the bytes that it took to each evaluation."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from fedvitals.bench.codecs.cases import LONGEST, ROUNDS, Way
from fedvitals.codecs import Memory, parse
from fedvitals.settings import Settings
from fedvitals.store import open_store
from fedvitals.train.build import build
from fedvitals.train.engine import train
from fedvitals.train.flat import FlatModel
from fedvitals.train.hooks import NoHook, Rollback, RoundUpdates
from fedvitals.train.job import Job
from fedvitals.train.models import build_model
from fedvitals.train.target import IN_A_ROW


@dataclass(frozen=True, slots=True)
class Race:
    """Accuracy and bytes so far, both ways, after each round."""

    accuracy: tuple[float, ...]
    bytes: tuple[float, ...]

    def reached(self, target: float) -> int | None:
        """The round at which a target had held for three evaluations; None if never."""
        held = 0
        for number, accuracy in enumerate(self.accuracy):
            held = held + 1 if accuracy >= target else 0
            if held == IN_A_ROW:
                return number
        return None


def race(job: Job, way: Way, target: float = 0.0) -> Race:
    """Train one way, until the target has held or for so many rounds; without one for as many as the job has."""
    rounds = LONGEST * ROUNDS if target else job.train.rounds
    asked = job.replaced({"train.rounds": rounds, "train.stop_at": target, "codec.up": way.up, "codec.down": way.down})
    hook = WeightsCoded(asked, way.of_weights) if way.of_weights else NoHook()
    with tempfile.TemporaryDirectory(prefix="fedvitals-bench-") as folder:
        settings = Settings(dir=folder, sketches=False, keep_models=False, steps="off")
        result = train(asked, settings=settings, hook=hook)
        with closing(open_store(settings).open(str(result.run_id))) as reader:
            seen = {one.round: one.accuracy or 0.0 for one in reader.evaluations() if one.client is None}
            columns = reader.participation_columns()
    ways = ("wire_bytes_up", "wire_bytes_down")
    up, down = (_by_round(columns["round"], columns[way], len(seen)) for way in ways)
    if isinstance(hook, WeightsCoded):
        up = np.asarray(hook.bytes, dtype=float)
    return Race(tuple(seen[number] for number in sorted(seen)), tuple(np.cumsum(up + down).tolist()))


def _by_round(rounds: np.ndarray, sizes: np.ndarray, count: int) -> np.ndarray:
    return np.bincount(rounds.astype(int), weights=np.nan_to_num(sizes.astype(float)), minlength=count)


@dataclass
class WeightsCoded:
    """What tutorials do: each client's whole model goes through the codec, and not its difference from the last; what
    was left out of it is added to the client's next one."""

    job: Job
    spec: str
    bytes: list[int] = field(default_factory=list)  # up, a round

    def __post_init__(self) -> None:
        self._memory = Memory(parse(self.spec))
        self._model = FlatModel(build_model(self.job, build(self.job)))

    def before_aggregate(self, round: int, updates: RoundUpdates) -> RoundUpdates:
        base, sent = self._model.weights, 0
        arrived = updates.updates.clone()
        for client, row in zip(updates.clients, arrived, strict=True):
            message = self._memory.encode(client, self._model.named(base + row))
            sent += len(message.data)
            row.copy_(self._model.from_named(message.arrived) - base)
        self.bytes.append(sent)
        return RoundUpdates(updates.clients, arrived, updates.weights)

    def after_round(self, round: int, model_state: Mapping[str, Tensor]) -> Rollback | None:
        self._model.weights.copy_(self._model.from_named(model_state))
        return None
