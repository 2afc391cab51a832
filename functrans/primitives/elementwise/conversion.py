"""Dtype conversions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from functrans import errors
from functrans.ir.program import Literal
from functrans.ir.source import here
from functrans.ir.types import ArrayType, dtype_class, is_inexact
from functrans.mlir import hlo
from functrans.primitives.elementwise.bitwise import xor
from functrans.primitives.elementwise.families import ANY, Elementwise, compare, eq, full_like, lt
from functrans.primitives.elementwise.selection import select_n
from functrans.trace import Tracer, bind, literal, typeof


class ConvertElementType(Elementwise):
    """Convert to another dtype. Floats are truncated to integers with saturation, and NaN becomes
    0; integers wrap; complex numbers lose their imaginary part; booleans are `x != 0`."""

    name: str = "convert_element_type"
    linear_in: tuple[int, ...] = (0,)
    flops: int = 0

    def __call__(self, x: Any, *, dtype: Any, weak_type: bool = False) -> Any:
        ref = x.ref if x.__class__ is Tracer else x
        if ref.__class__ is Literal and is_inexact(dtype) and not isinstance(ref.value, complex):
            with np.errstate(over="ignore"):  # silent, as in XLA
                made = literal(ref.value, ArrayType(ref.type.shape, dtype, weak_type))
            return made if ref is x else Tracer(x.owner, made.type, made)
        return bind(self, (x,), {"dtype": dtype, "weak_type": weak_type})

    def abstract_eval(self, x: ArrayType, *, dtype: Any, weak_type: bool) -> ArrayType:
        if dtype_class(dtype) not in ANY:
            raise self.mismatch((x,), f"cannot convert {x.dtype} to {dtype}")
        return ArrayType(x.shape, dtype, weak_type)

    def reference(self, x: Any, *, dtype: Any, weak_type: bool) -> Any:
        from_, to = dtype_class(x.dtype), dtype_class(dtype)
        if from_ == "complex" and to != "complex":
            x, from_ = np.real(x), "float"
        if to == "bool":
            return np.asarray(x != 0)
        if from_ == "float" and to in ("int", "uint"):
            return _saturated(x, dtype)
        return np.asarray(x).astype(dtype)

    def numpy_source(self, w: Any, x: Any, *, dtype: Any, weak_type: bool) -> Any:
        from_, to = dtype_class(x.dtype), dtype_class(dtype)
        if x.dtype == dtype:
            return x.full
        if to == "bool" and from_ != "complex":
            return f"{x.full} != 0"
        if (from_ == "float" and to in ("int", "uint")) or from_ == "complex" != to:
            return w.reference(self, (x,), {"dtype": dtype, "weak_type": weak_type})
        return f"{x.full}.astype({w.dtype(dtype)})"

    def lower(self, ctx: Any, x: Any, *, dtype: Any, weak_type: bool) -> Any:
        t = ctx.in_types[0]
        if dtype_class(t.dtype) == "complex" and dtype_class(dtype) != "complex":
            x, t = hlo.real(x), t.update(dtype=real_dtype(t.dtype))
        if dtype_class(dtype) == "bool":
            return compare(x, ctx.full(0, t), "NE", dtype_class(t.dtype))
        is_signed = dtype_class(t.dtype) == dtype_class(dtype) == "int"
        if ctx.platform == "cpu" and is_signed and dtype.itemsize < t.dtype.itemsize:
            # bytes are cut off: XLA:CPU of JAX 0.10 crashes if signed ones meet others in `and` or `or`
            cut = hlo.convert(ctx.type(t.update(dtype=np.dtype(f"u{dtype}"))), x)
            return hlo.bitcast_convert(ctx.type(ctx.out_types[0]), cut)
        return ctx.op("stablehlo.convert", [x])

    def jvp(self, primals: Any, tangents: Any, out: Any, *, dtype: Any, weak_type: bool) -> Any:
        if not is_inexact(dtype) or tangents[0] is None:
            return None
        return self(tangents[0], dtype=dtype, weak_type=weak_type)

    def transpose(self, ct: Any, x: Any, *, dtype: Any, weak_type: bool) -> Any:
        if not is_inexact(x.dtype):
            return (None,)
        return (self(ct, dtype=x.dtype, weak_type=x.type.weak_type),)


def _saturated(x: np.ndarray, dtype: Any) -> np.ndarray:
    """Convert floats to integers: truncated, clamped to the range, 0 for NaN."""
    low, high = int(ml_dtypes.iinfo(dtype).min), int(ml_dtypes.iinfo(dtype).max)
    wide = np.asarray(x).astype(np.float64)
    above, below = wide >= float(high) + 1.0, wide <= float(low)
    inside = np.where(above | below | np.isnan(wide), 0.0, np.trunc(wide))
    kept = inside.astype(np.uint64 if low == 0 else np.int64).astype(dtype)
    kept = np.where(above, np.asarray(high).astype(dtype), kept)
    return np.where(below, np.asarray(low).astype(dtype), kept).astype(dtype)


def real_dtype(dtype: Any) -> Any:
    """Return the dtype of the real part."""
    return np.dtype({"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype))


class BitcastConvertType(Elementwise):
    """Reinterpret the bits at another dtype. A narrower one adds an axis for the parts, a wider one
    merges the last axis."""

    name: str = "bitcast_convert_type"
    locally_constant: bool = True
    flops: int = 0

    def abstract_eval(self, x: ArrayType, *, dtype: Any) -> ArrayType:
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x.strong()
        if {"bool", "complex"} & {dtype_class(x.dtype), dtype_class(dtype)}:
            raise self.mismatch((x,), f"bits of bool and complex cannot be read as {dtype}")
        old, new = _bits(x.dtype), _bits(dtype)
        if old == new:
            return ArrayType(x.shape, dtype)
        if old > new:
            return ArrayType((*x.shape, old // new), dtype)
        if not x.shape or x.shape[-1] * old != new:
            problem = f"the last axis must have size {new // old}, so that its elements form one {dtype}"
            raise self.mismatch((x,), problem, error=errors.InvalidArgument)
        return ArrayType(x.shape[:-1], dtype)

    def reference(self, x: Any, *, dtype: Any) -> Any:
        old, new = _bits(x.dtype), _bits(dtype)
        x = np.ascontiguousarray(x).reshape(np.shape(x))
        if old == new:
            return x.view(dtype)
        return x[..., None].view(dtype) if old > new else x.view(dtype)[..., 0]

    def lower(self, ctx: Any, x: Any, *, dtype: Any) -> Any:
        return hlo.bitcast_convert(ctx.type(ctx.out_types[0]), x)

    def batch(self, t: Any, args: Any, dims: Any, *, dtype: Any) -> Any:
        return self(t.move(args[0], dims[0], 0), dtype=dtype), 0


def _bits(dtype: Any) -> int:
    kind = dtype_class(dtype)
    if kind in ("int", "uint"):
        return ml_dtypes.iinfo(dtype).bits
    return ml_dtypes.finfo(dtype).bits if kind == "float" else 8 * dtype.itemsize


class ReducePrecision(Elementwise):
    """Round to a float of fewer bits and back: to nearest even, to infinity above its range, to
    zero below its smallest normal number."""

    name: str = "reduce_precision"
    takes: tuple[str, ...] = ("float",)
    linear_in: tuple[int, ...] = (0,)
    symmetric = True

    def abstract_eval(self, x: ArrayType, *, exponent_bits: int, mantissa_bits: int) -> ArrayType:
        if exponent_bits < 1 or mantissa_bits < 0:
            raise errors.InvalidArgument(
                f"{self.name}: exponent_bits must be positive and mantissa_bits not negative, got "
                f"{exponent_bits} and {mantissa_bits}, {here()}"
            )
        return x

    def reference(self, x: Any, *, exponent_bits: int, mantissa_bits: int) -> Any:
        info = ml_dtypes.finfo(x.dtype)
        bits = np.ascontiguousarray(x).reshape(np.shape(x)).view(f"uint{info.bits}")
        dropped = info.nmant - mantissa_bits
        if dropped > 0:
            bits = _drop_bits(bits, dropped)
        rounded = bits.view(x.dtype)
        if exponent_bits < info.nexp:
            bias = 2 ** (exponent_bits - 1) - 1
            sign = np.copysign(np.ones_like(rounded), rounded)
            size = np.abs(rounded.astype(np.float64))
            rounded = np.where(size >= 2.0 ** (bias + 1), sign * np.inf, rounded).astype(x.dtype)
            rounded = np.where(size < 2.0 ** (1 - bias), sign * 0, rounded).astype(x.dtype)
        return np.where(np.isnan(x), x, rounded)

    def lower(self, ctx: Any, x: Any, *, exponent_bits: int, mantissa_bits: int) -> Any:
        return hlo.reduce_precision(x, exponent_bits, mantissa_bits)


def _drop_bits(bits: np.ndarray, n: int) -> np.ndarray:
    """Round away the last n bits of unsigned integers, ties to even."""
    one = bits.dtype.type(1)
    odd = (bits >> bits.dtype.type(n)) & one
    half = (one << bits.dtype.type(n - 1)) - one
    mask = ~((one << bits.dtype.type(n)) - one)
    return (bits + half + odd) & mask


convert_element_type: ConvertElementType = ConvertElementType()
bitcast_convert_type: BitcastConvertType = BitcastConvertType()
reduce_precision: ReducePrecision = ReducePrecision()


def strong(x: Any) -> Any:
    """Return x without the weak-type flag."""
    t = typeof(x)
    return convert_element_type(x, dtype=t.dtype, weak_type=False) if t.weak_type else x


def cast(x: Any, dtype: Any) -> Any:
    """Convert x to another dtype, unless it has that dtype."""
    if typeof(x).dtype == dtype:
        return x
    return convert_element_type(x, dtype=dtype, weak_type=False)


# --- numbers as integers of the same order ----------------------------------------------------------


def ordered_bits(x: Any) -> Any:
    """Return signed integers that are ordered as the numbers are: -0 before 0, NaN last."""
    dtype = typeof(x).dtype
    signed = np.dtype(f"i{dtype.itemsize}")
    if dtype_class(dtype) == "uint":
        return bitcast_convert_type(xor(x, full_like(x, np.iinfo(signed).max + 1)), dtype=signed)
    x = select_n(eq(x, x), full_like(x, np.nan), x)
    return flipped(bitcast_convert_type(x, dtype=signed))


def flipped(bits: Any) -> Any:
    """Flip the bits after the sign of negative numbers; twice is the identity."""
    all_bits = full_like(bits, np.iinfo(typeof(bits).dtype).max)
    return select_n(lt(bits, 0), bits, xor(bits, all_bits))


def one_zero(x: Any) -> Any:
    """Return x with 0 in place of -0."""
    return select_n(eq(x, 0), x, full_like(x, 0))
