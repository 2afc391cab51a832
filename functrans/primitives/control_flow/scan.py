"""A loop with a carry that reads and writes slices of arrays.

    scan[program, length, reverse, unroll, consts=n, carry=m]
        *consts(n) *init(m) *arrays -> *final(m) *stacked

The program maps (consts, carry, slices) to (carry, slices). Slices are along axis 0. Loop-invariant
values are consts and are never stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import jax
import numpy as np

from functrans.caching import memo, memo_as
from functrans.ir.program import Equation, Program, Var, hoist_constants, prune
from functrans.ir.types import ArrayType, is_key_dtype
from functrans.primitives import dependence
from functrans.primitives.base import Cost, HigherOrderPrimitive, LinearInput, Params, Values, is_zero, sum_of
from functrans.primitives.calls.jit import jit
from functrans.primitives.control_flow.loop_layout import (
    LoopLayout,
    Pushed,
    Terms,
    joined,
    nonzero,
    pattern_of,
    settled,
    taken,
    with_zero,
    with_zeros,
)
from functrans.primitives.control_flow.predictive_commoning import commoned
from functrans.primitives.random.bits import word_type
from functrans.trace import evaluate, literal, stage, typeof


class Scan(HigherOrderPrimitive):
    """Run `program` for each slice, in order or in reverse."""

    in_kernel = True
    name = "scan"

    def abstract_eval(
        self,
        *types: Any,
        program: Program,
        length: int,
        consts: int,
        carry: int,
        reverse: bool = False,
        unroll: int = 1,
    ) -> Any:
        fixed = consts + carry
        for t in types[fixed:]:
            if not t.shape or t.shape[0] != length:
                raise self.mismatch(types, f"the scanned arrays need a leading axis of size {length}")
        given = [*types[:fixed], *[t.update(shape=t.shape[1:]) for t in types[fixed:]]]
        self.check_takes(types, given, "the program of one step", program)
        outs = program.out_types
        for before, after in zip(program.in_types[consts:fixed], outs[:carry], strict=True):
            if not before.same(after):
                raise self.mismatch(types, f"the carry is {before} before a step, {after} after it")
        return (*outs[:carry], *[t.update(shape=(length, *t.shape)) for t in outs[carry:]])

    def interpret(self, run: Any, values: Values, params: Params) -> Any:
        program, layout = params["program"], LoopLayout.of(params)
        consts, state, arrays = layout.operands(values)
        steps = range(params["length"])
        written: list[list[Any]] = []
        for i in reversed(steps) if params.get("reverse") else steps:
            state, row = layout.results(run(program, [*consts, *state, *[x[i] for x in arrays]], i))
            written.append(row)
        if params.get("reverse"):
            written.reverse()
        types = layout.results(program.out_types)[1]
        return [*state, *[_stacked([w[k] for w in written], t) for k, t in enumerate(types)]]

    def numpy_source(
        self, w: Any, *xs: Any, program: Program, length: int, reverse: bool = False, **params: Any
    ) -> Any:
        layout = LoopLayout.of(params)
        consts, start, arrays = layout.operands(xs)
        state, stacked = layout.results(w.outs)
        for name, x in zip(state, start, strict=True):
            w.line(f"{name} = {x.full}")
        for name, t in zip(stacked, layout.results(w.out_types)[1], strict=True):
            w.line(f"{name} = np.empty({t.shape}, {w.dtype(t.dtype)})")
        i = w.letter()
        steps = f"reversed(range({length}))" if reverse else f"range({length})"
        with w.block(f"for {i} in {steps}:"):
            step = w.call(program, [*consts, *state, *[x.at(i) for x in arrays]], "step")
            into = ", ".join([*state, *[f"{name}[{i}]" for name in stacked]])
            w.line(f"{into} = {step}" if into else step)

    def lower(
        self,
        ctx: Any,
        *operands: Any,
        program: Program,
        length: int,
        reverse: bool = False,
        unroll: int = 1,
        **sizes: Any,
    ) -> Any:
        layout = LoopLayout.of(sizes)
        written = [ctx.full(0, word_type(t)) for t in layout.results(ctx.out_types)[1]]
        return ctx.counted_loop(program, length, *layout.operands(operands), written, reverse, unroll)

    # --- derivatives

    def differentiate(self, t: Any, primals: Values, tangents: Values, params: Params) -> tuple[Any, Any]:
        program, layout = params["program"], LoopLayout.of(params)
        found = commoned(program, layout) if params["length"] > 1 else None
        if found is not None:
            fixed = layout.fixed
            starts = jit.differentiate(t, primals[:fixed], tangents[:fixed], {"program": found.start})
            primals = found.operands(primals, starts[0], layout)
            tangents = found.operands(tangents, starts[1], layout)
            params = {**params, "program": found.body, "carry": layout.carry + found.more}
            ys, moving = self.differentiate(t, primals, tangents, params)
            return found.results(ys, layout), found.results(moving, layout)
        if t.linear is None:
            return t.along(self, primals, tangents, params)
        part, active, _ = settled(t.linearized, program, [dx is not None for dx in tangents], layout)
        outs, moving = self._linearize(t, primals, with_zero(primals, tangents, active), part, params)
        return outs, dependence.spread(moving, part.out_active)

    def push(self, t: Any, primals: Values, series: Sequence[Terms], params: Params) -> Pushed:
        program, layout = params["program"], LoopLayout.of(params)
        made, patterns, after = settled(t.pushed, program, [pattern_of(c) for c in series], layout)
        n, m = len(program.inputs), len(program.outputs)
        parts, moving = layout.operands, layout.results
        names, ends = taken(patterns, iter(made.inputs[n:])), taken(after, iter(made.outputs[m:]))
        step = made.replace(
            inputs=joined(parts(made.inputs[:n]), map(nonzero, parts(names))),
            outputs=joined(moving(made.outputs[:m]), map(nonzero, moving(ends))),
        )
        carried, written = moving(after)
        more, carry = (sum(map(sum, p)) for p in (parts(patterns)[0], carried))
        wide = LoopLayout(layout.consts + more, layout.carry + carry)
        args = joined(parts(primals), map(nonzero, parts(with_zeros(primals, series, patterns))))
        last, ys = wide.results(self(*args, **{**params, **wide._asdict(), "program": step}))
        k, y = layout.carry, m - layout.carry
        return [*last[:k], *ys[:y]], [*taken(carried, iter(last[k:])), *taken(written, iter(ys[y:]))]

    def _linearize(
        self, t: Any, primals: Any, given: Any, part: dependence.Split, params: dict[str, Any]
    ) -> tuple[Any, Any]:
        layout, n = LoopLayout.of(params), len(part.out_active)
        before, after, kinds, linear = memo_as(
            part.forward, (_by_step, layout), lambda: _by_step(part, layout)
        )
        # Run the loop. Residuals that change from step to step are stacked.
        results = t.bind_primal(self, primals, {**params, "program": after})
        consts = primals[: layout.consts]
        invariant = t.bind_primal(jit, consts, {"program": before}) if before.outputs else []
        outs, stacked = results[:n], results[n:]
        stores = {"const": primals, "invariant": invariant, "stacked": stacked, "array": primals, "out": outs}
        held = [(v, kind, stores[kind][i]) for v, (kind, i) in zip(linear.inputs, kinds, strict=False)]
        fixed = [(v, x) for v, kind, x in held if kind in ("const", "invariant")]
        sliced = [(v, x) for v, kind, x in held if kind not in ("const", "invariant")]
        if not linear.outputs:
            return outs, []
        names: dict[int, Any] = dict(zip(part.tangents, linear.inputs[len(kinds) :], strict=True))
        to_consts, to_carry, to_arrays = layout.operands([(names.get(i), dx) for i, dx in enumerate(given)])
        to_consts, to_arrays = ([p for p in group if p[0]] for group in (to_consts, to_arrays))
        # A type stands for a tangent that no step reads, so that `memo` knows the same loop again.
        to_carry = [(v or typeof(dx), dx) for v, dx in to_carry if dx is not None]
        order = [*fixed, *to_consts, *to_carry, *sliced, *to_arrays]
        found = self(
            *[x for _, x in order],
            **{
                **params,
                "program": memo(linear, _with_inputs, tuple([v for v, _ in order])),
                "consts": len(fixed) + len(to_consts),
                "carry": len(to_carry),
            },
        )
        return outs, found

    def transpose_with(self, t: Any, ct: Values, args: Values, params: Params) -> Sequence[Any]:
        program, layout = dependence.silent(params["program"]), LoopLayout.of(params)
        params = {**params, "program": program}
        given = [isinstance(x, LinearInput) for x in args]
        if (found := self._of_what_is_read(t, ct, args, params)) is not None:
            return found
        linear = linear_inputs(program, given, layout)
        of_consts, of_carry, of_arrays = layout.operands(linear)
        ends, written = layout.results(ct)
        counters = self._counters(args, params, linear)
        wanted = [*of_carry, *[c is not None for c in written]]
        back = t.program(program, tuple(linear), tuple(wanted))
        consts, _, arrays = layout.operands(args)
        fixed = [x for x, lin in zip(consts, of_consts, strict=True) if not lin]
        read = [x for x, lin in zip(arrays, of_arrays, strict=True) if not lin]
        inputs, state, _ = layout.operands(program.inputs)
        start = list(compress(dependence.or_zeros(ends, [v.type for v in state]), of_carry))
        sums = [literal(0, v.type) for v, lin in zip(inputs, of_consts, strict=True) if lin]
        counts = len(fixed), len(counters) + len(read), len(start), len(sums)
        found = self(
            *fixed,
            *sums,
            *start,
            *counters,
            *read,
            *[c for c in written if c is not None],
            **{
                **params,
                "program": memo(back, _backwards, *counts),
                "consts": len(fixed),
                "carry": len(start) + len(sums),
                "reverse": not params.get("reverse", False),
            },
        )
        carry = slice(len(sums), len(sums) + len(start))  # whose cotangents are arrays, as in JAX
        of_carry, found = found[carry], dependence.without_zeros(found, back)
        found[carry] = of_carry
        return [c if was else None for c, was in zip(dependence.spread(found, linear), given, strict=True)]

    def _of_what_is_read(self, t: Any, ct: Values, args: Values, params: Params) -> Sequence[Any] | None:
        """Return the cotangents of the operands, None of those that no result with a cotangent reads; None if
        it reads all."""
        wanted = [c is not None for c in ct]
        if not any(wanted):
            return None
        types = [x.type if x.__class__ is LinearInput else typeof(x) for x in args]
        results = {Var(y): c for y, c in zip(self.result_types(types, params), ct, strict=True)}
        part = self.part(Equation(self, tuple(range(len(args))), tuple(results), params), wanted)
        if len(part.inputs) == len(args):
            return None
        cts, operands = [results.get(v) for v in part.outputs], [args[i] for i in part.inputs]
        found = dict(zip(part.inputs, self.transpose_with(t, cts, operands, part.params), strict=True))
        return [found.get(i) for i in range(len(args))]

    def _counters(self, args: Values, params: Params, linear: Sequence[bool]) -> list[Any]:
        """The values, step by step, of the part of the carry that is not linear."""
        program, layout = params["program"], LoopLayout.of(params)
        mine = [not lin for lin in layout.operands(linear)[1]]
        if not any(mine):
            return []
        wanted = [*mine, *[False] * (len(program.outputs) - layout.carry)]
        consts, _, arrays = layout.operands(dependence.reading(program, wanted))
        read, n, k = [*consts, *mine, *arrays], sum(consts), sum(mine)
        step = dependence.restricted(program, read, wanted)
        step = step.replace(outputs=[*step.outputs, *step.inputs[n : n + k]])
        return self(*compress(args, read), **{**params, "program": step, "consts": n, "carry": k})[k:]

    # --- batching

    def batch(
        self, t: Any, args: Any, dims: Any, *, program: Program, consts: int, carry: int, **rest: Any
    ) -> Any:
        layout = LoopLayout(consts, carry)
        of_consts, of_carry, of_arrays = layout.operands(dims)
        fixed, state, arrays = layout.operands(args)
        arrays = [t.move(x, 0, 1) if d == 0 else x for x, d in zip(arrays, of_arrays, strict=True)]
        inner = [None if d is None else max(d - 1, 0) for d in of_arrays]
        batched = [d is not None for d in of_carry]
        while True:  # until the set of batched carries is stable
            front = [0 if b else None for b in batched]
            made, out_dims = t.program(program, (*of_consts, *front, *inner), batched)
            ends, written = layout.results(out_dims)
            if [d is not None for d in ends] == batched:
                break
            batched = [d is not None for d in ends]
        state = [t.at(x, d, 0) if b else x for x, d, b in zip(state, of_carry, batched, strict=True)]
        outs = self(*fixed, *state, *arrays, program=made, consts=consts, carry=carry, **rest)
        return outs, [*ends, *[None if d is None else d + 1 for d in written]]

    def reached(self, params: dict[str, Any], moving: Sequence[bool]) -> Sequence[bool]:
        if self.has_effects(params):
            return [True]
        program, layout = params["program"], LoopLayout.of(params)
        linear = linear_inputs(program, moving, layout)
        written = layout.results(dependence.reached_outputs(program, linear))[1]
        return [*layout.operands(linear)[1], *written]

    def part(self, equation: Equation, wanted: Sequence[bool]) -> Equation:
        params = equation.params
        program, layout = params["program"], LoopLayout.of(params)
        carried, written = layout.results(wanted)
        while True:  # until no more of the carry is needed for the rest of it
            outputs = [*carried, *written]
            consts, state, arrays = layout.operands(dependence.reading(program, outputs))
            more = [c or r for c, r in zip(carried, state, strict=True)]
            if more == carried:
                break
            carried = more
        read = [*consts, *carried, *arrays]
        variables = [
            v if w else Var(v.type)
            for v, w, out in zip(equation.outputs, wanted, outputs, strict=True)
            if out
        ]
        return dependence.smaller(
            equation,
            read,
            variables,
            program=dependence.restricted(program, read, outputs),
            consts=sum(consts),
            carry=sum(carried),
        )

    def cost(self, in_types: Any, out_types: Any, *, program: Program, length: int, **rest: Any) -> Cost:
        one = jit.cost(program.in_types, program.out_types, program=program)
        return Cost(length * one.flops, length * one.bytes)

    def transposes_zeros(self, params: dict[str, Any]) -> bool:
        """As in JAX, the cotangents of a carry are arrays, also where they are zero."""
        return params["carry"] > 0 and dependence.transposes_zeros(params["program"])


scan: Scan = Scan()


def scanned(
    step: Callable[..., Sequence[Any]], init: Values, arrays: Values, length: int, name: str = "", **how: Any
) -> list[Any]:
    """Bind the scan of a flat function `(*state, *slices) -> (*state, *written)`, by the types of its
    operands. What it captures is constant."""
    types = [*map(typeof, init), *[typeof(x).without_axis(0) for x in arrays]]
    body, fixed = hoist_constants(stage(step, types, name))
    sizes = {"consts": len(fixed), "carry": len(init)}
    return scan(*fixed, *init, *arrays, program=body, length=length, **sizes, **how)


def linear_inputs(program: Program, given: Sequence[bool], layout: LoopLayout) -> list[bool]:
    """Which inputs of a loop's body depend on those `given`, with the carry handed on."""
    consts, carry, arrays = layout.operands(given)
    while True:
        linear = [*consts, *carry, *arrays]
        moved = dependence.depending(program.equations, compress(program.inputs, linear))
        after = [a or v in moved for a, v in zip(carry, program.outputs, strict=False)]
        if after == carry:
            return linear
        carry = after


