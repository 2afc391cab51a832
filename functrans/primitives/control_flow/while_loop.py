"""A loop that runs while a condition holds, and its derivatives.

    while[cond=, body=, cond_consts=n, body_consts=m] *for_cond(n) *for_body(m) *carry -> *carry

Forward mode carries the tangents along. Reverse mode counts the steps in the forward pass. The
backward pass needs the carry of each step and recomputes it in bounded memory (revolve.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np

from functrans import errors
from functrans.caching import memo, memo_as
from functrans.ir.program import Equation, Program, Var
from functrans.ir.source import here
from functrans.ir.types import is_inexact, same_types
from functrans.primitives import dependence
from functrans.primitives.base import Cost, HigherOrderPrimitive, LinearInput, Params, Values, effects_inside
from functrans.primitives.calls.callback import refuse_io
from functrans.primitives.calls.jit import Expanded, jit
from functrans.primitives.control_flow.cond import choose, only_where
from functrans.primitives.control_flow.loop_layout import (
    LoopLayout,
    Pushed,
    Terms,
    joined,
    nonzero,
    pattern_of,
    settled,
    taken,
    while_operands,
    with_zero,
    with_zeros,
)
from functrans.primitives.control_flow.revolve import COUNT, loop, revolve
from functrans.primitives.control_flow.scan import linear_inputs
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.elementwise.families import add, lt
from functrans.primitives.reductions.folds import reduce_or
from functrans.trace import bind_in, evaluate, literal, stage, typeof


class While(HigherOrderPrimitive):
    """Run `body` while `cond` holds."""

    in_kernel = True
    name = "while"

    def abstract_eval(
        self, *types: Any, cond: Program, body: Program, cond_consts: int, body_consts: int
    ) -> Any:
        first, fixed = types[:cond_consts], types[cond_consts : cond_consts + body_consts]
        carry = types[cond_consts + body_consts :]
        self.check_takes(types, (*first, *carry), "the condition", cond)
        self.check_takes(types, (*fixed, *carry), "the body", body)
        if [(t.shape, t.dtype) for t in cond.out_types] != [((), np.dtype(bool))]:
            shown = ", ".join(map(str, cond.out_types))
            raise self.mismatch(types, f"the condition must be a boolean scalar, not ({shown})")
        if not same_types(carry, body.out_types):
            shown = ", ".join(map(str, body.out_types))
            raise self.mismatch(types, f"the body changes the types of the carry to ({shown})")
        return body.out_types

    def interpret(self, run: Any, values: Values, params: Params) -> Any:
        first, fixed, carry = while_operands(values, params)
        for i in itertools.count():
            if not run(params["cond"], [*first, *carry], i)[0]:
                break
            carry = run(params["body"], [*fixed, *carry], i)
        return carry

    def numpy_source(
        self, w: Any, *xs: Any, cond: Program, body: Program, cond_consts: int, body_consts: int
    ) -> Any:
        first, fixed, carry = while_operands(xs, {"cond_consts": cond_consts, "body_consts": body_consts})
        for name, x in zip(w.outs, carry, strict=True):
            w.line(f"{name} = {x.full}")
        test = w.call(cond, [*first, *w.outs], "condition")
        with w.block(f"while {test}:"):
            step = w.call(body, [*fixed, *w.outs], "body")
            w.line(f"{', '.join(w.outs) or '_'} = {step}")

    def lower(
        self, ctx: Any, *operands: Any, cond: Program, body: Program, cond_consts: int, body_consts: int
    ) -> Any:
        n, m = cond_consts, cond_consts + body_consts

        def test(xs: Sequence[Any]) -> Any:
            return ctx.emit(cond, [*xs[:n], *xs[m:]])[0]

        def step(xs: Sequence[Any]) -> list[Any]:
            return [*xs[:m], *ctx.emit(body, xs[n:])]

        if not effects_inside(cond):
            return ctx.loop(test, step, operands, [cond, body])[m:]

        def step_and_test(xs: Sequence[Any]) -> list[Any]:
            """Test in the body: XLA drops a condition if it can count the steps."""
            new = step(xs[1:])
            return [test(new), *new]

        carry = [test(operands), *operands]
        return ctx.loop(lambda xs: xs[0], step_and_test, carry, [cond, body])[1 + m :]

    # --- derivatives

    def differentiate(self, t: Any, primals: Values, tangents: Values, params: Params) -> tuple[Any, Any]:
        if t.linear is None:
            return t.along(self, primals, tangents, params)
        body, n, m = params["body"], params["cond_consts"], params["body_consts"]
        layout = LoopLayout(m, len(body.outputs))
        part, active, _ = settled(t.linearized, body, [dx is not None for dx in tangents[n:]], layout)
        if not any(part.out_active):
            return t.bind_primal(self, primals, params), [None] * layout.carry
        if t.at_once:
            return _unrolled(t, primals, tangents, params)
        outs, count = _counted(t, primals, params)
        moving = tangent_loop(
            count,
            *primals[n:],
            *compress(with_zero(primals[n:], tangents[n:], active), active),
            body=dependence.silent(body),  # its effects happened in the forward pass
            push=memo_as(part.forward, (_push,), lambda: _push(part, active, body.name)),
            consts=m,
            moving=sum(active[:m]),
        )
        return outs, dependence.spread(moving, active[m:])

    def push(self, t: Any, primals: Values, series: Sequence[Terms], params: Params) -> Pushed:
        cond, body, first, m = (params[name] for name in ("cond", "body", "cond_consts", "body_consts"))
        values, k = primals[first:], len(body.inputs)
        layout = LoopLayout(m, k - m)
        made, patterns, after = settled(t.pushed, body, [*map(pattern_of, series[first:])], layout)
        parts, moving = layout.operands, with_zeros(values, series[first:], patterns)
        names = taken(patterns, iter(made.inputs[k:]))
        unread = [Var(typeof(c)) for c in nonzero(moving[m:])]
        results = self(
            *primals[:first],
            *joined(parts(values), map(nonzero, parts(moving))),
            cond=cond.replace(inputs=(*cond.inputs, *unread)),
            body=made.replace(inputs=joined(parts(made.inputs[:k]), map(nonzero, parts(names)))),
            cond_consts=first,
            body_consts=m + len(nonzero(moving[:m])),
        )
        return results[: k - m], taken(after, iter(results[k - m :]))

    def transpose_with(self, t: Any, ct: Values, args: Values, params: Params) -> Sequence[Any]:
        given = [isinstance(x, LinearInput) for x in args]
        params = {
            **params,
            "body": dependence.silent(params["body"]),
            "cond": dependence.silent(params["cond"]),
        }
        first, consts, state = while_operands(args, params)
        n, m = len(first), len(consts)
        linear, tested = self.moved(params, given)
        if tested:
            raise errors.NotLinear(
                "the function is not linear, so it has no transpose: the condition of a while loop "
                f"depends on what is to be transposed, {here()}\n"
                "Use lax.custom_linear_solve for a linear equation that is solved by iteration, or a "
                "loop with a static number of steps."
            )
        known = [not lin for lin in linear]
        value = dependence.restricted(params["body"], known, known[m:])
        push = memo(params["body"], _linear_part, tuple(linear), m)
        fixed, still = [*compress(consts, known)], [*compress(state, known[m:])]
        inputs = params["cond"].inputs
        test = params["cond"].replace(inputs=[*inputs[:n], *compress(inputs[n:], known[m:])])
        count = loop(
            lambda i, *xs: evaluate(test, [*first, *xs])[0],
            lambda i, *xs: [add(i, 1), *evaluate(value, [*fixed, *xs])],
            [literal(0, COUNT), *still],
        )[0]
        back = tangent_loop.transpose_with(
            t,
            [*compress(ct, linear[m:])],
            [count, *fixed, *still, *compress(args[n:], linear)],
            {"body": value, "push": push, "consts": len(fixed), "moving": sum(linear[:m])},
        )
        return [None] * n + dependence.spread(back[1 + len(value.inputs) :], linear)

    def batch(
        self,
        t: Any,
        args: Any,
        dims: Any,
        *,
        cond: Program,
        body: Program,
        cond_consts: int,
        body_consts: int,
    ) -> Any:
        n, m = cond_consts, cond_consts + body_consts
        batched = [d is not None for d in dims[m:]]
        states = zip(dims[m:], body.inputs[m - n :], body.outputs, strict=True)
        shared = [d is None and v is y for d, v, y in states]  # by all examples: no step changes them
        own_stop = [not s or _to_broadcast(x) for s, x in zip(shared, args[m:], strict=True)]
        while True:  # until the set of batched carries is stable
            inner = [0 if b else None for b in batched]
            made, own = t.program(body, (*dims[n:m], *inner), batched)
            test, test_dims = t.program(cond, (*dims[:n], *inner))
            stops = test_dims[0] is not None
            after = [d is not None or (stops and s) for d, s in zip(own, own_stop, strict=True)]
            if after == batched:
                break
            batched = after
        state = [t.at(x, d, 0) if b else x for x, d, b in zip(args[m:], dims[m:], batched, strict=True)]
        outs_dims = [0 if b else None for b in batched]
        if test_dims[0] is None:
            outs = self(*args[:m], *state, cond=test, body=made, cond_consts=n, body_consts=body_consts)
            return outs, outs_dims

        refuse_io((cond, body), "a loop that vmap runs until the last example ends")
        consts, fixed_dims = list(args[n:m]), list(dims[n:m])
        for i, x in enumerate(consts):
            if fixed_dims[i] is not None or _to_broadcast(x):
                consts[i], fixed_dims[i] = t.at(x, fixed_dims[i], 0), 0
        inner = [*fixed_dims, *inner]
        test, made = one_by_one(test, t.program(body, tuple(inner), batched)[0], n, inner)
        operands = [*args[:n], *args[:n], *consts, *state]
        outs = self(*operands, cond=test, body=made, cond_consts=n, body_consts=m)
        outs = [x if s else y for x, y, s in zip(args[m:], outs, shared, strict=True)]
        return outs, [None if s else d for d, s in zip(outs_dims, shared, strict=True)]

    def reached(self, params: dict[str, Any], moving: Sequence[bool]) -> Sequence[bool]:
        linear, tested = self.moved(params, moving)
        return [True] if tested or self.has_effects(params) else linear[params["body_consts"] :]

    def moved(self, params: Params, given: Sequence[bool]) -> tuple[list[bool], bool]:
        """Return which inputs of the body depend on these operands, and whether the condition does."""
        n, m = params["cond_consts"], params["body_consts"]
        linear = linear_inputs(params["body"], given[n:], LoopLayout(m, len(given) - n - m))
        return linear, any(dependence.reached_outputs(params["cond"], [*given[:n], *linear[m:]]))

    def part(self, equation: Equation, wanted: Sequence[bool]) -> Equation:
        params = equation.params
        cond, body, n, m = (params[name] for name in ("cond", "body", "cond_consts", "body_consts"))
        for_test = dependence.reading(cond, [True])
        carried = [w or r for w, r in zip(wanted, for_test[n:], strict=True)]
        while True:  # until the set of needed carries is stable
            read = dependence.reading(body, carried)
            more = [c or r for c, r in zip(carried, read[m:], strict=True)]
            if more == carried:
                break
            carried = more
        inputs = [*for_test[:n], *read[:m], *carried]
        variables = [v if w else Var(v.type) for v, w in zip(equation.outputs, wanted, strict=True)]
        return dependence.smaller(
            equation,
            inputs,
            compress(variables, carried),
            cond=dependence.restricted(cond, [*for_test[:n], *carried], [True]),
            cond_consts=sum(for_test[:n]),
            body=dependence.restricted(body, [*read[:m], *carried], carried),
            body_consts=sum(read[:m]),
        )

    def cost(self, in_types: Any, out_types: Any, *, body: Program, **rest: Any) -> Cost:
        """Return the cost of one step: the number of steps is unknown."""
        return jit.cost(body.in_types, body.out_types, program=body)


while_loop: While = While("while")


def _to_broadcast(x: Any) -> bool:
    """Whether each example gets its own, for its derivative: cheap for scalars, not for weights."""
    return not typeof(x).shape and is_inexact(typeof(x).dtype)


def one_by_one(cond: Program, body: Program, n: int, dims: Sequence[int | None]) -> tuple[Program, Program]:
    """Return the condition and body of a loop over examples: along the axes of what `cond` returns, which are
    the first of each carry. It goes on while the condition holds for any; the others keep their carry. `n`:
    how many constants the condition has, which the body takes too, before its own; `dims`: of the body's
    inputs, None for one that all examples share."""
    m = n + len(body.inputs) - len(body.outputs)

    def some(*values: Any) -> list[Any]:
        (going,) = evaluate(cond, values)
        return [reduce_or(going, axes=tuple(range(typeof(going).ndim)))]

    def step(*values: Any) -> list[Any]:
        (going,) = evaluate(cond, [*values[:n], *values[m:]])
        # derivatives of steps after an example's last one must not reach their operands
        given = [only_where(going, x, d) for x, d in zip(values[n:], dims, strict=True)]
        outs = []
        for x, y, d in zip(values[m:], evaluate(body, given), dims[m - n :], strict=True):
            if d is None:  # the same in each step
                outs.append(x)
                continue
            if (wanted := typeof(y)) != typeof(x):  # results are weak where those of the body are
                x = convert_element_type(x, dtype=wanted.dtype, weak_type=wanted.weak_type)
            outs.append(choose(going, [x, y]))
        return outs

    return stage(some, cond.in_types, cond.name), stage(step, [*cond.in_types[:n], *body.in_types], body.name)


def _linear_part(body: Program, linear: tuple[bool, ...], m: int) -> Program:
    """Return the step of the linear part of the carry: (non-linear consts and carry, linear consts,
    linear carry) -> linear carry."""
    known = [v for v, lin in zip(body.inputs, linear, strict=True) if not lin]
    part = dependence.restricted(body, [True] * len(linear), linear[m:])
    return part.replace(inputs=[*known, *compress(body.inputs, linear)])


def _unrolled(t: Any, primals: Values, tangents: Values, params: Params) -> tuple[list[Any], list[Any]]:
    """Run step by step on known values, linearizing each step as it runs."""
    first, _, state = while_operands(primals, params)
    _, fixed, carry = while_operands([t.pair(x, dx) for x, dx in zip(primals, tangents, strict=True)], params)
    while bind_in(None, jit, [*first, *state], {"program": params["cond"]})[0]:
        carry = t.bind(jit, [*fixed, *carry], {"program": params["body"]})
        state = [t.parts(x)[0] for x in carry]
    found = [t.parts(x) for x in carry]
    return [x for x, _ in found], [dx for _, dx in found]


def _counted(t: Any, primals: Sequence[Any], params: dict[str, Any]) -> tuple[list[Any], Any]:
    """Return the results of the loop and its number of steps."""
    cond, body = params["cond"], params["body"]
    n, m = params["cond_consts"], params["body_consts"]
    unread = Var(COUNT)
    test = cond.replace(inputs=(*cond.inputs[:n], unread, *cond.inputs[n:]))
    values = [*primals[: n + m], literal(0, COUNT), *primals[n + m :]]
    count, *outs = t.bind_primal(
        while_loop, values, {**params, "cond": test, "body": memo(body, _counting, m)}
    )
    return outs, count


def _counting(body: Program, m: int) -> Program:
    """Return the body with a step counter in front of the carry."""

    def step(i: Any, *values: Any) -> list[Any]:
        return [add(i, 1), *evaluate(body, values)]

    made = stage(step, [COUNT, *body.in_types], body.name)
    i, rest = made.inputs[0], made.inputs[1:]
    return made.replace(inputs=(*rest[:m], i, *rest[m:]))


# --- reverse mode ---------------------------------------------------------------------------------


def _push(part: dependence.Split, active: Sequence[bool], name: str) -> Program:
    """Return one step: (consts, carry, tangents of active ones) -> tangents of the carry."""
    n, forward = len(active), dependence.silent(part.forward)

    def run(*values: Any) -> list[Any]:
        results, tangents = evaluate(forward, values[:n]), dependence.spread(values[n:], active)
        return evaluate(part.linear, dependence.take(part.places, values, results, tangents))

    types = forward.in_types
    return stage(run, [*types, *compress(types, active)], name)


def _forwards(push: Program, body: Program, consts: int, moving: int) -> Program:
    n = len(body.inputs)

    def run(count: Any, *values: Any) -> list[Any]:
        fixed, carry, tangents = values[:consts], values[consts:n], values[n:]

        def step(i: Any, *state: Any) -> list[Any]:
            now, moved = state[: n - consts], state[n - consts :]
            given = [*fixed, *now, *tangents[:moving], *moved]
            return [add(i, 1), *evaluate(body, [*fixed, *now]), *evaluate(push, given)]

        state = [literal(0, COUNT), *carry, *tangents[moving:]]
        return loop(lambda i, *_: lt(i, count), step, state)[1 + n - consts :]

    return stage(run, [COUNT, *push.in_types], body.name)


class TangentLoop(Expanded):
    """The tangents of a carry to which `body` is applied `count` times.

    tangent_loop[body, push, consts=m, moving=k] count *consts(m) *carry *tangents -> *tangents

    It is linear in the tangents: those of k consts, then those of part of the initial carry. The
    other operands are primals. `push` maps (consts, carry, tangents) to the tangents after one
    step.
    """

    name = "tangent_loop"

    def abstract_eval(self, *types: Any, body: Program, push: Program, consts: int, moving: int) -> Any:
        if not same_types(types, [COUNT, *push.in_types]):
            raise self.mismatch(types, "takes a count, consts, carry, and tangents of some of them")
        return push.out_types

    def expansion(self, types: Any, params: Params) -> Program:
        """Return it as a loop that carries the tangents along."""
        return memo(params["push"], _forwards, params["body"], params["consts"], params["moving"])

    def batch(self, t: Any, args: Any, dims: Any, **params: Any) -> Any:
        return jit.batch(t, args, dims, program=self.expansion((), params))

    def cost(self, in_types: Any, out_types: Any, *, push: Program, **rest: Any) -> Cost:
        return jit.cost(push.in_types, push.out_types, program=push)

    def transpose_with(self, t: Any, ct: Values, args: Values, params: Params) -> Sequence[Any]:
        body, push, m, k = (params[name] for name in ("body", "push", "consts", "moving"))
        n = len(body.inputs)
        linear = (*[False] * n, *[True] * (len(push.inputs) - n))
        pull = t.program(push, linear, (True,) * len(push.outputs))
        cts = dependence.or_zeros(ct, push.out_types)
        found = revolve(body, pull, args[0], args[1 : 1 + m], args[1 + m : 1 + n], cts, k)
        found[:k] = dependence.without_zeros(found[:k], pull)
        given = [isinstance(x, LinearInput) for x in args[1 + n :]]
        return [*[None] * (1 + n), *[c if was else None for c, was in zip(found, given, strict=True)]]


tangent_loop: TangentLoop = TangentLoop()
