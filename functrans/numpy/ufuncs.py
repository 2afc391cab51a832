"""Those functions that are one primitive once their operands have a common type, and that are traced
most often or have methods of ufuncs; the others are JAX's.

`x + y` of two traced arrays of one type goes directly to `bind`: the first lines of `binary` are
the hot path of tracing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from functrans import errors
from functrans.ir.source import here
from functrans.ir.types import dtype_class, is_inexact
from functrans.numpy.promotion import BOOL, align, align_all, array_of, cast, to_inexact, value_of
from functrans.primitives.calls.jit import composite
from functrans.primitives.elementwise import arithmetic, bitwise, complex_numbers, families, transcendental
from functrans.primitives.elementwise.selection import select_n
from functrans.trace import ARRAYS, Tracer, bind, literal, materialize, staging_trace, typeof
from functrans.typing import Array, ArrayLike

__all__ = [
    "abs", "absolute", "add", "bitwise_and", "bitwise_invert", "bitwise_not", "bitwise_or",
    "bitwise_xor", "ceil", "conj", "conjugate", "cos", "divide", "equal", "exp", "expm1",
    "floor", "greater", "greater_equal", "imag", "invert", "less", "less_equal", "log", "log1p",
    "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "multiply",
    "negative", "not_equal", "real", "sign", "sin", "sqrt", "square", "subtract",
    "tanh", "true_divide",
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


@together
def _divided(x: Any, y: Any, /) -> Any:
    if not (_is_integers(x) and _is_integers(y)):  # a uint32 would become int32
        x, y = align(x, y, "divide")
        if is_inexact(typeof(x).dtype):
            return bind(families.div, (x, y), {})
    return bind(families.div, align_all((x, y), "divide", inexact=True), {})


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
        x, y = align(x, y, name)
        return bind(primitive, (truth(x), truth(y)), {})

    return named(of, name, summary)


def truth(x: Any) -> Any:
    """Return x != 0, weakly typed if x is a weakly typed scalar."""
    t = typeof(x)
    return x if t.dtype is BOOL else families.ne(x, families.splat(0, t.strong() if t.shape else t))


def numeric(*xs: Any) -> list[Any]:
    """Convert booleans to int32; return others unchanged."""
    return [cast(x, np.dtype("int32")) if typeof(x).dtype is BOOL else x for x in xs]


# --- arithmetic -----------------------------------------------------------------------------------

add: Binary = binary("add", "x + y; logical or of booleans.", families.add, bitwise.or_)
subtract: Binary = binary("subtract", "x - y.", families.sub)
multiply: Binary = binary("multiply", "x * y; logical and of booleans.", families.mul, bitwise.and_)
divide: Binary = named(_divided, "divide", "x / y, in floats.")
true_divide: Binary = divide
maximum: Binary = binary("maximum", "The larger one; NaN if one is NaN.", arithmetic.max_)
minimum: Binary = binary("minimum", "The smaller one; NaN if one is NaN.", arithmetic.min_)

_negative: Unary = unary("negative", "-x.", families.neg, integers=True)


def negative(x: ArrayLike, /, *, out: None = None, where: None = None) -> Array:
    """-x.

    Source: `jax.numpy.negative`.
    """
    refuse_out("negative", out, where)
    return _negative(x)


sign: Unary = unary("sign", "-1, 0 or 1; x / |x| of complex numbers.", arithmetic.sign, integers=True)


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
expm1: Unary = unary("expm1", "exp(x) - 1, exact for small x.", transcendental.expm1)
log: Unary = unary("log", "The natural logarithm.", transcendental.log)
log1p: Unary = unary("log1p", "log(1 + x), exact for small x.", transcendental.log1p)
sqrt: Unary = unary("sqrt", "The square root.", transcendental.sqrt)
sin: Unary = unary("sin", "The sine, of radians.", transcendental.sin)
cos: Unary = unary("cos", "The cosine, of radians.", transcendental.cos)
tanh: Unary = unary("tanh", "The hyperbolic tangent.", transcendental.tanh)
floor: Unary = only_of(
    "floor", "The largest integer not above x, at x's dtype.", arithmetic.floor, "float", "complex"
)
ceil: Unary = only_of(
    "ceil", "The smallest integer not below x, at x's dtype.", arithmetic.ceil, "float", "complex"
)


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
logical_and: Binary = logical("logical_and", "Both are true.", bitwise.and_)
logical_or: Binary = logical("logical_or", "At least one is true.", bitwise.or_)
logical_xor: Binary = logical("logical_xor", "Exactly one is true.", bitwise.xor)


def logical_not(x: Any, /) -> Any:
    """Whether x is false or zero.

    Source: `jax.numpy.logical_not`.
    """
    return bitwise.not_(truth(value_of(x, "logical_not")))


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
