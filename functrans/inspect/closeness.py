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
from math import isfinite, sqrt
from typing import Any, NamedTuple

import jax
import numpy as np

from functrans.backends import reference
from functrans.caching import cached
from functrans.inspect.observers import by_reference, is_key
from functrans.ir.program import Equation
from functrans.ir.text import defaults
from functrans.ir.types import dtype_class, is_inexact
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.linalg.shared import MatrixOperation

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


def judge(
    eqn: Equation, values: Sequence[Any], outs: Sequence[Any], arrays: Sequence[Any] | None = None
) -> Verdict:
    """Compare XLA's results of an equation with the reference's on the same operands. `arrays`: the
    results as NumPy arrays, if they are known."""
    arrays = list(map(plain, outs)) if arrays is None else arrays
    expected = by_reference(eqn, values)
    worst, limit = 0.0, 0.0
    for k, (y, ref) in enumerate(zip(arrays, expected, strict=True)):
        ref = plain(ref)
        bound = _limit(ref.dtype)
        if same_bits(y, ref):
            continue
        error = _apart(y, ref)
        most = float(error.max(initial=0.0))
        if most > bound:
            bound += SPREAD * sqrt(_operations(eqn, ref.size)) if bound else 0.0
            most = _arbitrated(eqn, values, k, y, ref, error, bound, _platform(outs[k]))
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
    if most <= bound or not is_inexact(ref.dtype):
        return most
    coarse = _coarseness(eqn, device)
    if _is_plain_product(eqn, ref) and np.isfinite(most):
        at = np.nonzero(error > bound)
        unit, relaxed = _unit(ref[at]), error.copy()
        relaxed[at] *= unit / (unit + _cancelled(eqn, values, at, coarse))
        if (worst := float(relaxed.max())) <= bound:
            return worst
    exact = plain(by_float64(eqn, values)[k])
    error = np.minimum(error, ulps(y, exact.astype(ref.dtype), exact))
    most = float(error.max(initial=0.0))
    if most <= bound:
        return most
    unit = _unit(ref)
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
    """Is it a dot_general in float32 of which both operands have all axes that are summed?"""
    if eqn.primitive is not dot_general or ref.dtype != np.float32:
        return False
    x, y = eqn.inputs
    same = x.type.dtype == y.type.dtype == ref.dtype
    return same and _share(eqn.params["lhs"], eqn.params["rhs"], eqn.params["out"])


@cached("contractions that share axes", 1024)
def _share(lhs: tuple[Any, ...], rhs: tuple[Any, ...], out: tuple[Any, ...]) -> bool:
    return set(lhs) - set(out) == set(rhs) - set(out)


def _cancelled(eqn: Equation, values: Sequence[Any], at: Sequence[Any], coarse: float) -> Any:
    """How far some elements of a sum of products move if each operand moves by half a unit in the
    last place, to one side or the other: twice the root mean square. `at`: their indices."""
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


EXACT = np.zeros(())  # the error of a result that is the reference's, bit by bit


def same_bits(y: Any, ref: Any) -> bool:
    """Are two arrays the same, bit by bit?"""
    return y.dtype == ref.dtype and y.shape == ref.shape and y.tobytes() == ref.tobytes()


def ulps(y: Any, ref: Any, exact: Any = None) -> Any:
    """The distance of each element in ULPs of the reference; infinite where one is NaN or infinite
    and the other is not the same. Integers: 0 or infinite. `exact`: the reference unrounded."""
    return EXACT if same_bits(y, ref) else _apart(y, ref, exact)


def _apart(y: Any, ref: Any, exact: Any = None) -> Any:
    if y.shape != ref.shape:
        return np.asarray(np.inf)
    if not is_inexact(ref.dtype):
        return np.where(y == ref, 0.0, np.inf)
    wide = np.complex128 if ref.dtype.kind == "c" else np.float64
    x, r = y.astype(wide), ref.astype(wide)
    distance = np.abs(x - (r if exact is None else exact.astype(wide)))
    tiny, _, _ = _numbers(ref.dtype)  # XLA takes what is smaller for zero, NumPy does not
    error = np.where(distance <= tiny, 0.0, distance / _unit(ref, r))
    if not np.isfinite(distance).all():
        finite = np.isfinite(x) & np.isfinite(r)
        same = (x == r) | (np.isnan(x) & np.isnan(r))
        error = np.where(finite, error, np.where(same, 0.0, np.inf))
    return error


def _unit(ref: Any, wide: Any = None) -> Any:
    """One unit in the last place of each element, in float64; `wide`: the same in float64 or
    complex128."""
    if wide is None:
        wide = ref.astype(np.complex128 if ref.dtype.kind == "c" else np.float64)
    tiny, largest, eps = _numbers(ref.dtype)
    size = np.fmin(np.fmax(np.abs(wide), tiny), largest)
    return (size.view(np.uint64) & _EXPONENT).view(np.float64) * eps


_EXPONENT = np.uint64(0x7FF0000000000000)  # the bits that make a float64 a power of two


def relative(y: Any, ref: Any) -> float:
    """The largest distance of an element, relative to the largest element of the reference;
    infinite where what is not finite differs."""
    y, ref = plain(y), widened(plain(ref))
    if ref.dtype.kind not in "fc":
        return 0.0 if np.array_equal(y, ref) else float("inf")
    if y.dtype != np.float32:  # which NumPy widens as it subtracts
        y = widened(y)
    distance = _largest(y - ref)
    if distance == 0.0:
        return 0.0
    size = _largest(ref)
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


@cached("limits of errors", 64)
def _limit(dtype: Any) -> float:
    return LIMITS.get(np.dtype(dtype).name, 0.0)


@cached("limits of dtypes", 64)
def _limits(dtype: Any) -> Any:
    return jax.numpy.finfo(dtype)


@cached("ends of dtypes", 64)
def _numbers(dtype: Any) -> tuple[float, float, float]:
    """The smallest normal number, the largest one, and the distance from 1 to the next."""
    limits = _limits(dtype)
    return float(limits.tiny), float(limits.max), float(limits.eps)


def plain(x: Any) -> Any:
    """A value as a NumPy array; typed keys as their words."""
    if x.__class__ is np.ndarray:
        return x
    return np.asarray(jax.random.key_data(x) if is_key(x) else x)


# --- the reference in float64 ---------------------------------------------------------------------


def by_float64(eqn: Equation, values: Sequence[Any]) -> Sequence[Any]:
    """The results of an equation with floating point numbers of twice the width or more. One that
    works on the very bits of its operands, or draws as many as its dtype has, is run at theirs."""
    params = eqn.params
    if not eqn.primitive.at_own_dtype:
        if any(map(is_dtype, params.values())):
            params = {k: _wide_dtype(v) if is_dtype(v) else v for k, v in params.items()}
        try:
            outs = reference.run_one(eqn.primitive, list(map(widened, values)), params)
        except (TypeError, ValueError):
            outs = ()
        outs = list(map(widened, outs))
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
    if x.dtype is _FLOAT64:
        return x
    wide = _wide_dtype(x.dtype)
    return x if x.dtype == wide else x.astype(wide)


_FLOAT64 = np.dtype(np.float64)  # one object, as NumPy makes its arrays


def is_dtype(x: Any) -> bool:
    """Is it a dtype of numbers?"""
    return isinstance(x, np.dtype) or (isinstance(x, type) and issubclass(x, np.generic))


@cached("wide dtypes", 64)
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
