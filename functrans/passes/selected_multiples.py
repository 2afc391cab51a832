"""A rule of `simplify`: a selection between multiples of one value is a multiple of it.

    select(c, x, x / n * m)   ->   x / select(c, 1, n) * select(c, 1, m)

Here c, n and m are broadcast from one number per example, and x is a contraction larger than its
operands, as a per-example gradient is. Gradient clipping by `where`, or by `cond` under `vmap`, has
this form. A value that is only multiplied and summed need never be materialized
(passes/contractions.py). Multiplying by 1 rounds nothing; NaN and infinities are those of the
selected case.
"""

from __future__ import annotations

from typing import Any

from functrans.ir.program import Equation, Literal
from functrans.passes.concatenations import is_grown
from functrans.passes.rewrite import Rewriter
from functrans.primitives.elementwise.families import div, mul
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.shape.moving import broadcast_in_dim
from functrans.trace import literal

_LONGEST = 4  # maximum number of chained products


def chosen_multiple(w: Rewriter, e: Equation) -> Any:
    """Rewrite a selection of two cases if both are multiples of one such value."""
    which, *cases = e.inputs
    by = w.made_by.get(which)
    if len(cases) != 2 or by is None or by.primitive is not broadcast_in_dim:
        return None
    chains = [_multiples(w, v) for v in cases]
    starts = [v for v, _ in chains[0] if any([v is u for u, _ in chains[1]])]
    if not starts or not is_grown(w.made_by, starts[-1]):
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
    """Return the value and those it is a multiple of, each with the equation that multiplies the
    next."""
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
