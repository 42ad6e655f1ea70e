"""A source: standard normal features, uniform labels, and +2.0 at the feature that the label names.

Every client's rows come from a stream of their own, so client 3 has the same rows in a federation of 10 or of 1,000.
"""

from __future__ import annotations

import numpy as np

from fedvitals.errors import DataError
from fedvitals.randomness import stream
from fedvitals.train.sections import DataSpec
from fedvitals.train.sources.raw import MAX_BYTES, Array, Raw

SIGNAL = 2.0


def load(data: DataSpec, seed: int) -> Raw:
    clients = data.clients or 1
    wanted = (clients * data.rows + data.test_rows) * data.features * 4
    if wanted > MAX_BYTES:
        raise DataError(
            f"synthetic: {clients} clients of {data.rows} rows and {data.features} features take {wanted:,} bytes; "
            f"at most {MAX_BYTES:,} are made. Ask for fewer clients, rows or features"
        )
    parts = [_rows(data, data.rows, seed, "client", index) for index in range(clients)]
    x_test, y_test = _rows(data, data.test_rows, seed, "test")
    return Raw(
        "synthetic",
        np.concatenate([x for x, _ in parts]),
        np.concatenate([y for _, y in parts]),
        x_test,
        y_test,
        client=np.repeat(np.arange(clients), data.rows),
        classes=data.classes,
        divisor=1.0,
    )


def _rows(data: DataSpec, count: int, seed: int, *who: str | int) -> tuple[Array, Array]:
    generator = stream(seed, "synthetic", *who)
    y = generator.integers(0, data.classes, count)
    x = generator.standard_normal((count, data.features), dtype=np.float32)
    x[np.arange(count), y % data.features] += SIGNAL
    return x, y
