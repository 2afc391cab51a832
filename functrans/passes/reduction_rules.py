"""Rules of `simplify` for sums, other reductions and contractions.

Integer sums and maxima can be reordered freely. Reordering a float sum changes its rounding, so
such rules check `w.exact`. None of them introduces NaN or infinity, except for factors that are
powers of two near the end of the range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans.ir.program import Equation, Literal
from functrans.ir.types import dtype_class
from functrans.passes.concatenations import contraction_of_joined, sum_of_joined
from functrans.passes.data_movement import moved, never_negative
from functrans.passes.rewrite import Rewriter, is_power_of_two, smallest_normal
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.elementwise.families import add, div, mul
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.reductions.folds import (
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_sum,
)
from functrans.primitives.shape.moving import broadcast_in_dim, kept_axes, reshape, transpose
from functrans.trace import literal

_IDEMPOTENT = (reduce_max, reduce_min, reduce_and, reduce_or)


def _any_order(w: Rewriter, e: Equation) -> bool:
    """Return whether the elements may be combined in another order."""
    if e.primitive in _IDEMPOTENT or not w.exact or w.fast_math:
        return True
    return dtype_class(e.outputs[0].type.dtype) in ("int", "uint")


def _reduce(w: Rewriter, e: Equation) -> Any:
    (x,), axes = e.inputs, e.params["axes"]
    if not axes:
        return x if e.primitive is not reduce_sum or _is_whole(w, x) else None
    if x.__class__ is Literal:
        return None
    if x.type.size == e.outputs[0].type.size and (e.primitive is not reduce_sum or _is_whole(w, x)):
        return w.make(reshape, x, shape=e.outputs[0].type.shape)
    if not _any_order(w, e):
        return None
    if e.primitive is reduce_sum:
        for rule in (_scaled_sum, sum_of_joined):
            found = rule(w, e)
            if found is not None:
                return found
    inner = w.made(x, e.primitive)
    if inner is not None and w.read_once(x):
        kept = kept_axes(inner.inputs[0].type.ndim, inner.params["axes"])
        both = sorted((*inner.params["axes"], *[kept[a] for a in axes]))
        if _neighbours(both, inner.inputs[0].type.shape):
            return w.make(e.primitive, inner.inputs[0], axes=tuple(both))
    inner = w.made(x, broadcast_in_dim)
    if inner is not None:
        return _of_repeated(w, e, inner)
    inner = w.made(x, transpose)
    if inner is not None:
        order = inner.params["permutation"]
        left = [d for i, d in enumerate(order) if i not in axes]
        if left == sorted(left):
            before = tuple(sorted([order[a] for a in axes]))
            return w.make(e.primitive, inner.inputs[0], axes=before)
    return None


def _is_whole(w: Rewriter, x: Any) -> bool:
    """Return whether the sum of x alone is x. A sum starts with 0.0, and 0.0 + -0.0 is 0.0."""
    kind = dtype_class(x.type.dtype)
    return kind in ("int", "uint") or w.fast_math or never_negative(w.made_by, x)


def _neighbours(axes: Sequence[int], shape: Sequence[int]) -> bool:
    """Return whether the axes are adjacent: reducing scattered axes at once strides through memory."""
    between = [n for i, n in enumerate(shape) if axes[0] < i < axes[-1] and i not in axes]
    return not any([n != 1 for n in between])


def _of_repeated(w: Rewriter, e: Equation, inner: Equation) -> Any:
    """Replace the reduction of a broadcast x by that of x, times n if a sum runs over the copies."""
    axes, dimensions, shape = e.params["axes"], inner.params["dimensions"], inner.params["shape"]
    count = 1
    for a in axes:
        if a not in dimensions:
            count *= shape[a]
    if count == 0 or e.primitive is reduce_prod:
        return None
    y = inner.inputs[0]
    own = tuple([i for i, d in enumerate(dimensions) if d in axes])
    if own:
        y = w.make(e.primitive, y, axes=own)
    kept = [a for a in range(len(shape)) if a not in axes]
    dims = tuple([kept.index(d) for d in dimensions if d not in axes])
    if e.primitive is reduce_sum:
        y = _times(w, y, count, bool(own))
        if y is None:
            return None
    return moved(w, broadcast_in_dim, y, shape=tuple([shape[a] for a in kept]), dimensions=dims)


def _times(w: Rewriter, y: Any, count: int, summed: bool) -> Any:
    """Return count * y; without -0.0, because no sum is -0.0."""
    factor = literal(count, y.type)
    kind = dtype_class(y.type.dtype)
    if kind == "complex" or (kind == "float" and factor.value != count):
        return None
    if count > 1:
        y = w.make(mul, y, factor)
    if kind == "float" and not summed and not w.fast_math:
        y = w.make(add, y, literal(0.0, y.type))
    return y


def _factor(w: Rewriter, v: Any) -> tuple[Any, Any] | None:
    """Return x and c if v, used only here, is x * c with a number c by which products are exact."""
    inner = w.made(v, mul)
    if inner is None:
        return None
    x, c = inner.inputs
    if x.__class__ is Literal:
        x, c = c, x
    if c.__class__ is not Literal or x.__class__ is Literal or not w.read_once(v):
        return None
    kind = dtype_class(c.type.dtype)
    exact = kind in ("int", "uint") or (kind == "float" and _only_scales(c))
    return (x, c) if exact or (w.fast_math and kind == "float") else None


def _only_scales(c: Literal) -> bool:
    """Return whether products with c are exact, and in range before a sum if they are after it, for all
    but the largest and smallest numbers of a dtype. float16 has none to spare."""
    in_range = 2.0**-16 <= abs(c.value) <= 2.0**16 and smallest_normal(c.type.dtype) < 1e-30
    return in_range and is_power_of_two(c.value)


def _scaled_sum(w: Rewriter, e: Equation) -> Any:
    """Replace the sum of x * c by c times the sum of x."""
    (v,) = e.inputs
    if e.outputs[0].type.size >= v.type.size:
        return None
    found = _factor(w, v)
    if found is None:
        return None
    total = w.make(reduce_sum, found[0], **e.params)
    return w.make(mul, total, literal(found[1].value, total.type))


def _dot_general(w: Rewriter, e: Equation) -> Any:
    if w.exact:
        return None
    x, y = e.inputs
    lhs, rhs = e.params["lhs"], e.params["rhs"]
    swapped = w.made(x, transpose), w.made(y, transpose)
    if swapped[0] is not None or swapped[1] is not None:
        x, lhs = _untransposed(x, lhs, swapped[0])
        y, rhs = _untransposed(y, rhs, swapped[1])
        return w.make(dot_general, x, y, **{**e.params, "lhs": lhs, "rhs": rhs})
    t = e.outputs[0].type
    for i, v in enumerate(e.inputs):
        if v.type.size <= t.size or v.type.dtype != t.dtype:
            continue
        found = _factor(w, v)
        if found is not None:
            operands = [found[0], y] if i == 0 else [x, found[0]]
            made = w.make(dot_general, *operands, **e.params)
            return w.make(mul, made, literal(found[1].value, made.type))
    return contraction_of_joined(w, e)


def _untransposed(x: Any, names: tuple[int, ...], by: Equation | None) -> tuple[Any, Any]:
    if by is None:
        return x, names
    order = by.params["permutation"]
    return by.inputs[0], tuple([names[order.index(i)] for i in range(len(order))])


RULES: dict[Any, Any] = {
    **dict.fromkeys([reduce_sum, reduce_prod, *_IDEMPOTENT], _reduce),
    dot_general: _dot_general,
}


# --- a selection between multiples of one value is a multiple of it -------------------------------
#
#     select(c, x, x / n * m)   ->   x / select(c, 1, n) * select(c, 1, m)
#
# Here c, n and m are broadcast from one number per example. Gradient clipping by `where`, or by `cond`
# under `vmap`, has this form. A per-example gradient that is only multiplied and summed need never be
# materialized (passes/contractions.py). Multiplying by 1 rounds nothing; NaN and infinities are those
# of the selected case. (A complex infinity times 1 would be NaN.)

_LONGEST = 4  # maximum number of chained products


def chosen_multiple(w: Rewriter, e: Equation) -> Any:
    """Rewrite a selection of two cases if both are multiples of one such value."""
    which, *cases = e.inputs
    by = w.made_by.get(which)
    if len(cases) != 2 or by is None or by.primitive is not broadcast_in_dim:
        return None
    if dtype_class(e.outputs[0].type.dtype) == "complex":
        return None
    chains = [_multiples(w, v) for v in cases]
    starts = [v for v, _ in chains[0] if any([v is u for u, _ in chains[1]])]
    if not starts:
        return None
    made = starts[0]
    for case, chain in enumerate(chains):
        end = next(i for i, (v, _) in enumerate(chain) if v is starts[0])
        for _, step in reversed(chain[:end]):
            factor = _multiplier(w, step)
            chosen = _chosen(w, by, factor, case) if factor is not None else None
            if chosen is None:
                return None
            made = w.make(step.primitive, made, chosen)
    return made


def _multiples(w: Rewriter, v: Any) -> list[tuple[Any, Any]]:
    """Return the value and those it is a multiple of, each with the equation that multiplies the next."""
    found: list[tuple[Any, Any]] = []
    for _ in range(_LONGEST):
        e = w.made_by.get(v)
        factor = None if e is None else _multiplier(w, e)
        found.append((v, e if factor is not None else None))
        if e is None or factor is None:
            break
        v = e.inputs[1] if factor is e.inputs[0] else e.inputs[0]
    return found


def _multiplier(w: Rewriter, e: Equation) -> Any:
    """Return the number, or the broadcast numbers, that an equation multiplies or divides by."""
    if e.primitive is div:
        return e.inputs[1] if _is_repeated(w, e.inputs[1]) else None
    if e.primitive is not mul:
        return None
    return next((v for v in reversed(e.inputs) if _is_repeated(w, v)), None)


def _is_repeated(w: Rewriter, v: Any) -> bool:
    if v.__class__ is Literal:
        return True
    by = w.made_by.get(v)
    return by is not None and by.primitive is broadcast_in_dim


def _chosen(w: Rewriter, by: Equation, factor: Any, case: int) -> Any:
    """Return the factor where this case is selected, else 1, broadcast as the selection `by` is."""
    (c,) = by.inputs
    if factor.__class__ is Literal:
        small: Any = Literal(factor.value, factor.type.update(shape=c.type.shape))
    else:
        repeated = w.made_by[factor]
        (small,) = repeated.inputs
        if repeated.params != by.params or small.type.shape != c.type.shape:
            return None
    cases = [literal(1, small.type), small]
    chosen = w.make(select_n, c, *(cases if case else reversed(cases)))
    return w.make_typed(broadcast_in_dim, (chosen,), by.params, factor.type)