def _by_step(
    part: dependence.Split, layout: LoopLayout
) -> tuple[Program, Program, list[tuple[str, int]], Program]:
    """Return the program of the residuals that are computed before the loop, the body that stacks
    the others, the origin of each residual, and the linear program that takes them."""
    forward, n_out = part.forward, len(part.out_active)
    inputs, _, slices = layout.operands(forward.inputs)
    invariant = set(inputs)
    hoisted = []
    for e in forward.equations:
        if e.primitive.has_effects(e.params):
            continue
        if invariant.issuperset([v for v in e.inputs if v.__class__ is Var]):
            invariant.update(e.outputs)
            hoisted.append(e)
    found = {v: ("out", i) for i, v in enumerate(forward.outputs[layout.carry : n_out], layout.carry)}
    found.update({v: ("array", i) for i, v in enumerate(slices, layout.fixed)})
    found.update({v: ("const", i) for i, v in enumerate(inputs)})
    kept, linear = dependence.fewest(forward, part.residuals, part.linear, [*found, *invariant])
    early = [v for v in kept if v not in found and v in invariant]
    stacked = [v for v in kept if v not in found and v not in invariant]
    found.update({v: ("invariant", i) for i, v in enumerate(early)})
    found.update({v: ("stacked", i) for i, v in enumerate(stacked)})
    before = Program(inputs, prune(hoisted, early), early, name=forward.name)
    outs = [*forward.outputs[:n_out], *stacked]
    after = forward.replace(outputs=outs, equations=prune(forward.equations, outs))
    return before, after, [found[v] for v in kept], linear


