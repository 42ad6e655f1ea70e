"""The nouns of fedvitals: what every stage hands to the next.

Records are frozen and typed. Those written by the thousand (`Participation`, `Span`, ...) are named tuples: cheap to
make, and a row of the store as they stand. Durations and instants are integers in nanoseconds (`_ns`) or floats in
seconds (`_s`); an instant counts from the run's start on the run's clock, `started_unix_ns` anchors it to the wall.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
STATISTICS = ("norm", "mean", "std", "min", "max", "zero_ratio")

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


class Severity(StrEnum):
    """How bad a finding is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Grade(StrEnum):
    """How sure a finding is: an exact rule, an accusation, or a suspicion."""

    CERTAIN = "certain"
    ACCUSED = "accused"
    SUSPECT = "suspect"


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


class Layer(NamedTuple):
    """One tensor of the model, as it lies in a flattened update."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    size: int
    trainable: bool | None = None  # None: only a state dict was seen, so nobody knows


class Layout(NamedTuple):
    """The layers of an update in order. A run has one, unless clients submit other shapes."""

    id: int
    layers: tuple[Layer, ...]
    sketch_buckets: tuple[int, ...] = ()  # buckets of each layer, in the order of `layers`
    unit_layer: int | None = None  # the layer whose rows are sketched one by one: the last matrix
    units: int = 0


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


@dataclass(frozen=True, slots=True, eq=False)
class Participations:
    """Many participations at once, column by column: what becomes of a cohort that was trained as one.

    A column is a list, a tuple, a range or a numpy array with a value for each, or one value that holds for all. Those
    that are not there are empty. A store keeps them as if each had come by itself.
    """

    count: int
    columns: Mapping[str, Any]  # by the fields of Participation; `client` and `attempt` are lists

    def rows(self) -> list[Participation]:
        """One by one."""
        columns: list[Iterable[Any]] = [repeat(None)] * len(_PLACES)
        for name, column in self.columns.items():
            columns[_PLACES[name]] = spread(column, self.count)
        return list(map(Participation._make, zip(*columns, strict=False)))  # strict: some go on for ever


_PLACES = {name: place for place, name in enumerate(Participation._fields)}


def spread(column: Any, count: int) -> Iterable[Any]:
    """The values of a column of `Participations`, one for each."""
    if hasattr(column, "tolist"):
        column = column.tolist()
    return column if isinstance(column, list | tuple | range) else repeat(column, count)


@dataclass(frozen=True, slots=True, eq=False)
class UpdateBlock:
    """Statistics and sketches of up to 128 updates that were summarised together.

    `stats` is [rows, layers, STATISTICS]. Sketches are of the update divided by its norm, so float16 holds any scale:
    the sketch of the update itself is `sketches * norm`. `units` describes each row of the last matrix: its norm (as a
    share of the matrix's), its sum (as a share of norm * sqrt(columns)) and 8 buckets (as shares of the row's norm).
    """

    id: int
    round: int
    layout: int
    stats: NDArray[np.float32]
    nonfinite: NDArray[np.uint32] | None = None  # [rows, layers]; None: every value was finite
    sketches: NDArray[np.float16] | None = None  # [rows, buckets]
    unit_norms: NDArray[np.float16] | None = None  # [rows, units]
    unit_sums: NDArray[np.float16] | None = None  # [rows, units]
    unit_sketches: NDArray[np.int8] | None = None  # [rows, units, 8], in 1/63.5 of the row's norm
    losses: NDArray[np.float32] | None = None  # [rows, kept steps], NaN-padded
    loss_steps: NDArray[np.int32] | None = None  # [rows, kept steps]: which steps those are, -1 for padding


@dataclass(frozen=True, slots=True, eq=False)
class ModelBlock:
    """Statistics of one version of the global model."""

    version: int
    round: int
    layout: int
    stats: NDArray[np.float32]  # [layers, STATISTICS]
    nonfinite: NDArray[np.uint32] | None
    drift_first: float  # norm of the difference from the first version
    drift_last: float  # and from the one before
    fingerprint: str


@dataclass(frozen=True, slots=True, eq=False)
class StepBlock:
    """Gradient statistics of sampled steps, of one client or of a cohort trained as one.

    `stats` is [rows, layers, fields]: 1 field is the norm alone, 6 are STATISTICS.
    """

    round: int
    layout: int
    clients: tuple[str, ...]  # one a row
    attempts: tuple[int, ...]
    steps: tuple[int, ...]
    stats: NDArray[np.float32]


class TensorStats(NamedTuple):
    """One layer of one update or model: the row of a block, with its name."""

    layer: str
    size: int
    norm: float
    mean: float
    std: float
    min: float
    max: float
    zero_ratio: float
    nonfinite: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """A count sketch of one update: dot products of sketches estimate dot products of updates."""

    values: NDArray[np.float16]  # of the update divided by its norm
    norm: float


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


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do about a finding; `safe` ones do not change the training."""

    text: str
    safe: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, who caused it, how sure that is, and what to do."""

    code: str
    name: str
    severity: Severity
    grade: Grade
    rounds: tuple[int, ...]
    clients: tuple[str, ...]
    layers: tuple[str, ...]
    why: str
    evidence: JSONObject
    next: tuple[Action, ...]
    proof: JSONObject | None = None
    symptoms: tuple[Finding, ...] = ()  # what follows from it, folded under it


Record = (
    Run
    | Layout
    | Round
    | Participation
    | Participations
    | UpdateBlock
    | ModelBlock
    | StepBlock
    | Evaluation
    | Span
    | ResourceSample
    | LogEntry
    | Failure
    | Blob
)
