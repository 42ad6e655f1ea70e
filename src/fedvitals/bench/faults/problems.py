"""The fault bench's problems: which rows, which model, and whether they may be used while rules are developed.

A job names its rows as `fedvitals.bench.faults.problems:mnist_7`: draw 7 of MNIST, so that another seed has other
writers or other rows. Data sets come from files in a folder (`--data`, FEDVITALS_BENCH_DATA, or ../shared/data where
that is); digits and synthetic are always there.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedvitals.errors import DataError
from fedvitals.randomness import stream
from fedvitals.train.sections import DataSpec

FOLDER_VARIABLE = "FEDVITALS_BENCH_DATA"
USUAL_FOLDER = Path("../shared/data")
TEST_ROWS = 1000  # judged every round: more would cost more than the training
LEAST_ROWS = 20  # of a natural client
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Problem:
    """One kind of rows and what is trained on them."""

    name: str
    model: dict[str, Any]
    train: dict[str, Any]
    file: str = ""  # in the data folder; "": comes with the package
    rows: int = 100  # a client, where rows are dealt out
    in_all: int = 1_000_000  # training rows there are
    natural: int = 0  # clients of its own
    tokens: bool = False
    reserved: bool = False  # for the final measurement alone
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return data_folder() / self.file

    @property
    def missing(self) -> str:
        """Why it cannot be run here; empty when it can."""
        return f"there is no {self.file} in the data folder" if self.file and not self.path.is_file() else ""


CNN = {"kind": "cnn", "channels": [8, 16], "kernel": 3, "hidden": [32]}
PICTURES = {"epochs": 1, "lr": 0.2, "batch_size": 10}
PROBLEMS: dict[str, Problem] = {
    one.name: one
    for one in (
        Problem("digits", {"kind": "mlp", "hidden": [64]}, {"epochs": 3, "lr": 0.1, "batch_size": 16}, in_all=1437),
        Problem(
            "synthetic",
            {"kind": "mlp", "hidden": [64]},
            {"epochs": 2, "lr": 0.1, "batch_size": 16},
            data={"rows": 100, "features": 32, "test_rows": 500},
        ),
        Problem("mnist", CNN, PICTURES, "mnist/mnist.npz", in_all=60_000, natural=500),
        Problem("fashion", CNN, PICTURES, "fashion_mnist/fashion_mnist.npz", reserved=True),
        Problem(
            "shakespeare",
            {"kind": "gru", "hidden": [32], "embedding": 8},
            {"epochs": 1, "lr": 1.0, "batch_size": 10},
            "shakespeare/shakespeare.npz",
            rows=80,
            in_all=37_051,
            natural=400,
            tokens=True,
        ),
        Problem(
            "smartwatch",
            CNN,
            {"epochs": 2, "lr": 0.05, "batch_size": 16},
            "smartwatch_exercise/smartwatch_exercise.npz",
            in_all=1466,
            natural=10,
            reserved=True,
        ),
        Problem(
            "sentiment",
            {"kind": "mlp", "hidden": [32]},
            {"epochs": 2, "lr": 0.5, "batch_size": 16},
            "sentiment_sentences/sentiment_sentences.npz",
            in_all=2405,
            natural=3,
            reserved=True,
        ),
    )
}
WORDS = 256  # columns that the words of a sentence are counted in
LAST_CHARACTERS = 10  # of a window of Shakespeare: the whole 80 would take eight times as long, and tell little more


def data_folder() -> Path:
    """Where the data sets are looked for."""
    return Path(os.environ.get(FOLDER_VARIABLE) or USUAL_FOLDER)


def __getattr__(name: str) -> Callable[[DataSpec], Arrays]:
    """`mnist_7` is the function that gives draw 7 of MNIST."""
    problem, _, draw = name.rpartition("_")
    if problem not in PROBLEMS or not draw.isdecimal():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def drawn(data: DataSpec) -> Arrays:
        return draw_rows(PROBLEMS[problem], data, int(draw))

    return drawn


def draw_rows(problem: Problem, data: DataSpec, draw: int) -> Arrays:
    """As many rows as these clients need, or the rows of so many natural clients; another draw, other ones."""
    arrays = _read(problem.path, problem.tokens)
    rows, client = _natural(problem, data, draw) if data.partition == "natural" else (_some(problem, data, draw), None)
    tested = stream(draw, "bench test rows").permutation(len(arrays["y_test"]))[:TEST_ROWS]
    found = {
        "x_train": arrays["x_train"][rows],
        "y_train": arrays["y_train"][rows].astype(np.int64),
        "x_test": arrays["x_test"][tested],
        "y_test": arrays["y_test"][tested].astype(np.int64),
        **({"vocab": arrays["vocab"]} if "vocab" in arrays else {}),
    }
    return found if client is None else {**found, "client": client}


def _some(problem: Problem, data: DataSpec, draw: int) -> np.ndarray:
    there = len(_read(problem.path, problem.tokens)["y_train"])
    wanted = min(there, data.clients * problem.rows)
    return np.sort(stream(draw, "bench rows").permutation(there)[:wanted])


def _natural(problem: Problem, data: DataSpec, draw: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of natural clients that have enough, renumbered from 0: their ids are then those of any other partition."""
    owner = _read(problem.path, problem.tokens)["client"]
    numbers, counts = np.unique(owner, return_counts=True)
    enough = numbers[counts >= LEAST_ROWS]
    if len(enough) < data.clients:
        raise DataError(f"{problem.name} has {len(enough)} clients of {LEAST_ROWS} rows, but {data.clients} are asked")
    chosen = np.sort(stream(draw, "bench clients").permutation(enough)[: data.clients])
    rows = np.flatnonzero(np.isin(owner, chosen))
    return rows, np.searchsorted(chosen, owner[rows])


@lru_cache(maxsize=4)
def _read(path: Path, tokens: bool) -> Arrays:
    """The arrays of a file, kept: many cells of one process take rows from it."""
    try:
        with np.load(path, allow_pickle=False) as file:
            wanted = ("x_train", "y_train", "x_test", "y_test", "client", "vocab")
            arrays = {name: file[name] for name in wanted if name in file}
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    return arrays | {name: _small(arrays[name], tokens) for name in ("x_train", "x_test")}


def _small(x: np.ndarray, tokens: bool) -> np.ndarray:
    """Rows that train four times as fast: the last characters of a window, pictures of half the side; sentences as
    numbers."""
    if tokens:
        return x[:, -LAST_CHARACTERS:]
    if x.dtype.kind == "U":
        return _counted_words(x)
    if x.dtype != np.uint8:
        return x
    quarters = x.reshape(len(x), x.shape[1] // 2, 2, x.shape[2] // 2, 2)
    halved: np.ndarray = (quarters.sum(axis=(2, 4), dtype=np.uint16) // 4).astype(np.uint8)
    return halved


def _counted_words(sentences: np.ndarray) -> np.ndarray:
    """Which words a sentence holds, as a unit row; words share columns by their hash (Weinberger et al., ICML 2009)."""
    found = np.zeros((len(sentences), WORDS), np.float32)
    for row, sentence in enumerate(sentences):
        for word in re.findall(r"[a-z']+", str(sentence).lower()):
            found[row, zlib.crc32(word.encode()) % WORDS] = 1.0
    unit: np.ndarray = found / np.maximum(np.sqrt((found**2).sum(axis=1, keepdims=True)), 1.0)
    return unit
