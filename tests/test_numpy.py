"""functrans.numpy against jax.numpy: a table of expressions.

Each expression runs at top level, under jit, under vmap and through grad, with our library and with
JAX's, on the arrays named below. Values, dtypes, weak types and shapes must be equal. The rows of a
group are compiled together, which keeps the file fast.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as ft_numpy

_rng = np.random.default_rng(0)


def _normal(*shape: int) -> np.ndarray:
    return _rng.normal(size=shape).astype(np.float32)


def _between(low: float, high: float, *shape: int) -> np.ndarray:
    return _rng.uniform(low, high, size=shape).astype(np.float32)


def _with_nan(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x[0, 1] = x[2, 3] = x[2, 0] = np.nan
    return x


ARRAYS: dict[str, np.ndarray] = {
    "x": _normal(3, 4),
    "y": _normal(3, 4),
    "p": _between(0.5, 2, 3, 4),
    "u": _between(-0.9, 0.9, 3, 4),
    "v": _normal(4),
    "v6": _normal(6),
    "up": np.sort(_normal(6)),
    "col": _normal(3, 1),
    "s": np.float32(0.7),
    "q": _normal(2, 3, 4),
    "q1": _normal(1, 4, 5),
    "w": _normal(4, 5),
    "m": _normal(4, 4),
    "a3": _normal(5, 3),
    "b3": _normal(5, 3),
    "none": _normal(0, 4),
    "nans": _with_nan(_normal(3, 4)),
    "i": _rng.integers(-5, 6, size=(3, 4)).astype(np.int32),
    "j": _rng.integers(1, 6, size=(3, 4)).astype(np.int32),
    "iv": _rng.integers(0, 5, size=(7,)).astype(np.int32),
    "i8": _rng.integers(-5, 6, size=(3, 4)).astype(np.int8),
    "n8": _rng.integers(0, 6, size=(3, 4)).astype(np.uint8),
    "n32": _rng.integers(0, 6, size=(3, 4)).astype(np.uint32),
    "b": _rng.random((3, 4)) < 0.5,
    "b2": _rng.random((3, 4)) < 0.5,
    "h": _normal(3, 4).astype(np.float16),
    "g": np.asarray(_normal(3, 4), jax_numpy.bfloat16),
    "z": (_normal(3, 4) + 1j * _normal(3, 4)).astype(np.complex64),
    "z2": (_normal(3, 4) + 1j * _normal(3, 4)).astype(np.complex64),
    "inf": np.array([1, np.inf, -np.inf, np.nan, -0.0], np.float32),
}

BINARY = "add subtract multiply divide maximum minimum".split()
UNARY_ANY = "negative positive abs absolute sign square real imag conj conjugate isnan isinf isfinite".split()
UNARY_REAL = "fabs floor ceil trunc rint signbit sinc deg2rad rad2deg degrees radians".split()
UNARY_FLOAT = "exp exp2 expm1 sin cos tan arctan sinh cosh tanh arcsinh cbrt".split()
COMPARE = "equal not_equal less less_equal greater greater_equal".split()

# group -> expressions; `jnp` is the library, the other names are ARRAYS
TABLE: dict[str, list[str]] = {
    "binary": [f"jnp.{f}({args})" for f in BINARY for args in (
        "x, y", "x, v", "x, col", "v, col", "x, 2", "2.5, x", "x, s", "i, j", "i, 3", "i8, j",
        "i8, n8", "h, x", "h, g", "h, 2", "z, x", "z, z2", "i, x", "i, 1.5", "1, 2", "1, 2.0",
        "q, x", "none, v", "n8, n8", "x, jnp.float32(2)",
    )] + ["jnp.add(b, b2)", "jnp.multiply(b, b2)", "jnp.maximum(b, b2)", "jnp.add(b, 1)",
          "jnp.divide(b, b2 | True)", "jnp.true_divide(i, j)", "jnp.multiply(b, x)",
          "jnp.divide(i, 2)", "jnp.divide(i8, i8 | 1)", "jnp.add(i, True)"],
    "powers": [
        "jnp.power(p, x)", "jnp.power(x, 2)", "jnp.power(x, 3)", "jnp.power(p, -2)", "x ** 0",
        "jnp.power(p, 0.5)", "x ** 2.0", "jnp.power(i, 3)", "jnp.power(j, j)", "jnp.power(i, j)",
        "jnp.power(p, j)", "jnp.power(x, j)", "jnp.power(2, j)", "2.0 ** x", "2 ** x", "p ** b",
        "jnp.power(j, x)", "jnp.power(b, 2)", "jnp.power(b, b2)", "jnp.power(h, 2)",
        "jnp.power(z, 2)", "jnp.power(p, v)", "jnp.float_power(p, x)", "jnp.float_power(j, 2)",
        "jnp.pow(p, 2)", "jnp.power(n8, n8)", "jnp.square(x)", "jnp.reciprocal(p)",
        "jnp.reciprocal(j)", "jnp.power(2, 3)", "jnp.power(2, 3.0)",
    ],
    "division": [f"jnp.{f}({args})" for f in ("floor_divide", "mod", "remainder", "fmod") for args in (
        "x, p", "x, -p", "x, 0.7", "i, j", "i, -j", "i, 3", "n8, 2", "i8, j", "i, 1.5", "h, 0.5",
        "x, v", "7, 2", "-7.5, 2",
    )] + ["jnp.divmod(x, p)", "jnp.divmod(i, j)", "x // p", "i % 3", "5 % j", "divmod(x, 0.3)",
          "jnp.fmod(i, 0)", "jnp.mod(i, 0)", "jnp.modf(x)", "jnp.modf(i)"],
    "unary": [f"jnp.{f}({a})" for f in UNARY_ANY for a in ("x", "i", "h", "z", "n8", "inf", "-2", "2.5")
              if (f, a) not in {("isnan", "-2"), ("isnan", "2.5")}]
    + [f"jnp.{f}({a})" for f in UNARY_REAL for a in ("x", "i", "h", "inf", "b", "3", "2.5")]
    + [f"jnp.{f}({a})" for f in UNARY_FLOAT for a in ("x", "i", "h", "g", "b", "3", "0.5")]
    + [f"jnp.{f}({a})" for f in "exp sin cos tanh sinh cosh arctan log sqrt log2 log10 log1p".split()
       for a in ("z",)]
    + [f"jnp.{f}({a})" for f in "log log2 log10 log1p sqrt".split() for a in ("p", "j", "3", "0.5")]
    + [f"jnp.{f}({a})" for f in "arcsin arccos arctanh asin acos atanh".split() for a in ("u", "0.5")]
    + ["jnp.arccosh(p + 1)", "jnp.acosh(2)", "jnp.positive(b)", "jnp.abs(b)", "jnp.conj(b)"],
    "two floats": [f"jnp.{f}({args})" for f in "arctan2 hypot logaddexp logaddexp2 copysign heaviside".split()
                   for args in ("x, y", "x, v", "i, j", "x, 0.5", "h, x", "1.0, 2.0", "inf, 1")]
    + ["jnp.nextafter(x, y)", "jnp.ldexp(x, i)", "jnp.ldexp(i, 2)", "jnp.fmax(x, y)", "jnp.fmin(x, nans)",
       "jnp.fmax(nans, y)", "jnp.fmax(i, j)", "jnp.logaddexp(inf, inf)", "jnp.sinc(0.0)"],
    "comparison": [f"jnp.{f}({args})" for f in COMPARE for args in (
        "x, y", "x, v", "i, j", "i, 2.5", "x, 0", "b, b2", "z, z2", "n8, i8", "1, 2")]
    + ["x == y", "x != 2", "2 < x", "x >= v", "i <= 1.5"],
    "logic": [f"jnp.{f}({args})" for f in "logical_and logical_or logical_xor".split()
              for args in ("b, b2", "x, i", "b, 1", "i, v")]
    + [f"jnp.{f}({args})" for f in "bitwise_and bitwise_or bitwise_xor".split()
       for args in ("i, j", "b, b2", "i, 3", "i8, j", "n8, 1", "b, i")]
    + [f"jnp.{f}({args})" for f in "left_shift right_shift".split()
       for args in ("i, 2", "i, j", "n8, 1", "b, 1", "i8, j")]
    + ["jnp.logical_not(b)", "jnp.logical_not(x)", "jnp.invert(i)", "~b", "~n8", "i & 1", "3 | i",
       "i ^ j", "1 << j", "i >> 1", "jnp.bitwise_not(i)", "jnp.bitwise_count(j)",
       "jnp.isposinf(inf)", "jnp.isneginf(inf)"],
    "rounding": [f"jnp.round({args})" for args in ("x", "x, 1", "x * 100, -1", "i", "h, 2", "z, 1", "2.567, 1")]
    + ["x.round(2)", "round(x, 1)", "jnp.around(x)", "jnp.floor(z.real)", "jnp.angle(z)", "jnp.angle(x)",
       "jnp.angle(z, deg=True)", "jnp.angle(i)"],
    "selecting": [
        "jnp.where(b, x, y)", "jnp.where(b, x, 0)", "jnp.where(x > 0, x, 0.0)", "jnp.where(b, i, x)",
        "jnp.where(b, 1, 2.0)", "jnp.where(b, v, col)", "jnp.where(i, x, y)", "jnp.where(True, x, y)",
        "jnp.where(s > 0, x, y)", "jnp.where(b, z, x)", "jnp.where(b, h, 1)",
        "jnp.where(b[0], x, y)", "jnp.select([b, b2], [x, i], 0)", "jnp.select([x > 0], [x], 1.5)",
        "jnp.clip(x, -0.5, 0.5)", "jnp.clip(x, -0.5)", "jnp.clip(x, max=0.2)", "jnp.clip(i, 0, 2)",
        "jnp.clip(i, 0.5, 2)", "jnp.clip(x, v, 1)", "x.clip(0)", "jnp.clip(h, 0, 1)", "jnp.clip(n8, 1, 3)",
        "jnp.nan_to_num(inf)", "jnp.nan_to_num(inf, nan=1.0, posinf=5, neginf=-5)", "jnp.nan_to_num(i)",
        "jnp.isclose(x, y)", "jnp.isclose(x, x + 1e-9)", "jnp.isclose(i, j)", "jnp.isclose(inf, inf, equal_nan=True)",
        "jnp.allclose(x, x)", "jnp.allclose(x, y)", "jnp.array_equal(x, x)", "jnp.array_equal(x, v)",
        "jnp.array_equal(i, j)", "jnp.array_equiv(x, x[0])", "x.astype(jnp.int32)", "x.astype('float16')",
        "i.astype(float)", "b.astype(int)", "x.astype(bool)", "x.astype(complex)", "x.view(jnp.int32)",
        "jnp.astype(i, jnp.float32)", "x.view('uint8')",
    ],
    "sums": [f"jnp.{f}({args})" for f in "sum prod max min mean var std".split() for args in (
        "x", "x, axis=0", "x, axis=-1", "x, axis=(0, 1)", "x, axis=(0, -1), keepdims=True",
        "q, 1, keepdims=True", "q, axis=(2, 0)", "i", "i8, axis=0", "h", "g, axis=1", "s", "2.0", "3",
        "x, axis=()",
    )] + [f"jnp.{f}({args})" for f in "sum prod mean var std".split() for args in (
        "b", "n8", "z", "z, axis=1", "none, axis=1", "i, dtype=jnp.float32", "x, dtype=jnp.float16",
        "x, axis=1, where=b", "x, where=b[0], keepdims=True",
    ) if not ("dtype=jnp.float16" in args and f in ("var", "std"))]
    + ["jnp.sum(x, initial=2)", "jnp.prod(x, 0, initial=2.5)", "jnp.max(x, initial=0.5)",
       "jnp.min(x, axis=1, initial=0)", "jnp.max(x, where=b, initial=-9)", "jnp.max(none, axis=0, initial=1.0)",
       "jnp.sum(none)", "jnp.sum(none, axis=0)", "jnp.var(x, ddof=1)", "jnp.std(x, axis=0, ddof=1)",
       "jnp.var(x, correction=1)", "jnp.var(x, axis=1, mean=x.mean(1, keepdims=True))",
       "jnp.amax(x)", "jnp.amin(x, 0)", "jnp.max(b)", "jnp.min(n8)", "jnp.ptp(x)", "jnp.ptp(x, axis=1)",
       "jnp.ptp(i)", "jnp.average(x)", "jnp.average(x, axis=1, weights=v)", "jnp.average(x, weights=p)",
       "jnp.average(x, axis=1, weights=v, returned=True)", "jnp.average(i, 0)", "jnp.sum(i8, promote_integers=False)",
       "jnp.count_nonzero(i)", "jnp.count_nonzero(x, axis=0)", "jnp.trace(m)", "jnp.trace(q, 1, 1, 2)",
       "jnp.sum(jnp.ones((2, 2)))"],
    "truths": [f"jnp.{f}({args})" for f in ("all", "any") for args in (
        "b", "b, axis=0", "x", "i, axis=1, keepdims=True", "b, axis=(0, 1)", "none, axis=0", "b, where=b2", "1")]
    + [f"jnp.{f}({args})" for f in ("argmax", "argmin") for args in (
        "x", "x, axis=0", "x, axis=-1, keepdims=True", "i, 1", "b, 0", "x, keepdims=True", "nans, 0", "h, 1")]
    + [f"jnp.nan{f}({args})" for f in "sum prod max min mean var std".split()
       for args in ("nans", "nans, axis=1", "x, axis=0, keepdims=True", "i", "nans, axis=0")]
    + ["jnp.nanargmax(nans)", "jnp.nanargmin(nans, axis=1)", "jnp.nanargmax(i, 0)"],
    "running": [f"jnp.{f}({args})" for f in ("cumsum", "cumprod", "nancumsum", "nancumprod") for args in (
        "x", "x, axis=1", "i8, axis=0", "b, axis=0", "q, axis=-2", "h, 1", "i, 1, dtype=jnp.float32")]
    + ["jnp.cumulative_sum(v)", "jnp.cumulative_sum(x, axis=1, include_initial=True)", "x.cumsum(0)",
       "jnp.cumulative_prod(x, axis=0)", "jnp.diff(x)", "jnp.diff(x, axis=0)", "jnp.diff(x, 2)",
       "jnp.diff(i, prepend=0)", "jnp.diff(b)", "jnp.ediff1d(v)", "jnp.gradient(v)", "jnp.gradient(x)",
       "jnp.gradient(x, 0.5, axis=1)", "jnp.gradient(v6, up)", "jnp.trapezoid(v)", "jnp.trapezoid(x, axis=0, dx=0.5)",
       "jnp.trapezoid(v6, up)"],
    "shapes": [
        "jnp.reshape(x, (4, 3))", "jnp.reshape(x, -1)", "jnp.reshape(x, (2, -1))", "jnp.reshape(x, 12)",
        "jnp.reshape(x, (4, 3), order='F')", "x.reshape(2, 6)", "x.reshape((2, 6))", "x.reshape(-1)",
        "jnp.ravel(x)", "x.ravel()", "x.flatten()", "jnp.ravel(x, order='F')", "jnp.transpose(x)",
        "jnp.transpose(q, (1, 0, 2))", "q.transpose(2, 0, 1)", "q.transpose((2, 0, 1))", "q.T", "q.mT",
        "jnp.matrix_transpose(q)", "jnp.permute_dims(q, (0, 2, 1))", "jnp.swapaxes(q, 0, -1)", "q.swapaxes(0, 1)",
        "jnp.moveaxis(q, 0, -1)", "jnp.moveaxis(q, (0, 1), (-1, 0))", "jnp.rollaxis(q, 2)", "jnp.squeeze(col)",
        "jnp.squeeze(col, axis=-1)", "jnp.squeeze(col[None], (0, 2))", "col.squeeze()", "jnp.expand_dims(x, 0)",
        "jnp.expand_dims(x, (0, -1))", "jnp.expand_dims(x, 1)", "jnp.broadcast_to(v, (3, 4))",
        "jnp.broadcast_to(col, (2, 3, 4))", "jnp.broadcast_to(2.0, (2,))", "jnp.broadcast_arrays(v, col)",
        "jnp.atleast_1d(s)", "jnp.atleast_2d(v)", "jnp.atleast_3d(x)", "jnp.atleast_2d(v, x)",
        "jnp.tile(v, 2)", "jnp.tile(x, (2, 1))", "jnp.tile(v, (3, 2))", "jnp.repeat(x, 2)", "jnp.repeat(x, 3, axis=1)",
        "jnp.flip(x)", "jnp.flip(x, 1)", "jnp.fliplr(x)", "jnp.flipud(i)", "jnp.rot90(x)", "jnp.rot90(x, 2)",
        "jnp.rot90(q, -1, (1, 2))", "jnp.roll(x, 1)", "jnp.roll(x, -2, axis=1)", "jnp.roll(x, (1, 2), axis=(0, 1))",
        "jnp.roll(v, 5)", "jnp.diagonal(m)", "jnp.diagonal(x, 1)", "jnp.diagonal(x, -1)", "jnp.diagonal(q, 0, 1, 2)",
        "m.diagonal()", "jnp.reshape(2.0, (1, 1))", "x[::-1].shape[0] + x", "jnp.copy(x)", "x.copy()",
    ],
    "joining": [
        "jnp.concatenate([x, y])", "jnp.concatenate([x, y], axis=1)", "jnp.concatenate([x, i], axis=-1)",
        "jnp.concatenate([x, y], axis=None)", "jnp.concatenate((v, jnp.zeros(2)))", "jnp.concat([x, y], axis=1)",
        "jnp.concatenate([h, x], dtype=jnp.float32)", "jnp.concatenate([x])", "jnp.stack([x, y])", "jnp.stack([x, y], axis=-1)",
        "jnp.stack([s, s])", "jnp.stack([1.0, 2.0])", "jnp.stack([i, x])", "jnp.vstack([v, v])", "jnp.vstack([x, v])",
        "jnp.hstack([v, v])", "jnp.hstack([x, col])", "jnp.dstack([x, y])", "jnp.column_stack([v, v])",
        "jnp.column_stack([x, col])", "jnp.append(x, y)", "jnp.append(x, y, axis=0)", "jnp.block([[x, col], [x, col]])",
        "jnp.split(x, 2, axis=1)", "jnp.split(v6, [2, 3])", "jnp.array_split(v6, 4)", "jnp.hsplit(x, 2)", "jnp.vsplit(x, 3)",
        "jnp.dsplit(q, [1])", "jnp.unstack(x)", "jnp.unstack(x, axis=1)", "[r.sum() for r in x]",
        "jnp.pad(x, 1)", "jnp.pad(x, (1, 2))", "jnp.pad(x, ((1, 0), (0, 2)), constant_values=3)", "jnp.pad(i, 1)",
        "jnp.pad(x, ((1, 1), (2, 2)), mode='edge')", "jnp.pad(x, 2, mode='reflect')", "jnp.pad(x, 2, mode='symmetric')",
        "jnp.pad(x, ((2, 1), (3, 5)), mode='wrap')", "jnp.pad(v, 7, mode='reflect')", "jnp.pad(x, 1, mode='maximum')",
        "jnp.pad(x, 1, mode='mean')", "jnp.pad(x, 1, constant_values=((1, 2), (3, 4)))",
    ],
    "creation": [
        "jnp.array(1.0)", "jnp.array(1)", "jnp.array([1.0, 2])", "jnp.array([1, 2])", "jnp.array([[True]])", "jnp.asarray(2.5)",
        "jnp.array([s, 1.0])", "jnp.array([[s, s], [s, 2]])", "jnp.array(x)", "jnp.array(x, dtype=jnp.int32)",
        "jnp.array([])", "jnp.array(3, dtype=jnp.float16)", "jnp.array([1, 2], ndmin=2)", "jnp.asarray([x, y])",
        "jnp.zeros((2, 3))", "jnp.zeros(3, jnp.int32)", "jnp.ones((2,), bool)", "jnp.empty(2)", "jnp.full((2,), 7)",
        "jnp.full((2, 3), 1.5, jnp.float16)", "jnp.full((3, 4), v)", "jnp.full((2,), s)", "jnp.zeros_like(x)",
        "jnp.ones_like(i)", "jnp.ones_like(x, dtype=bool)", "jnp.full_like(x, 2)", "jnp.full_like(i, 2.7)", "jnp.zeros_like(2.0)",
        "jnp.zeros_like(x, shape=(2,))", "jnp.empty_like(h)", "jnp.arange(5)", "jnp.arange(2, 9, 3)", "jnp.arange(5.0)",
        "jnp.arange(0, 1, 0.25)", "jnp.arange(5, dtype=jnp.float32)", "jnp.arange(3, 0, -1)", "jnp.arange(0)",
        "jnp.linspace(0, 1, 5)", "jnp.linspace(s, 2, 4)", "jnp.linspace(0, 1, 5, endpoint=False)", "jnp.linspace(v, 1, 3)",
        "jnp.linspace(0, 10, 4, dtype=jnp.int32)", "jnp.linspace(0, 1, 5, retstep=True)", "jnp.linspace(v, 1, 3, axis=-1)",
        "jnp.linspace(0, 1, 1)", "jnp.logspace(0, 2, 3)", "jnp.geomspace(1, 100, 3)", "jnp.eye(3)", "jnp.eye(2, 3, k=1)",
        "jnp.identity(2)", "jnp.eye(3, dtype=jnp.int32)", "jnp.tri(3)", "jnp.tri(3, 4, -1, dtype=bool)", "jnp.tril(x)", "jnp.tril(q, 1)",
        "jnp.triu(x)", "jnp.triu(i, -1)", "jnp.diag(v)", "jnp.diag(v, 1)", "jnp.diag(m)", "jnp.diag(m, -1)", "jnp.diag(v, -2)", "jnp.diagflat(x)",
        "jnp.vander(v, 3)", "jnp.vander(v, increasing=True)", "jnp.meshgrid(v, up)", "jnp.meshgrid(v, up, indexing='ij')",
        "jnp.meshgrid(v, up, sparse=True)", "jnp.indices((2, 3))", "jnp.ix_(iv, iv)", "jnp.tril_indices(3)", "jnp.triu_indices(3, 1)",
        "jnp.triu_indices_from(m)", "jnp.diag_indices(3)", "jnp.fromfunction(lambda i, j: i + j, (2, 3))",
    ],
    "products": [
        "jnp.matmul(x, w)", "x @ w", "v @ w", "x @ v", "v @ v", "q @ w", "jnp.matmul(q, q1)", "w.T @ x.T", "i @ j.T", "h @ w", "x @ z.T",
        "jnp.matmul(q, v)", "jnp.matmul(v, q1)", "jnp.matmul(x, w, preferred_element_type=jnp.float32)", "jnp.dot(x, w)", "jnp.dot(v, v)",
        "jnp.dot(x, 2.0)", "jnp.dot(2, 3.0)", "jnp.dot(q, w)", "jnp.dot(x, q1)", "x.dot(w)", "jnp.inner(x, y)", "jnp.inner(v, v)", "jnp.inner(x, s)",
        "jnp.outer(v, up)", "jnp.outer(x, v)", "jnp.vdot(x, y)", "jnp.vdot(z, z2)", "jnp.vecdot(x, y)", "jnp.vecdot(x, v)",
        "jnp.vecdot(z, z2, axis=0)", "jnp.matvec(q, v)", "jnp.vecmat(v, w)", "jnp.tensordot(x, y)", "jnp.tensordot(x, w, 1)",
        "jnp.tensordot(q, x, axes=([1, 2], [0, 1]))", "jnp.tensordot(v, up, 0)", "jnp.tensordot(x, y, axes=((0,), (0,)))", "jnp.kron(x, w)",
        "jnp.kron(v, up)", "jnp.cross(a3, b3)", "jnp.cross(a3[:, :2], b3[:, :2])", "jnp.cross(a3, b3[:, :2])", "jnp.cross(a3.T, b3.T, axis=0)",
        "jnp.linalg.norm(x)", "jnp.linalg.norm(v, 1)", "jnp.linalg.norm(x, axis=1)", "jnp.linalg.norm(x, 'fro')", "jnp.linalg.norm(x, 1)",
        "jnp.linalg.norm(x, jnp.inf, axis=0)", "jnp.linalg.norm(x, 3, axis=1, keepdims=True)", "jnp.linalg.norm(x, -1)", "jnp.linalg.norm(z)",
        "jnp.linalg.norm(i)", "jnp.linalg.norm(x, 0, axis=0)", "jnp.linalg.vector_norm(x)", "jnp.linalg.matrix_norm(q)",
        "jnp.linalg.matrix_power(m, 3)", "jnp.linalg.matrix_power(m, 0)", "jnp.linalg.multi_dot([x, w, w.T, m])", "jnp.linalg.trace(m)",
        "jnp.linalg.diagonal(q)", "jnp.linalg.outer(v, up)",
    ],
    "einsum": [f"jnp.einsum({args})" for args in (
        "'ij,jk->ik', x, w", "'ij,jk', x, w", "'ij->ji', x", "'ij->', x", "'ii->i', m", "'ii', m", "'i,j->ij', v, up", "'ij,ij->ij', x, y",
        "'ij,ij->i', x, y", "'bij,jk->bik', q, w", "'...ij,jk->...ik', q, w", "'bij,bij->b', q, q", "'ij,jk,kl->il', x, w, w.T",
        "'bij,bkj->bik', q, q", "'i,i->', v, v", "'ij,j->i', x, v", "'...i,...i->...', q, v", "'ij,kj->ik', x, 2 * y",
        "'bij,cjk->bcik', q, q1", "'ij,jk->ki', h, w", "x, [0, 1], w, [1, 2], [0, 2]", "'iij->j', m[:, :, None] * v", "'ij,,jk->ik', x, s, w",
        "'abc,cd,de->abe', q, w, w.T, optimize='greedy'", "'ij,jk->ik', i, j.T",
    )],
    "sorting": [
        "jnp.sort(x)", "jnp.sort(x, axis=0)", "jnp.sort(x, axis=None)", "jnp.sort(x, descending=True)", "jnp.sort(i)", "jnp.sort(nans)",
        "jnp.argsort(x)", "jnp.argsort(x, axis=0)", "jnp.argsort(i, descending=True)", "jnp.argsort(x, axis=None)", "x.sort()", "x.argsort(0)",
        "jnp.lexsort((iv, iv * 2 % 3))", "jnp.searchsorted(up, v)", "jnp.searchsorted(up, up, side='right')", "jnp.searchsorted(up, 0.1)",
        "jnp.searchsorted(jnp.arange(5), iv)", "jnp.searchsorted(up, x)", "jnp.digitize(x, up)", "jnp.digitize(x, up, right=True)",
        "jnp.digitize(x, up[::-1])",
    ],
    "statistics": [
        "jnp.median(x)", "jnp.median(x, axis=0)", "jnp.median(x, axis=1, keepdims=True)", "jnp.median(i)", "jnp.quantile(x, 0.3)",
        "jnp.quantile(x, 0.3, axis=1)", "jnp.quantile(x, jnp.array([0.1, 0.9]), axis=0)", "jnp.quantile(x, s)", "jnp.percentile(x, 30)",
        "jnp.percentile(x, jnp.array([10, 50]), axis=1, keepdims=True)", "jnp.nanmedian(nans)", "jnp.nanmedian(nans, axis=0)",
        "jnp.nanquantile(nans, 0.3, axis=1)", "jnp.median(nans, axis=0)", "jnp.quantile(q, 0.5, axis=(0, 2))",
    ] + [f"jnp.quantile(x, 0.37, axis=1, method='{m}')" for m in "lower higher midpoint nearest linear".split()]
    + ["jnp.bincount(iv, length=6)", "jnp.bincount(iv, weights=jnp.ones(7), length=6)", "jnp.bincount(iv, length=3)", "jnp.histogram(x, bins=5)",
       "jnp.histogram(x, bins=up)", "jnp.histogram(v6, bins=4, range=(-1, 1))", "jnp.histogram(x, bins=5, density=True)",
       "jnp.interp(v, up, v6)", "jnp.interp(x, up, v6, left=0.0, right=1.0)", "jnp.interp(v, up, v6, period=2.0)", "jnp.polyval(v, x)",
       "jnp.cov(x)", "jnp.cov(x, rowvar=False)", "jnp.cov(v, v[::-1])", "jnp.cov(x, bias=True)", "jnp.corrcoef(x)", "jnp.cov(x, aweights=jnp.ones(4))",
       "jnp.cov(v)"],
    "methods": [
        "x.sum()", "x.sum(1)", "x.mean(0)", "x.std()", "x.var(axis=1)", "x.max()", "x.min(1)", "x.prod()", "b.all()", "b.any(0)", "x.argmax()", "x.argmin(1)",
        "x.real", "z.imag", "z.conj()", "x.T", "x + 1", "1 + x", "x - y", "2 - x", "x * v", "3 * x", "x / 2", "1 / p", "x // 0.5", "1 // p", "x % 0.3", "-x", "+x",
        "abs(x)", "x ** 2", "x @ w", "i & 1", "i | j", "i ^ 1", "~i", "i << 1", "i >> 1", "x < y", "x <= 0", "x > 0", "x >= y", "x == x", "x != y",
        "x.repeat(2, axis=0)", "x.ptp()", "len(x) + x", "x.nbytes + x", "x.size + x", "x.ndim + x", "x.itemsize + x", "x.cumprod(1)", "up.searchsorted(v)",
        "x[0]", "x[..., 1:]", "x[:, None] * v", "x.at[0].set(1.0)", "x.take(jnp.array([0, 2]), axis=1)", "np_ones * x", "np_ones @ x.T", "np_ones[0] + v", "np_two * x", "jax_ones * x", "jax_ones @ x.T", "jax_ones > x", "x * np_ones",
    ],
}  # fmt: skip

# Closed over by rows: operands on the left that are not ours.
CONSTANTS = {
    "np_ones": np.full((3, 4), 1.5, np.float32),
    "np_two": np.float32(2),
    "jax_ones": jax_numpy.full((3, 4), 1.5),
}

# Where NumPy-like float rounding differs by more than the default tolerance, and why.
LOOSE = {
    "h": 4e-3,  # float16 keeps 11 bits
    "g": 3e-2,  # bfloat16 keeps 8
}


def names_in(row: str) -> list[str]:
    """The ARRAYS that an expression reads."""
    found = compile(row, row, "eval")
    names = set(found.co_names)
    for const in found.co_consts:
        if hasattr(const, "co_names"):
            names |= set(const.co_names)
    words = set(re.findall(r"(?<![\w.'])([a-z]\w*)\b", row))
    return [n for n in ARRAYS if n in names & words]


def function_of(row: str, xp: Any) -> Callable[..., Any]:
    names = names_in(row)
    code = compile(row, row, "eval")

    def run(*arrays: Any) -> Any:
        scope = {"jnp": xp, **CONSTANTS, **dict(zip(names, arrays, strict=True))}
        return eval(code, scope)

    return run


def arguments(row: str, stacked: bool = False) -> list[Any]:
    arrays = [ARRAYS[n] for n in names_in(row)]
    if stacked:
        arrays = [np.stack([x, np.flip(x)]) for x in arrays]
    return arrays


def tolerance(row: str) -> float:
    return max([2e-5, *[LOOSE[n] for n in names_in(row) if n in LOOSE]])


def compare(row: str, ours: Any, theirs: Any, weak: bool = True) -> str | None:
    """What differs, or None."""
    mine, other = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    if len(mine) != len(other):
        return f"{row}: {len(mine)} results, JAX has {len(other)}"
    for a, b in zip(mine, other, strict=True):
        if not isinstance(a, jax.Array):
            return f"{row}: result of type {type(a)}"
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{row}: {a.dtype}{a.shape}, JAX has {b.dtype}{b.shape}"
        # (that some of JAX's booleans are weak has no meaning)
        if weak and a.weak_type != b.weak_type and a.dtype != bool:
            return f"{row}: weak_type {a.weak_type}, JAX has {b.weak_type}"
        one, two = (
            np.asarray(v).astype(np.complex128 if v.dtype.kind == "c" else np.float64)
            for v in (a, b)
        )
        t = tolerance(row)
        if not np.allclose(one, two, rtol=t, atol=t, equal_nan=True):
            return f"{row}:\n{a}\nJAX:\n{b}"
    return None


def check(rows: list[str], ours: dict[str, Any], theirs: dict[str, Any], **options: Any) -> None:
    problems = []
    for row in rows:
        mine, other = ours.get(row), theirs.get(row)
        if isinstance(other, Exception):
            if not isinstance(mine, Exception):
                problems.append(f"{row}: JAX raises {other!r:.200}")
        elif isinstance(mine, Exception):
            problems.append(f"{row}: {type(mine).__name__}: {mine}")
        else:
            problems.append(compare(row, mine, other, **options))
    found = [p for p in problems if p]
    assert not found, f"{len(found)} of {len(rows)}\n" + "\n".join(found)


GROUPS = list(TABLE)


@pytest.mark.parametrize("group", GROUPS)
def test_at_top_level(group):
    """Operation by operation on jax arrays."""
    rows = TABLE[group]
    ours = {}
    for row in rows:
        try:
            ours[row] = function_of(row, ft_numpy)(*map(jax_numpy.asarray, arguments(row)))
        except Exception as error:
            ours[row] = error
    check(rows, ours, jax_results(group))


def run_rows(
    rows: list[str], xp: Any, jit: Any, transform: Callable[[Any], Any], stacked: bool = False
) -> dict[str, Any]:
    """All rows as one jitted function of all arrays; an exception stands for its row."""
    failed: dict[str, Any] = {}

    def everything(arrays: dict[str, Any]) -> dict[str, Any]:
        results = {}
        for row in rows:
            try:
                results[row] = transform(function_of(row, xp))(*[arrays[n] for n in names_in(row)])
            except Exception as error:
                failed[row] = error
        return results

    names = sorted({n for row in rows for n in names_in(row)})
    arrays = {n: np.stack([ARRAYS[n], np.flip(ARRAYS[n])]) if stacked else ARRAYS[n] for n in names}
    return {**jit(everything, compiler_options=QUICK)(arrays), **failed}


# The rows are many and tiny: XLA's optimisations would cost more than they give.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

# Differences between dtypes are those of the primitives, which have a table of their own; the
# transformations are tested on the common ones.
NARROW = {"h", "g", "i8", "n8", "n32", "inf", "z2"}


def common(group: str) -> list[str]:
    return [row for row in TABLE[group] if names_in(row) and not NARROW & set(names_in(row))]


@functools.cache
def jax_results(group: str) -> dict[str, Any]:
    return run_rows(TABLE[group], jax_numpy, jax.jit, lambda f: f)


@pytest.mark.parametrize("group", GROUPS)
def test_under_jit(group):
    rows = TABLE[group]
    check(rows, run_rows(rows, ft_numpy, ft.jit, lambda f: f), jax_results(group))


@pytest.mark.parametrize("group", GROUPS)
def test_vmap(group):
    rows = common(group)

    def mapped(vmap):
        def over(f):
            def call(*args):
                return vmap(f)(*args) if args else f()

            return call

        return over

    ours = run_rows(rows, ft_numpy, ft.jit, mapped(ft.vmap), stacked=True)
    theirs = run_rows(rows, jax_numpy, jax.jit, mapped(jax.vmap), stacked=True)
    check(rows, ours, theirs, weak=False)


# Groups without derivatives, and rows whose derivative is another valid one at a point of choice.
NOT_DIFFERENTIATED = {"comparison", "logic"}


def scalar_loss(f: Callable[..., Any], xp: Any) -> Callable[..., Any]:
    """A weighted sum of the inexact results."""

    def loss(*args: Any) -> Any:
        total = xp.zeros((), xp.float32)
        for y in jax.tree.leaves(f(*args)):
            if xp.issubdtype(y.dtype, xp.inexact):
                y = xp.real(y) + xp.imag(y) if xp.issubdtype(y.dtype, xp.complexfloating) else y
                weights = np.cos(np.arange(y.size, dtype=np.float32)).reshape(y.shape)
                total = total + (y.astype(xp.float32) * weights).sum()
        return total

    return loss


def has_inexact(row: str) -> bool:
    return any(jax_numpy.issubdtype(ARRAYS[n].dtype, jax_numpy.inexact) for n in names_in(row))


@pytest.mark.parametrize("group", [g for g in GROUPS if g not in NOT_DIFFERENTIATED])
def test_gradient(group):
    rows = [row for row in common(group) if has_inexact(row)]

    def gradient(grad, xp):
        def of(f):
            def call(*args):
                real = tuple(k for k, x in enumerate(args) if xp.issubdtype(x.dtype, xp.inexact))
                return grad(scalar_loss(f, xp), real)(*args) if real else ()

            return call

        return of

    ours = run_rows(rows, ft_numpy, ft.jit, gradient(ft.grad, ft_numpy))
    theirs = run_rows(rows, jax_numpy, jax.jit, gradient(jax.grad, jax_numpy))
    check(rows, ours, theirs, weak=False)
