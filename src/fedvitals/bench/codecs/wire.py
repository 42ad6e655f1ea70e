"""The codec bench: one update of a million values, written and read, in one thread."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from fedvitals.bench.table import Row, spread
from fedvitals.codecs import parse

SHAPES = {"0.weight": (1000, 784), "0.bias": (1000,), "2.weight": (214, 1000), "2.bias": (1000,)}
RAW_BYTES = 4 * sum(math.prod(shape) for shape in SHAPES.values())
GOAL = 1130.0
TERNARY, SHARE = "ternary:0.0025 | entropy", 0.0025
SPEEDS = {  # MB of update a second, there and back, and what is asked of them
    "quantize:8": 100.0,
    "quantize:4": 100.0,
    "quantize:1": 100.0,
    "quantize:8:stochastic": 100.0,
    "topk:0.01": 50.0,
    "topk:0.01 | quantize:8 | entropy": 50.0,
    "ternary:0.0025 | entropy": None,
    "fp16": None,
    "qsgd:16 | entropy": None,
    "onebit": None,
    "lowrank:4": None,
    "grid:0.02 | entropy": None,
    "randomk:0.01": None,
    "quantize:8 | entropy": None,
    "fp16 | zstd": None,
}


def update(seed: int = 0) -> dict[str, Tensor]:
    """Values as likely large as small, in four named tensors: nothing in them is easier than it would be."""
    generator = torch.Generator().manual_seed(seed)
    return {name: 0.01 * torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def rows(repeats: int) -> Iterator[Row]:
    """What a message takes, names and shapes and all, and how long."""
    yield from _ternary(repeats)
    yield from _entropy()
    for spec, goal in SPEEDS.items():
        sizes, speeds = _timed(spec, repeats)
        yield Row(spec, "times fewer bytes, headers included", *spread([RAW_BYTES / size for size in sizes]), "x")
        yield Row(spec, "encode and decode", *spread(speeds), "MB/s", goal)


def _ternary(repeats: int) -> Iterator[Row]:
    sizes = [len(parse(TERNARY).encode(update(seed))) for seed in range(repeats)]
    bound = 8 * RAW_BYTES / (RAW_BYTES / 4 * (_bits(SHARE) + SHARE))
    yield Row(
        TERNARY, "times fewer bytes, of a million values", *spread([RAW_BYTES / one for one in sizes]), "x", 1130.0
    )
    yield Row(TERNARY, "what its entropy allows", bound, bound, bound, "x")


def _entropy() -> Iterator[Row]:
    """Coded size against the entropy of what is coded: symbols of 6 bits, and positions with their signs."""
    one = {"w": update()["0.weight"]}
    codec = parse("quantize:6")
    counts = np.unique(codec.decode(codec.encode(one))["w"].numpy(), return_counts=True)[1]
    shares = counts / counts.sum()
    least = float(-(shares * np.log2(shares)).sum()) * one["w"].numel() / 8
    over = len(parse("quantize:6 | entropy").encode(one)) / least
    yield Row("quantize:6 | entropy", "bytes against the entropy of its symbols", over, over, over, "x", 1.02, False)
    least = (_bits(0.01) + 0.01) * one["w"].numel() / 8
    sparse = "ternary:0.01 | entropy"
    over = len(parse(sparse).encode(one)) / least
    yield Row(
        "ternary:0.01 | entropy", "bytes against the entropy of places and signs", over, over, over, "x", 1.02, False
    )


def _timed(spec: str, repeats: int) -> tuple[list[int], list[float]]:
    """Sizes and speeds. The quickest of three each time: others are at work on this machine as well."""
    codec, sizes, speeds = parse(spec), [], []
    for seed in range(repeats):
        one = update(seed)
        took = []
        for _ in range(3):
            began = time.perf_counter()
            data = codec.encode(one)
            codec.decode(data)
            took.append(time.perf_counter() - began)
        sizes.append(len(data))
        speeds.append(RAW_BYTES / 1e6 / min(took))
    return sizes, speeds


def _bits(share: float) -> float:
    """Information of one place that is taken with this chance."""
    return -share * math.log2(share) - (1 - share) * math.log2(1 - share)
