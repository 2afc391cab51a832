"""Products that round their operands to narrow floats with a scale for each block of a row.

    x [B, M, K]  ->  elements [B, M, K] of 8 or 4 bits, scales [B, M, K / block]

mxfp8   scales are powers of two; cotangents are rounded like operands.
nvfp4   scales are floats of 8 bits, times one factor for the whole array; cotangents are not
        rounded, and are zero where an operand was out of range (Bengio et al. 2013, "straight
        through").
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from functrans.ir.types import ArrayType, dtype_class
from functrans.lax.arguments import axis_index
from functrans.lax.contraction import dot_general
from functrans.nn.scaled import FLOAT32, ROWS, scaled_matmul
from functrans.numpy import reductions
from functrans.numpy.promotion import array_of, cast, invalid, mismatch, user_dtype
from functrans.numpy.selecting import clip, where
from functrans.numpy.ufuncs import (
    absolute,
    add,
    bitwise_and,
    divide,
    greater,
    less,
    less_equal,
    logical_and,
    maximum,
    multiply,
)
from functrans.primitives.bitwise import shift_right_logical
from functrans.primitives.call import composite
from functrans.primitives.conversion import bitcast_convert_type
from functrans.primitives.custom import custom_vjp_call
from functrans.primitives.elementwise import full_like
from functrans.primitives.rules import Pullback, VjpRule
from functrans.primitives.selection import one_for_zero, optimization_barrier
from functrans.primitives.shape import kept_axes, reshape, transpose
from functrans.trace import bind, full, typeof

__all__ = ["get_scaled_dot_general_config", "scaled_dot_general"]

UINT32 = np.dtype(np.uint32)
_RESULTS = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


@dataclass(frozen=True, eq=False)
class BlockScaleConfig:
    """How an operand is rounded; made by `get_scaled_dot_general_config`."""

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any = None
    infer_only: bool = False


def get_scaled_dot_general_config(mode: str, global_scale: Any = None) -> BlockScaleConfig:
    """Say how `scaled_dot_general` rounds an operand.

    Arguments:
      mode: "mxfp8", blocks of 32 elements of float8_e4m3fn with scales of float8_e8m0fnu, or
        "nvfp4", blocks of 16 elements of float4_e2m1fn with scales of float8_e4m3fn.
      global_scale: of "nvfp4", one float32 that all elements are divided by; None: 1.

    Raises:
      InvalidArgument: another mode.

    Source: `jax.nn.get_scaled_dot_general_config`; OCP Microscaling Formats (MX) 1.0.

    Example:
      >>> import functrans as ft
      >>> ft.nn.get_scaled_dot_general_config("mxfp8").block_size
      32
    """
    if mode == "mxfp8":
        return BlockScaleConfig(mode, 32, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu)
    if mode == "nvfp4":
        one = full(1, ArrayType((1,), FLOAT32)) if global_scale is None else global_scale
        return BlockScaleConfig(mode, 16, ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn, one)
    raise invalid("get_scaled_dot_general_config", f"knows mxfp8 and nvfp4, got mode={mode!r}")


def scaled_dot_general(
    lhs: Any, rhs: Any, dimension_numbers: Any, preferred_element_type: Any = np.float32,
    configs: Sequence[Any] | None = None, implementation: str | None = None,
) -> Any:  # fmt: skip
    """Contract axes of two arrays that are rounded to narrow floats with a scale for each block.

    The rounded factors are multiplied in float32 (`scaled_matmul`), on every platform; JAX's runs
    on few GPUs, by a kernel of cuDNN. The blocks lie along the contracted axes, in the order in
    which they are named. A block of zeros is zeros; scales of mxfp8 are at least 2 ** -126.

    Arguments:
      lhs, rhs: floating arrays.
      dimension_numbers: as in `lax.dot_general`.
      preferred_element_type: of the result: float32, bfloat16 or float16.
      configs: how lhs, rhs and the cotangent are rounded (`get_scaled_dot_general_config`), all in
        one mode; None: nothing is rounded.
      implementation: deprecated, without effect.

    Returns:
      As `lax.dot_general`. Derivatives pass the rounding as if it were not there. With mxfp8 the
      cotangent is rounded too, so there is reverse mode only.

    Raises:
      InvalidArgument: configs of several modes; contracted axes that hold no whole blocks.
      TypeMismatch: operands that are not floating; another preferred_element_type.

    Source: `jax.nn.scaled_dot_general`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> configs = [ft.nn.get_scaled_dot_general_config("mxfp8")] * 3
      >>> x, rows = jnp.full((1, 32), 0.3), (((1,), (1,)), ((), ()))
      >>> print(ft.nn.scaled_dot_general(x, x, rows, configs=configs))
      [[3.125]]
    """
    name = "scaled_dot_general"
    if implementation is not None:
        warnings.warn(
            "implementation= has no effect: the platform decides", DeprecationWarning, stacklevel=2
        )
    if configs is None:
        return dot_general(
            lhs, rhs, dimension_numbers, preferred_element_type=preferred_element_type
        )
    dtype = None if preferred_element_type is None else user_dtype(preferred_element_type)
    if dtype not in _RESULTS:
        raise mismatch(
            name, "gives float32, bfloat16 or float16, got preferred_element_type="
            f"{preferred_element_type!r}",
        )  # fmt: skip
    x, y = array_of(lhs, name), array_of(rhs, name, 1)
    for t in (typeof(x), typeof(y)):
        if dtype_class(t.dtype) != "float":
            raise mismatch(name, f"rounds floating operands, got {t}")
    formats = tuple([_Format.of(c) for c in configs])
    if len(formats) < 2 or len({f.mode for f in formats}) > 1:
        raise invalid(
            name, "takes configs of one mode, for lhs, rhs and the cotangent, got "
            f"{[f.mode for f in formats]}",
        )  # fmt: skip
    how = _Product(formats[0], formats[1], formats[-1], dtype)
    factors = [_factor(c.global_scale) for c in configs[:2]] if how.fine else []
    return _contract(x, y, *factors, how=how, dims=_axes(dimension_numbers, x, y))


def _factor(x: Any) -> Any:
    x = array_of(x, "scaled_dot_general")
    if typeof(x).size != 1:
        raise mismatch("scaled_dot_general", f"takes one number for global_scale, got {typeof(x)}")
    return cast(reshape(x, shape=()), FLOAT32)


def _axes(dimension_numbers: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """For each operand: the contracted axes, the stacked ones."""
    (x_over, y_over), (x_stack, y_stack) = dimension_numbers
    n, m = typeof(x).ndim, typeof(y).ndim

    def named(axes: Any, ndim: int) -> tuple[int, ...]:
        return tuple([axis_index(a, ndim, "scaled_dot_general") for a in axes])

    return (named(x_over, n), named(x_stack, n)), (named(y_over, m), named(y_stack, m))


# --- from the axes of the user to rows ------------------------------------------------------------


@composite
def _contract(x: Any, y: Any, *factors: Any, how: _Product, dims: Any) -> Any:
    a, stack, kept_x = _rows(x, *dims[0])
    b, other, kept_y = _rows(y, *dims[1])
    s, t = typeof(a).shape, typeof(b).shape
    if stack != other or s[2] != t[2]:
        raise mismatch(
            "scaled_dot_general", f"got {typeof(x)} and {typeof(y)}, of which dimension_numbers"
            f" {dims} name axes that differ in size",
        )  # fmt: skip
    (out,) = bind(
        custom_vjp_call,
        [a, b, *factors],
        {"program": how.run, "rule": VjpRule(how.forward, "scaled_dot_general")},
    )
    return reshape(out, shape=(*stack, *kept_x, *kept_y))


def _rows(x: Any, over: Sequence[int], stack: Sequence[int]) -> tuple[Any, list[int], list[int]]:
    """[B, M, K] of the stacked, the kept and the contracted axes; the sizes of the first two."""
    shape = typeof(x).shape
    kept = kept_axes(len(shape), (*stack, *over))
    sizes = [[shape[i] for i in axes] for axes in (stack, kept, over)]
    x = transpose(x, permutation=(*stack, *kept, *over))
    return reshape(x, shape=tuple(map(math.prod, sizes))), sizes[0], sizes[1]


# --- the product of rows, and its derivatives -----------------------------------------------------


@dataclass(frozen=True)
class _Format:
    """What a config says of the elements and scales of one array."""

    mode: str
    block: int
    element: Any
    scale: Any

    @staticmethod
    def of(config: Any) -> _Format:
        if config.mode not in ("mxfp8", "nvfp4"):
            raise invalid("scaled_dot_general", f"knows mxfp8 and nvfp4, got mode={config.mode!r}")
        return _Format(
            config.mode, config.block_size, np.dtype(config.data_type), np.dtype(config.scale_type)
        )

    def round(self, x: Any) -> tuple[Any, Any]:
        """Elements [B, M, K] and scales [B, M, K / block] of an array [B, M, K]."""
        shape = typeof(x).shape
        blocks, rest = divmod(shape[2], self.block)
        if rest or not blocks:
            raise invalid(
                "scaled_dot_general", f"{self.mode} rounds blocks of {self.block}, got {shape[2]} "
                "contracted elements (those of the derivatives of mxfp8 are its other axes)",
            )  # fmt: skip
        x = reshape(x, shape=(*shape[:2], blocks, self.block))
        limit = _largest(self.element)
        steps = divide(reductions.max(absolute(x), axis=3, keepdims=True), limit)
        scales = self._scales(steps)
        steps = one_for_zero(cast(scales, FLOAT32))
        elements = cast(clip(divide(x, steps), -limit, limit), self.element)
        return reshape(elements, shape=shape), reshape(scales, shape=(*shape[:2], blocks))

    def _scales(self, steps: Any) -> Any:
        if self.mode == "nvfp4":
            return optimization_barrier(cast(clip(steps, 0, _largest(self.scale)), self.scale))[0]
        # The next power of two: the exponent, one more where there is a fraction. Those that XLA
        # takes for zero on CPU are left out.
        bits = bitcast_convert_type(cast(steps, FLOAT32), dtype=UINT32)
        exponent = shift_right_logical(bits, full_like(bits, 23))
        up = logical_and(greater(bitwise_and(bits, 0x7FFFFF), 0), less(exponent, 0xFE))
        exponent = maximum(add(exponent, cast(up, UINT32)), 1)
        return bitcast_convert_type(cast(exponent, np.dtype(np.uint8)), dtype=self.scale)

    def within(self, x: Any, ct: Any, factor: Any) -> Any:
        """The cotangent, and zero where x is beyond what its rounding can hold."""
        bound = multiply(factor, _largest(self.element) * _largest(self.scale))
        return where(less_equal(absolute(x), bound), ct, 0)


@dataclass(frozen=True)
class _Product:
    """[B, M, K], [B, N, K], factors -> [B, M, N], the rows rounded. The factors of nvfp4 are those
    of the whole arrays."""

    x: _Format
    y: _Format
    ct: _Format
    dtype: Any

    @property
    def fine(self) -> bool:
        return self.x.mode == "nvfp4"

    def run(self, x: Any, y: Any, *factors: Any) -> list[Any]:
        if not self.fine:
            return [_multiplied(self.x.round(x), self.y.round(y), self.dtype)]
        x, y = divide(x, factors[0]), divide(y, factors[1])
        out = _multiplied(self.x.round(x), self.y.round(y), FLOAT32)
        return [cast(multiply(out, multiply(*factors)), self.dtype)]

    def forward(self, primals: Any, active: Any) -> tuple[Any, Any, Pullback]:
        outs = self.run(*primals)
        types = tuple([typeof(z) for z in primals])
        back = Pullback(self.back, types, (typeof(outs[0]),), "scaled_dot_general")
        return outs, primals, back

    def back(self, residuals: Any, cts: Any) -> list[Any]:
        x, y, *factors = residuals
        (ct,) = cts
        if ct is None:
            return [None] * len(residuals)
        dx = self._cotangent(ct, _turned(y), self.y)
        dy = self._cotangent(_turned(ct), _turned(x), self.x)
        if self.fine:
            dx, dy = self.x.within(x, dx, factors[0]), self.y.within(y, dy, factors[1])
        found = [cast(d, typeof(z).dtype) for d, z in ((dx, x), (dy, y))]
        return [*found, *[None] * len(factors)]

    def _cotangent(self, ct: Any, other: Any, format: _Format) -> Any:
        if not self.fine:
            return _multiplied(self.ct.round(ct), format.round(other), self.dtype)
        return dot_general(ct, other, ROWS, preferred_element_type=self.dtype)


def _multiplied(x: tuple[Any, Any], y: tuple[Any, Any], dtype: Any) -> Any:
    return scaled_matmul(x[0], y[0], x[1], y[1], preferred_element_type=dtype)


def _turned(x: Any) -> Any:
    return transpose(x, permutation=(0, 2, 1))


def _largest(dtype: Any) -> float:
    return float(ml_dtypes.finfo(dtype).max)
