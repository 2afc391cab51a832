"""Taylor mode: propagate truncated power series through a program.

`JetTrace` is the trace in which the function runs. Each value is its primal and the coefficients of
orders 1 to `order` of a series in t (None: zero; without factorials). The operation runs on the
primals in the parent trace, so Python sees values, and the coefficients are computed by

    linear        the jvp rule, order by order
    multilinear   products of all pairs of orders with the same sum (Leibniz)
    taylor.TABLE  recurrences of operations whose derivative is made of their own result
    calls, loops  the rule `push`: the nested program rewritten to propagate coefficients
    all others    the jvp rule: y'(t) = jvp(x(t), x'(t)) is a program of primals and tangents,
                  whose series to one order less is that of y'

The last case makes a Taylor rule optional for every primitive, and works for custom derivative
rules (custom_jvp, custom_vjp). Its work grows with the square of the order at each of `order`
levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from functrans.caching import memoized
from functrans.ir.program import Literal, Program
from functrans.ir.types import is_inexact
from functrans.primitives.base import Params, Values
from functrans.primitives.calls.jit import jit
from functrans.primitives.control_flow.loop_layout import Pattern, Pushed, Terms, pattern_of
from functrans.primitives.custom.calls import as_type
from functrans.primitives.dependence import restricted
from functrans.primitives.elementwise.families import div, mul
from functrans.trace import (
    Tracer,
    bind,
    bind_in,
    derived_here,
    evaluate,
    literal,
    one_operation,
    out_types,
    provenance,
    staging_trace,
    state,
    tracing,
    typeof,
)
from functrans.transforms.jvp import RuleRunner, jvp_program, pushed_program, run_dual
from functrans.transforms.taylor import TABLE, folded

Series = list[Terms]


class Jet(Tracer):
    """A primal (`ref`) and the terms of its series; all are concrete or belong to an enclosing trace."""

    __slots__ = ("terms",)

    def __init__(self, trace: Any, primal: Any, terms: Terms, type: Any):
        self.owner = trace
        self.type = type
        self.ref = primal
        self.terms: Terms = terms

    def to_concrete_value(self) -> Any:
        return self.ref.to_concrete_value() if isinstance(self.ref, Tracer) else self.ref


class JetTrace(RuleRunner):
    __slots__ = ("at_once", "order")
    how = "jet of"

    def __init__(self, parent: Any, order: int):
        super().__init__(parent)
        self.order: int = order
        self.at_once: bool = staging_trace() is None  # compute the coefficients of an operation in one call

    def bind(self, primitive: Any, args: Values, params: Params) -> Any:
        parts = [self.parts(x) for x in args]
        primals, series = [x for x, _ in parts], [c for _, c in parts]
        if not any(map(any, map(pattern_of, series))):
            return bind_in(self.parent, primitive, primals, params)
        with provenance(*derived_here()):
            try:
                state.innermost = self.parent
                outs, terms = self.expand(primitive, primals, series, params)
                pairs = [self.pair(y, c) for y, c in zip(outs, terms, strict=True)]
            finally:
                state.innermost = self
        return pairs if primitive.multiple_results else pairs[0]

    def expand(self, primitive: Any, primals: list[Any], series: list[Terms], params: Params) -> Pushed:
        """Return the results of an operation, and their terms."""
        if primitive.holds_functions and params["program"].__class__ is not Program:
            return _by_own_rule(self, primitive, primals, series, params)
        if self.at_once and not primitive.holds_programs and _moves(primitive, primals, params):
            program, args, moving = _of_moving(primitive, primals, series, params)
            return jit.push(self, args, moving, {"program": program})
        return coefficients(self, primitive, primals, series, params)

    def pushed(
        self, program: Program, patterns: tuple[Pattern, ...], needed: tuple[Pattern, ...] = ()
    ) -> tuple[Program, tuple[Pattern, ...]]:
        """For the rules `push`; see `jet_program`."""
        return jet_program(program, self.order, patterns, needed)

    def pair(self, primal: Any, terms: Terms) -> Any:
        """Return a Jet, or the primal if all terms are None."""
        if not any(pattern_of(terms)):
            return primal
        t = typeof(primal)
        return Jet(self, primal, tuple([None if c is None else as_type(c, t) for c in terms]), t)

    def parts(self, x: Any) -> tuple[Any, Terms]:
        if x.__class__ is Jet and x.owner is self:
            return x.ref, x.terms
        return x, (None,) * self.order


def run_jet(
    function: Callable[..., Sequence[Any]], primals: Sequence[Any], series: Sequence[Terms], order: int
) -> tuple[list[Any], list[Terms]]:
    """Call a flat function on values with their terms; return the primals and terms of its results."""
    trace = JetTrace(state.trace, order)
    return trace.run(function, [trace.pair(x, c) for x, c in zip(primals, series, strict=True)])


@memoized
def jet_program(
    program: Program, order: int, patterns: tuple[Pattern, ...], needed: tuple[Pattern, ...] = ()
) -> tuple[Program, tuple[Pattern, ...]]:
    """Return the program `primals, terms of the patterns -> outs, their terms`, and the patterns of
    the outs. Terms in `needed` are returned even if they are zero."""

    def push(function: Any, primals: Values, series: Sequence[Terms]) -> tuple[list[Any], list[Terms]]:
        return run_jet(function, primals, series, order)

    return pushed_program(program, push, patterns, needed)


# --- the coefficients of one operation ------------------------------------------------------------


def coefficients(t: Any, primitive: Any, primals: list[Any], series: list[Terms], params: Params) -> Pushed:
    """Return the results and their terms, by the rules of the module docstring."""
    if not _moves(primitive, primals, params):
        outs = bind(primitive, primals, params)
        outs = outs if primitive.multiple_results else [outs]
        return outs, [(None,) * t.order] * len(outs)
    if primitive.holds_programs and primitive.push is not None:
        return primitive.push(t, primals, series, params)
    moving = [i for i, c in enumerate(series) if any(pattern_of(c))]
    linear = set(primitive.linear_positions(len(primals))).issuperset(moving)
    if primitive.holds_programs:
        rule = _by_jvp
    elif linear and not (primitive.multilinear and len(moving) > 1):
        rule = _by_orders
    elif linear and len(moving) == 2:
        rule = _leibniz
    elif primitive.name in TABLE and (primitive.name != "pow" or moving == [0]):
        rule = _by_table
    else:
        rule = _by_jvp
    out = t.bind_primal(primitive, primals, params)
    return out if primitive.multiple_results else [out], rule(t, primitive, primals, series, params, out)


def _moves(primitive: Any, primals: Sequence[Any], params: dict[str, Any]) -> bool:
    """Return whether a result can have a derivative."""
    types = out_types(primitive, tuple([typeof(x) for x in primals]), params)
    return any([is_inexact(t.dtype) for t in types])


# Each rule returns the terms of the results, given these.


def _by_orders(t: Any, primitive: Any, primals: Values, series: Series, params: Params, out: Any) -> Series:
    def moved(tangents: Terms) -> Sequence[Any]:
        if all(dx is None for dx in tangents):
            return [None] * (len(out) if primitive.multiple_results else 1)
        found = primitive.jvp(primals, tangents, out, **params)
        return found if primitive.multiple_results else [found]

    return list(zip(*map(moved, zip(*series, strict=True)), strict=True))


def _leibniz(t: Any, primitive: Any, primals: Values, series: Series, params: Params, out: Any) -> Series:
    a, b = [i for i, c in enumerate(series) if any(pattern_of(c))]

    def product(x: Any, y: Any) -> Any:
        args = list(primals)
        args[a], args[b] = x, y
        return None if x is None or y is None else bind(primitive, args, params)

    x, y = (primals[a], *series[a]), (primals[b], *series[b])
    return [tuple([folded(x, y, k, product=product) for k in range(1, t.order + 1)])]


def _by_table(t: Any, primitive: Any, primals: Values, series: Series, params: Params, out: Any) -> Series:
    full = [[x, *c] for x, c in zip(primals, series, strict=True)]
    return [tuple(TABLE[primitive.name](*full, y0=out, **params))]


def _by_jvp(t: Any, primitive: Any, primals: Values, series: Series, params: Params, out: Any) -> Series:
    program, args, moving = _of_moving(primitive, primals, series, params)
    active = tuple([any(pattern_of(c)) for c in moving])
    both, out_active = jvp_program(program, active)
    wanted = [False] * len(program.outputs) + [True] * sum(out_active)
    tangents = restricted(both, [True] * len(both.inputs), wanted)
    speeds = [_derivative(x, c) for x, c, a in zip(args, moving, active, strict=True) if a]
    found, terms = run_jet(
        lambda *xs: evaluate(tangents, xs),
        [*args, *[x for x, _ in speeds]],
        [*[c[:-1] for c in moving], *[c for _, c in speeds]],
        t.order - 1,
    )
    integrals = iter([_integral(y, c) for y, c in zip(found, terms, strict=True)])
    return [next(integrals) if a else (None,) * t.order for a in out_active]


def _by_own_rule(t: Any, primitive: Any, primals: list[Any], series: list[Terms], params: Params) -> Pushed:
    """`_by_jvp` for a function with a custom rule that is still Python and may need concrete values."""
    inner = JetTrace(state.innermost, t.order - 1)
    xs = [inner.pair(x, c[:-1]) for x, c in zip(primals, series, strict=True)]
    dxs = [
        inner.pair(*_derivative(x, c)) if any(pattern_of(c)) else None
        for x, c in zip(primals, series, strict=True)
    ]
    with tracing(inner):
        outs, moved = run_dual(lambda *values: bind(primitive, values, params), xs, dxs)
    terms = [(None,) * t.order if dy is None else _integral(*inner.parts(dy)) for dy in moved]
    return [inner.parts(y)[0] for y in outs], terms


def _derivative(x: Any, terms: Terms) -> tuple[Any, Terms]:
    """Return x'(t): its value at 0 and its terms."""
    first = literal(0, typeof(x)) if terms[0] is None else terms[0]
    return first, tuple([None if c is None else mul(c, k) for k, c in enumerate(terms[1:], 2)])


def _integral(rate: Any, terms: Terms) -> Terms:
    """Return the terms of y(t), given y'(t)."""
    return rate, *[None if c is None else div(c, k) for k, c in enumerate(terms, 2)]


def _of_moving(
    primitive: Any, primals: Values, series: Sequence[Terms], params: Params
) -> tuple[Program, list[Any], list[Terms]]:
    """Return the program of one operation, and the operands that it takes with their terms. A literal
    may move too: the derivative of a series whose first term is zero."""
    fixed = [x.__class__ is Literal and not any(pattern_of(c)) for x, c in zip(primals, series, strict=True)]
    operands = [x if f else typeof(x) for x, f in zip(primals, fixed, strict=True)]
    taken = [(x, c) for x, c, f in zip(primals, series, fixed, strict=True) if not f]
    return one_operation(primitive, operands, params), [x for x, _ in taken], [c for _, c in taken]
