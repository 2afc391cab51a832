"""The error of an XLA result against the reference, and whether rounding explains it.

In: an equation, the values of its operands, XLA's results. Out: a `Verdict`.

The error of an element is its distance from the reference, in units of the last place (ULP) of the
reference. The reference is NumPy at the same dtype and, if the error is above the limit there, also
NumPy in float64: the smaller error counts. The limit is

    LIMITS[dtype] + SPREAD * sqrt(n)     for n floating point operations per element of the result,

the probabilistic rounding error bound (Higham and Mary, A new approach to probabilistic rounding
error analysis, 2019). For an element above it, the ULP is widened by the conditioning of the
operation there: by the change of the float64 result when each operand is perturbed by half an ULP,
and by NumPy's own rounding error. So `x - y` of nearly equal numbers is not blamed for the rounding
of its operands, but 2 * sin(x) instead of sin(x) is. Linear algebra operations are right if their
errors are small relative to the largest element.

The callers disable NumPy's floating point warnings once per run: an `np.errstate` per operation
would take as long as a small operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, sqrt
from typing import Any

import jax
import numpy as np

from functrans.backends import reference
from functrans.caching import cached
from functrans.inspect.observers import by_reference, is_key, narrowed
from functrans.ir.program import Equation
from functrans.ir.text import defaults
from functrans.ir.types import dtype_class, is_inexact, is_numpy_dtype
from functrans.primitives.base import own_cost
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.linalg.matrices import MatrixOperation
from functrans.records import NamedTuple

# XLA's and NumPy's approximations of functions differ by a few ULP. For 16-bit floats XLA computes
# in float32 and rounds once; NumPy rounds some at every step.
LIMITS = dict.fromkeys(map(np.dtype, ("float16", "bfloat16")), 8.0)
LIMITS |= dict.fromkeys(map(np.dtype, ("float32", "float64", "complex64", "complex128")), 64.0)
SPREAD = 2.0
_DRAWS = 4
_FLOAT32 = np.dtype(np.float32)


class Verdict(NamedTuple):
    """The error of the worst element, in ULPs (widened if it was above the limit); the limit; and
    the reference's results at the same dtypes."""

    ulps: float
    limit: float
    expected: Sequence[Any]

    @property
    def right(self) -> bool:
        return self.ulps <= self.limit


def judge(eqn: Equation, values: Sequence[Any], outs: Sequence[Any]) -> Verdict:
    """Compare XLA's results of an equation with the reference's on the same operands."""
    expected = by_reference(eqn, values)
    worst, limit = 0.0, 0.0
    for k, (y, ref) in enumerate(zip(outs, expected, strict=True)):
        y, ref = plain(y), plain(ref)
        bound = LIMITS.get(ref.dtype, 0.0)
        if (y.dtype, y.shape) == (ref.dtype, ref.shape) and y.tobytes() == ref.tobytes():
            continue
        error = ulps(y, ref)
        most = float(error.max(initial=0.0))
        if most > bound:
            # the operations per element of the result
            bound += SPREAD * sqrt(own_cost(eqn).flops / max(ref.size, 1)) if bound else 0.0
            most = _arbitrated(eqn, values, k, y, ref, error, bound, _coarseness(eqn, outs[k]))
        if most - bound > worst - limit or not worst:
            worst, limit = most, bound
    return Verdict(worst, limit, expected)


