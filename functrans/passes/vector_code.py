"""Trigonometric functions and remainders of arrays in vector code on XLA:CPU.

    y = sin x;  z = cos x   ->   y, z = jit[program] x

XLA:CPU calls the C library for each number, which takes 3 to 20 nanoseconds. The polynomials here are
vectorized by LLVM: 0.4 to 1.5 nanoseconds. The argument is reduced as in Cody and Waite, "Software
Manual for the Elementary Functions" (1980); the polynomials have the smallest relative error of their
degree (Remez). The largest errors found, in units in the last place: 1.6 for sin and cos, 3.5 for tan,
2.3 for asin and acos, 2.8 for atan and atan2. Remainders are exact.

Sine, cosine and tangent of numbers above `_LARGEST` need more digits of pi than are here, and remainders
for large quotients more steps: if an array has such a number, the C library computes all of the array. Half
floats are computed as float32, as in XLA.

From JAX 0.11 on XLA hands reductions, with the operations that only they read, to a library (YNNPACK) that
has its own vector code for sine, cosine and tangent: these are left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from functrans.caching import cached
from functrans.ir.program import Equation, Literal, Program
from functrans.ir.text import with_nested
from functrans.ir.types import ArrayType
from functrans.passes.machines import LARGE
from functrans.primitives.base import Primitive
from functrans.primitives.calls.jit import jit
from functrans.primitives.control_flow.cond import INDEX, cond
from functrans.primitives.elementwise.arithmetic import floor, max_, min_, rem, round_
from functrans.primitives.elementwise.bitwise import and_, not_, or_
from functrans.primitives.elementwise.complex_numbers import abs_
from functrans.primitives.elementwise.conversion import bitcast_convert_type, cast
from functrans.primitives.elementwise.families import (
    Elementwise,
    add,
    div,
    eq,
    full_like,
    gt,
    le,
    lt,
    mul,
    ne,
    neg,
    square,
    sub,
)
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.elementwise.transcendental import acos, asin, atan, atan2, cos, sin, sqrt, tan
from functrans.primitives.reductions.folds import Reduction, reduce_or, reduce_sum
from functrans.records import NamedTuple
from functrans.trace import bind, derive_from, provenance, stage, typeof

_PERIODIC = (sin, cos, tan)
_ATAN = () if jax.__version_info__ >= (0, 12) else (atan,)  # XLA of JAX 0.12 has its own vector code
FUNCTIONS = (*_PERIODIC, rem, asin, acos, *_ATAN, atan2)

# Numbers from which it pays in a kernel, and how many times as many of sine and cosine of float32, for which
# the C library takes 3 nanoseconds.
_FEWEST_IN_KERNEL, _QUICK = 32, 4
_LARGEST = 2.0**20
# pi/2 as a sum. The first parts have 33 bits, so that up to 2^20 times each of them is exact.
_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)


class _Format(NamedTuple):
    """A format of floats, and what is rounded to it.

    float, int: the dtypes of the floats and of their bits
    half_pi   : pi/2, rounded, and the rest
    quotient  : the largest of which a remainder is exact
    The others are polynomials in the square of their argument, from the constant term on:
    sin       : (sin r / r - 1) / r^2 for |r| <= pi/4
    cos       : (cos r - 1 + r^2 / 2) / r^4 for |r| <= pi/4
    atan      : (atan t / t - 1) / t^2 for |t| <= tan(pi/8)
    asin      : (asin s / s - 1) / s^2 for |s| <= 1/2
    """

    float: Any
    int: Any
    half_pi: tuple[float, float]
    quotient: float
    sin: Sequence[float]
    cos: Sequence[float]
    atan: Sequence[float]
    asin: Sequence[float]


# fmt: off
_SINGLE = _Format(
    np.dtype(np.float32), np.dtype(np.int32), (1.5707963705062866, -4.371139000186241e-08), 2.0**28,
    sin=(-0.16666654937132847, 0.008332177710072278, -0.0001951723712166156),
    cos=(0.04166664685434107, -0.0013887366899060101, 2.4438378360564087e-05),
    atan=(-0.3333331549737782, 0.19998488910918402, -0.14243838035863077, 0.10595917108177365,
          -0.060832269095758326),
    asin=(0.16666754134339198, 0.07495232623697805, 0.045478343393654974, 0.024141003908527043,
          0.04223050412602315),
)
_DOUBLE = _Format(
    np.dtype(np.float64), np.dtype(np.int64), (1.5707963267948966, 6.123233995736766e-17), 2.0**52,
    sin=(-0.16666666666666632, 0.008333333333322411, -0.0001984126982980631, 2.755731369148872e-06,
         -2.50507580574682e-08, 1.5896792689451345e-10),
    cos=(0.0416666666666666, -0.0013888888888874125, 2.4801587289482967e-05, -2.755731435257101e-07,
         2.0875723306874953e-09, -1.1359649591646545e-11),
    atan=(-0.333333333333332, 0.19999999999954032, -0.1428571428024362, 0.11111110785892858,
          -0.0909089782933741, 0.07692061508959411, -0.06663118905770889, 0.05847997997449051,
          -0.05039795563834906, 0.03807703293903472, -0.01792084819671172),
    asin=(0.16666666666665375, 0.07500000000344809, 0.044642856821969036, 0.030381959395630508,
          0.022371751937981126, 0.017359795586948036, 0.013884351401402421, 0.012174934208277715,
          0.0065035613001968185, 0.019594215386483097, -0.016326476937216616, 0.031981530204305254),
)
# fmt: on
_FORMATS = {"float16": _SINGLE, "bfloat16": _SINGLE, "float32": _SINGLE, "float64": _DOUBLE}


def in_vector_code(program: Program, equations: Sequence[Equation], in_kernel: bool) -> list[Equation]:
    """Return equations of a program with calls of vector code for functions of many numbers. Functions of
    the same angle are computed together."""
    together: dict[Any, list[Equation]] = {}
    for e in _chosen(program, equations, in_kernel):
        together.setdefault(e.inputs[0] if e.primitive in _PERIODIC else e, []).append(e)
    made = {found[0]: _call(found, in_kernel) for found in together.values()}
    replaced = {e for found in together.values() for e in found}
    return [made.get(e, e) for e in equations if e not in replaced or e in made]


def chosen(program: Program) -> list[Equation]:
    """Return the equations that become calls of vector code outside of kernels, also in nested programs."""
    programs = [p for p in with_nested(program) if not p.marks.settled]
    return [e for p in programs for e in _chosen(p, p.equations, in_kernel=False)]


def _chosen(program: Program, equations: Sequence[Equation], in_kernel: bool) -> list[Equation]:
    left = set() if in_kernel or jax.__version_info__ < (0, 11) else _in_library(program)
    return [e for e in equations if e not in left and is_for_vector_code(e, in_kernel)]


def is_for_vector_code(e: Equation, in_kernel: bool) -> bool:
    """Return whether an equation computes one of the functions of enough numbers to pay."""
    if e.primitive not in FUNCTIONS:
        return False
    t = e.outputs[0].type
    fewest = _FEWEST_IN_KERNEL if in_kernel else LARGE
    if e.primitive in (sin, cos) and t.dtype != _DOUBLE.float:
        fewest *= _QUICK
    if t.size < fewest or t.dtype.name not in _FORMATS:
        return False
    return not (all([v.__class__ is Literal for v in e.inputs]) or e.params.get("accuracy"))


def _in_library(program: Program) -> set[Equation]:
    """Return the equations of angles that only reductions read, through operations by element."""
    others, found = set(program.outputs), set[Equation]()  # what others than reductions read
    for e in reversed(program.equations):
        if isinstance(e.primitive, Elementwise):
            if not others.isdisjoint(e.outputs):
                others.update(e.inputs)
            elif e.primitive in _PERIODIC:
                found.add(e)
        elif not isinstance(e.primitive, Reduction):
            others.update(e.inputs)
    return found


def _call(found: list[Equation], in_kernel: bool) -> Equation:
    first = found[0]
    primitives, types = tuple([e.primitive for e in found]), tuple([v.type for v in first.inputs])
    program = _program(primitives, types, in_kernel)
    outputs = tuple([e.outputs[0] for e in found])
    return Equation(jit, first.inputs, outputs, {"program": program}, first.source, first.origin)


@cached("vector code", 1024)
def _program(primitives: tuple[Primitive, ...], types: tuple[ArrayType, ...], in_kernel: bool) -> Program:
    """Return the program of these functions of the same operands."""
    out = types[0]
    f = _FORMATS[out.dtype.name]

    def run(*xs: Any) -> list[Any]:
        with provenance():
            derive_from(None, None)
            xs = tuple([cast(x, f.float) for x in xs])
            if primitives[0] in _PERIODIC:
                is_large, here = gt(abs_(xs[0]), _LARGEST), partial(_of_angle, primitives, f)
                results = _unless(is_large, here, primitives, in_kernel, *xs)
            elif primitives == (rem,):
                is_large = gt(div(abs_(xs[0]), abs_(xs[1])), f.quotient)
                results = _unless(is_large, lambda *xs: [_remainder(f, *xs)], primitives, in_kernel, *xs)
            else:
                results = [_FORMULAS[p](f, *xs) for p in primitives]
            return [cast(x, out.dtype) for x in results]

    return stage(run, types, "_".join([p.name for p in primitives]))


# --- sine, cosine, tangent ------------------------------------------------------------------------


def _unless(
    is_large: Any, here: Callable[..., list[Any]], primitives: Sequence[Primitive], in_kernel: bool, *xs: Any
) -> list[Any]:
    """Compute functions by `here`, or if any number is too large by the C library."""
    axes = tuple(range(typeof(is_large).ndim))
    if in_kernel:
        is_any = reduce_or(is_large, axes=axes)
    else:  # XLA compiles this sum in a tenth of the time; its maxima lose NaN, and what comes before
        is_any = gt(reduce_sum(cast(is_large, _SINGLE.float), axes=axes), 0.0)
    types = [*map(typeof, xs)]
    library = stage(lambda *xs: [p(*xs) for p in primitives], types, "library")
    library.mark(settled=True)  # kernels.py leaves it as it is
    branches = (stage(here, types, "vector_code"), library)
    return bind(cond, [cast(is_any, INDEX.dtype), *xs], {"branches": branches})


def _of_angle(primitives: Sequence[Primitive], f: _Format, x: Any) -> list[Any]:
    r, n = _reduced(f, x)
    z = square(r)
    s = _odd(r, z, f.sin)
    half = mul(z, 0.5)
    one = sub(1.0, half)
    c = add(one, add(sub(sub(1.0, one), half), mul(square(z), _polynomial(z, f.cos))))
    is_odd = _has_bit(n, 1)

    def chosen(even: Any, odd: Any, n: Any) -> Any:
        value = select_n(is_odd, even, odd)
        return select_n(_has_bit(n, 2), value, neg(value))

    of: dict[Any, Any] = {
        sin: lambda: select_n(eq(x, 0.0), chosen(s, c, n), x),  # keeps -0
        cos: lambda: chosen(c, s, add(n, 1)),
        tan: lambda: select_n(eq(x, 0.0), div(select_n(is_odd, s, neg(c)), select_n(is_odd, c, s)), x),
    }
    return [of[p]() for p in primitives]


def _reduced(f: _Format, x: Any) -> tuple[Any, Any]:
    """Return the difference of x from the nearest multiple of pi/2, and which one that is."""
    a, b, c = _HALF_PI
    x = cast(x, _DOUBLE.float)
    q = round_(mul(x, 2 / math.pi), rounding_method=1)
    r = sub(x, mul(q, a))
    if f is _SINGLE:
        return cast(sub(r, mul(q, b)), f.float), cast(q, INDEX.dtype)
    first = sub(r, mul(q, b))
    lost = sub(sub(r, first), mul(q, b))
    return add(first, sub(lost, mul(q, c))), cast(q, INDEX.dtype)


def _has_bit(n: Any, bit: int) -> Any:
    return ne(and_(n, full_like(n, bit)), 0)


# --- remainder ------------------------------------------------------------------------------------


def _remainder(f: _Format, x: Any, y: Any) -> Any:
    """Return |x| - q |y| with the sign of x: exact, since q is an integer below `f.quotient`."""
    size, by = (cast(abs_(v), _DOUBLE.float) for v in (x, y))
    q = floor(div(size, by))
    rest = _less_product(size, q, by) if f is _DOUBLE else sub(size, mul(q, by))
    rest = select_n(lt(rest, 0.0), rest, add(rest, by))  # the quotient was rounded up to q
    rest = select_n(eq(by, math.inf), rest, size)
    return _with_sign(f, cast(rest, f.float), x)


def _less_product(x: Any, q: Any, y: Any) -> Any:
    """Return x - q y for a product close to x, without rounding: by the product and its error (Dekker
    1971)."""

    def halves(v: Any) -> tuple[Any, Any]:
        scaled = mul(v, 2.0**27 + 1)
        high = sub(scaled, sub(scaled, v))
        return high, sub(v, high)

    product, (a, b), (c, d) = mul(q, y), halves(q), halves(y)
    error = add(add(add(sub(mul(a, c), product), mul(a, d)), mul(b, c)), mul(b, d))
    return sub(sub(x, product), error)


# --- inverses of sine, cosine, tangent ------------------------------------------------------------


def _asin(f: _Format, x: Any) -> Any:
    is_far, p = _asin_of_part(f, x)
    high, low = f.half_pi
    return _with_sign(f, select_n(is_far, p, sub(high, sub(add(p, p), low))), x)


def _acos(f: _Format, x: Any) -> Any:
    is_far, p = _asin_of_part(f, x)
    high, low = f.half_pi
    twice = add(p, p)
    far = select_n(lt(x, 0.0), twice, sub(2 * high, sub(twice, 2 * low)))
    return select_n(is_far, sub(high, sub(_with_sign(f, p, x), low)), far)


def _asin_of_part(f: _Format, x: Any) -> tuple[Any, Any]:
    """Return whether |x| is above 1/2, and the arc sine of |x|, or in that case half of its arc cosine."""
    size = abs_(x)
    is_far = gt(size, 0.5)
    z = select_n(is_far, square(size), mul(sub(1.0, size), 0.5))
    return is_far, _odd(select_n(is_far, size, sqrt(z)), z, f.asin)


def _atan2(f: _Format, y: Any, x: Any) -> Any:
    size_y, size_x = abs_(y), abs_(x)
    small, large = min_(size_y, size_x), max_(size_y, size_x)
    # The angle below pi/8, or its difference from pi/4. The halves do not overflow.
    is_far = not_(le(sub(small, mul(large, math.tan(math.pi / 8))), 0.0))  # of infinities: true
    a, b = mul(small, 0.5), mul(large, 0.5)
    t = div(select_n(is_far, small, sub(a, b)), select_n(is_far, large, add(a, b)))
    is_known = or_(eq(large, 0.0), eq(small, math.inf))
    t = select_n(is_known, t, full_like(t, 0))
    angle = _odd(t, square(t), f.atan)
    high, low = f.half_pi
    angle = select_n(is_far, angle, add(add(angle, 0.5 * low), 0.5 * high))
    angle = select_n(gt(size_y, size_x), angle, add(sub(low, angle), high))
    is_left = lt(bitcast_convert_type(x, dtype=f.int), 0)
    angle = select_n(is_left, angle, add(sub(2 * low, angle), 2 * high))
    return _with_sign(f, angle, y)


_FORMULAS: dict[Any, Any] = {
    asin: _asin,
    acos: _acos,
    atan: lambda f, x: _atan2(f, x, full_like(x, 1)),
    atan2: _atan2,
}


# --- parts ----------------------------------------------------------------------------------------


def _odd(x: Any, z: Any, coefficients: Sequence[float]) -> Any:
    """Return x + x z p(z), an odd function of x if z is its square."""
    return add(x, mul(x, mul(z, _polynomial(z, coefficients))))


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    *rest, last = coefficients
    total = full_like(x, last)
    for c in reversed(rest):
        total = add(mul(total, x), c)
    return total


def _with_sign(f: _Format, x: Any, sign: Any) -> Any:
    """Return a number that is not negative with the sign of another."""
    x, sign = (bitcast_convert_type(v, dtype=f.int) for v in (x, sign))
    sign = and_(sign, full_like(sign, np.iinfo(f.int).min))
    return bitcast_convert_type(or_(x, sign), dtype=f.float)
