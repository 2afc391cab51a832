"""A loop with a carry that reads and writes slices of arrays.

    scan[program, length, reverse, unroll, consts=n, carry=m]
        *consts(n) *init(m) *arrays -> *final(m) *stacked

The program maps (consts, carry, slices) to (carry, slices). Slices are along axis 0. Loop-invariant
values are consts and are never stacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import jax
import numpy as np

from functrans.caching import memo, memo_as
from functrans.ir.program import Equation, Program, Var, prune
from functrans.ir.types import ArrayType, is_key_dtype
from functrans.primitives.base import Cost, LinearInput, is_zero, sum_of
from functrans.primitives.calls.jit import jit
from functrans.primitives.calls.residuals import fewest, take
from functrans.primitives.dependence import (
    apart,
    depending,
    reached_outputs,
    reading,
    restricted,
    silent,
    smaller,
)
from functrans.primitives.higher_order import HigherOrderPrimitive
from functrans.trace import evaluate, literal, stage, typeof


class Scan(HigherOrderPrimitive):
    """Run `program` for each slice, in order or in reverse."""

    in_kernel = True
    name = "scan"

    def type(
        self, *types: Any, program: Program, length: int, consts: int, carry: int,
        reverse: bool = False, unroll: int = 1,
    ) -> Any:  # fmt: skip
        fixed = consts + carry
        for t in types[fixed:]:
            if not t.shape or t.shape[0] != length:
                raise self.mismatch(types, f"the arrays read need a leading axis of size {length}")
        given = [*types[:fixed], *[t.update(shape=t.shape[1:]) for t in types[fixed:]]]
        if len(given) != len(program.inputs) or not all(
            t.same(want) for t, want in zip(given, program.in_types, strict=True)
        ):
            shown = ", ".join(map(str, program.in_types))
            raise self.mismatch(types, f"the program of one step takes ({shown})")
        outs = program.out_types
        for before, after in zip(program.in_types[consts:fixed], outs[:carry], strict=True):
            if not before.same(after):
                raise self.mismatch(types, f"the carry is {before} before a step, {after} after it")
        return (*outs[:carry], *[t.update(shape=(length, *t.shape)) for t in outs[carry:]])

    def interpret(self, run: Any, values: Sequence[Any], params: dict[str, Any]) -> Any:
        program, n, m = params["program"], params["consts"], params["carry"]
        consts, state, arrays = values[:n], list(values[n : n + m]), values[n + m :]
        steps = range(params["length"])
        written: list[list[Any]] = []
        for i in reversed(steps) if params.get("reverse") else steps:
            outs = run(program, [*consts, *state, *[x[i] for x in arrays]], i)
            state = outs[:m]
            written.append(outs[m:])
        if params.get("reverse"):
            written.reverse()
        types = program.out_types[m:]
        return [*state, *[_stacked([w[k] for w in written], t) for k, t in enumerate(types)]]

    def numpy_source(
        self, w: Any, *xs: Any, program: Program, length: int, consts: int, carry: int,
        reverse: bool = False, unroll: int = 1,
    ) -> Any:  # fmt: skip
        fixed = consts + carry
        state, stacked = w.outs[:carry], w.outs[carry:]
        for name, x in zip(state, xs[consts:fixed], strict=True):
            w.line(f"{name} = {x.full}")
        for name, t in zip(stacked, w.out_types[carry:], strict=True):
            w.line(f"{name} = np.empty({t.shape}, {w.dtype(t.dtype)})")
        i = w.letter()
        steps = f"reversed(range({length}))" if reverse else f"range({length})"
        with w.block(f"for {i} in {steps}:"):
            slices = [x.at(i) for x in xs[fixed:]]
            step = w.call(program, [*xs[:consts], *state, *slices], "step")
            into = ", ".join([*state, *[f"{name}[{i}]" for name in stacked]])
            w.line(f"{into} = {step}" if into else step)

    def lower(
        self, ctx: Any, *operands: Any, program: Program, length: int, consts: int, carry: int,
        reverse: bool = False, unroll: int = 1,
    ) -> Any:  # fmt: skip
        fixed, out_types = consts + carry, ctx.out_types
        written = [ctx.uninitialized(t) for t in out_types[carry:]]
        return ctx.counted_loop(
            program, length, operands[:consts], operands[consts:fixed], operands[fixed:], written,
            reverse, unroll,
        )  # fmt: skip

    # --- derivatives

    def differentiate(
        self, t: Any, primals: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
    ) -> tuple[Any, Any]:
        program, n, m = params["program"], params["consts"], params["carry"]
        active = [dx is not None for dx in tangents]
        outs_only = len(program.outputs) - m
        while True:  # until the set of active carries is stable
            needed = (*active[n : n + m], *[False] * outs_only)
            _, out_active = t.jvp(program, tuple(active), needed)
            if list(out_active[:m]) == active[n : n + m]:
                break
            active[n : n + m] = out_active[:m]
        given = [
            literal(0, typeof(x)) if dx is None and a else dx
            for x, dx, a in zip(primals, tangents, active, strict=True)
        ]
        mask = tuple(active)
        if t.linear is None:
            outs, moving = self._jvp(t, primals, given, mask, needed, params)
        else:
            outs, moving = self._linearize(t, primals, given, mask, needed, params)
        rest = iter(moving)
        return outs, [next(rest) if a else None for a in out_active]

    def _jvp(
        self, t: Any, primals: Any, given: Any, active: Any, needed: Any, params: dict[str, Any]
    ) -> tuple[Any, Any]:
        program, n, m = params["program"], params["consts"], params["carry"]
        both, out_active = t.jvp(program, active, needed)
        k = len(program.inputs)
        names = iter(both.inputs[k:])
        tangent = [next(names) if a else None for a in active]
        order = interleaved(both.inputs[:k], tangent, n, m)
        ends = iter(both.outputs[len(program.outputs) :])
        moved = [next(ends) if a else None for a in out_active]
        outs = interleaved(both.outputs[: len(program.outputs)], moved, m, 0)
        moving_m = sum(out_active[:m])
        results = self(
            *interleaved(primals, given, n, m),
            **{
                **params,
                "program": both.replace(inputs=order, outputs=outs),
                "consts": n + sum(active[:n]),
                "carry": m + moving_m,
            },
        )
        states, ys = results[: m + moving_m], results[m + moving_m :]
        y = len(program.outputs) - m
        return [*states[:m], *ys[:y]], [*states[m:], *ys[y:]]

    def _linearize(
        self, t: Any, primals: Any, given: Any, active: Any, needed: Any, params: dict[str, Any]
    ) -> tuple[Any, Any]:
        program, n, m = params["program"], params["consts"], params["carry"]
        part = t.split(program, active, needed)
        before, after, kinds, linear = memo_as(
            program,
            (_by_step, active, needed, n, m),
            lambda: _by_step(part, n, m, len(program.outputs)),
        )
        # Run the loop. Residuals that change from step to step are stacked.
        results = t.bind_primal(self, primals, {**params, "program": after})
        invariant = t.bind_primal(jit, primals[:n], {"program": before}) if before.outputs else []
        outs, stacked = results[: len(program.outputs)], results[len(program.outputs) :]
        stores = {
            "const": primals, "invariant": invariant, "stacked": stacked, "array": primals,
            "out": outs,
        }  # fmt: skip
        held = [
            (v, kind, stores[kind][i]) for v, (kind, i) in zip(linear.inputs, kinds, strict=False)
        ]
        fixed = [(v, x) for v, kind, x in held if kind in ("const", "invariant")]
        sliced = [(v, x) for v, kind, x in held if kind not in ("const", "invariant")]
        names = iter(linear.inputs[len(kinds) :])
        tangents = [(next(names), dx) if a else None for a, dx in zip(active, given, strict=True)]
        moving = [
            [pair for pair in tangents[a:b] if pair is not None]
            for a, b in ((0, n), (n, n + m), (n + m, None))
        ]
        if not linear.outputs:
            return outs, []
        order = [*fixed, *moving[0], *moving[1], *sliced, *moving[2]]
        found = self(
            *[x for _, x in order],
            **{
                **params,
                "program": memo(linear, _with_inputs, tuple([v for v, _ in order])),
                "consts": len(fixed) + len(moving[0]),
                "carry": len(moving[1]),
            },
        )
        return outs, found

    def transpose_with(
        self, t: Any, ct: Sequence[Any], args: Sequence[Any], params: dict[str, Any]
    ) -> Sequence[Any]:
        program, n, m = silent(params["program"]), params["consts"], params["carry"]
        params = {**params, "program": program}
        given = [isinstance(x, LinearInput) for x in args]
        linear = linear_inputs(program, given, n, m)
        states = linear[n : n + m]
        counters = self._counters(args, params, linear)
        wanted = [*states, *[c is not None for c in ct[m:]]]
        back = t.program(program, tuple(linear), tuple(wanted))
        known = [
            [x for x, lin in zip(part, mask, strict=True) if not lin]
            for part, mask in (
                (args[:n], linear[:n]), (args[n + m :], linear[n + m :])
            )
        ]  # fmt: skip
        start = [
            literal(0, v.type) if c is None else c
            for v, c, lin in zip(program.inputs[n : n + m], ct[:m], states, strict=True)
            if lin
        ]
        sums = [
            literal(0, v.type) for v, lin in zip(program.inputs[:n], linear[:n], strict=True) if lin
        ]
        counts = len(known[0]), len(counters) + len(known[1]), len(start), len(sums)
        found = self(
            *known[0], *sums, *start, *counters, *known[1], *[c for c in ct[m:] if c is not None],
            **{
                **params,
                "program": memo(back, _backwards, *counts),
                "consts": len(known[0]),
                "carry": len(start) + len(sums),
                "reverse": not params.get("reverse", False),
            },
        )  # fmt: skip
        rest = iter(found)
        cts = [next(rest) if lin else None for lin in linear]
        return [c if was else None for c, was in zip(cts, given, strict=True)]

    def _counters(
        self, args: Sequence[Any], params: dict[str, Any], linear: Sequence[bool]
    ) -> list[Any]:
        """Return, stacked over the steps, the values of the part of the carry that is not
        linear."""
        program, n, m = params["program"], params["consts"], params["carry"]
        mine = [i for i in range(m) if not linear[n + i]]
        if not mine:
            return []
        outs = [program.outputs[i] for i in mine] + [program.inputs[n + i] for i in mine]
        still = apart(program.equations, compress(program.inputs, linear))[0]
        equations = prune(still, outs)
        read = {v for e in equations for v in e.inputs if v.__class__ is Var} | set(outs)
        kept = [i for i in range(n) if program.inputs[i] in read]
        arrays = [i for i in range(n + m, len(args)) if program.inputs[i] in read]
        order = [*kept, *[n + i for i in mine], *arrays]
        alone = Program([program.inputs[i] for i in order], equations, outs, name=program.name)
        sizes = {"program": alone, "consts": len(kept), "carry": len(mine)}
        return self(*[args[i] for i in order], **{**params, **sizes})[len(mine) :]

    # --- batching

    def batch(self, t: Any, args: Any, dims: Any, *, program: Program, consts: int, carry: int,
              **rest: Any) -> Any:  # fmt: skip
        fixed = consts + carry
        inner = [*dims[:fixed], *[None if d is None else max(d - 1, 0) for d in dims[fixed:]]]
        arrays = [
            t.move(x, 0, 1) if d == 0 else x
            for x, d in zip(args[fixed:], dims[fixed:], strict=True)
        ]
        while True:  # until the set of batched carries is stable
            for i in range(consts, fixed):
                inner[i] = None if inner[i] is None else 0
            batched = [d is not None for d in inner[consts:fixed]]
            forced = (*batched, *[False] * (len(program.outputs) - carry))
            made, out_dims = t.program(program, tuple(inner), forced)
            if [d is not None for d in out_dims[:carry]] == batched:
                break
            for i, d in enumerate(out_dims[:carry]):
                inner[consts + i] = inner[consts + i] if d is None else 0
        state = [
            t.at(x, d, 0) if b else x
            for x, d, b in zip(args[consts:fixed], dims[consts:fixed], batched, strict=True)
        ]
        outs = self(*args[:consts], *state, *arrays, program=made, consts=consts,
                    carry=carry, **rest)  # fmt: skip
        return outs, [*out_dims[:carry], *[None if d is None else d + 1 for d in out_dims[carry:]]]

    def reached(self, params: dict[str, Any], moving: Sequence[bool]) -> Sequence[bool]:
        if self.has_effects(params):
            return [True]
        program, n, m = params["program"], params["consts"], params["carry"]
        linear = linear_inputs(program, moving, n, m)
        return [*linear[n : n + m], *reached_outputs(program, linear)[m:]]

    def part(self, equation: Equation, wanted: Sequence[bool]) -> Equation:
        params = equation.params
        program, n, m = params["program"], params["consts"], params["carry"]
        carried = list(wanted[:m])
        while True:  # until the set of needed carries is stable
            outputs = [*carried, *wanted[m:]]
            read = reading(program, outputs)
            more = [c or r for c, r in zip(carried, read[n:], strict=False)]
            if more == carried:
                break
            carried = more
        read[n : n + m] = carried
        variables = [
            v if w else Var(v.type)
            for v, w, out in zip(equation.outputs, wanted, outputs, strict=True)
            if out
        ]
        return smaller(
            equation, read, variables,
            program=restricted(program, read, outputs), consts=sum(read[:n]), carry=sum(carried),
        )  # fmt: skip

    def cost(self, in_types: Any, out_types: Any, *, program: Program, length: int,
             **rest: Any) -> Cost:  # fmt: skip
        one = jit.cost(program.in_types, program.out_types, program=program)
        return Cost(length * one.flops, length * one.bytes)

    def has_effects(self, params: dict[str, Any]) -> bool:
        return jit.has_effects(params)


scan: Scan = Scan()


def interleaved(xs: Sequence[Any], more: Sequence[Any], n: int, m: int) -> list[Any]:
    """Append to each group of `xs` (the first n, the next m, the rest) its values of `more` (None:
    no value)."""
    made: list[Any] = []
    for a, b in ((0, n), (n, n + m), (n + m, len(xs))):
        made += xs[a:b]
        made += [y for y in more[a:b] if y is not None]
    return made


def linear_inputs(program: Program, given: Sequence[bool], n: int, m: int) -> list[bool]:
    """Return which inputs of a loop's body depend on those `given`, also through the carry."""
    linear = list(given)
    while True:
        moved = depending(program.equations, compress(program.inputs, linear))
        after = [a or v in moved for a, v in zip(linear[n : n + m], program.outputs, strict=False)]
        if after == linear[n : n + m]:
            return linear
        linear[n : n + m] = after


