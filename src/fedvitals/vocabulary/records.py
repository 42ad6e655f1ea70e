"""The ground: what happened, one record an event. Rounds, participations, spans, failures, and the run they belong to.

Those written by the thousand (`Participation`, `Span`, ...) are named tuples: cheap to make, and a row of the store as
they stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

PHASES = (
    "select",
    "download",
    "decode",
    "load",
    "train",
    "encode",
    "upload",
    "wait",
    "aggregate",
    "evaluate",
    "other",
)
CLIENT_PHASES = ("download", "decode", "load", "train", "encode", "upload", "wait", "evaluate", "other")

JSONObject = Mapping[str, Any]  # only ever a leaf: a user's own configuration or attributes


class Status(StrEnum):
    """How a run stands. `CUT_OFF` is found out by readers: the process that wrote it is gone."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CUT_OFF = "cut off"


class Outcome(StrEnum):
    """What became of one participation."""

    USED = "used"
    LATE = "late"
    REJECTED = "rejected"
    FAILED = "failed"
    DROPPED = "dropped"


class Level(StrEnum):
    """How much the server may see: each update, its statistics only, or sums only."""

    OPEN = "open"
    SUMMARY = "summary"
    SEALED = "sealed"


@dataclass(frozen=True, slots=True)
class Run:
    """One training, from `start` to its close."""

    id: str
    name: str
    status: Status
    started_unix_ns: int
    level: Level = Level.OPEN
    ended_ns: int | None = None
    config: JSONObject = field(default_factory=dict)
    environment: JSONObject = field(default_factory=dict)  # versions, threads, host, pid, data digest
    health: JSONObject = field(default_factory=dict)  # the recorder's own: drops, time spent, stride


class Round(NamedTuple):
    """One round. Written when it begins (`end_ns` None) and again when it ends."""

    number: int
    version: int  # of the global model it starts from
    start_ns: int
    end_ns: int | None = None
    selected: int = 0
    used: int = 0
    failed: int = 0
    fingerprint: str | None = None
    error: str | None = None


class Participation(NamedTuple):
    """One client's work on one version of the model. Its key is (client, attempt)."""

    client: str
    attempt: int  # counts this client's participations, from 0
    round: int
    base_version: int
    applied_version: int | None
    staleness: int | None
    outcome: str
    samples: int | None
    steps: int | None
    epochs: int | None
    start_ns: int
    end_ns: int
    loss: float | None = None  # mean over its steps
    first_loss: float | None = None  # of its first steps: nearly the received model's loss on its rows
    last_loss: float | None = None
    accuracy: float | None = None
    bad_step: int | None = None  # first step whose loss or gradient was not finite
    good_step: int | None = None  # last step known finite before it; None with bad_step means "exact"
    update_norm: float | None = None
    cosine: float | None = None  # to the mean of the others in its cohort
    nonfinite: int | None = None  # values of the update that are not finite
    download_s: float | None = None
    decode_s: float | None = None
    load_s: float | None = None
    train_s: float | None = None
    encode_s: float | None = None
    upload_s: float | None = None
    wait_s: float | None = None
    evaluate_s: float | None = None
    other_s: float | None = None
    raw_bytes_down: int | None = None
    wire_bytes_down: int | None = None
    raw_bytes_up: int | None = None
    wire_bytes_up: int | None = None
    peak_memory_bytes: int | None = None
    received: str | None = None  # fingerprint of the model it trained on
    executor: str | None = None
    chunk: int | None = None
    slot: int | None = None
    attributed: int = 0  # 1: its times are a share of a batch's
    block: int | None = None  # the UpdateBlock with its statistics, and its row there
    block_row: int | None = None
    metrics: str | None = None  # JSON of whatever else was handed over

    @property
    def duration_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def phases_s(self) -> dict[str, float]:
        """Seconds a phase, of the phases that were seen."""
        named = ((phase, getattr(self, f"{phase}_s")) for phase in CLIENT_PHASES)
        return {phase: value for phase, value in named if value is not None}


class Evaluation(NamedTuple):
    """A model judged on data: the global one on the test rows, or on one client's held-out rows."""

    round: int
    at_ns: int
    split: str = "test"
    client: str | None = None
    samples: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    metrics: str | None = None


class Span(NamedTuple):
    """Something that took time. Phases of rounds and clients are spans whose name is in PHASES."""

    id: int
    parent: int | None
    name: str
    start_ns: int
    end_ns: int | None
    round: int | None = None
    client: str | None = None
    attempt: int | None = None
    thread: str | None = None
    attributed: int = 0
    error: str | None = None
    attributes: str | None = None  # JSON


class ResourceSample(NamedTuple):
    """What a process used at one instant."""

    at_ns: int
    pid: int
    rss_bytes: int
    peak_rss_bytes: int
    cpu_s: float  # since the process began
    threads: int
    device: str | None = None  # "cuda:0"; None: the host
    device_used_bytes: int | None = None
    device_peak_bytes: int | None = None
    device_total_bytes: int | None = None
    device_busy_ratio: float | None = None


class LogEntry(NamedTuple):
    at_ns: int
    level: str
    logger: str
    message: str
    round: int | None = None
    client: str | None = None
    traceback: str | None = None


class Failure(NamedTuple):
    """Something that went wrong, where, and with which shapes."""

    at_ns: int
    stage: str  # a phase, "client", "merge", "submit", "round"
    kind: str  # the exception's type, "timeout", "bad telemetry"
    message: str
    round: int | None = None
    client: str | None = None
    attempt: int | None = None
    traceback: str | None = None
    shapes: str | None = None  # JSON: name -> shape, of what was at hand


class Blob(NamedTuple):
    """Bytes kept beside the records, under the SHA-256 of their content."""

    name: str
    kind: str  # "model", "update", "state"
    size_bytes: int
    version: int | None = None  # of the global model, for a model or a server's state
    round: int | None = None
    client: str | None = None
    attempt: int | None = None
