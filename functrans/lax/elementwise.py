"""`jax.lax` names over the elementwise primitives.

Scalars and axes of size 1 are broadcast to the shape of the other operand, as in JAX; dtypes must
be equal (`functrans.numpy` promotes).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import jax
import numpy as np
from jax.lax import AccuracyMode, RoundingMethod, Tolerance

from functrans import errors
from functrans.ir.source import here
from functrans.ir.types import ArrayType, canonical_dtype, dtype_class, is_key_dtype
from functrans.lax.arguments import check_fits, dtype_asked, integer, member, spread
from functrans.primitives.base import PRIMITIVES
from functrans.primitives.elementwise.conversion import strong
from functrans.primitives.elementwise.families import splat
from functrans.trace import Tracer, bind, full, typeof
from functrans.typing import Array, ArrayLike, DTypeLike

__all__ = [
    "AccuracyMode", "RoundingMethod", "Tolerance", "abs", "acos", "acosh", "add", "asin",
    "asinh", "atan", "atan2", "atanh", "bitcast_convert_type", "bitwise_and", "bitwise_not",
    "bitwise_or", "bitwise_xor", "cbrt", "ceil", "clamp", "clz", "complex", "conj",
    "convert_element_type", "cos", "cosh", "digamma", "div", "eq", "erf", "erf_inv", "erfc",
    "exp", "exp2", "expm1", "floor", "ge", "gt", "imag", "integer_pow", "is_finite", "le",
    "lgamma", "log", "log1p", "log2", "logistic", "lt", "max", "min", "mul", "mulhi", "ne", "neg",
    "one_minus_square", "population_count", "pow", "random_gamma_grad", "real",
    "reduce_precision", "rem", "round", "rsqrt", "select", "select_n", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square", "sub",
    "tan", "tanh",
]  # fmt: skip

_F = TypeVar("_F", bound=Callable[..., Any])

# Defined before this module shadows the built-ins with array functions.
_Numbers = (bool, int, float, complex, np.generic)


# --- operands -------------------------------------------------------------------------------------


def operand(x: Any) -> Any:
    """Convert a value to an operand of an elementwise primitive: numbers become literals."""
    if x.__class__ is Tracer:
        return x
    if isinstance(x, _Numbers):
        return splat(x, _number_type(x))
    return _array_in(x)


def _array_in(x: Any) -> Any:
    """Return the array of an object with `__jax_array__`, which is None for JAX tracers."""
    made = getattr(x, "__jax_array__", None)
    return x if made is None else made()


def _number_type(x: Any) -> ArrayType:
    t = typeof(x)
    if x.__class__ is int:
        check_fits(x, t)
    return t


def operands(x: Any, y: Any) -> tuple[Any, Any]:
    """Broadcast two values to equal shape, as far as JAX's lax does."""
    if x.__class__ is Tracer and y.__class__ is Tracer and x.type is y.type:
        return x, y
    if isinstance(y, _Numbers):
        x = operand(x)
        return x, _filled(y, typeof(x).shape)
    y = operand(y)
    if isinstance(x, _Numbers):
        return _filled(x, typeof(y).shape), y
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


def _filled(x: Any, shape: tuple[int, ...]) -> Any:
    """Return a number as a literal of a shape."""
    t = _number_type(x)
    return splat(x, ArrayType(shape, t.dtype, t.weak_type))


def _dtype(dtype: Any, name: str) -> Any:
    """Canonicalize a user's dtype, as JAX does."""
    if dtype is None:
        raise errors.InvalidArgument(f"{name}: a dtype is required, {here()}")
    return canonical_dtype(dtype_asked(dtype) if isinstance(dtype, str) else dtype)


# --- the families ---------------------------------------------------------------------------------


class _Unary(Protocol):
    def __call__(self, x: ArrayLike) -> Array: ...


class _Accurate(Protocol):
    def __call__(self, x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array: ...


class _Binary(Protocol):
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array: ...


def documented(function: _F, name: str, does: str, example: str) -> _F:
    """Name and document a function of `lax`; `example` is `arguments -> printed result`."""
    arguments, _, result = example.partition(" -> ")
    imports = ">>> import numpy as np\n" * ("np." in arguments)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{does}\n\nSource: `jax.lax.{name}`.\n\n"
        f"{imports}>>> from functrans import lax\n>>> print(lax.{name}({arguments}))\n{result}\n"
    )
    return function


