"""Taylor series of higher-order primitives.

In: the running jet `t` (`t.order`, `t.program(program, patterns, needed)`), a primitive, its
operands, the terms of each operand's series (None: zero), its parameters. Out: the results and
their terms. The nested program is rewritten to take and return terms after its operands and
results; a loop carries them along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from functrans.ir.program import Program, Var
from functrans.primitives.calls.jit import jit
from functrans.primitives.control_flow.loop_layout import LoopLayout, joined
from functrans.trace import literal, typeof

Terms = tuple[Any, ...]
Pattern = tuple[bool, ...]  # which terms of a value are not None
Expanded = tuple[Sequence[Any], Sequence[Terms]]  # results, their terms


def pattern_of(terms: Terms) -> Pattern:
    """Return which terms are not None."""
    return tuple([c is not None for c in terms])


def given(series: Sequence[Terms]) -> list[Any]:
    """Return all terms that are not None, concatenated."""
    return [c for terms in series for c in terms if c is not None]


def taken(patterns: Sequence[Pattern], values: Iterator[Any]) -> list[Terms]:
    """Split values into terms by the patterns; the inverse of `given`."""
    return [tuple([next(values) if a else None for a in p]) for p in patterns]


def filled(terms: Terms, wanted: Pattern, type: Any) -> Terms:
    """Replace terms that are None but wanted by zeros."""
    return tuple([literal(0, type) if c is None and w else c for c, w in zip(terms, wanted, strict=True)])


# --- the rules


def call(t: Any, primitive: Any, primals: list[Any], series: list[Terms], params: dict[str, Any]) -> Expanded:
    """The rule of calls of any kind."""
    program = params["program"]
    made, patterns = t.program(program, tuple([pattern_of(c) for c in series]))
    results = primitive(*primals, *given(series), **{**params, "program": made})
    n = len(program.outputs)
    return results[:n], taken(patterns, iter(results[n:]))


def _of_residuals(
    t: Any, primitive: Any, primals: list[Any], series: list[Terms], params: dict[str, Any]
) -> Expanded:
    """The derivative of a custom_vjp function: the transpose of its bwd rule."""
    program = primitive.program([typeof(x) for x in primals], params)
    return call(t, jit, primals, series, {"program": program})


def _tangent_loop(
    t: Any, primitive: Any, primals: list[Any], series: list[Terms], params: dict[str, Any]
) -> Expanded:
    program = primitive.forwards(**params)
    return call(t, jit, primals, series, {"program": program})


def _cond(
    t: Any, primitive: Any, primals: list[Any], series: list[Terms], params: dict[str, Any]
) -> Expanded:
    """Expand each branch; a branch returns zeros for terms that are zero only in it."""
    patterns = tuple([pattern_of(c) for c in series[1:]])
    branches = params["branches"]
    own = [t.program(b, patterns)[1] for b in branches]
    needed = tuple([_union(found) for found in zip(*own, strict=True)])
    made = tuple([t.program(b, patterns, needed)[0] for b in branches])
    results = primitive(*primals, *given(series[1:]), branches=made)
    n = len(branches[0].outputs)
    return results[:n], taken(needed, iter(results[n:]))


def _union(patterns: Sequence[Pattern]) -> Pattern:
    return tuple([any(a) for a in zip(*patterns, strict=True)])


def _carried(
    t: Any, program: Program, series: Sequence[Terms], layout: LoopLayout
) -> tuple[Program, list[Pattern], tuple[Pattern, ...]]:
    """Return the expanded body of a loop, and the patterns of its operands and results. The carry
    has the same pattern before and after a step."""
    consts, carry, arrays = layout.operands([pattern_of(c) for c in series])
    rest = ((False,) * t.order,) * (len(program.outputs) - layout.carry)
    while True:
        patterns = [*consts, *carry, *arrays]
        made, after = t.program(program, tuple(patterns), (*carry, *rest))
        ends = layout.results(after)[0]
        if ends == carry:
            return made, patterns, after
        carry = ends


def _with_zeros(primals: Sequence[Any], series: Sequence[Terms], patterns: Sequence[Pattern]) -> list[Terms]:
    return [filled(c, p, typeof(x)) for x, c, p in zip(primals, series, patterns, strict=True)]


def _count(patterns: Sequence[Pattern]) -> int:
    return sum(map(sum, patterns))


def _scan(
    t: Any, primitive: Any, primals: list[Any], series: list[Terms], params: dict[str, Any]
) -> Expanded:
    program, layout = params["program"], LoopLayout.of(params)
    made, patterns, after = _carried(t, program, series, layout)
    k, outputs = len(program.inputs), len(program.outputs)
    names = taken(patterns, iter(made.inputs[k:]))
    ends = taken(after, iter(made.outputs[outputs:]))
    parts, moving = layout.operands, layout.results
    step = made.replace(
        inputs=joined(parts(made.inputs[:k]), map(given, parts(names))),
        outputs=joined(moving(made.outputs[:outputs]), map(given, moving(ends))),
    )
    carried, written = moving(after)
    wide = LoopLayout(layout.consts + _count(parts(patterns)[0]), layout.carry + _count(carried))
    args = joined(parts(primals), map(given, parts(_with_zeros(primals, series, patterns))))
    results = primitive(*args, **{**params, **wide._asdict(), "program": step})
    last, ys = wide.results(results)
    m, y = layout.carry, outputs - layout.carry
    terms = [*taken(carried, iter(last[m:])), *taken(written, iter(ys[y:]))]
    return [*last[:m], *ys[:y]], terms


def _while(
    t: Any, primitive: Any, primals: list[Any], series: list[Terms], params: dict[str, Any]
) -> Expanded:
    cond, body = params["cond"], params["body"]
    first, n = params["cond_consts"], params["body_consts"]
    values, moving = primals[first:], series[first:]
    k = len(values)
    layout = LoopLayout(n, k - n)
    made, patterns, after = _carried(t, body, moving, layout)
    names = taken(patterns, iter(made.inputs[k:]))
    parts = layout.operands
    step = made.replace(inputs=joined(parts(made.inputs[:k]), map(given, parts(names))))
    moving = _with_zeros(values, moving, patterns)
    unread = [Var(typeof(c)) for c in given(moving[n:])]
    results = primitive(
        *primals[:first],
        *joined(parts(values), map(given, parts(moving))),
        cond=cond.replace(inputs=(*cond.inputs, *unread)),
        body=step,
        cond_consts=first,
        body_consts=n + _count(patterns[:n]),
    )
    return results[: k - n], taken(after, iter(results[k - n :]))


PROGRAMS: dict[str, Callable[..., Expanded]] = {
    "jit": call,
    "checkpoint": call,
    "custom_lin": _of_residuals,
    "tangent_loop": _tangent_loop,
    "cond": _cond,
    "scan": _scan,
    "while": _while,
}
