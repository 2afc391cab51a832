"""Taylor series of operations: recurrences for the coefficients of those whose derivative is made of
their own result (`TABLE`), with O(order^2) multiplications each.

In: for each operand the list `[x0, x1, ..., xK]` of coefficients of `x(t) = sum x_k t^k` (None:
zero), the result `y0`, and the parameters. Out: `[y1, ..., yK]`.

If the series of the derivative `g(t) = f'(x(t))` is known, that of y = f(x) follows from `y' = g
x'`, that is `k y_k = sum_{j=1..k} j x_j g_{k-j}`. Only lower orders of g are needed, so g may be
computed from y itself.

The recurrences are one table, not methods of the primitives, because they are optional: without one
the coefficients come from the jvp rule (transforms/jet.py). That is as fast for a derivative made of
other operations, as of log and asin. One made of the result would be computed anew for each order:
with 16 orders of tanh, sin, exp and a quotient, compiling takes seven times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log as log_of
from typing import Any

from functrans.primitives.base import sum_of
from functrans.primitives.elementwise import families as ew
from functrans.primitives.elementwise.arithmetic import pow_
from functrans.primitives.elementwise.conversion import cast
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.elementwise.transcendental import cos, cosh, sin, sinh
from functrans.trace import typeof

Series = Sequence[Any]
Rule = Callable[..., list[Any]]
Product = Callable[[Any, Any], Any]


# --- algebra of coefficients, where None is zero --------------------------------------------------


def times(x: Any, y: Any) -> Any:
    return None if x is None or y is None else ew.mul(x, y)


def scaled(x: Any, factor: float) -> Any:
    """Return x times a number."""
    if x is None or factor == 0:
        return None
    if factor == 1:
        return x
    return ew.neg(x) if factor == -1 else ew.mul(x, factor)


def over(x: Any, y: Any) -> Any:
    """Return x / y, for an array or a number y."""
    return x if x is None or (y.__class__ is int and y == 1) else ew.div(x, y)


def minus(x: Any, y: Any) -> Any:
    if y is None:
        return x
    return ew.neg(y) if x is None else ew.sub(x, y)


def folded(
    x: Series, y: Series, k: int, first: int = 0, last: int | None = None, product: Product = times
) -> Any:
    """Return the sum over j from `first` to `last` (default k) of x_j * y_{k-j}."""
    total = None
    for j in range(first, k + 1 if last is None else last + 1):
        total = sum_of(total, product(x[j], y[k - j]))
    return total


def squared(x: Series, k: int) -> Any:
    """Return the sum over j of x_j * x_{k-j}, multiplying each pair once."""
    total = scaled(folded(x, x, k, 0, (k - 1) // 2), 2)
    if k % 2 == 0 and x[k // 2] is not None:
        total = sum_of(total, ew.square(x[k // 2]))
    return total


def rates(x: Series) -> list[Any]:
    """Return the series k * x_k."""
    return [None, *[scaled(c, k) for k, c in enumerate(x) if k]]


# --- families of recurrences ----------------------------------------------------------------------


def by_rate(rate: Callable[[Series, int], Any]) -> Rule:
    """The rule for f'(x(t)) given as a series in terms of that of y: `rate(y, j)` is its coefficient j."""

    def rule(x: Series, *, y0: Any, **_: Any) -> list[Any]:
        moving, y, g = rates(x), [y0], []
        for k in range(1, len(x)):
            g.append(rate(y, k - 1))
            y.append(over(folded(moving, g, k, 1), k))
        return y[1:]

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


def div_series(u: Series, v: Series, *, y0: Any, **_: Any) -> list[Any]:
    """Solve y * v = u."""
    y = [y0]
    for k in range(1, len(u)):
        y.append(over(minus(u[k], folded(v, y, k, 1)), v[0]))
    return y[1:]


def pow_series(x: Series, r: Series, *, y0: Any) -> list[Any]:
    """For a constant exponent, evaluate a polynomial in x(t) - x_0 with coefficients binomial(r, i)
    x_0^(r - i), by Horner's rule: a recurrence that divides by x_0 would fail at 0, where x^2 still
    has derivatives."""
    order = len(x) - 1
    factors = _binomials(x[0], r[0], order)
    total: list[Any] = [factors[order]]  # of orders 0 to `order - i`
    for i in range(order - 1, -1, -1):
        shifted = [folded(x, total, k, 1) for k in range(1, order - i + 1)]
        total = [factors[i] if i else y0, *shifted]
    return total[1:]


def _binomials(x: Any, r: Any, order: int) -> list[Any]:
    """Return binomial(r, i) x^(r - i) for i = 0 (as None) to `order`; 0 where the binomial is."""
    found: list[Any] = [None]
    r = cast(r, typeof(x).dtype)
    top: Any = None
    for i in range(1, order + 1):
        more = over(ew.sub(r, i - 1) if i > 1 else r, i)
        top = more if top is None else ew.mul(top, more)
        term = ew.mul(top, pow_(x, ew.sub(r, i)))
        found.append(select_n(ew.eq(top, 0), term, ew.full_like(term, 0)))
    return found


TABLE: dict[str, Rule] = {
    "exp": by_rate(lambda y, j: y[j]),
    "exp2": by_rate(lambda y, j: scaled(y[j], log_of(2))),
    "expm1": by_rate(lambda y, j: y[j] if j else ew.add(y[0], 1)),
    "tan": by_rate(lambda y, j: squared(y, j) if j else ew.add(ew.square(y[0]), 1)),
    "tanh": by_rate(lambda y, j: scaled(squared(y, j), -1) if j else ew.one_minus_square(y[0])),
    "logistic": by_rate(lambda y, j: minus(y[j], squared(y, j)) if j else ew.mul(y[0], ew.sub(1, y[0]))),
    "sin": by_turns(cos, 1, -1),
    "cos": by_turns(sin, -1, 1),
    "sinh": by_turns(cosh, 1, 1),
    "cosh": by_turns(sinh, 1, 1),
    "sqrt": by_root(1 / 2),
    "rsqrt": by_root(-1 / 2),
    "cbrt": by_root(1 / 3),
    "div": div_series,
    "pow": pow_series,
}
