"""Taylor series through the operations that hold programs.

In: the running jet `t` (`t.order`, `t.program(program, patterns, needed)`), an operation, its
operands, for each the terms of its series (None: zero), its parameters. Out: the results and their
terms. The nested program is rewritten to take and give terms behind its operands and results; a
loop carries them along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from functrans.ir.program import Program, Var
from functrans.primitives.call import jit
from functrans.trace import literal, typeof

Terms = tuple[Any, ...]
Pattern = tuple[bool, ...]  # which terms of a value are not None
Expanded = tuple[Sequence[Any], Sequence[Terms]]  # results, their terms


def pattern_of(terms: Terms) -> Pattern:
    """Which terms there are."""
    return tuple([c is not None for c in terms])


def given(series: Sequence[Terms]) -> list[Any]:
    """The terms that there are, one after the other."""
    return [c for terms in series for c in terms if c is not None]


def taken(patterns: Sequence[Pattern], values: Iterator[Any]) -> list[Terms]:
    """Terms of the patterns, from values one after the other."""
    return [tuple([next(values) if a else None for a in p]) for p in patterns]


def filled(terms: Terms, wanted: Pattern, type: Any) -> Terms:
    """The terms, zeros where one is wanted and there is none."""
    return tuple([literal(0, type) if c is None and w else c
                  for c, w in zip(terms, wanted, strict=True)])  # fmt: skip


# --- the rules


def call(
    t: Any, primitive: Any, primals: list[Any], series: list[Terms], params: dict[str, Any]
) -> Expanded:
    """A call, of whatever kind."""
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
    """Each branch with its coefficients; zeros where another branch has one that is not."""
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
    t: Any, program: Program, series: Sequence[Terms], n: int, m: int
) -> tuple[Program, list[Pattern], tuple[Pattern, ...]]:
    """The program of a step with coefficients, the patterns of its operands and of its results,
    where inputs n to n + m are the carry, whose terms are those before a step and after it."""
    patterns = [pattern_of(c) for c in series]
    rest = ((False,) * t.order,) * (len(program.outputs) - m)
    while True:
        needed = (*patterns[n : n + m], *rest)
        made, after = t.program(program, tuple(patterns), needed)
        if list(after[:m]) == patterns[n : n + m]:
            return made, patterns, after
        patterns[n : n + m] = after[:m]


def _grouped(xs: Sequence[Any], series: Sequence[Terms], n: int, m: int) -> list[Any]:
    """Values and their terms group by group: of the first n, of the next m, of the rest."""
    made: list[Any] = []
    for a, b in ((0, n), (n, n + m), (n + m, len(xs))):
        made += [*xs[a:b], *given(series[a:b])]
    return made


def _with_zeros(
    primals: Sequence[Any], series: Sequence[Terms], patterns: Sequence[Pattern]
) -> list[Terms]:
    return [filled(c, p, typeof(x)) for x, c, p in zip(primals, series, patterns, strict=True)]


def _count(patterns: Sequence[Pattern]) -> int:
    return sum(map(sum, patterns))


def _scan(
    t: Any, primitive: Any, primals: list[Any], series: list[Terms], params: dict[str, Any]
) -> Expanded:
    program, n, m = params["program"], params["consts"], params["carry"]
    made, patterns, after = _carried(t, program, series, n, m)
    k, outputs = len(program.inputs), len(program.outputs)
    names = taken(patterns, iter(made.inputs[k:]))
    ends = taken(after, iter(made.outputs[outputs:]))
    step = made.replace(
        inputs=_grouped(made.inputs[:k], names, n, m),
        outputs=_grouped(made.outputs[:outputs], ends, m, 0),
    )
    carried = m + _count(after[:m])
    sizes = {"consts": n + _count(patterns[:n]), "carry": carried}
    args = _grouped(primals, _with_zeros(primals, series, patterns), n, m)
    results = primitive(*args, **{**params, **sizes, "program": step})
    last, written = results[:carried], results[carried:]
    y = outputs - m
    terms = [*taken(after[:m], iter(last[m:])), *taken(after[m:], iter(written[y:]))]
    return [*last[:m], *written[:y]], terms


def _while(
    t: Any, primitive: Any, primals: list[Any], series: list[Terms], params: dict[str, Any]
) -> Expanded:
    cond, body = params["cond"], params["body"]
    first, n = params["cond_consts"], params["body_consts"]
    values, moving = primals[first:], series[first:]
    k = len(values)
    made, patterns, after = _carried(t, body, moving, n, k - n)
    names = taken(patterns, iter(made.inputs[k:]))
    step = made.replace(inputs=_grouped(made.inputs[:k], names, n, k - n))
    moving = _with_zeros(values, moving, patterns)
    unread = [Var(typeof(c)) for c in given(moving[n:])]
    results = primitive(
        *primals[:first], *_grouped(values, moving, n, k - n),
        cond=cond.replace(inputs=(*cond.inputs, *unread)), body=step, cond_consts=first,
        body_consts=n + _count(patterns[:n]),
    )  # fmt: skip
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
