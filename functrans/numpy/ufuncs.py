"""Functions that are one primitive once their operands have a common type.

`x + y` of two traced arrays of one type goes directly to `bind`: the first lines of `binary` are
the hot path of tracing.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from functrans import errors
from functrans.ir.source import here
from functrans.ir.types import canonical_dtype, dtype_class, is_inexact
from functrans.numpy.promotion import BOOL, align, align_all, array_of, cast, to_inexact, value_of
from functrans.primitives.calls.jit import composite
from functrans.primitives.elementwise import arithmetic, bitwise, complex_numbers, families, transcendental
from functrans.primitives.elementwise.selection import select_n
from functrans.trace import ARRAYS, Tracer, bind, literal, materialize, staging_trace, typeof
from functrans.typing import Array, ArrayLike

__all__ = [
    "abs", "absolute", "acos", "acosh", "add", "arccos", "arccosh", "arcsin", "arcsinh", "arctan",
    "arctan2", "arctanh", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "cbrt", "ceil", "conj", "conjugate", "cos", "cosh", "divide", "equal", "exp",
    "exp2", "expm1", "floor", "greater", "greater_equal", "imag", "invert", "isfinite",
    "left_shift", "less", "less_equal", "log", "log1p", "logical_and", "logical_not", "logical_or",
    "logical_xor", "maximum", "minimum", "multiply", "negative", "nextafter", "not_equal",
    "positive", "real", "right_shift", "rint", "sign", "sin", "sinh", "sqrt", "square", "subtract",
    "tan", "tanh", "true_divide",
]  # fmt: skip

Function = Callable[..., Any]
Unary = Callable[[ArrayLike], Array]
Binary = Callable[[ArrayLike, ArrayLike], Array]
_F = TypeVar("_F", bound=Function)


def named(function: _F, name: str, summary: str) -> _F:
    """Set the name and documentation of a generated function."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{summary}\n\n    Source: `jax.numpy.{name}`."
    return function


def together(function: Binary) -> Binary:
    """Outside of tracing, promote two arrays and apply the operation as one compiled call."""
    at_once = composite(function)

    def of(x: Any, y: Any, /) -> Any:
        if (
            y.__class__ in ARRAYS
            and x.__class__ in ARRAYS
            and typeof(x) is not typeof(y)
            and staging_trace() is None
        ):
            return at_once(x, y)
        return function(x, y)

    return of


def refuse_out(name: str, out: Any, where: Any = None) -> None:
    """Raise an error for NumPy arguments that immutable arrays do not support."""
    if out is not None or where is not None:
        raise errors.NotSupported(
            f"{name}: {'out' if out is not None else 'where'}= is not supported, as arrays are "
            f"immutable, {here()}\nUse the result, or jnp.where on it."
        )


def refusing_out(function: _F) -> _F:
    """Make a public function that raises an error for `out`, if it has this parameter."""
    code = inspect.unwrap(function).__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if "out" not in parameters:
        return function
    by_position = parameters[: code.co_argcount]
    place = by_position.index("out") if "out" in by_position else sys.maxsize

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs and kwargs.get("out") is not None:
            refuse_out(function.__name__, kwargs["out"])
        if len(args) > place and args[place] is not None:
            refuse_out(function.__name__, args[place])
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


# --- the families ---------------------------------------------------------------------------------


def unary(name: str, summary: str, primitive: Any, integers: bool = False) -> Unary:
    """Make a function of one operand; `integers`: keep integers, else convert them to floats."""

    def of(x: ArrayLike, /) -> Array:
        if x.__class__ is Tracer and (integers or is_inexact(x.type.dtype)):
            return bind(primitive, (x,), {})
        x = value_of(x, name)
        return bind(primitive, (x if integers else to_inexact(x),), {})

    return named(of, name, summary)


