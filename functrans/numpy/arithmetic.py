"""Functions composed of a few primitives: floor division, remainders and powers."""

from __future__ import annotations

import operator
from typing import Any

from functrans.ir.types import ArrayType, dtype_class, is_inexact
from functrans.numpy import primitives
from functrans.numpy.primitives import select_n
from functrans.numpy.promotion import (
    BOOL,
    align,
    broadcast_shape,
    cast,
    expand,
    mismatch,
    scalar,
    value_of,
)
from functrans.numpy.ufuncs import numeric
from functrans.trace import Tracer, concrete_value, typeof
from functrans.typing import Array, ArrayLike

__all__ = ["divmod", "floor_divide", "mod", "pow", "power", "remainder"]


def same(x: Any, value: Any) -> Any:
    """Return a literal of x's type."""
    return scalar(value, typeof(x))


def beside(t: ArrayType) -> ArrayType:
    """Return the type of JAX's constants that are combined with type t: weakly typed, like a Python
    number, only if t is a weakly typed scalar."""
    return t.strong() if t.shape else t


def constant(x: Any, value: Any) -> Any:
    """Return a literal of x's shape, with the type of a constant that is combined with x."""
    return scalar(value, beside(typeof(x)))


# --- division -------------------------------------------------------------------------------------


def floor_divide(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return x / y rounded towards minus infinity.

    Source: `jax.numpy.floor_divide`.
    """
    x, y = numeric(*align(x, y, "floor_divide"))
    kind = dtype_class(typeof(x).dtype)
    if kind == "complex":
        raise mismatch("floor_divide", f"takes real numbers, not {typeof(x)}")
    if kind == "float":
        return _float_divmod(x, y)[0]
    quotient = primitives.div(x, y)
    if kind == "uint":
        return quotient
    signs_differ = primitives.ne(primitives.sign(x), primitives.sign(y))
    inexact = primitives.ne(primitives.rem(x, y), same(x, 0))
    return select_n(
        primitives.and_(signs_differ, inexact), quotient, primitives.sub(quotient, same(x, 1))
    )


def _float_divmod(x: Any, y: Any) -> tuple[Any, Any]:
    rest = primitives.rem(x, y)
    zero = same(x, 0)
    # division by zero: the infinity of x / y, not the NaN of the remainder
    whole = select_n(primitives.eq(y, zero), primitives.sub(x, rest), x)
    quotient = primitives.div(whole, y)
    correct = primitives.and_(
        primitives.ne(rest, zero), primitives.ne(primitives.sign(y), primitives.sign(rest))
    )
    rest = select_n(correct, rest, primitives.add(rest, y))
    quotient = select_n(correct, quotient, primitives.sub(quotient, same(x, 1)))
    return primitives.round_(quotient, rounding_method=0), rest


def _rest(x: Any, y: Any) -> Any:
    """Return `lax.rem`, but 0 for integers divided by zero."""
    if not is_inexact(typeof(x).dtype):
        y = select_n(primitives.eq(y, same(y, 0)), y, same(y, 1))
    return primitives.rem(x, y)


def remainder(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the remainder of `floor_divide`; it has the sign of y.

    Source: `jax.numpy.remainder`.
    """
    x, y = numeric(*align(x, y, "remainder"))
    rest = _rest(x, y)
    if dtype_class(typeof(x).dtype) == "uint":
        return rest
    zero = same(x, 0)
    signs_differ = primitives.ne(primitives.lt(rest, zero), primitives.lt(y, zero))
    correct = primitives.and_(signs_differ, primitives.ne(rest, zero))
    return select_n(correct, rest, primitives.add(rest, y))


mod = remainder


def divmod(x: Any, y: Any, /) -> tuple[Any, Any]:
    """Return (floor_divide, remainder).

    Source: `jax.numpy.divmod`.
    """
    x, y = numeric(*align(x, y, "divmod"))
    if dtype_class(typeof(x).dtype) == "float":
        return _float_divmod(x, y)
    return floor_divide(x, y), remainder(x, y)


# --- powers ---------------------------------------------------------------------------------------


def power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return x to the power y. For a Python or concrete integer y it uses repeated multiplication,
    which is exact and differentiable everywhere.

    Source: `jax.numpy.power`.

    Raises:
      TypeMismatch: x is an integer and y a negative integer.
    """
    exponent = _static_integer(y)
    if exponent is not None:
        if x.__class__ is not Tracer or x.type.dtype is BOOL:
            (x,) = numeric(value_of(x, "power"))
        if exponent < 0 and not is_inexact(typeof(x).dtype):
            raise mismatch(
                "power",
                f"integers cannot be raised to negative powers, got {typeof(x)} ** {exponent}",
                "Cast the base to float.",
            )
        return primitives.integer_pow(x, y=exponent)
    x, y = value_of(x, "power"), value_of(y, "power", 1)
    kinds = dtype_class(typeof(x).dtype), dtype_class(typeof(y).dtype)
    if kinds[0] in ("float", "complex") and kinds[1] in ("int", "uint"):
        # pow(float, int): differentiable in x also where x is 0
        shape = broadcast_shape([typeof(x).shape, typeof(y).shape], "power", [typeof(x), typeof(y)])
        return primitives.pow_(expand(x, shape), expand(y, shape))
    x, y = numeric(*align(x, y, "power"))
    if not is_inexact(typeof(x).dtype):
        return _integer_power(x, y)
    return primitives.pow_(x, y)


pow = power


def _static_integer(y: Any) -> int | None:
    if y.__class__ is int:
        return y
    if y.__class__ is Tracer or y.__class__ is float:
        return None
    y = concrete_value(y) if not isinstance(y, Tracer) else None
    try:
        return operator.index(y)
    except TypeError:
        return None


def _integer_power(x: Any, y: Any) -> Any:
    """Square repeatedly, six times: an exponent of 64 overflows every integer type."""
    x = cast(x, typeof(x).dtype)
    result = one = same(x, 1)
    zero = same(x, 0)
    for step in range(6):
        odd = primitives.ne(primitives.and_(y, one), zero)
        result = select_n(odd, result, primitives.mul(result, x))
        if step < 5:
            x = primitives.mul(x, x)
            y = primitives.shift_right_logical(y, one)
    return result
