"""Indices of many kinds."""

import numpy as np

SHAPE = (5, 4, 3)
ONES = np.array([True, False, True, True, False])
MASK2 = np.arange(20).reshape(5, 4) % 3 == 0
I = np.array([3, 0, -1])  # noqa: E741


def data(shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype("float32")