def _unary(name: str, does: str, example: str, primitive: str = "") -> _Unary:
    """Make a function of one array."""
    p = primitive or name  # looked up at each call: the rare ones' modules need not be imported

    def function(x: ArrayLike) -> Array:
        return bind(PRIMITIVES[p], (operand(x),), {})

    return documented(function, name, does, example)


def _accurate(name: str, does: str, example: str) -> _Accurate:
    """Make a function of one array with the keyword `accuracy`."""

    def function(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
        p = PRIMITIVES[name]
        if accuracy is None:
            return bind(p, (operand(x),), {})
        if isinstance(accuracy, Tolerance):
            how: Any = (accuracy.atol, accuracy.rtol, accuracy.ulps)
        else:
            how = member(AccuracyMode, accuracy, name, "accuracy", errors.UnsupportedChoice)
        return bind(p, (operand(x),), {"accuracy": how})

    return documented(function, name, does, example)


def _binary(name: str, does: str, example: str, primitive: str = "") -> _Binary:
    """Make a function of two arrays."""
    p = primitive or name

    def function(x: ArrayLike, y: ArrayLike) -> Array:
        return bind(PRIMITIVES[p], operands(x, y), {})

    return documented(function, name, does, example)


neg: _Unary = _unary("neg", "-x.", "2.0 -> -2.0")
sign: _Unary = _unary("sign", "The sign, -1, 0 or 1; x / |x| for complex numbers.", "-3.0 -> -1.0")
floor: _Unary = _unary("floor", "The nearest integer that is not above x.", "-1.5 -> -2.0")
ceil: _Unary = _unary("ceil", "The nearest integer that is not below x.", "-1.5 -> -1.0")
is_finite: _Unary = _unary("is_finite", "Whether x is neither infinite nor NaN.", "1.0 -> True")
square: _Unary = _unary("square", "x * x.", "3.0 -> 9.0")
one_minus_square: _Unary = _unary(
    "one_minus_square", "1 - x * x, computed as (1 + x)(1 - x): precise for |x| near 1.", "0.5 -> 0.75"
)
abs: _Unary = _unary("abs", "|x|; real also for complex numbers.", "3 + 4j -> 5.0")
real: _Unary = _unary("real", "The real part of complex numbers.", "3 + 4j -> 3.0")
imag: _Unary = _unary("imag", "The imaginary part of complex numbers.", "3 + 4j -> 4.0")
conj: _Unary = _unary("conj", "The complex conjugate.", "3 + 4j -> (3-4j)")

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

asin: _Unary = _unary("asin", "The angle in [-pi/2, pi/2] whose sine is x.", "0.0 -> 0.0")
acos: _Unary = _unary("acos", "The angle in [0, pi] whose cosine is x.", "1.0 -> 0.0")
atan: _Unary = _unary("atan", "The angle in (-pi/2, pi/2) whose tangent is x.", "0.0 -> 0.0")
sinh: _Unary = _unary("sinh", "The hyperbolic sine.", "0.0 -> 0.0")
cosh: _Unary = _unary("cosh", "The hyperbolic cosine.", "0.0 -> 1.0")
asinh: _Unary = _unary("asinh", "The inverse of sinh.", "0.0 -> 0.0")
acosh: _Unary = _unary("acosh", "The inverse of cosh, for x >= 1.", "1.0 -> 0.0")
atanh: _Unary = _unary("atanh", "The inverse of tanh, for -1 <= x <= 1.", "0.0 -> 0.0")

erf: _Unary = _unary("erf", "The error function.", "0.0 -> 0.0")
erfc: _Unary = _unary("erfc", "1 - erf(x), precise for large x.", "0.0 -> 1.0")
erf_inv: _Unary = _unary("erf_inv", "The inverse of erf.", "0.0 -> 0.0")
lgamma: _Unary = _unary("lgamma", "log |Gamma(x)|.", "4.0 -> 1.7917...")
digamma: _Unary = _unary("digamma", "The derivative of lgamma.", "1.0 -> -0.577215...")


def random_gamma_grad(a: ArrayLike, x: ArrayLike) -> Array:
    """Return the derivative in a of a sample x of the gamma distribution, P(a, x) held fixed.

    Source: `jax.lax.random_gamma_grad`.

    >>> from functrans import lax
    >>> print(lax.random_gamma_grad(1.0, 2.0))
    1.63169...
    """
    a, x = operands(a, x)  # JAX implements the operation with loops
    x = convert_element_type(x, typeof(a).dtype)
    return strong(bind(PRIMITIVES["random_gamma_grad"], (a, x), {}))


add: _Binary = _binary("add", "x + y.", "1.0, 2.0 -> 3.0")
sub: _Binary = _binary("sub", "x - y.", "1.0, 2.0 -> -1.0")
div: _Binary = _binary("div", "x / y; integers are rounded towards zero.", "-7, 2 -> -3")
rem: _Binary = _binary("rem", "The remainder of div, with the sign of x.", "-7, 2 -> -1")
pow: _Binary = _binary("pow", "x to the power y; y may be integer.", "2.0, 3 -> 8.0")
max: _Binary = _binary("max", "The larger of x and y; NaN if one is NaN.", "1.0, 2.0 -> 2.0")
min: _Binary = _binary("min", "The smaller of x and y; NaN if one is NaN.", "1.0, 2.0 -> 1.0")
atan2: _Binary = _binary("atan2", "The angle of the point (y, x).", "0.0, 1.0 -> 0.0")
complex: _Binary = _binary("complex", "x + iy.", "1.0, 2.0 -> (1+2j)")

eq: _Binary = _binary("eq", "x == y.", "1, 2 -> False")
ne: _Binary = _binary("ne", "x != y.", "1, 2 -> True")
lt: _Binary = _binary("lt", "x < y.", "1, 2 -> True")
le: _Binary = _binary("le", "x <= y.", "1, 2 -> True")
gt: _Binary = _binary("gt", "x > y.", "1, 2 -> False")
ge: _Binary = _binary("ge", "x >= y.", "1, 2 -> False")

bitwise_not: _Unary = _unary("bitwise_not", "~x.", "5 -> -6", "not")
bitwise_and: _Binary = _binary("bitwise_and", "x & y.", "6, 3 -> 2", "and")
bitwise_or: _Binary = _binary("bitwise_or", "x | y.", "6, 3 -> 7", "or")
bitwise_xor: _Binary = _binary("bitwise_xor", "x ^ y.", "6, 3 -> 5", "xor")
population_count: _Unary = _unary("population_count", "How many bits are set.", "6 -> 2")
clz: _Unary = _unary("clz", "How many leading bits are zero.", "1 -> 31")
shift_left: _Binary = _binary("shift_left", "x << y; 0 beyond the width.", "1, 3 -> 8")
shift_right_logical: _Binary = _binary("shift_right_logical", "x >> y, filled with 0.", "8, 3 -> 1")
shift_right_arithmetic: _Binary = _binary(
    "shift_right_arithmetic", "x >> y, filled with the sign.", "-8, 2 -> -2"
)
mulhi: _Binary = _binary("mulhi", "The upper half of the bits of x * y.", "2**30, 16 -> 4")


# --- with parameters ------------------------------------------------------------------------------


def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: DTypeLike | None = None) -> Array:
    """Return x * y; with `out_dtype`, cast both to it first.

    Source: `jax.lax.mul`.

    >>> from functrans import lax
    >>> print(lax.mul(2.0, 3.0))
    6.0
    """
    x, y = operands(x, y)
    if out_dtype is not None:
        convert, dtype = PRIMITIVES["convert_element_type"], _dtype(out_dtype, "mul")
        x, y = [convert(v, dtype=dtype, weak_type=typeof(v).weak_type) for v in (x, y)]
    return bind(PRIMITIVES["mul"], (x, y), {})


