"""Those elementwise functions of `jax.lax` that are traced most often, and `stop_gradient`; the
others are JAX's.

Scalars and axes of size 1 are broadcast to the shape of the other operand, as in JAX; dtypes must
be equal (`functrans.numpy` promotes).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from jax.lax import AccuracyMode, RoundingMethod, Tolerance

from functrans import errors
from functrans import pytrees as tree
from functrans.ir.types import ArrayType, canonical_dtype, is_key_dtype
from functrans.lax.arguments import check_fits, dtype_asked, integer, member, spread
from functrans.primitives.base import PRIMITIVES
from functrans.primitives.elementwise import selection
from functrans.primitives.elementwise.conversion import cast, strong
from functrans.primitives.elementwise.families import splat
from functrans.runtime import F
from functrans.trace import Tracer, bind, full, typeof
from functrans.typing import Array, ArrayLike, DTypeLike, PyTree

__all__ = [
    "AccuracyMode", "RoundingMethod", "Tolerance", "abs", "add", "cbrt", "ceil", "cos", "div", "eq",
    "erf", "exp", "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "le", "log", "log1p", "log2",
    "logistic", "lt", "max", "min", "mul", "ne", "neg", "one_minus_square", "pow", "random_gamma_grad",
    "round", "rsqrt", "select_n", "sign", "sin", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh",
]  # fmt: skip


# Defined before this module shadows the built-ins with array functions.
_Numbers = (bool, int, float, complex, np.generic)


# --- operands -------------------------------------------------------------------------------------


def operand(x: Any, shape: tuple[int, ...] = ()) -> Any:
    """Convert a value to an operand of an elementwise primitive: numbers become literals of a shape."""
    if x.__class__ is Tracer:
        return x
    if isinstance(x, _Numbers):
        t = typeof(x)
        if x.__class__ is int:
            check_fits(x, t)
        return splat(x, ArrayType(shape, t.dtype, t.weak_type) if shape else t)
    made = getattr(x, "__jax_array__", None)  # None also for JAX tracers
    return x if made is None else made()


def operands(x: Any, y: Any) -> tuple[Any, Any]:
    """Broadcast two values to equal shape, as far as JAX's lax does."""
    if x.__class__ is Tracer and y.__class__ is Tracer and x.type is y.type:
        return x, y
    if isinstance(y, _Numbers):
        x = operand(x)
        return x, operand(y, typeof(x).shape)
    y = operand(y)
    if isinstance(x, _Numbers):
        return operand(x, typeof(y).shape), y
    x = operand(x)
    a, b = typeof(x).shape, typeof(y).shape
    if a == b:
        return x, y
    if not a or not b:
        shape = a or b
    elif len(a) == len(b) and all([m == n or 1 in (m, n) for m, n in zip(a, b, strict=True)]):
        shape = tuple([n if m == 1 else m for m, n in zip(a, b, strict=True)])
    else:
        return x, y  # the primitive raises the error
    return spread(x, shape), spread(y, shape)


# --- the families ---------------------------------------------------------------------------------


class _Unary(Protocol):
    def __call__(self, x: ArrayLike) -> Array: ...


