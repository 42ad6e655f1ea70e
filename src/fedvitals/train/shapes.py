"""The engine's data, next step: raw arrays in, float32 rows (or int64 tokens) in the model's shape out.

What an array is follows from its type and number of axes. Bytes of [n, h, w] or [n, h, w, c] are images, floats of
[n, t, c] sequences, whole numbers of [n, t] tokens when the source names a vocabulary or the model is a gru; any other
[n, f] are vectors. Then the model has its say: mlp and logistic take vectors, so everything is laid flat; a cnn sees a
sequence as an image of one channel; a gru reads an image row by row; a model of the user's own gets what there is.
"""

from __future__ import annotations

import numpy as np

from fedvitals.errors import DataError
from fedvitals.train.sources.raw import MAX_BYTES, Array, Raw

LARGE, SMALL = 4.0, 0.05  # root mean squares beyond which `scale = "auto"` standardises floats


def kind_of(raw: Raw, model: str) -> str:
    """ "vector", "image", "sequence" or "tokens"; DataError for what cannot be trained on."""
    x = raw.x_train
    if x.dtype.kind in "US":
        raise DataError(
            f"{raw.origin}: x_train holds text ({x.dtype}). A model needs numbers: turn each text into a row of token "
            "numbers of equal length (uint8 or int64, with a `vocab` array) or into a vector of features"
        )
    if x.dtype.kind not in "uifb":
        raise DataError(f"{raw.origin}: x_train is of type {x.dtype}; right are whole numbers, floats or booleans")
    if x.ndim == 2:
        return "tokens" if x.dtype.kind in "ui" and (raw.vocabulary or model == "gru") else "vector"
    if x.ndim == 3:
        return "image" if x.dtype == np.uint8 else "sequence"
    if x.ndim == 4:
        return "image"
    raise DataError(
        f"{raw.origin}: x_train has the shape {list(x.shape)}; right are [n, features], [n, time, channels], "
        "[n, height, width] or [n, height, width, channels]"
    )


def numbers(raw: Raw, x: Array, name: str, kind: str) -> Array:
    """Float32 (tokens: int64), images channels first, all finite, each row as large as a training row."""
    if x.shape[1:] != raw.x_train.shape[1:] or x.dtype.kind != raw.x_train.dtype.kind:
        raise DataError(
            f"{raw.origin}: {name} has rows of {list(x.shape[1:])} {x.dtype}, x_train of "
            f"{list(raw.x_train.shape[1:])} {raw.x_train.dtype}; they must be alike"
        )
    if x.size * (8 if kind == "tokens" else 4) > MAX_BYTES or 0 in x.shape:
        raise DataError(f"{raw.origin}: {name} of shape {list(x.shape)} is empty or larger than {MAX_BYTES:,} bytes")
    if kind == "tokens":
        return x.astype(np.int64)
    if kind == "image":
        x = x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)
    with np.errstate(over="ignore"):  # an overflow shows up as an infinity, which is refused below
        values = np.ascontiguousarray(x, dtype=np.float32)
    _refuse_nonfinite(raw, values, name)
    return values


def vocabulary_of(raw: Raw, train: Array, test: Array) -> int:
    """How many tokens there are; every token must be one of them."""
    low, high = min(int(train.min()), int(test.min())), max(int(train.max()), int(test.max()))
    size = raw.vocabulary or high + 1
    if low < 0 or high >= size or size > 10_000_000:
        raise DataError(f"{raw.origin}: tokens run from {low} to {high}; right is 0 to {min(size, 10_000_000) - 1}")
    return size


def scaled(raw: Raw, train: Array, test: Array, scale: str, kind: str) -> tuple[Array, Array]:
    """`auto` divides by what the source says (bytes: 255); floats of odd size, and `standard`, are standardised.

    Mean and deviation are those of all training rows: of a feature of a vector, of a channel of anything else.
    """
    if scale == "none" or kind == "tokens":
        return train, test
    if scale == "auto" and raw.divisor is not None:
        return _divided(train, raw.divisor), _divided(test, raw.divisor)
    axes = {"vector": (0,), "sequence": (0, 1), "image": (0, 2, 3)}[kind]
    mean = train.mean(axes, keepdims=True, dtype=np.float64)
    std = train.std(axes, keepdims=True, dtype=np.float64)
    rms = np.sqrt(mean**2 + std**2)
    if scale == "auto" and rms.max() <= LARGE and rms.max() >= SMALL:
        return train, test
    std[std == 0] = 1.0  # a feature that never changes becomes zero, not a division by zero
    return _standard(train, mean, std), _standard(test, mean, std)


def for_model(x: Array, kind: str, model: str, origin: str) -> tuple[Array, str]:
    """The rows as this model reads them, and what they are now."""
    if kind == "tokens" and model in ("mlp", "logistic", "cnn"):
        raise DataError(f'{origin}: its rows are tokens, which {model} cannot read; take model.kind = "gru"')
    if model in ("mlp", "logistic"):
        return x.reshape(len(x), -1), "vector"
    if model == "cnn" and kind == "sequence":
        return x[:, None], "image"
    if model == "gru" and kind == "image":
        rows_as_steps = x.transpose(0, 2, 1, 3).reshape(len(x), x.shape[2], -1)
        return np.ascontiguousarray(rows_as_steps), "sequence"
    if kind == "vector" and model in ("cnn", "gru"):
        need = "images" if model == "cnn" else "sequences or tokens"
        raise DataError(f'{origin}: its rows are vectors, but a {model} needs {need}; take model.kind = "mlp"')
    return x, kind


def _divided(x: Array, divisor: float) -> Array:
    return x if divisor == 1.0 else x / np.float32(divisor)


def _standard(x: Array, mean: Array, std: Array) -> Array:
    return ((x - mean.astype(np.float32)) / std.astype(np.float32)).astype(np.float32, copy=False)


def _refuse_nonfinite(raw: Raw, values: Array, name: str) -> None:
    if raw.x_train.dtype.kind in "uib":
        return
    bad = ~np.isfinite(values.reshape(len(values), -1))
    if bad.any():
        rows = np.flatnonzero(bad.any(axis=1))
        raise DataError(
            f"{raw.origin}: {name} holds {int(bad.sum()):,} values that are NaN or infinite, in {len(rows):,} of "
            f"{len(values):,} rows (the first is row {rows[0]}); remove or fill them"
        )
