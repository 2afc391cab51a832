"""How far is a result of XLA from the reference's, and is that more than rounding explains?

In: an equation, the values of its operands, XLA's results. Out: a `Verdict`.

The error of an element is its distance from the reference, in units of the last place (ULP) of the
reference. The reference is NumPy at the same dtype and, where that does not settle it, NumPy in
float64: a result is as good as the nearer of the two says. The limit is

    LIMITS[dtype] + SPREAD * sqrt(n)     for n floating point operations per element of the result,

the probabilistic bound of rounding (Higham and Mary, A new approach to probabilistic rounding error
analysis, 2019). Where an element is beyond it, an ULP is widened by the operation's condition
there: by how far the float64 result moves when the operands move by half an ULP each, and by how
far NumPy's own rounding took it. So `x - y` of nearly equal numbers is not blamed for the rounding
of its operands, and 2 * sin(x) in place of sin(x) is. The operations of linear algebra are right if
their errors are small beside the largest element.

The callers turn NumPy's floating point warnings off, once for a run: `np.errstate` for each
operation takes as long as a small one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import isfinite, sqrt
from typing import Any, NamedTuple

import jax
import numpy as np

from functrans.backends import reference
from functrans.inspect.observe import by_reference, is_key
from functrans.ir.program import Equation
from functrans.ir.text import defaults
from functrans.ir.types import dtype_class, is_inexact
from functrans.primitives.linalg import MatrixOperation

# Functions as XLA and NumPy approximate them differ by some units; XLA computes those of 16 bit
# floats in float32 and rounds once, NumPy some at every step.
LIMITS = {
    "float16": 8.0, "bfloat16": 8.0, "float32": 64.0, "float64": 64.0,
    "complex64": 64.0, "complex128": 64.0,
}  # fmt: skip
SPREAD = 2.0
_DRAWS = 4


class Verdict(NamedTuple):
    """The error of the worst element, in ULPs that are widened where it was beyond the limit; the
    limit; and the results by the reference, at the same dtypes."""

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
        made, y, ref = y, plain(y), plain(ref)
        error = ulps(y, ref)
        most = 0.0 if error is EXACT else float(error.max(initial=0.0))
        bound = _limit(ref.dtype)
        if most > bound:
            bound += SPREAD * sqrt(_operations(eqn, ref.size)) if bound else 0.0
            most = _arbitrated(eqn, values, k, y, ref, error, bound, _platform(made))
        if most - bound > worst - limit or not worst:
            worst, limit = most, bound
    return Verdict(worst, limit, expected)


def _operations(eqn: Equation, size: int) -> float:
    """Floating point operations per element of the result."""
    types = [v.type for v in eqn.inputs], [v.type for v in eqn.outputs]
    return eqn.primitive.cost(*types, **eqn.params).flops / max(size, 1)


def _arbitrated(
    eqn: Equation, values: Sequence[Any], k: int, y: Any, ref: Any, error: Any, bound: float,
    device: str,
) -> float:  # fmt: skip
    """The worst error by the nearer of two references, in ULPs widened as far as it takes."""
    most = float(error.max(initial=0.0))
    if not is_inexact(ref.dtype):
        return most
    exact = plain(by_float64(eqn, values)[k])
    error = np.minimum(error, ulps(y, exact.astype(ref.dtype), exact))
    most = float(error.max(initial=0.0))
    if most <= bound:
        return most
    unit = _unit(ref)
    rng = np.random.default_rng(0)
    coarse = _coarseness(eqn, device)
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


# --- units in the last place ----------------------------------------------------------------------


EXACT = np.zeros(())  # the error of a result that is the reference's, bit by bit


def ulps(y: Any, ref: Any, exact: Any = None) -> Any:
    """The distance of each element in ULPs of the reference; infinite where one is NaN or infinite
    and the other is not the same. Integers: 0 or infinite. `exact`: the reference unrounded."""
    if y.dtype == ref.dtype and y.shape == ref.shape and y.tobytes() == ref.tobytes():
        return EXACT
    if y.shape != ref.shape:
        return np.asarray(np.inf)
    if not is_inexact(ref.dtype):
        return np.where(y == ref, 0.0, np.inf)
    wide = np.complex128 if ref.dtype.kind == "c" else np.float64
    x, r = y.astype(wide), ref.astype(wide)
    distance = np.abs(x - (r if exact is None else exact.astype(wide)))
    tiny = float(_limits(ref.dtype).tiny)  # XLA takes what is smaller for zero, NumPy does not
    error = np.where(distance <= tiny, 0.0, distance / _unit(ref))
    finite = np.isfinite(x) & np.isfinite(r)
    if not finite.all():
        same = (x == r) | (np.isnan(x) & np.isnan(r))
        error = np.where(finite, error, np.where(same, 0.0, np.inf))
    return error


def _unit(ref: Any) -> Any:
    """One unit in the last place of each element, in float64."""
    limits = _limits(ref.dtype)
    size = np.abs(ref.astype(np.complex128 if ref.dtype.kind == "c" else np.float64))
    size = np.fmin(np.fmax(size, float(limits.tiny)), float(limits.max))
    return (size.view(np.uint64) & _EXPONENT).view(np.float64) * float(limits.eps)


_EXPONENT = np.uint64(0x7FF0000000000000)  # the bits that make a float64 a power of two


def relative(y: Any, ref: Any) -> float:
    """The largest distance of an element, relative to the largest element of the reference;
    infinite where what is not finite differs."""
    y, ref = widened(plain(y)), widened(plain(ref))
    if ref.dtype.kind not in "fc":
        return 0.0 if np.array_equal(y, ref) else float("inf")
    distance, size = _largest(y - ref), _largest(ref)
    if not isfinite(distance):
        finite = np.isfinite(y) & np.isfinite(ref)
        same = (y == ref) | (np.isnan(y) & np.isnan(ref))
        if not (finite | same).all():
            return float("inf")
        distance, size = _largest(y[finite] - ref[finite]), _largest(ref[finite])
    return distance / size if size else float("inf") if distance else 0.0


def _largest(x: Any) -> float:
    return float(np.maximum.reduce(np.abs(x), axis=None, initial=0.0))


def rounding(dtype: Any) -> float:
    """The relative error of a result that is off by the limit of its dtype."""
    return _limit(dtype) * float(_limits(dtype).eps)


@cache
def _limit(dtype: Any) -> float:
    return LIMITS.get(np.dtype(dtype).name, 0.0)


@cache
def _limits(dtype: Any) -> Any:
    return jax.numpy.finfo(dtype)


def plain(x: Any) -> Any:
    """A value as a NumPy array; typed keys as their words."""
    if x.__class__ is np.ndarray:
        return x
    return np.asarray(jax.random.key_data(x) if is_key(x) else x)


# --- the reference in float64 ---------------------------------------------------------------------


def by_float64(eqn: Equation, values: Sequence[Any]) -> Sequence[Any]:
    """The results of an equation with floating point numbers of twice the width or more. One that
    works on the very bits of its operands is run at their dtype."""
    wide = [widened(x) for x in values]
    params = {k: _wide_dtype(v) if is_dtype(v) else v for k, v in eqn.params.items()}
    try:
        outs = reference.run_one(eqn.primitive, wide, params)
    except (TypeError, ValueError):
        outs = ()
    outs = [widened(y) for y in outs]
    if [y.shape for y in outs] == [v.type.shape for v in eqn.outputs]:
        return outs
    given = zip(values, eqn.inputs, strict=True)
    narrow = [x if is_key(x) else np.asarray(x).astype(v.type.dtype) for x, v in given]
    return [widened(y) for y in by_reference(eqn, narrow)]


def widened(x: Any) -> Any:
    """Floating point arrays in float64 or complex128; others as they are."""
    if x.__class__ is not np.ndarray:
        if is_key(x):
            return x
        x = np.asarray(x)
    wide = _wide_dtype(x.dtype)
    return x if x.dtype == wide else x.astype(wide)


def is_dtype(x: Any) -> bool:
    """Is it a dtype of numbers?"""
    return isinstance(x, np.dtype) or (isinstance(x, type) and issubclass(x, np.generic))


@cache
def _wide_dtype(dtype: Any) -> Any:
    kind = dtype_class(np.dtype(dtype))
    return {"float": np.dtype(np.float64), "complex": np.dtype(np.complex128)}.get(kind, dtype)


# Accelerators read 32 bit operands of contractions with fewer bits (TF32, bfloat16) unless a
# precision is asked for.
_COARSE = {"gpu": 2.0**-10, "cuda": 2.0**-10, "rocm": 2.0**-10, "tpu": 2.0**-7}


def _platform(x: Any) -> str:
    """Of the device that a value is on."""
    return next(iter(x.devices())).platform if isinstance(x, jax.Array) else "cpu"


def _coarseness(eqn: Equation, device: str) -> float:
    """The relative error that a device may make in reading the operands."""
    fast = "precision" in defaults(eqn.primitive) and eqn.params.get("precision") is None
    return _COARSE.get(device, 0.0) if fast else 0.0


def _nudged(x: Any, rng: np.random.Generator, coarse: float) -> Any:
    """Floating point numbers moved by up to half a unit in the last place, or what is coarser."""
    if is_key(x) or not is_inexact(x.dtype):
        return x
    x = np.asarray(x)
    step = max(float(_limits(x.dtype).eps), coarse) * (rng.integers(0, 2, size=x.shape) - 0.5)
    return widened(x) * (1 + step)