def _arbitrated(
    eqn: Equation, values: Sequence[Any], k: int, y: Any, ref: Any, error: Any, bound: float, coarse: float
) -> float:
    """Return the worst error against the nearer of two references, in ULPs, which are widened until
    it is within the bound or all perturbations are used."""
    most = float(error.max(initial=0.0))
    if most <= bound or not is_inexact(ref.dtype):
        return most
    if _is_plain_product(eqn, ref) and np.isfinite(most):
        at = np.nonzero(error > bound)
        unit, relaxed = _unit(widened(ref[at]), ref.dtype), error.copy()
        relaxed[at] *= unit / (unit + _cancelled(eqn, values, at, coarse))
        if (worst := float(relaxed.max())) <= bound:
            return worst
    exact = plain(by_float64(eqn, values)[k])
    error = np.minimum(error, ulps(y, exact.astype(ref.dtype), exact))
    most = float(error.max(initial=0.0))
    unit = _unit(widened(ref), ref.dtype)
    rng = np.random.default_rng(0)
    moved = np.abs(exact - ref.astype(exact.dtype))
    if isinstance(eqn.primitive, MatrixOperation):
        moved = np.fmax(moved, unit.max(initial=0.0))
    for _ in range(_DRAWS):
        if most <= bound or not np.isfinite(most):
            break
        near = [_nudged(x, rng, coarse) for x in values]
        moved = np.fmax(moved, np.abs(plain(by_float64(eqn, near)[k]) - exact))
        relaxed = error * unit / (unit + np.where(np.isfinite(moved), moved, 0.0))
        most = float(relaxed.max(initial=0.0))
    return most


def _is_plain_product(eqn: Equation, ref: Any) -> bool:
    """Return whether this is a float32 dot_general where both operands have all summed axes."""
    if eqn.primitive is not dot_general or {ref.dtype, *[v.type.dtype for v in eqn.inputs]} != {_FLOAT32}:
        return False
    lhs, rhs, out = (set(eqn.params[name]) for name in ("lhs", "rhs", "out"))
    return lhs - out == rhs - out


def _cancelled(eqn: Equation, values: Sequence[Any], at: Sequence[Any], coarse: float) -> Any:
    """Return how much some elements of a sum of products change when each operand is perturbed by
    half an ULP up or down: twice the root mean square. `at`: the indices of the elements."""
    lhs, rhs, out = (eqn.params[name] for name in ("lhs", "rhs", "out"))
    index = dict(zip(out, at, strict=True))
    summed = [name for name in lhs if name not in index]
    rows = []
    for x, names in zip(values, (lhs, rhs), strict=True):
        kept = [name for name in names if name in index]
        x = plain(x).transpose([names.index(name) for name in (*kept, *summed)])
        row = x[tuple([index[name] for name in kept])] if kept else x[None]
        rows.append(row.reshape(len(row), -1).astype(np.float64))
    products = rows[0] * rows[1]
    step = 2.0**0.5 * max(_numbers(values[0].dtype)[2], coarse)
    return step * np.sqrt(np.einsum("ki,ki->k", products, products))


# --- units in the last place ----------------------------------------------------------------------


def ulps(y: Any, ref: Any, exact: Any = None) -> Any:
    """Return the error of each element in ULPs of the reference; infinite where one is NaN or
    infinite and the other differs. Integers: 0 or infinite. `exact`: the unrounded reference."""
    if y.shape != ref.shape:
        return np.asarray(np.inf)
    if not is_inexact(ref.dtype):
        return np.where(y == ref, 0.0, np.inf)
    x, r = widened(y), widened(ref)
    distance = np.abs(x - (r if exact is None else exact))
    tiny, _, _ = _numbers(ref.dtype)  # XLA flushes subnormals to zero, NumPy does not
    error = np.where(distance <= tiny, 0.0, distance / _unit(r, ref.dtype))
    return error if np.isfinite(distance).all() else _where_finite(error, x, r)


def _where_finite(error: Any, x: Any, r: Any) -> Any:
    """Return the errors of finite elements; those of others are 0 if they are the same, else infinite."""
    same = (x == r) | (np.isnan(x) & np.isnan(r))
    return np.where(np.isfinite(x) & np.isfinite(r), error, np.where(same, 0.0, np.inf))


def _unit(wide: Any, dtype: Any) -> Any:
    """Return one ULP at a dtype of each element of a float64 or complex128 array."""
    tiny, largest, eps = _numbers(dtype)
    size = np.fmin(np.fmax(np.abs(wide), tiny), largest)
    return (size.view(np.uint64) & _EXPONENT).view(np.float64) * eps


_EXPONENT = np.uint64(0x7FF0000000000000)  # the exponent bits of a float64