def _with_inputs(program: Program, inputs: tuple[Any, ...]) -> Program:
    """Return the program of these variables; a type stands for one that is not read."""
    return program.replace(inputs=[v if v.__class__ is Var else Var(v) for v in inputs])


def _backwards(back: Program, consts: int, arrays: int, states: int, sums: int) -> Program:
    """Return the body of the transposed loop: (known consts, accumulated cts of consts, cts of the
    carry, known slices, cts of slices) -> (accumulated cts, cts of the carry, cts of slices)."""
    types = back.in_types
    slices, rest = types[consts : consts + arrays], types[consts + arrays :]

    def step(*values: Any) -> list[Any]:
        known, totals = values[:consts], values[consts : consts + sums]
        state = values[consts + sums : consts + sums + states]
        read = values[consts + states + sums :]
        found = evaluate(back, [*known, *read[:arrays], *state, *read[arrays:]])
        added = [
            total if is_zero(c) else sum_of(total, c) for total, c in zip(totals, found[:sums], strict=True)
        ]
        return [*added, *found[sums:]]

    order = [*types[:consts], *back.out_types[:sums], *rest[:states], *slices, *rest[states:]]
    return stage(step, order, back.name)


def _stacked(rows: list[Any], t: ArrayType) -> Any:
    """Stack slices; without slices the array has no elements."""
    if is_key_dtype(t.dtype):
        return jax.numpy.stack(rows) if rows else jax.numpy.zeros((0, *t.shape), t.dtype)
    return np.stack(rows) if rows else np.zeros((0, *t.shape), t.dtype)
