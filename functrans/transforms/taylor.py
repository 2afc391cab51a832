"""Taylor series of operations: recurrences for the coefficients of nonlinear ones (`TABLE`), with
O(order^2) multiplications each.

In: for each operand the list `[x0, x1, ..., xK]` of coefficients of `x(t) = sum x_k t^k` (None:
zero), the result `y0`, and the parameters. Out: `[y1, ..., yK]`.

If the series of the derivative `g(t) = f'(x(t))` is known, that of y = f(x) follows from `y' = g
x'`, that is `k y_k = sum_{j=1..k} j x_j g_{k-j}`. Only lower orders of g are needed, so g may be
computed from y itself.

The recurrences are one table, not methods of the primitives, because they are optional: without one
the coefficients come from the jvp rule (transforms/jet.py), only slower. They also share an algebra
of series.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log as log_of
from math import pi
from math import sqrt as sqrt_of
from typing import Any

from functrans.ir.program import Literal
from functrans.primitives.base import sum_of
from functrans.primitives.elementwise.arithmetic import pow_
from functrans.primitives.elementwise.conversion import cast
from functrans.primitives.elementwise.families import (
    add,
    div,
    eq,
    full_like,
    mul,
    neg,
    one_minus_square,
    square,
    sub,
)
from functrans.primitives.elementwise.selection import one_for_zero, select_n
from functrans.primitives.elementwise.transcendental import cos, cosh, exp, log, sin, sinh, sqrt
from functrans.trace import typeof

Series = Sequence[Any]
Rule = Callable[..., list[Any]]


# --- algebra of coefficients, where None is zero --------------------------------------------------


def times(x: Any, y: Any) -> Any:
    """Return x * y."""
    return None if x is None or y is None else mul(x, y)


def scaled(x: Any, factor: float) -> Any:
    """Return x times a number."""
    if x is None or factor == 0:
        return None
    if factor == 1:
        return x
    return neg(x) if factor == -1 else mul(x, factor)


def over(x: Any, y: Any) -> Any:
    """Return x / y, for an array or a number y."""
    return x if x is None or (y.__class__ is int and y == 1) else div(x, y)


def minus(x: Any, y: Any) -> Any:
    """Return x - y."""
    if y is None:
        return x
    return neg(y) if x is None else sub(x, y)


def folded(x: Series, y: Series, k: int, first: int = 0, last: int | None = None) -> Any:
    """Return the sum over j from `first` to `last` (default k) of x_j * y_{k-j}."""
    total = None
    for j in range(first, k + 1 if last is None else last + 1):
        total = sum_of(total, times(x[j], y[k - j]))
    return total


def squared(x: Series, k: int, first: int = 0) -> Any:
    """Return the sum over j from `first` to `k - first` of x_j * x_{k-j}, multiplying each pair
    once."""
    pairs = folded(x, x, k, first, (k - 1) // 2)
    total = scaled(pairs, 2)
    if k % 2 == 0 and first <= k // 2 and x[k // 2] is not None:
        total = sum_of(total, square(x[k // 2]))
    return total


def rates(x: Series) -> list[Any]:
    """Return the series k * x_k."""
    return [None, *[scaled(c, k) for k, c in enumerate(x) if k]]


# --- families of recurrences ----------------------------------------------------------------------


def by_rate(rate: Callable[[Series, int], Any]) -> Rule:
    """The rule for f'(x(t)) given as a series in terms of that of y: `rate(y, j)` is its
    coefficient j."""

    def rule(x: Series, *, y0: Any, **_: Any) -> list[Any]:
        moving, y, g = rates(x), [y0], []
        for k in range(1, len(x)):
            g.append(rate(y, k - 1))
            y.append(over(folded(moving, g, k, 1), k))
        return y[1:]

    return rule


def by_divisor(divisor: Callable[[Series], Series], sign: int = 1) -> Rule:
    """The rule for y' = sign * x' / d, where the series of d is a function of that of x."""

    def rule(x: Series, *, y0: Any, **_: Any) -> list[Any]:
        d, moving, y = divisor(x), rates(x), [None]  # y: k * y_k
        for k in range(1, len(x)):
            y.append(over(minus(scaled(moving[k], sign), folded(y, d, k, 1, k - 1)), d[0]))
        return [over(c, k) for k, c in enumerate(y) if k]

    return rule


def by_root(r: float) -> Rule:
    """The rule for a power that is singular at zero: x y' = r x' y."""

    def rule(x: Series, *, y0: Any, **_: Any) -> list[Any]:
        y = [y0]
        for k in range(1, len(x)):
            total = None
            for j in range(1, k + 1):
                total = sum_of(total, scaled(times(x[j], y[k - j]), (j * (r + 1) - k) / k))
            y.append(over(total, x[0]))
        return y[1:]

    return rule


def by_turns(other: Callable[[Any], Any], first: int, second: int) -> Rule:
    """The rule for a function and its `other`: y' = first * z x', z' = second * y x'."""

    def rule(x: Series, *, y0: Any, **_: Any) -> list[Any]:
        moving, y, z = rates(x), [y0], [other(x[0])]
        for k in range(1, len(x)):
            dy, dz = folded(moving, z, k, 1), folded(moving, y, k, 1) if k < len(x) - 1 else None
            y.append(over(scaled(dy, first), k))
            z.append(over(scaled(dz, second), k))
        return y[1:]

    return rule


# --- single operations ----------------------------------------------------------------------------


def exp_series(x: Series, *, y0: Any, **_: Any) -> list[Any]:
    """Solve y' = y x'."""
    return by_rate(lambda y, j: y[j])(x, y0=y0)


def square_series(x: Series, *, y0: Any, **_: Any) -> list[Any]:
    """Return the product of a series with itself."""
    return [squared(x, k) for k in range(1, len(x))]


def one_minus_square_series(x: Series, *, y0: Any, **_: Any) -> list[Any]:
    """Return 1 minus the product of a series with itself."""
    return [scaled(c, -1) for c in square_series(x, y0=y0)]


def sqrt_series(x: Series, *, y0: Any, **_: Any) -> list[Any]:
    """Solve y * y = x."""
    y, twice = [y0], mul(y0, 2)
    for k in range(1, len(x)):
        y.append(over(minus(x[k], squared(y, k, 1)), twice))
    return y[1:]


def div_series(u: Series, v: Series, *, y0: Any, **_: Any) -> list[Any]:
    """Solve y * v = u."""
    y = [y0]
    for k in range(1, len(u)):
        y.append(over(minus(u[k], folded(v, y, k, 1)), v[0]))
    return y[1:]


def bell_series(factor: float) -> Rule:
    """The rule for y' = factor * exp(-x^2) x'."""

    def rule(x: Series, *, y0: Any, **_: Any) -> list[Any]:
        exponent = [neg(square(x[0])), *[scaled(squared(x, k), -1) for k in range(1, len(x) - 1)]]
        top = exp(exponent[0])
        g, moving = [top, *exp_series(exponent, y0=top)], rates(x)
        return [scaled(folded(moving, g, k, 1), factor / k) for k in range(1, len(x))]

    return rule


def product(x: Series, y: Series, first: Any = None) -> list[Any]:
    """Return the product of two series. `first` is its coefficient of order 0, if known."""
    top = times(x[0], y[0]) if first is None else first
    if x is y:
        return [top, *[squared(x, k) for k in range(1, len(x))]]
    return [top, *[folded(x, y, k) for k in range(1, len(x))]]


def integer_pow_series(x: Series, *, y0: Any, y: int) -> list[Any]:
    """Use repeated squaring, which also works at x = 0."""
    if y == 0:
        return [None] * (len(x) - 1)
    left = abs(y)
    power = list(x)
    made: list[Any] = []
    while left:
        if left & 1:
            made = product(made, power) if made else power
        left >>= 1
        if left:
            power = product(power, power)
    if y > 0:
        return made[1:]
    back = [y0]
    for k in range(1, len(x)):
        back.append(over(scaled(folded(made, back, k, 1), -1), made[0]))
    return back[1:]


def pow_series(x: Series, r: Series, *, y0: Any) -> list[Any]:
    """Use exp(r log x) if the exponent has a series. Otherwise evaluate a polynomial in x(t) - x_0
    with coefficients binomial(r, i) x_0^(r - i), by Horner's rule: a recurrence that divides by x_0
    would fail at 0, where x^2 still has derivatives."""
    if any(c is not None for c in r[1:]):
        base = [one_for_zero(x[0]), *x[1:]]
        top = log(base[0])
        logs = [top, *by_divisor(lambda x: x)(base, y0=top)]
        return exp_series(product(r, logs), y0=y0)
    order = len(x) - 1
    factors = _binomials(x[0], r[0], order)
    total: list[Any] = [factors[order]]  # of orders 0 to `order - i`
    for i in range(order - 1, -1, -1):
        shifted = [folded(x, total, k, 1) for k in range(1, order - i + 1)]
        total = [factors[i] if i else y0, *shifted]
    return total[1:]


def _binomials(x: Any, r: Any, order: int) -> list[Any]:
    """Return binomial(r, i) x^(r - i) for i = 0 (given as None) to `order`; 0 where the binomial
    is, whatever the power."""
    found: list[Any] = [None]
    if r.__class__ is Literal:
        factor: Any = 1.0
        for i in range(1, order + 1):
            factor *= (r.value - i + 1) / i
            less = pow_(x, Literal(r.value - i, r.type)) if factor else None
            found.append(scaled(less, factor))
        return found
    r = cast(r, typeof(x).dtype)
    top: Any = None
    for i in range(1, order + 1):
        more = over(sub(r, i - 1) if i > 1 else r, i)
        top = more if top is None else mul(top, more)
        term = mul(top, pow_(x, sub(r, i)))
        found.append(select_n(eq(top, 0), term, full_like(term, 0)))
    return found


# --- series of terms in the derivatives of inverse functions --------------------------------------


def _one_plus(x: Series) -> list[Any]:
    return [add(x[0], 1), *x[1:]]


def _one_plus_square(x: Series) -> list[Any]:
    return [add(square(x[0]), 1), *square_series(x, y0=None)]


def _one_minus_square(x: Series) -> list[Any]:
    return [one_minus_square(x[0]), *one_minus_square_series(x, y0=None)]


def _root(x: Series) -> list[Any]:
    top = sqrt(x[0])
    return [top, *sqrt_series(x, y0=top)]


def _square_minus_one(x: Series) -> list[Any]:
    return [scaled(c, -1) for c in _one_minus_square(x)]


TABLE: dict[str, Rule] = {
    "exp": exp_series,
    "exp2": by_rate(lambda y, j: scaled(y[j], log_of(2))),
    "expm1": by_rate(lambda y, j: y[j] if j else add(y[0], 1)),
    "tan": by_rate(lambda y, j: squared(y, j) if j else add(square(y[0]), 1)),
    "tanh": by_rate(lambda y, j: scaled(squared(y, j), -1) if j else one_minus_square(y[0])),
    "logistic": by_rate(lambda y, j: minus(y[j], squared(y, j)) if j else mul(y[0], sub(1, y[0]))),
    "log": by_divisor(lambda x: x),
    "log1p": by_divisor(_one_plus),
    "atan": by_divisor(_one_plus_square),
    "atanh": by_divisor(_one_minus_square),
    "asin": by_divisor(lambda x: _root(_one_minus_square(x))),
    "acos": by_divisor(lambda x: _root(_one_minus_square(x)), -1),
    "asinh": by_divisor(lambda x: _root(_one_plus_square(x))),
    "acosh": by_divisor(lambda x: _root(_square_minus_one(x))),
    "sin": by_turns(cos, 1, -1),
    "cos": by_turns(sin, -1, 1),
    "sinh": by_turns(cosh, 1, 1),
    "cosh": by_turns(sinh, 1, 1),
    "square": square_series,
    "one_minus_square": one_minus_square_series,
    "sqrt": sqrt_series,
    "rsqrt": by_root(-1 / 2),
    "cbrt": by_root(1 / 3),
    "div": div_series,
    "integer_pow": integer_pow_series,
    "pow": pow_series,
    "erf": bell_series(2 / sqrt_of(pi)),
    "erfc": bell_series(-2 / sqrt_of(pi)),
}
