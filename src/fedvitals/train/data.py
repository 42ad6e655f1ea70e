"""The engine: a job's `[data]` in, checked rows out. What the rows are is decided here, who holds them is not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedvitals.errors import DataError
from fedvitals.randomness import stream
from fedvitals.train.sections import DataSpec
from fedvitals.train.shapes import for_model, kind_of, numbers, scaled, vocabulary_of
from fedvitals.train.sources.raw import Array, Raw

TEST_SHARE = 0.2  # of all rows, a class at a time, where the source has no test rows of its own
MAX_CLASSES = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows ready to train on. `x` is float32 (or int64 tokens), `y` int64 classes."""

    x: Array
    y: NDArray[np.int64]
    x_test: Array
    y_test: NDArray[np.int64]
    kind: str  # "vector", "image", "sequence" or "tokens"
    classes: int
    vocabulary: int = 0
    client: NDArray[np.int64] | None = None  # the natural client of each row
    client_names: tuple[str, ...] = ()


def load(data: DataSpec, seed: int, model: str = "mlp") -> Rows:
    """The rows that `[data]` names, in the shape that this kind of model reads."""
    raw = _raw(data, seed)
    raw = _with_test(_with_labels(raw), seed)
    assert raw.x_test is not None and raw.y_test is not None  # noqa: PT018  # one statement of what _with_test gives
    found = kind_of(raw, model)
    train = numbers(raw, raw.x_train, "x_train", found)
    test = numbers(raw, raw.x_test, "x_test", found)
    vocabulary = vocabulary_of(raw, train, test) if found == "tokens" else 0
    train, test = scaled(raw, train, test, data.scale, found)
    x, kind = for_model(train, found, model, raw.origin)
    x_test, _ = for_model(test, found, model, raw.origin)
    return Rows(x, raw.y_train, x_test, raw.y_test, kind, raw.classes, vocabulary, raw.client, raw.client_names)


def _raw(data: DataSpec, seed: int) -> Raw:
    """A source is imported when a job names it: scikit-learn alone takes a second."""
    if data.source == "digits":
        from fedvitals.train.sources import digits

        return digits.load()
    if data.source == "synthetic":
        from fedvitals.train.sources import synthetic

        return synthetic.load(data, seed)
    if data.source.endswith(".npz"):
        from fedvitals.train.sources import npz

        return npz.load(data.source)
    from fedvitals.train.sources import function

    return function.load(data)


def _with_labels(raw: Raw) -> Raw:
    """Labels as int64 and the number of classes; everything as long as its rows."""
    y = _labels(raw, raw.y_train, len(raw.x_train), "y_train")
    y_test = None if raw.x_test is None else _labels(raw, raw.y_test, len(raw.x_test), "y_test")
    highest = max(int(y.max()), -1 if y_test is None else int(y_test.max()))
    classes = max(raw.classes, highest + 1)
    if classes < 2 or classes > MAX_CLASSES:
        raise DataError(f"{raw.origin}: labels reach {highest}: right are 2 to {MAX_CLASSES:,} classes, from 0")
    client = None if raw.client is None else _clients(raw, raw.client)
    return replace(raw, y_train=y, y_test=y_test, classes=classes, client=client)


def _labels(raw: Raw, y: Array | None, rows: int, name: str) -> NDArray[np.int64]:
    if y is None or y.ndim != 1 or len(y) != rows or rows == 0:
        shape = "nothing" if y is None else list(y.shape)
        raise DataError(f"{raw.origin}: {name} has the shape {shape}; right is one label for each of {rows} rows")
    if y.dtype.kind not in "ui":
        reason = "floats: this is classification, not regression" if y.dtype.kind == "f" else f"of type {y.dtype}"
        raise DataError(f"{raw.origin}: {name} is {reason}; right are whole numbers 0, 1, ... that name classes")
    if int(y.min()) < 0:
        raise DataError(f"{raw.origin}: {name} holds the label {int(y.min())}; right are 0, 1, ...")
    if int(y.max()) >= MAX_CLASSES:
        raise DataError(f"{raw.origin}: {name} holds the label {int(y.max())}; right are labels below {MAX_CLASSES:,}")
    return y.astype(np.int64)


def _clients(raw: Raw, client: Array) -> NDArray[np.int64]:
    if client.dtype.kind not in "ui" or client.shape != (len(raw.x_train),):
        raise DataError(
            f"{raw.origin}: client is {client.dtype} of shape {list(client.shape)}; right is one whole number for each "
            f"of {len(raw.x_train)} training rows"
        )
    low, high = int(client.min()), int(client.max())
    if low < 0 or (raw.client_names and high >= len(raw.client_names)):
        right = f"0 to {len(raw.client_names) - 1}, as client_names has it" if raw.client_names else "0 and up"
        raise DataError(f"{raw.origin}: client runs from {low} to {high}; right is {right}")
    return client.astype(np.int64)


def _with_test(raw: Raw, seed: int) -> Raw:
    """A source without test rows lends a fifth of each class, before anyone gets a row."""
    if raw.x_test is not None:
        return raw
    held = stratified(raw.y_train, TEST_SHARE, seed)
    if held.all() or not held.any():
        raise DataError(f"{raw.origin}: {len(held)} rows are too few to keep a fifth of each class for testing")
    return replace(
        raw,
        x_train=raw.x_train[~held],
        y_train=raw.y_train[~held],
        x_test=raw.x_train[held],
        y_test=raw.y_train[held],
        client=None if raw.client is None else raw.client[~held],
    )


def stratified(y: NDArray[np.int64], share: float, seed: int) -> NDArray[np.bool_]:
    """True for the rows held apart: this share of each class, rounded."""
    generator = stream(seed, "test split")
    held = np.zeros(len(y), dtype=np.bool_)
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        held[generator.permutation(members)[: round(share * len(members))]] = True
    return held
