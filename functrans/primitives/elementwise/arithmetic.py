"""Real arithmetic that is not transcendental: powers, remainders, rounding, maximum and minimum."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from functrans.ir.program import Literal
from functrans.ir.types import ArrayType, dtype_class
from functrans.mlir import chlo, hlo
from functrans.primitives.base import sum_of
from functrans.primitives.elementwise.complex_numbers import abs_, complex_, imag, real
from functrans.primitives.elementwise.conversion import cast
from functrans.primitives.elementwise.families import (
    ANY,
    FLOATS,
    NUMBERS,
    REAL,
    Binary,
    Elementwise,
    Unary,
    div,
    eq,
    full_like,
    mul,
    neg,
    splat,
    sub,
)
from functrans.primitives.elementwise.selection import one_for_zero, select_n
from functrans.primitives.elementwise.transcendental import log
from functrans.trace import typeof


class Sign(Unary):
    """-1, 0 or 1; zeros and NaN are unchanged; x / |x| for complex numbers, which turns with x."""

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        (x,), (dx,) = primals, tangents
        if dtype_class(typeof(x).dtype) != "complex":
            return None
        turned = sub(mul(real(out), imag(dx)), mul(imag(out), real(dx)))
        angle = div(turned, one_for_zero(abs_(x)))
        return complex_(neg(mul(imag(out), angle)), mul(real(out), angle))


class Round(Unary):
    """Round to the nearest integer; halfway cases by `rounding_method`: 0 away from zero, 1 to
    even."""

    def abstract_eval(self, x: ArrayType, *, rounding_method: int) -> ArrayType:
        return super().abstract_eval(x)

    def reference(self, x: Any, *, rounding_method: int) -> Any:
        even = np.rint(x)
        if rounding_method == 1:
            return np.asarray(even).astype(x.dtype, copy=False)
        half = np.abs(x - np.trunc(x)) == 0.5
        away = np.trunc(x) + np.sign(x)
        return np.where(half, away, even).astype(x.dtype)

    def lower(self, ctx: Any, x: Any, *, rounding_method: int) -> Any:
        return hlo.round_nearest_even(x) if rounding_method == 1 else hlo.round_nearest_afz(x)


class Extremum(Binary):
    """The larger (`max`) or the smaller; NaN if one is NaN; complex numbers in lexicographic order.
    Equal operands share the tangent equally."""

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        wins = [eq(v, out) for v in primals]
        total = None
        for dx, mine, other in zip(tangents, wins, wins[::-1], strict=True):
            if dx is not None:
                total = sum_of(total, mul(dx, self._share(mine, other, out)))
        return total

    def _share(self, mine: Any, other: Any, out: Any) -> Any:
        whole = select_n(other, full_like(out, 1), full_like(out, 0.5))
        return select_n(mine, full_like(out, 0), whole)


class Rem(Binary):
    """The remainder of x / y rounded towards zero, with the sign of x; x if y is integer zero."""

    def reference(self, x: Any, y: Any) -> Any:
        if dtype_class(x.dtype) == "float":
            return np.asarray(np.fmod(x, y)).astype(x.dtype, copy=False)
        safe = np.where(y == 0, 1, y).astype(x.dtype)
        return np.where(y == 0, x, np.fmod(x, safe)).astype(x.dtype)

    def lower(self, ctx: Any, x: Any, y: Any) -> Any:
        return ctx.quotient(self, x, y)

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        dx, dy = tangents
        if dy is None:
            return dx
        quotient = div(*primals)
        whole = mul(sign(quotient), floor(abs_(quotient)))
        return sum_of(dx, mul(dy, neg(whole)))


class Pow(Binary):
    """x to the power y; y has the dtype of x or is an integer."""

    def abstract_eval(self, x: ArrayType, y: ArrayType) -> ArrayType:
        self.check_dtype((x,))
        if dtype_class(y.dtype) not in ("int", "uint"):
            return super().abstract_eval(x, y)
        self.check_equal((x, y.update(dtype=x.dtype)))
        return x.update(weak_type=x.weak_type and y.weak_type)

    def reference(self, x: Any, y: Any) -> Any:
        return np.asarray(np.power(x, y.astype(x.dtype))).astype(x.dtype, copy=False)

    def numpy_source(self, w: Any, x: Any, y: Any) -> Any:
        dtype = w.out_types[0].dtype
        return f"{x.full} ** {y if y.dtype == dtype else f'{y.full}.astype({w.dtype(dtype)})'}"

    def lower(self, ctx: Any, x: Any, y: Any) -> Any:
        tx, ty = ctx.in_types
        if ty.dtype != tx.dtype:
            y = hlo.convert(ctx.type(ty.update(dtype=tx.dtype)), y)
        return hlo.power(x, y)


def _pow_by_x(x: Any, y: Any, out: Any) -> Any:
    if typeof(y).dtype == typeof(x).dtype:
        less = splat(y.value - 1, y.type) if y.__class__ is Literal else sub(y, 1)
        return mul(y, pow_(x, less))
    # an integer exponent of zero: the derivative is 0, also at x = 0
    y = cast(y, typeof(x).dtype)
    slope = mul(one_for_zero(y), pow_(x, sub(y, 1)))
    return select_n(eq(y, 0), slope, full_like(slope, 0))


def _pow_by_y(x: Any, y: Any, out: Any) -> Any:
    """For x = 0 the result is 0, although log(0) is infinite."""
    return mul(log(one_for_zero(x)), out)


class IntegerPow(Elementwise):
    """x to the power of a Python integer, by repeated squaring."""

    name: str = "integer_pow"
    takes: tuple[str, ...] = NUMBERS

    def abstract_eval(self, x: ArrayType, *, y: int) -> ArrayType:
        self.check_dtype((x,))
        if y < 0 and dtype_class(x.dtype) not in FLOATS:
            raise self.mismatch((x,), f"integers cannot be raised to the negative power {y}")
        return x

    def reference(self, x: Any, *, y: int) -> Any:
        if dtype_class(x.dtype) not in FLOATS:
            return self._multiply(x, np.ones_like(x), y, np.multiply)
        wide = x.astype(np.result_type(x.dtype, np.float64))  # np.power is ten times slower
        made = self._multiply(wide, np.ones_like(wide), abs(y), np.multiply)
        return (made if y >= 0 else 1 / made).astype(x.dtype)

    def numpy_source(self, w: Any, x: Any, *, y: int) -> Any:
        dtype = w.out_types[0].dtype
        if w.is_own(dtype):
            return f"{x.full} ** {y}"
        return w.reference(self, (x,), {"y": y})

    def lower(self, ctx: Any, x: Any, *, y: int) -> Any:
        if y > 0:
            return self._multiply(x, None, y, lambda *xs: ctx.op("stablehlo.multiply", xs))
        one = ctx.full(1, ctx.in_types[0])
        return hlo.divide(one, self._multiply(x, None, -y, hlo.multiply)) if y else one

    def _multiply(self, x: Any, product: Any, y: int, multiply: Any) -> Any:
        while y:
            if y & 1:
                product = x if product is None else multiply(product, x)
            y >>= 1
            if y:
                x = multiply(x, x)
        return product

    def jvp(self, primals: Any, tangents: Any, out: Any, *, y: int) -> Any:
        (x,), (dx,) = primals, tangents
        if y == 0:
            return None
        if y == 1:
            return dx
        return mul(dx, mul(x if y == 2 else self(x, y=y - 1), y))


sign: Sign = Sign("sign", NUMBERS, via={"uint": jax.lax.sign})
floor: Unary = Unary("floor", ("float",))
ceil: Unary = Unary("ceil", ("float",))
round_: Round = Round("round", ("float",), op=hlo.round_nearest_even)
is_finite: Unary = Unary("is_finite", ("float",), numpy=np.isfinite, result=lambda dtype: np.dtype(bool))

max_: Extremum = Extremum("max", ANY, numpy=np.maximum, op=hlo.maximum, via={"complex": jax.lax.max})
min_: Extremum = Extremum("min", ANY, numpy=np.minimum, op=hlo.minimum, via={"complex": jax.lax.min})
rem: Rem = Rem("rem", REAL, op=hlo.remainder, numpy=np.fmod)
pow_: Pow = Pow("pow", FLOATS, (_pow_by_x, _pow_by_y), op=hlo.power, numpy=np.power, flops=10)
integer_pow: IntegerPow = IntegerPow()
nextafter: Binary = Binary(
    "nextafter", ("float",), (lambda x, y, out: full_like(x, 1), None), op=chlo.next_after
)
