"""Find values that are never -0.0, so that adding 0.0 to them changes nothing.

In: a value and the equations before it. Out: whether it is known not to be -0.0: a square, a sum
over axes or windows (which starts from 0.0), a magnitude, a sum with such a term, and data movement
or selection of these. The default answer is no.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from functrans.ir.program import Equation, Literal, Var
from functrans.ir.types import dtype_class
from functrans.primitives.elementwise import transcendental as transcendental
from functrans.primitives.elementwise.arithmetic import integer_pow
from functrans.primitives.elementwise.complex_numbers import abs_
from functrans.primitives.elementwise.families import add, mul, square
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.reductions.folds import reduce_sum
from functrans.primitives.reductions.windows import select_and_scatter_add
from functrans.primitives.shape.moving import (
    broadcast_in_dim,
    reshape,
    rev,
    slice_,
    squeeze,
    transpose,
)

_DEEP = 8  # maximum depth of the search
_NEVER = frozenset([square, abs_, reduce_sum, select_and_scatter_add, transcendental.exp])
_MOVES = frozenset([broadcast_in_dim, reshape, rev, slice_, squeeze, transpose])


def never_negative_zero(made_by: Mapping[Var, Equation], v: Any, deep: int = _DEEP) -> bool:
    """Return whether no element of a real value is known to be -0.0."""
    if v.__class__ is Literal:
        number: Any = v.value
        return not (number == 0 and math.copysign(1.0, number) < 0)
    e = made_by.get(v)
    if e is None or not deep or dtype_class(v.type.dtype) != "float":
        return False
    p, xs = e.primitive, e.inputs
    if p in _NEVER:
        return True
    if p is mul:
        return xs[0] is xs[1]
    if p is integer_pow:
        return bool(e.params["y"] % 2 == 0 and e.params["y"] > 0)
    if p is add:  # only -0.0 + -0.0 is -0.0
        return any([never_negative_zero(made_by, x, deep - 1) for x in xs])
    if p in _MOVES:
        return never_negative_zero(made_by, xs[0], deep - 1)
    if p is select_n:
        return all([never_negative_zero(made_by, x, deep - 1) for x in xs[1:]])
    return False
