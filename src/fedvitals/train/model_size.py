"""The engine: how many weights a model of ours will have, told before any memory is asked for."""

from __future__ import annotations

import math
from itertools import pairwise

from fedvitals.errors import JobError
from fedvitals.train.federation import Federation
from fedvitals.train.sections import ModelSpec

COPIES = 4  # of the weights, at the least: the server's, a client's, its gradient, its update
SAID = {"mlp": "hidden", "cnn": "channels", "gru": "hidden"}  # the key that makes it large


def require_that_it_fits(spec: ModelSpec, federation: Federation, memory_bytes: int) -> None:
    """Refuses what this machine could not train: asked for all the same, its system may end other programs first."""
    weights = weights_of(spec, federation)
    least = COPIES * 4 * weights
    if least > memory_bytes:
        key = SAID.get(spec.kind, "kind")
        raise JobError(
            f"model.{key} = {_listed(getattr(spec, key))}: {weights:,} weights take at least "
            f"{least / 1e9:,.0f} GB to train, and this machine has {memory_bytes / 1e9:,.0f} GB; take a smaller one"
        )


def weights_of(spec: ModelSpec, federation: Federation) -> int:
    """Those that are multiplied; biases and normalisation are few beside them. 0 for a model of one's own."""
    shape, classes = federation.input_shape, federation.classes
    if spec.kind in ("mlp", "logistic"):
        return _dense(math.prod(shape), spec.hidden if spec.kind == "mlp" else (), classes)
    if spec.kind == "cnn" and len(shape) == 3:
        channels, height, width = shape
        kernels = spec.kernel**2 * sum(a * b for a, b in pairwise((channels, *spec.channels)))
        for _ in spec.channels:
            if min(height, width) >= 2:
                height, width = height // 2, width // 2
        return kernels + _dense(spec.channels[-1] * height * width, spec.hidden, classes)
    if spec.kind == "gru":
        size = spec.hidden[0]
        inputs = spec.embedding if federation.kind == "tokens" else shape[-1]
        table = federation.vocabulary * spec.embedding if federation.kind == "tokens" else 0
        return table + 3 * size * (inputs + size) + size * classes
    return 0


def _dense(inputs: int, sizes: tuple[int, ...], classes: int) -> int:
    return sum(a * b for a, b in pairwise((inputs, *sizes, classes)))


def _listed(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else repr(value)
