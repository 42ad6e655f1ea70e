"""A source: the 1,797 handwritten digits of 8 by 8 that scikit-learn carries (values 0 to 16)."""

from __future__ import annotations

import numpy as np

from fedvitals.train.sources.raw import Raw


def load() -> Raw:
    from sklearn.datasets import load_digits  # a second to import: only for the job that asks for it

    x, y = load_digits(return_X_y=True)
    images = x.reshape(-1, 8, 8).astype(np.uint8)  # whole numbers, so nothing is lost
    return Raw("digits", images, y.astype(np.int64), classes=10, divisor=16.0)