def _by_step(
    part: Any, n: int, m: int, n_out: int
) -> tuple[Program, Program, list[tuple[str, int]], Program]:
    """Return the program of the residuals that are computed before the loop, the body that stacks
    the others, the origin of each residual, and the linear program that takes them."""
    forward = part.forward
    invariant = set(forward.inputs[:n])
    hoisted = []
    for e in _without_effects(forward.equations):
        if invariant.issuperset([v for v in e.inputs if v.__class__ is Var]):
            invariant.update(e.outputs)
            hoisted.append(e)
    found = {v: ("out", i) for i, v in enumerate(forward.outputs[m:n_out], m)}
    found.update({v: ("array", i) for i, v in enumerate(forward.inputs) if i >= n + m})
    found.update({v: ("const", i) for i, v in enumerate(forward.inputs[:n])})
    needed = take(part.residuals, forward.inputs, forward.outputs[:n_out], forward.outputs[n_out:])
    kept, linear = fewest(forward, needed, part.linear, [*found, *invariant])
    early = [v for v in kept if v not in found and v in invariant]
    stacked = [v for v in kept if v not in found and v not in invariant]
    found.update({v: ("invariant", i) for i, v in enumerate(early)})
    found.update({v: ("stacked", i) for i, v in enumerate(stacked)})
    before = Program(forward.inputs[:n], prune(hoisted, early), early, name=forward.name)
    outs = [*forward.outputs[:n_out], *stacked]
    after = forward.replace(outputs=outs, equations=prune(forward.equations, outs))
    return before, after, [found[v] for v in kept], linear


def _without_effects(equations: Sequence[Equation]) -> list[Equation]:
    return [e for e in equations if not e.primitive.has_effects(e.params)]


def _with_inputs(program: Program, inputs: tuple[Any, ...]) -> Program:
    return program.replace(inputs=inputs)


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
            total if is_zero(c) else sum_of(total, c)
            for total, c in zip(totals, found[:sums], strict=True)
        ]
        return [*added, *found[sums:]]

    order = [*types[:consts], *back.out_types[:sums], *rest[:states], *slices, *rest[states:]]
    return stage(step, order, back.name)


def _stacked(rows: list[Any], t: ArrayType) -> Any:
    """Stack slices; without slices the array has no elements."""
    if is_key_dtype(t.dtype):
        return jax.numpy.stack(rows) if rows else jax.numpy.zeros((0, *t.shape), t.dtype)
    return np.stack(rows) if rows else np.zeros((0, *t.shape), t.dtype)
