"""Real arithmetic that is not transcendental: powers, remainders, rounding, maximum and minimum."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from functrans.ir.program import Literal
from functrans.ir.types import ArrayType, dtype_class
from functrans.mlir import chlo, hlo
from functrans.primitives.base import sum_of
from functrans.primitives.elementwise import families as ew
from functrans.primitives.elementwise.complex_numbers import abs_, complex_, imag, real
from functrans.primitives.elementwise.conversion import cast
from functrans.primitives.elementwise.selection import one_for_zero, select_n
from functrans.primitives.elementwise.transcendental import log
from functrans.trace import typeof


class Sign(ew.Unary):
    """-1, 0 or 1; zeros and NaN are unchanged; x / |x| for complex numbers, which turns with x."""

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        (x,), (dx,) = primals, tangents
        if dtype_class(typeof(x).dtype) != "complex":
            return None
        turned = ew.sub(ew.mul(real(out), imag(dx)), ew.mul(imag(out), real(dx)))
        angle = ew.div(turned, one_for_zero(abs_(x)))
        return complex_(ew.neg(ew.mul(imag(out), angle)), ew.mul(real(out), angle))


class Round(ew.Unary):
    """Round to the nearest integer; halfway cases by `rounding_method`: 0 away from zero, 1 to even."""

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


class Extremum(ew.Binary):
    """The larger (`max`) or the smaller; NaN if one is NaN; complex numbers in lexicographic order.
    Equal operands share the tangent equally."""

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        wins = [ew.eq(v, out) for v in primals]
        total = None
        for dx, mine, other in zip(tangents, wins, wins[::-1], strict=True):
            if dx is not None:
                total = sum_of(total, ew.mul(dx, self._share(mine, other, out)))
        return total

    def _share(self, mine: Any, other: Any, out: Any) -> Any:
        whole = select_n(other, ew.full_like(out, 1), ew.full_like(out, 0.5))
        return select_n(mine, ew.full_like(out, 0), whole)


class Rem(ew.Binary):
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
        quotient = ew.div(*primals)
        whole = ew.mul(sign(quotient), floor(abs_(quotient)))
        return sum_of(dx, ew.mul(dy, ew.neg(whole)))


class Pow(ew.Binary):
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
        less = ew.splat(y.value - 1, y.type) if y.__class__ is Literal else ew.sub(y, 1)
        return ew.mul(y, pow_(x, less))
    # an integer exponent of zero: the derivative is 0, also at x = 0
    y = cast(y, typeof(x).dtype)
    slope = ew.mul(one_for_zero(y), pow_(x, ew.sub(y, 1)))
    return select_n(ew.eq(y, 0), slope, ew.full_like(slope, 0))


def _pow_by_y(x: Any, y: Any, out: Any) -> Any:
    """For x = 0 the result is 0, although log(0) is infinite."""
    return ew.mul(log(one_for_zero(x)), out)


class IntegerPow(ew.Elementwise):
    """x to the power of a Python integer, by repeated squaring."""

    name: str = "integer_pow"
    takes: tuple[str, ...] = ew.NUMBERS

    def abstract_eval(self, x: ArrayType, *, y: int) -> ArrayType:
        if y < 0 and dtype_class(x.dtype) not in ew.FLOATS:
            problem = f"integers cannot be raised to the negative power {y}"
            raise self.mismatch((x,), problem, "Cast the base to float.")
        return x

    def reference(self, x: Any, *, y: int) -> Any:
        if dtype_class(x.dtype) not in ew.FLOATS:
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
        return ew.mul(dx, ew.mul(x if y == 2 else self(x, y=y - 1), y))


sign: Sign = Sign("sign", ew.NUMBERS, via={"uint": jax.lax.sign})
floor: ew.Unary = ew.Unary("floor", ("float",))
ceil: ew.Unary = ew.Unary("ceil", ("float",))
round_: Round = Round("round", ("float",), op=hlo.round_nearest_even)
is_finite: ew.Unary = ew.Unary(
    "is_finite", ("float",), numpy=np.isfinite, result=lambda dtype: np.dtype(bool)
)

max_: Extremum = Extremum("max", ew.ANY, numpy=np.maximum, op=hlo.maximum, via={"complex": jax.lax.max})
min_: Extremum = Extremum("min", ew.ANY, numpy=np.minimum, op=hlo.minimum, via={"complex": jax.lax.min})
rem: Rem = Rem("rem", ew.REAL, op=hlo.remainder, numpy=np.fmod)
pow_: Pow = Pow("pow", ew.FLOATS, (_pow_by_x, _pow_by_y), op=hlo.power, numpy=np.power, flops=10)
integer_pow: IntegerPow = IntegerPow()
nextafter: ew.Binary = ew.Binary(
    "nextafter", ("float",), (lambda x, y, out: ew.full_like(x, 1), None), op=chlo.next_after
)
