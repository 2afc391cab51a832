"""What the tests of control flow share."""

from __future__ import annotations

import jax.numpy as jax_numpy
import numpy as np

import functrans.numpy as ft_numpy
from functrans import lax

rng = np.random.default_rng(0)
W = jax_numpy.asarray(rng.normal(size=(3, 3)) * 0.5, "float32")
X = jax_numpy.asarray(rng.normal(size=(4, 3)), "float32")


def chosen(ft, lax, np_, w, x):
    y = lax.cond(
        x[0, 0] > 0,
        lambda v: {"a": np_.sin(v) * w[0], "b": v.sum()},
        lambda v: {"a": v * v * v, "b": w.sum() * 1.0},
        x[1],
    )
    return (y["a"] ** 2).sum() * y["b"]


# --- reverse mode through loops whose number of steps is not known --------------------------------


def steps_of(lax, np_, w, x, n):
    def body(c):
        i, v = c
        return i + 1, np_.sin(w @ v) + v * 0.5

    return lax.while_loop(lambda c: c[0] < n, body, (0, x))[1]


def mine(w, x, n):
    return steps_of(lax, ft_numpy, w, x, n)