def integer_pow(x: ArrayLike, y: int) -> Array:
    """Return x to the power of a Python integer.

    Source: `jax.lax.integer_pow`.

    >>> from functrans import lax
    >>> print(lax.integer_pow(2.0, -3))
    0.125
    """
    return bind(PRIMITIVES["integer_pow"], (operand(x),), {"y": integer(y, "integer_pow", "y")})


def log2(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Return the logarithm to base 2.

    Source: `jax.lax.log2`, from JAX 0.11 on.

    >>> from functrans import lax
    >>> print(lax.log2(8.0))
    3.0
    """
    y = log(x, accuracy=accuracy)
    return div(y, full(math.log(2), typeof(y)))


def round(x: ArrayLike, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """Round to the nearest integer; `rounding_method` decides how halves are rounded.

    Source: `jax.lax.round`.

    >>> from functrans import lax
    >>> print(lax.round(2.5), lax.round(2.5, lax.RoundingMethod.TO_NEAREST_EVEN))
    3.0 2.0
    """
    how = int(RoundingMethod[member(RoundingMethod, rounding_method, "round", "rounding_method")])
    return bind(PRIMITIVES["round"], (operand(x),), {"rounding_method": how})


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """Select `on_true` where `pred` is true, else `on_false`, elementwise; `pred` may be a scalar.

    Source: `jax.lax.select`.

    >>> from functrans import lax
    >>> print(lax.select(True, 1.0, 2.0))
    1.0
    """
    return select_n(pred, on_false, on_true)


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """Select from `cases[which]`, elementwise; `which` is boolean or integer.

    Source: `jax.lax.select_n`.

    >>> from functrans import lax
    >>> print(lax.select_n(2, 10.0, 20.0, 30.0))
    30.0
    """
    if not cases:
        raise errors.InvalidArgument(f"select_n: at least one case is needed, {here()}")
    return bind(PRIMITIVES["select_n"], [operand(x) for x in (which, *cases)], {})


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """Clamp x to [min, max]; these are scalars or have the shape of x.

    Source: `jax.lax.clamp`.

    >>> from functrans import lax
    >>> print(lax.clamp(0.0, 1.5, 1.0))
    1.0
    """
    return bind(PRIMITIVES["clamp"], (operand(min), operand(x), operand(max)), {})


def convert_element_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """Cast `operand` to another dtype.

    Source: `jax.lax.convert_element_type`.

    >>> from functrans import lax
    >>> print(lax.convert_element_type(2.7, "int32"))
    2
    """
    dtype = _dtype(new_dtype, "convert_element_type")
    if isinstance(operand, _Numbers):
        return _number(operand, dtype)
    t = typeof(operand)
    if t.dtype == dtype and not t.weak_type and isinstance(operand, (Tracer, jax.Array)):
        return operand
    if is_key_dtype(t.dtype) or is_key_dtype(dtype):
        raise errors.InvalidArgument(
            f"convert_element_type: cannot convert {t.dtype} to {dtype}, {here()}\n"
            "Use functrans.random.key_data or wrap_key_data."
        )
    if dtype_class(t.dtype) == "complex" and dtype_class(dtype) not in ("complex", "bool"):
        warnings.warn(
            "Casting complex values to real discards the imaginary part",
            np.exceptions.ComplexWarning,
            stacklevel=2,
        )
    return PRIMITIVES["convert_element_type"](_array_in(operand), dtype=dtype, weak_type=False)


def _number(x: Any, dtype: Any) -> Any:
    """Convert a Python or NumPy number, of any size, to an array of a dtype."""
    array = np.asarray(x)
    if array.dtype.kind == "f" and dtype_class(dtype) in ("int", "uint"):
        array = PRIMITIVES["convert_element_type"].reference(array, dtype=dtype, weak_type=False)
    return full(array.astype(dtype).item(), ArrayType((), dtype))


def bitcast_convert_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """Reinterpret the bits of `operand` as another dtype; a narrower dtype adds a trailing axis, a
    wider one removes it.

    Source: `jax.lax.bitcast_convert_type`.

    >>> from functrans import lax
    >>> print(lax.bitcast_convert_type(1.0, "int32"))
    1065353216
    """
    dtype = _dtype(new_dtype, "bitcast_convert_type")
    return bind(PRIMITIVES["bitcast_convert_type"], (_operand(operand),), {"dtype": dtype})


def reduce_precision(operand: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Array:
    """Round to a float format with this many exponent and mantissa bits, and convert back.

    Source: `jax.lax.reduce_precision`.

    >>> from functrans import lax
    >>> print(lax.reduce_precision(3.1, exponent_bits=5, mantissa_bits=1))
    3.0
    """
    given = {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits}
    bits = {what: integer(n, "reduce_precision", what) for what, n in given.items()}
    return bind(PRIMITIVES["reduce_precision"], (_operand(operand),), bits)


_operand = operand  # for functions with a parameter `operand`