def relative(y: Any, ref: Any) -> float:
    """Return the largest error of an element, relative to the largest element of the reference;
    infinite if non-finite elements differ."""
    y, ref = plain(y), widened(plain(ref))
    if ref.dtype.kind not in "fc":
        return 0.0 if np.array_equal(y, ref) else float("inf")
    if y.dtype != np.float32:  # NumPy widens float32 in the subtraction
        y = widened(y)
    distance = _largest(y - ref)
    if distance == 0.0:
        return 0.0
    if not isfinite(distance):
        distance, ref = _largest(_where_finite(y - ref, y, ref)), ref[np.isfinite(ref)]
    size = _largest(ref)
    return distance / size if size else float("inf") if distance else 0.0


def _largest(x: Any) -> float:
    return float(np.maximum.reduce(np.abs(x), axis=None, initial=0.0))


def rounding(dtype: Any) -> float:
    """Return the relative error that corresponds to the limit of a dtype."""
    return LIMITS.get(dtype, 0.0) * _numbers(dtype)[2]


@cached("ends of dtypes", 64)
def _numbers(dtype: Any) -> tuple[float, float, float]:
    """Return the smallest normal number, the largest number, and the machine epsilon."""
    limits = jax.numpy.finfo(dtype)
    return float(limits.tiny), float(limits.max), float(limits.eps)


def plain(x: Any) -> Any:
    """Return a value as a NumPy array; typed keys as their key data."""
    if x.__class__ is np.ndarray:
        return x
    return np.asarray(jax.random.key_data(x) if is_key(x) else x)


# --- the reference in float64 ---------------------------------------------------------------------


def by_float64(eqn: Equation, values: Sequence[Any]) -> Sequence[Any]:
    """Run an equation in float64 or complex128. An operation on the bits of its operands, or one
    whose random draws depend on the dtype, runs at its own dtypes."""
    if not eqn.primitive.at_own_dtype:
        params = {k: _wide_dtype(v) if is_numpy_dtype(v) else v for k, v in eqn.params.items()}
        try:
            outs = reference.run_one(eqn.primitive, list(map(widened, values)), params)
        except (TypeError, ValueError):
            outs = ()
        outs = list(map(widened, outs))
        if [y.shape for y in outs] == [v.type.shape for v in eqn.outputs]:
            return outs
    return [widened(y) for y in by_reference(eqn, narrowed(eqn, values))]


def widened(x: Any) -> Any:
    """Widen floating point arrays to float64 or complex128; return others unchanged."""
    if x.__class__ is not np.ndarray:
        if is_key(x):
            return x
        x = np.asarray(x)
    return x.astype(_wide_dtype(x.dtype), copy=False)


@cached("wide dtypes", 64)
def _wide_dtype(dtype: Any) -> Any:
    kind = dtype_class(np.dtype(dtype))
    return {"float": np.dtype(np.float64), "complex": np.dtype(np.complex128)}.get(kind, dtype)


# Accelerators truncate 32-bit operands of contractions (TF32, bfloat16) unless a precision is set.
_COARSE = {"gpu": 2.0**-10, "cuda": 2.0**-10, "rocm": 2.0**-10, "tpu": 2.0**-7}


def _coarseness(eqn: Equation, out: Any) -> float:
    """Return the relative error with which the device of a result may truncate the operands."""
    platform = next(iter(out.devices())).platform if isinstance(out, jax.Array) else "cpu"
    fast = "precision" in defaults(eqn.primitive) and eqn.params.get("precision") is None
    return _COARSE.get(platform, 0.0) if fast else 0.0


def _nudged(x: Any, rng: np.random.Generator, coarse: float) -> Any:
    """Perturb floating point numbers by half an epsilon, or by the device's truncation error."""
    if is_key(x) or not is_inexact(x.dtype):
        return x
    x = np.asarray(x)
    step = max(_numbers(x.dtype)[2], coarse) * (rng.integers(0, 2, size=x.shape) - 0.5)
    return widened(x) * (1 + step)