class _Accurate(Protocol):
    def __call__(self, x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array: ...


class _Binary(Protocol):
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array: ...


def documented(name: str, does: str, example: str) -> Callable[[F], F]:
    """Return a decorator that names and documents a function of `lax`; `example` is `arguments -> printed
    result`."""
    arguments, _, result = example.partition(" -> ")
    imports = ">>> import numpy as np\n" * ("np." in arguments)

    def decorate(function: F) -> F:
        function.__name__ = function.__qualname__ = name
        function.__doc__ = (
            f"{does}\n\nSource: `jax.lax.{name}`.\n\n"
            f"{imports}>>> from functrans import lax\n>>> print(lax.{name}({arguments}))\n{result}\n"
        )
        return function

    return decorate


def _unary(name: str, does: str, example: str) -> _Unary:
    """Make a function of one array."""

    @documented(name, does, example)
    def function(x: ArrayLike) -> Array:
        return bind(PRIMITIVES[name], (operand(x),), {})

    return function


def _accurate(name: str, does: str, example: str) -> _Accurate:
    """Make a function of one array with the keyword `accuracy`."""

    @documented(name, does, example)
    def function(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
        p = PRIMITIVES[name]
        if accuracy is None:
            return bind(p, (operand(x),), {})
        if isinstance(accuracy, Tolerance):
            how: Any = (accuracy.atol, accuracy.rtol, accuracy.ulps)
        else:
            how = member(AccuracyMode, accuracy, name, "accuracy", errors.UnsupportedChoice)
        return bind(p, (operand(x),), {"accuracy": how})

    return function


def _binary(name: str, does: str, example: str) -> _Binary:
    """Make a function of two arrays."""

    @documented(name, does, example)
    def function(x: ArrayLike, y: ArrayLike) -> Array:
        return bind(PRIMITIVES[name], operands(x, y), {})

    return function


neg: _Unary = _unary("neg", "-x.", "2.0 -> -2.0")
sign: _Unary = _unary("sign", "The sign, -1, 0 or 1; x / |x| for complex numbers.", "-3.0 -> -1.0")
floor: _Unary = _unary("floor", "The nearest integer that is not above x.", "-1.5 -> -2.0")
ceil: _Unary = _unary("ceil", "The nearest integer that is not below x.", "-1.5 -> -1.0")
square: _Unary = _unary("square", "x * x.", "3.0 -> 9.0")
one_minus_square: _Unary = _unary(
    "one_minus_square", "1 - x * x, computed as (1 + x)(1 - x): precise for |x| near 1.", "0.5 -> 0.75"
)
abs: _Unary = _unary("abs", "|x|; real also for complex numbers.", "3 + 4j -> 5.0")

exp: _Accurate = _accurate("exp", "e to the power x.", "0.0 -> 1.0")
exp2: _Accurate = _accurate("exp2", "2 to the power x.", "3.0 -> 8.0")
expm1: _Accurate = _accurate("expm1", "exp(x) - 1, precise near 0.", "1e-6 -> 1.0000005e-06")
log: _Accurate = _accurate("log", "The natural logarithm.", "1.0 -> 0.0")
log1p: _Accurate = _accurate("log1p", "log(1 + x), precise near 0.", "1e-6 -> 9.999995e-07")
sqrt: _Accurate = _accurate("sqrt", "The square root.", "9.0 -> 3.0")
rsqrt: _Accurate = _accurate("rsqrt", "1 / sqrt(x).", "4.0 -> 0.5")
cbrt: _Accurate = _accurate("cbrt", "The real cube root.", "8.0 -> 2.0")
logistic: _Accurate = _accurate("logistic", "1 / (1 + exp(-x)).", "0.0 -> 0.5")
sin: _Accurate = _accurate("sin", "The sine of an angle in radians.", "0.0 -> 0.0")
cos: _Accurate = _accurate("cos", "The cosine of an angle in radians.", "0.0 -> 1.0")
tan: _Accurate = _accurate("tan", "The tangent of an angle in radians.", "0.0 -> 0.0")
tanh: _Accurate = _accurate("tanh", "The hyperbolic tangent.", "0.0 -> 0.0")

erf: _Unary = _unary("erf", "The error function.", "0.0 -> 0.0")


@documented(
    "random_gamma_grad",
    "The derivative in a of a sample x of the gamma distribution, P(a, x) held fixed.",
    "1.0, 2.0 -> 1.63169...",
)
def random_gamma_grad(a: ArrayLike, x: ArrayLike) -> Array:
    a, x = operands(a, x)  # JAX implements the operation with loops
    return strong(bind(PRIMITIVES["random_gamma_grad"], (a, cast(x, typeof(a).dtype)), {}))


add: _Binary = _binary("add", "x + y.", "1.0, 2.0 -> 3.0")
sub: _Binary = _binary("sub", "x - y.", "1.0, 2.0 -> -1.0")
div: _Binary = _binary("div", "x / y; integers are rounded towards zero.", "-7, 2 -> -3")
pow: _Binary = _binary("pow", "x to the power y; y may be integer.", "2.0, 3 -> 8.0")
max: _Binary = _binary("max", "The larger of x and y; NaN if one is NaN.", "1.0, 2.0 -> 2.0")
min: _Binary = _binary("min", "The smaller of x and y; NaN if one is NaN.", "1.0, 2.0 -> 1.0")

eq: _Binary = _binary("eq", "x == y.", "1, 2 -> False")
ne: _Binary = _binary("ne", "x != y.", "1, 2 -> True")
lt: _Binary = _binary("lt", "x < y.", "1, 2 -> True")
le: _Binary = _binary("le", "x <= y.", "1, 2 -> True")
gt: _Binary = _binary("gt", "x > y.", "1, 2 -> False")
ge: _Binary = _binary("ge", "x >= y.", "1, 2 -> False")


# --- with parameters ------------------------------------------------------------------------------


@documented("mul", "x * y; with `out_dtype`, cast both to it first.", "2.0, 3.0 -> 6.0")
def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: DTypeLike | None = None) -> Array:
    x, y = operands(x, y)
    if out_dtype is not None:
        convert, dtype = PRIMITIVES["convert_element_type"], canonical_dtype(dtype_asked(out_dtype))
        x, y = [convert(v, dtype=dtype, weak_type=typeof(v).weak_type) for v in (x, y)]
    return bind(PRIMITIVES["mul"], (x, y), {})


@documented("integer_pow", "x to the power y, a Python integer.", "2.0, -3 -> 0.125")
def integer_pow(x: ArrayLike, y: int) -> Array:
    return bind(PRIMITIVES["integer_pow"], (operand(x),), {"y": integer(y, "integer_pow", "y")})


@documented("log2", "The logarithm to base 2; JAX has it from 0.11 on.", "8.0 -> 3.0")
def log2(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    y = log(x, accuracy=accuracy)
    return div(y, full(math.log(2), typeof(y)))


@documented(
    "round",
    "The nearest integer; `rounding_method` decides how halves are rounded.",
    "2.5, lax.RoundingMethod.TO_NEAREST_EVEN -> 2.0",
)
def round(x: ArrayLike, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    how = int(RoundingMethod[member(RoundingMethod, rounding_method, "round", "rounding_method")])
    return bind(PRIMITIVES["round"], (operand(x),), {"rounding_method": how})


@documented(
    "select_n",
    "Select from `cases[which]`, elementwise; `which` is boolean or integer.",
    "2, 10.0, 20.0, 30.0 -> 30.0",
)
def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    return bind(PRIMITIVES["select_n"], [operand(x) for x in (which, *cases)], {})


# --- identities -----------------------------------------------------------------------------------


def stop_gradient(x: PyTree) -> PyTree:
    """Return a pytree unchanged, but treat it as constant in differentiation.

    Source: `jax.lax.stop_gradient`.

    >>> import functrans as ft
    >>> from functrans import lax
    >>> print(ft.grad(lambda x: lax.mul(x, lax.stop_gradient(x)))(3.0))
    3.0
    """
    return tree.map(_stopped, x)


def _stopped(x: Any) -> Any:
    if x.__class__ in (bool, int, float, complex):  # as in JAX, also while tracing
        return x
    x = operand(x)
    return x if is_key_dtype(typeof(x).dtype) else bind(selection.stop_gradient, (x,), {})
