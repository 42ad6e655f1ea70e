"""The ways to and from the server that a job asks for."""

from __future__ import annotations

from fedvitals.codecs import Codec, parse
from fedvitals.errors import CodecError, JobError
from fedvitals.train.adaptive import Adaptive
from fedvitals.train.downlink import Downlink
from fedvitals.train.flat import FlatModel
from fedvitals.train.job import Job
from fedvitals.train.keys import shown
from fedvitals.train.uplink import Uplink


class Links:
    """A job's codecs, which show at once whether they can be; the ways themselves once there is a model."""

    def __init__(self, job: Job) -> None:
        self._up, self._down = _codec("codec.up", job.codec.up), _codec("codec.down", job.codec.down)
        self._adaptive = _adaptive(job, self._up) if job.codec.adapt else None

    def of(self, model: FlatModel) -> tuple[Uplink, Downlink]:
        return Uplink(self._up, model, self._adaptive), Downlink(self._down, model)


def _codec(key: str, spec: str) -> Codec:
    try:
        return parse(spec)
    except CodecError as error:
        raise JobError(f"{key} = {shown(spec)}: {error}") from error


def _adaptive(job: Job, up: Codec) -> Adaptive:
    try:
        return Adaptive(up, job.server.deadline_s)
    except CodecError as error:
        raise JobError(f"codec.adapt = true with codec.up = {shown(job.codec.up)}: {error}") from error
