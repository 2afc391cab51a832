"""Discrete Fourier transforms along the last axes.

    y_k = sum_j x_j exp(-2 pi i j k / n)

`kind` is FFT; IFFT, its inverse; RFFT, of real numbers, with the first n/2 + 1 values of the last
axis; or IRFFT, its inverse. `lengths`: the n of each transformed axis.
"""

from __future__ import annotations

from math import log2, prod
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.ir.types import ArrayType
from functrans.mlir import hlo
from functrans.primitives.base import Cost, Primitive, bytes_of
from functrans.primitives.elementwise.complex_numbers import complex_dtype, conj
from functrans.primitives.elementwise.conversion import real_dtype
from functrans.primitives.elementwise.families import mul
from functrans.primitives.shape.joining import concatenate
from functrans.primitives.shape.moving import broadcast_in_dim
from functrans.trace import literal, typeof


class FFT(Primitive):
    """The discrete Fourier transform along the last axes."""

    name: str = "fft"
    linear_in: tuple[int, ...] = (0,)
    axis_params: tuple[str, ...] = ()

    def abstract_eval(self, x: ArrayType, *, kind: str, lengths: tuple[int, ...]) -> ArrayType:
        n = len(lengths)
        wanted = ("float32", "float64") if kind == "RFFT" else ("complex64", "complex128")
        if x.dtype.name not in wanted:
            raise self.mismatch((x,), f"{kind} takes {' or '.join(wanted)}, not {x.dtype}")
        if not 1 <= n <= min(x.ndim, 3):
            raise self.mismatch(
                (x,), f"lengths {lengths} must be one to three, of axes of x", "", errors.ShapeMismatch
            )
        half = (*lengths[:-1], lengths[-1] // 2 + 1)
        taken = half if kind == "IRFFT" else lengths
        if x.shape[-n:] != taken:
            problem = f"{kind} with lengths {lengths} takes last axes of {taken}"
            raise self.mismatch((x,), problem, "", errors.ShapeMismatch)
        made = half if kind == "RFFT" else lengths
        dtype = real_dtype(x.dtype) if kind == "IRFFT" else complex_dtype(x.dtype)
        return x.update(shape=(*x.shape[:-n], *made), dtype=dtype)

    def reference(self, x: Any, *, kind: str, lengths: Any) -> Any:
        t = self.abstract_eval(ArrayType(x.shape, x.dtype), kind=kind, lengths=lengths)
        if not x.size or not t.size:
            return np.zeros(t.shape, t.dtype)
        axes = range(-len(lengths), 0)
        return getattr(np.fft, f"{kind.lower()}n")(x, lengths, axes).astype(t.dtype)

    def numpy_source(self, w: Any, x: Any, *, kind: str, lengths: Any) -> Any:
        t = w.out_types[0]
        if not x.size or not t.size:
            return f"np.zeros({t.shape}, {w.dtype(t.dtype)})"
        axes = tuple(range(-len(lengths), 0))
        return f"np.fft.{kind.lower()}n({x.full}, {lengths}, {axes}).astype({w.dtype(t.dtype)})"

    def lower(self, ctx: Any, x: Any, *, kind: str, lengths: Any) -> Any:
        if not all(ctx.in_types[0].shape) or not all(lengths):
            return ctx.full(0, ctx.out_types[0])
        if kind == "IRFFT" and len(lengths) > 1:  # some platforms differ from NumPy
            return ctx.via_jax(lambda x: jax.lax.fft(x, kind, lengths), x)[0]
        return hlo.fft(x, hlo.FftTypeAttr.get(kind), lengths)

    def transpose(self, ct: Any, x: Any, *, kind: str, lengths: Any) -> Any:
        """FFT and IFFT are symmetric matrices. An RFFT has half of the numbers that its IRFFT adds up:
        each except the first and the middle one counts twice there, as itself and as its conjugate."""
        how = {"lengths": lengths}
        if kind in ("FFT", "IFFT"):
            return (self(ct, kind=kind, **how),)
        if kind == "RFFT":
            return (self(_weighted(conj(ct), lengths[-1], prod(lengths), 0.5), kind="IRFFT", **how),)
        return (_weighted(conj(self(ct, kind="RFFT", **how)), lengths[-1], 1 / prod(lengths), 2.0),)

    def cost(self, in_types: Any, out_types: Any, *, kind: str, lengths: Any) -> Cost:
        size = max(in_types[0].size, out_types[0].size)
        return Cost(int(5 * size * log2(max(2, prod(lengths)))), bytes_of(*in_types, *out_types))


def _weighted(y: Any, n: int, scale: float, inner: float) -> Any:
    """Return the first half of a transform of n numbers times `scale`, all but the first and the middle
    one also times `inner`."""
    t = typeof(y)
    sizes = [1, (n - 1) // 2, 1 - n % 2]
    numbers = zip((scale, inner * scale, scale), sizes, strict=True)
    parts = [literal(v, ArrayType((k,), t.dtype)) for v, k in numbers if k]
    weights = concatenate(*parts, dimension=0)
    return mul(y, broadcast_in_dim(weights, shape=t.shape, dimensions=(t.ndim - 1,)))


fft: FFT = FFT()
