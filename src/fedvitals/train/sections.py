"""The engine, at its door: the sections of a job, each key with its default, limits and meaning.

The reference page of the job file is generated from these fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedvitals.errors import JobError
from fedvitals.train.keys import FUNCTION, Section, key

AGGREGATORS = (  # by name, since train/aggregate.py needs torch; a test holds the two together
    "fedavg",
    "fedavgm",
    "fedadam",
    "median",
    "trimmed-mean",
    "krum",
    "multi-krum",
    "geometric-median",
    "fedasync",
)
REMEMBERING = ("fedavg", "fedavgm", "fedadam")  # those that take a mean, of differences from a client's own beginning
SELECTIONS = ("random", "round-robin", "available", "oort", "pisces")  # a test holds them and train/selections together
NETWORKS = ("lan", "broadband", "mobile", "cross-silo")  # a test holds them and train/device_profiles.py together


@dataclass(frozen=True, slots=True)
class DataSpec(Section):
    """Which rows there are and who holds them."""

    title: ClassVar[str] = "data"
    source: str = key(
        "digits",
        "Where the rows come from.",
        choices=("digits", "synthetic"),
        or_else=f"a path to an .npz file, or {FUNCTION}",
        files=".npz",
        longest=4096,
    )
    partition: str = key(
        "dirichlet",
        "How rows are dealt out; `natural` keeps the source's own clients.",
        choices=("iid", "dirichlet", "shards", "quantity", "natural"),
    )
    clients: int = key(20, "How many clients; 0 with `natural` takes all.", low=0, high=1_000_000)
    alpha: float = key(0.5, "Dirichlet: the smaller, the more one-sided the clients' classes.", above=0.0, high=1e6)
    min_rows: int = key(8, "The least rows of a client, held-out ones included.", low=1, high=1_000_000)
    holdout: float = key(0.2, "Share of a client's rows kept for judging on its own data.", low=0.0, high=0.9)
    scale: str = key(
        "auto",
        "`auto`: bytes / 255, digits / 16, floats standardised when far from unit size; `none`; `standard`.",
        choices=("auto", "none", "standard"),
    )
    rows: int = key(200, "Synthetic: rows a client.", low=1, high=10_000_000)
    features: int = key(32, "Synthetic: features a row.", low=1, high=1_000_000)
    classes: int = key(10, "Synthetic: classes.", low=2, high=100_000)
    test_rows: int = key(500, "Synthetic: rows of the global test set.", low=1, high=10_000_000)
    shards_per_client: int = key(2, "Shards: pieces of the label-sorted rows a client gets.", low=1, high=10_000)
    sigma: float = key(1.0, "Quantity: spread of the log-normal sizes; 0 makes them equal.", low=0.0, high=10.0)

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.clients == 0 and self.partition != "natural":
            raise JobError('data.clients = 0 (all) is for partition = "natural"; right is at least 1')
        if self.partition == "natural" and self.source == "digits":
            raise JobError(
                'data.partition = "natural": digits has no clients of its own; take iid, dirichlet, shards or quantity'
            )


@dataclass(frozen=True, slots=True)
class ModelSpec(Section):
    """What is trained."""

    title: ClassVar[str] = "model"
    kind: str = key("mlp", "The model.", choices=("mlp", "cnn", "logistic", "gru"), or_else=FUNCTION, longest=4096)
    hidden: tuple[int, ...] = key(
        (64,), "Sizes of the dense layers between input and classes; gru: its size.", low=1, high=65_536, longest=32
    )
    channels: tuple[int, ...] = key((8, 16), "Cnn: channels of each convolution.", low=1, high=4096, longest=16)
    kernel: int = key(5, "Cnn: side of the convolutions' kernels; odd.", low=1, high=31)
    embedding: int = key(8, "Gru: size of a token's vector.", low=1, high=4096)
    norm: str = key(
        "none",
        "Normalisation of an mlp's dense layers or a cnn's convolutions. With `batch`, a last batch of one row is left "
        "out where it could not be normalised.",
        choices=("none", "batch", "group"),
    )
    dropout: float = key(0.0, "Share of activations dropped in training, after each dense layer.", low=0.0, high=0.95)

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.kernel % 2 == 0:
            raise JobError(f"model.kernel = {self.kernel} should be odd, so that the picture keeps its size")
        if self.kind == "cnn" and not self.channels:
            raise JobError("model.channels = [] leaves the cnn without a convolution; take for example [8, 16]")
        if self.kind == "gru" and not self.hidden:
            raise JobError("model.hidden = [] leaves the gru without a size; take for example [64]")


@dataclass(frozen=True, slots=True)
class TrainSpec(Section):
    """How long and how clients train."""

    title: ClassVar[str] = "train"
    rounds: int = key(30, "Rounds of training.", low=1, high=10_000_000)
    clients_per_round: int = key(5, "Clients chosen each round.", low=1, high=1_000_000)
    epochs: int = key(3, "Passes over a client's rows.", low=1, high=100_000)
    batch_size: int = key(32, "Rows that go through the model at once.", low=1, high=10_000_000)
    lr: float = key(0.1, "Learning rate of the clients.", above=0.0, high=1e6)
    momentum: float = key(0.0, "Momentum of the clients' SGD.", low=0.0, high=0.9999)
    weight_decay: float = key(0.0, "Weight decay of the clients' SGD.", low=0.0, high=1e3)
    precision: str = key(
        "fp32",
        "Format of forward passes: [bf16](../how-to/save-memory.md) is refused where it does not pay, fp16 always.",
        choices=("fp32", "bf16", "fp16"),
        built=("fp32", "bf16"),
    )
    accumulate: int = key(1, "Batches a step: their gradients add up to those of one large batch.", low=1, high=100_000)
    checkpoint: bool = key(False, "[Recompute](../how-to/save-memory.md) activations to save memory.")
    clip: float = key(0.0, "Largest norm of a gradient; 0 does not clip.", low=0.0, high=1e9)
    proximal: float = key(0.0, "Pull towards the received model (FedProx's mu).", low=0.0, high=1e6)
    evaluate_every: int = key(1, "Rounds between evaluations.", low=1, high=10_000_000)
    stop_at: float = key(
        0.0,
        "Accuracy at which it ends early, once three evaluations in a row had it, with all cut that is to be; 0 never.",
        low=0.0,
        high=1.0,
    )
    exclude: tuple[str, ...] = key((), "Clients that are never chosen, by name.", names=True, longest=100_000)

    def __post_init__(self) -> None:
        if self.precision == "fp16":  # first: there is a reason to give
            raise JobError(
                'train.precision = "fp16": processors convert to it and back, many times slower than fp32, and small '
                'gradients become 0 in it; take "fp32", or "bf16" where that pays'
            )
        Section.__post_init__(self)

    @property
    def step_rows(self) -> int:
        """Rows of one step of SGD."""
        return self.batch_size * self.accumulate


@dataclass(frozen=True, slots=True)
class ServerSpec(Section):
    """How updates become the next model."""

    title: ClassVar[str] = "server"
    aggregator: str = key("fedavg", "How updates are combined.", choices=AGGREGATORS)
    lr: float = key(
        0.0,
        "Rate of the server's step; 0 is the aggregator's own: 1.0; 0.01 for fedadam, 0.6 for fedasync.",
        low=0.0,
        high=1e6,
    )
    mode: str = key(
        "sync",
        "Rounds, or a buffer that never waits: [how](../how-to/train-asynchronously.md).",
        choices=("sync", "async"),
    )
    selection: str = key("random", "How clients are chosen: [which](../how-to/choose-clients.md).", choices=SELECTIONS)
    floor: float = key(
        0.0, "Share of the places that go to the clients that were asked least so far.", low=0.0, high=1.0
    )
    deadline_s: float = key(
        0.0,
        "Seconds after which a client is late and not waited for, on the virtual clock or with a worker each. 0 waits.",
        low=0.0,
        high=1e9,
    )
    over_select: float = key(
        1.0,
        "How many times the clients needed are asked, on the virtual clock or with a worker each; the first count.",
        low=1.0,
        high=1e3,
    )
    remember: bool = key(
        False,
        "Keep each client's last update, and step by the mean of all, corrected by those that came: "
        "[when](../how-to/train-asynchronously.md).",
    )
    average: float = key(
        0.0,
        "Share that a running mean of the global models keeps a round; the mean is judged, and is the result. Clients "
        "go on from the last model. 0: none.",
        low=0.0,
        high=0.999,
    )
    prune: float = key(
        0.0, "Share of the weights that is [cut](../how-to/save-memory.md) in the end; 0 cuts none.", low=0.0, high=0.99
    )
    prune_from: int = key(0, "Rounds before the first weights are cut; 0: a third of all.", low=0, high=10_000_000)
    prune_until: int = key(
        0, "Rounds after which all are cut that are to be; 0: five sixths of all.", low=0, high=10_000_000
    )
    buffer: int = key(10, "Async: updates a step of the server.", low=1, high=1_000_000)
    concurrency: int = key(100, "Async: clients at work at once.", low=1, high=1_000_000)
    late: str = key(
        "drop",
        "Async: what comes after server.deadline_s is dropped, or used, or the client is told to stop then and may be "
        "asked again; its place is free in any case.",
        choices=("drop", "use", "stop"),
    )
    staleness_bound: int = key(0, "Async: versions an update may be behind; 0 has no bound.", low=0, high=1_000_000)
    staleness_weight: str = key(
        "polynomial",
        "Async: what an update counts that is s versions behind: `(1 + s)^-power`; 1; or 1 up to a hinge, then less.",
        choices=("polynomial", "constant", "hinge"),
    )
    staleness_power: float = key(0.5, "Async: how fast stale updates count less.", low=0.0, high=100.0)
    staleness_hinge: int = key(4, "Async, hinge: versions behind that cost nothing.", low=0, high=1_000_000)

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.average and self.prune:
            raise JobError("server.average would bring back weights that server.prune cuts; take one of the two")
        if not self.remember:
            return
        if self.aggregator not in REMEMBERING:  # what a client sent is part of every later step: no vote keeps it out
            raise JobError(
                f"server.remember = true goes with the mean of updates, and server.aggregator = "
                f'"{self.aggregator}" takes none; right is {", ".join(REMEMBERING)}, or remember = false'
            )
        if self.prune:
            raise JobError("server.remember = true would move weights that server.prune cuts; take one of the two")


@dataclass(frozen=True, slots=True)
class CodecSpec(Section):
    """How updates and models are sent. The engine has `fedvitals.codecs` read these."""

    title: ClassVar[str] = "codec"
    up: str = key("identity", "Updates, client to server.", longest=500)
    down: str = key(
        "identity", "The server's steps, server to client: who missed some pays for each, or for a model.", longest=500
    )
    adapt: bool = key(
        False, "Choose each client's share of `up` so that its upload is done by server.deadline_s, from its last one."
    )


@dataclass(frozen=True, slots=True)
class NetworkSpec(Section):
    """Devices and links that are imitated, on the virtual clock: [how](../how-to/imitate-a-network.md)."""

    title: ClassVar[str] = "network"
    profile: str = key(
        "none",
        "The kind of clients, or a file with a device a row.",
        choices=("none", *NETWORKS),
        or_else="a path to a .csv file",
        files=".csv",
        longest=4096,
    )


@dataclass(frozen=True, slots=True)
class ExecuteSpec(Section):
    """What carries the job out. The result is the same on every executor, up to the last bits."""

    title: ClassVar[str] = "execute"
    executor: str = key(
        "auto",
        "How clients are run.",
        choices=("auto", "vectorised", "sequential", "processes", "flower"),
        built=("auto", "vectorised", "sequential", "processes"),
    )
    workers: int = key(
        0,
        "Processes, or threads of the compiled trainer; 0: as many as have a core for each of their threads.",
        low=0,
        high=4096,
    )
    threads: int = key(
        1,
        "Threads that train a client or a chunk: more than one pay for large models, on cores that nothing else uses. "
        "The last bits of a result depend on how many there are.",
        low=1,
        high=1024,
    )
    worker_mb: int = key(
        0,
        "Memory that a worker may take beyond what it begins with; a client that needs more fails. 0: no bound.",
        low=0,
        high=1_000_000_000,
    )
    clock: str = key("real", "Real seconds, or virtual ones that pass at once.", choices=("real", "virtual"))
    chunk: int = key(0, "Clients trained as one batch; 0: from the table of measurements.", low=0, high=100_000)
    compiled: bool = key(
        True,
        "Train chains of dense layers and convolutions by fedvitals' own compiled program, where the installation has "
        "it; false: by torch, whose last bits are others.",
    )
    measure: bool = key(True, "Measure first whether bf16 pays, and refuse it where it does not.")


@dataclass(frozen=True, slots=True)
class ObserveSpec(Section):
    """What is recorded; the same words as in the settings."""

    title: ClassVar[str] = "observe"
    level: str = key("open", "How much the server sees.", choices=("open", "summary", "sealed"))
    budget: float = key(0.02, "Share of the training's time that recording may cost.", low=0.0, high=1.0)
    keep_updates: bool = key(False, "Keep every update whole.")
    steps: str = key("governed", "Gradients to look at.", choices=("governed", "every", "full", "off"))
    sketches: bool = key(True, "Keep sketches of updates.")
    keep_models: bool = key(True, "Keep the global model of each round.")