def only_of(name: str, summary: str, primitive: Any, *kinds: str) -> Unary:
    """Make a function of one operand that leaves dtypes of other kinds unchanged."""

    def of(x: ArrayLike, /) -> Array:
        x = value_of(x, name)
        return primitive(x) if dtype_class(typeof(x).dtype) in kinds else array_of(x, name)

    return named(of, name, summary)


def binary(name: str, summary: str, primitive: Any, booleans: Any = None) -> Binary:
    """Make a function of two operands; `booleans`: the primitive used for booleans."""

    @together
    def general(x: Any, y: Any, /) -> Any:
        x, y = align(x, y, name)
        if booleans is not None and typeof(x).dtype is BOOL:
            return bind(booleans, (x, y), {})
        return bind(primitive, (x, y), {})

    def of(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Any:
        if not (out is None is where):
            refuse_out(name, out, where)
        if x.__class__ is Tracer and y.__class__ is Tracer:
            t = x.type
            if t is y.type and t.dtype is not BOOL:
                return bind(primitive, (x, y), {})
        return general(x, y)

    return named(of, name, summary)


def binary_inexact(name: str, summary: str, primitive: Any) -> Binary:
    """Make a function of two operands that converts integers to floats."""

    @together
    def of(x: Any, y: Any, /) -> Any:
        if not (_is_integers(x) and _is_integers(y)):  # a uint32 would become int32
            x, y = align(x, y, name)
            if is_inexact(typeof(x).dtype):
                return bind(primitive, (x, y), {})
        return bind(primitive, align_all((x, y), name, inexact=True), {})

    return named(of, name, summary)


def _is_integers(x: Any) -> bool:
    return hasattr(x, "dtype") and not is_inexact(x.dtype)


def comparison(name: str, summary: str, primitive: Any, ordered: bool = True) -> Binary:
    """Make a function of two operands with a boolean result; complex numbers are ordered by their
    real parts, then by their imaginary parts."""

    @together
    def of(x: Any, y: Any, /) -> Any:
        x, y = align(x, y, name)
        if ordered and dtype_class(typeof(x).dtype) == "complex":
            return lexicographic(primitive, x, y)
        return bind(primitive, (x, y), {})

    return named(of, name, summary)


def lexicographic(primitive: Any, x: Any, y: Any) -> Any:
    """Compare by real parts; where these are equal, by imaginary parts."""
    x_real, y_real = complex_numbers.real(x), complex_numbers.real(y)
    by_imag = primitive(complex_numbers.imag(x), complex_numbers.imag(y))
    return select_n(families.eq(x_real, y_real), primitive(x_real, y_real), by_imag)


def logical(name: str, summary: str, primitive: Any) -> Binary:
    """Make a function of truth values; numbers are true where nonzero."""

    def of(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Any:
        refuse_out(name, out, where)
        x, y = align(truth(x, name), truth(y, name, 1), name)
        return bind(primitive, (x, y), {})

    return named(of, name, summary)


def truth(x: Any, name: str, position: int = 0) -> Any:
    """Return x != 0."""
    x = value_of(x, name, position)
    return x if typeof(x).dtype is BOOL else cast(x, BOOL)


def shift(name: str, summary: str, primitive_of: Callable[[Any], Any]) -> Binary:
    """Make a shift of bits; `primitive_of(dtype)` chooses the arithmetic or the logical one."""

    def of(x: Any, y: Any, /) -> Any:
        x, y = numeric(*align(x, y, name))
        return bind(primitive_of(typeof(x).dtype), (x, y), {})

    return named(of, name, summary)


def numeric(*xs: Any) -> list[Any]:
    """Convert booleans to int32; return others unchanged."""
    return [cast(x, np.dtype("int32")) if typeof(x).dtype is BOOL else x for x in xs]


# --- arithmetic -----------------------------------------------------------------------------------

add: Binary = binary("add", "x + y; logical or of booleans.", families.add, bitwise.or_)
subtract: Binary = binary("subtract", "x - y.", families.sub)
multiply: Binary = binary("multiply", "x * y; logical and of booleans.", families.mul, bitwise.and_)
divide: Binary = binary_inexact("divide", "x / y, in floats.", families.div)
true_divide: Binary = named(divide, "divide", "x / y, in floats.")
maximum: Binary = binary("maximum", "The larger one; NaN if one is NaN.", arithmetic.max_)
minimum: Binary = binary("minimum", "The smaller one; NaN if one is NaN.", arithmetic.min_)
arctan2: Binary = binary_inexact("arctan2", "The angle of the point (y, x).", transcendental.atan2)
atan2: Binary = arctan2
nextafter: Binary = binary_inexact("nextafter", "The next float after x towards y.", arithmetic.nextafter)

_negative: Unary = unary("negative", "-x.", families.neg, integers=True)


def negative(x: ArrayLike, /, *, out: None = None, where: None = None) -> Array:
    """-x.

    Source: `jax.numpy.negative`.
    """
    refuse_out("negative", out, where)
    return _negative(x)


sign: Unary = unary("sign", "-1, 0 or 1; x / |x| of complex numbers.", arithmetic.sign, integers=True)


def positive(x: ArrayLike, /) -> Array:
    """+x, which is x.

    Source: `jax.numpy.positive`.
    """
    return array_of(x, "positive")


def absolute(x: ArrayLike, /) -> Array:
    """|x|.

    Source: `jax.numpy.absolute`.
    """
    x = value_of(x, "absolute")
    unsigned = dtype_class(typeof(x).dtype) in ("bool", "uint")
    return array_of(x, "absolute") if unsigned else complex_numbers.abs_(x)


abs: Unary = absolute


def square(x: Any, /) -> Any:
    """x * x.

    Source: `jax.numpy.square`.
    """
    if x.__class__ is not Tracer or x.type.dtype is BOOL:
        (x,) = numeric(value_of(x, "square"))
    return families.square(x)


# --- functions of floats --------------------------------------------------------------------------

exp: Unary = unary("exp", "e to the power x.", transcendental.exp)
exp2: Unary = unary("exp2", "2 to the power x.", transcendental.exp2)
expm1: Unary = unary("expm1", "exp(x) - 1, exact for small x.", transcendental.expm1)
log: Unary = unary("log", "The natural logarithm.", transcendental.log)
log1p: Unary = unary("log1p", "log(1 + x), exact for small x.", transcendental.log1p)
sqrt: Unary = unary("sqrt", "The square root.", transcendental.sqrt)
cbrt: Unary = unary("cbrt", "The cube root.", transcendental.cbrt)
sin: Unary = unary("sin", "The sine, of radians.", transcendental.sin)
cos: Unary = unary("cos", "The cosine, of radians.", transcendental.cos)
tan: Unary = unary("tan", "The tangent, of radians.", transcendental.tan)
sinh: Unary = unary("sinh", "The hyperbolic sine.", transcendental.sinh)
cosh: Unary = unary("cosh", "The hyperbolic cosine.", transcendental.cosh)
tanh: Unary = unary("tanh", "The hyperbolic tangent.", transcendental.tanh)
arcsin: Unary = unary("arcsin", "The inverse sine.", transcendental.asin)
asin: Unary = arcsin
arccos: Unary = unary("arccos", "The inverse cosine.", transcendental.acos)
acos: Unary = arccos
arctan: Unary = unary("arctan", "The inverse tangent.", transcendental.atan)
atan: Unary = arctan
arcsinh: Unary = unary("arcsinh", "The inverse hyperbolic sine.", transcendental.asinh)
asinh: Unary = arcsinh
arccosh: Unary = unary("arccosh", "The inverse hyperbolic cosine.", transcendental.acosh)
acosh: Unary = arccosh
arctanh: Unary = unary("arctanh", "The inverse hyperbolic tangent.", transcendental.atanh)
atanh: Unary = arctanh
floor: Unary = only_of(
    "floor", "The largest integer not above x, at x's dtype.", arithmetic.floor, "float", "complex"
)
ceil: Unary = only_of(
    "ceil", "The smallest integer not below x, at x's dtype.", arithmetic.ceil, "float", "complex"
)


def rint(x: ArrayLike, /) -> Array:
    """The nearest integer, halves to even, as a float.

    Source: `jax.numpy.rint`.
    """
    x = value_of(x, "rint")
    t = typeof(x)
    if not is_inexact(t.dtype):
        return materialize(cast(x, canonical_dtype(np.dtype("float64"))))
    if dtype_class(t.dtype) == "complex":
        return complex_numbers.complex_(rint(complex_numbers.real(x)), rint(complex_numbers.imag(x)))
    return arithmetic.round_(x, rounding_method=1)


# --- comparisons ----------------------------------------------------------------------------------

equal: Binary = comparison("equal", "x == y.", families.eq, ordered=False)
not_equal: Binary = comparison("not_equal", "x != y.", families.ne, ordered=False)
less: Binary = comparison("less", "x < y.", families.lt)
less_equal: Binary = comparison("less_equal", "x <= y.", families.le)
greater: Binary = comparison("greater", "x > y.", families.gt)
greater_equal: Binary = comparison("greater_equal", "x >= y.", families.ge)

# --- bits and truth values ------------------------------------------------------------------------

bitwise_and: Binary = binary("bitwise_and", "x & y.", bitwise.and_, bitwise.and_)
bitwise_or: Binary = binary("bitwise_or", "x | y.", bitwise.or_, bitwise.or_)
bitwise_xor: Binary = binary("bitwise_xor", "x ^ y.", bitwise.xor, bitwise.xor)
invert: Unary = unary("invert", "~x.", bitwise.not_, integers=True)
bitwise_not: Unary = invert
bitwise_invert: Unary = invert
left_shift: Binary = shift("left_shift", "x << y.", lambda dtype: bitwise.shift_left)
right_shift: Binary = shift(
    "right_shift",
    "x >> y; the sign bit of signed integers is repeated.",
    lambda dtype: (
        bitwise.shift_right_logical if dtype_class(dtype) == "uint" else bitwise.shift_right_arithmetic
    ),
)
bitwise_left_shift: Binary = left_shift
bitwise_right_shift: Binary = right_shift
logical_and: Binary = logical("logical_and", "Both are true.", bitwise.and_)
logical_or: Binary = logical("logical_or", "At least one is true.", bitwise.or_)
logical_xor: Binary = logical("logical_xor", "Exactly one is true.", bitwise.xor)


def logical_not(x: Any, /) -> Any:
    """Whether x is false or zero.

    Source: `jax.numpy.logical_not`.
    """
    return bitwise.not_(truth(x, "logical_not"))


def isfinite(x: ArrayLike, /) -> Array:
    """Whether x is neither infinite nor NaN.

    Source: `jax.numpy.isfinite`.
    """
    x = value_of(x, "isfinite")
    t = typeof(x)
    kind = dtype_class(t.dtype)
    if kind == "float":
        return arithmetic.is_finite(x)
    if kind == "complex":
        return bitwise.and_(
            arithmetic.is_finite(complex_numbers.real(x)), arithmetic.is_finite(complex_numbers.imag(x))
        )
    return materialize(literal(True, t.update(dtype=BOOL, weak_type=False)))


# --- complex numbers ------------------------------------------------------------------------------


real: Unary = only_of("real", "The real part.", complex_numbers.real, "complex")
conjugate: Unary = only_of(
    "conjugate", "The complex conjugate; real numbers unchanged.", complex_numbers.conj, "complex"
)
conj: Unary = conjugate


def imag(x: ArrayLike, /) -> Array:
    """The imaginary part; zero for real numbers.

    Source: `jax.numpy.imag`.
    """
    x = value_of(x, "imag")
    t = typeof(x)
    return complex_numbers.imag(x) if dtype_class(t.dtype) == "complex" else materialize(literal(0, t))
