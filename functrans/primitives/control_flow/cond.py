"""Conditional execution of one of several programs.

    cond[branches=(p0, p1, ...)] index *operands -> results of the branch with that index

The index is an int32 scalar and is clamped. All branches take the same operands and return results
of the same types. They have no constants: values that they close over are operands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, compress
from typing import Any

import numpy as np

from functrans.caching import memo_as
from functrans.ir.program import Equation, Program, Var
from functrans.ir.types import ArrayType, is_inexact, same_types
from functrans.primitives import dependence
from functrans.primitives.base import Cost, HigherOrderPrimitive, LinearInput, Params, Primitive, Values
from functrans.primitives.calls.callback import refuse_io
from functrans.primitives.calls.captured import zeros
from functrans.primitives.calls.jit import jit
from functrans.primitives.control_flow.loop_layout import Pushed, Terms, nonzero, pattern_of, taken
from functrans.primitives.elementwise.families import eq
from functrans.primitives.elementwise.selection import clamp, select_n
from functrans.primitives.shape.moving import broadcast_in_dim
from functrans.trace import concrete_value, literal, stage, staging_trace, typeof

INDEX = ArrayType((), np.dtype(np.int32))


class Cond(HigherOrderPrimitive):
    """Run the branch selected by the index."""

    in_kernel = True
    name = "cond"

    def abstract_eval(self, index: Any, *types: Any, branches: tuple[Program, ...]) -> Any:
        if index.shape or index.dtype != INDEX.dtype:
            raise self.mismatch((index, *types), "the index of the branch must be an int32 scalar")
        for i, branch in enumerate(branches):
            self.check_takes((index, *types), types, f"branch {i}", branch)
            if not same_types(branch.out_types, branches[0].out_types):
                first, other = (", ".join(map(str, b.out_types)) for b in (branches[0], branch))
                raise self.mismatch(
                    (index, *types), f"branch {i} returns ({other}), but branch 0 returns ({first})"
                )
        return branches[0].out_types

    def interpret(self, run: Any, values: Values, params: Params) -> Any:
        branches = params["branches"]
        return run(branches[int(np.clip(values[0], 0, len(branches) - 1))], values[1:])

    def numpy_source(self, w: Any, index: Any, *xs: Any, branches: tuple[Program, ...]) -> Any:
        into = f"{', '.join(w.outs)} = " if w.outs else ""
        last = len(branches) - 1
        for i, branch in enumerate(branches):
            test = f"{'elif' if i else 'if'} {index.full} {'==' if i else '<='} {i}:"
            with w.block(test if i < last else "else:" if i else "if True:"):
                w.line(into + w.call(branch, xs, "branch"))

    def lower(self, ctx: Any, index: Any, *operands: Any, branches: tuple[Program, ...]) -> Any:
        return ctx.case(index, branches, operands)

    def __call__(self, index: Any, *operands: Any, **params: Any) -> Any:
        """Run only the selected branch if nothing is being recorded and the index is known."""
        known = concrete_value(index)
        if known is not None and staging_trace() is None:
            branches = params["branches"]
            chosen = branches[min(max(int(known), 0), len(branches) - 1)]
            return jit(*operands, program=chosen)
        return super().__call__(index, *operands, **params)

    def push(self, t: Any, primals: Values, series: Sequence[Terms], params: Params) -> Pushed:
        """A branch returns zeros for terms that are zero only in it."""
        branches = params["branches"]
        patterns = tuple([pattern_of(c) for c in series[1:]])
        own = [t.pushed(b, patterns)[1] for b in branches]
        needed = tuple([tuple(map(any, zip(*found, strict=True))) for found in zip(*own, strict=True)])
        made = tuple([t.pushed(b, patterns, needed)[0] for b in branches])
        results = self(*primals, *nonzero(series[1:]), branches=made)
        n = len(branches[0].outputs)
        return results[:n], taken(needed, iter(results[n:]))

    def differentiate(self, t: Any, primals: Values, tangents: Values, params: Params) -> tuple[Any, Any]:
        if t.linear is None:
            return t.along(self, primals, tangents, params)
        branches = params["branches"]
        active = tuple([dx is not None for dx in tangents[1:]])
        parts = [dependence.fewer(t.split(b, active)) for b in branches]
        needed = tuple(map(any, zip(*[part.out_active for part in parts], strict=True)))
        forward, linear, places = memo_as(
            branches[0], (_joined, branches, active), lambda: _joined(parts, branches, needed)
        )
        results = t.bind_primal(self, primals, {"branches": forward})
        operands = dependence.take(places, primals[1:], results, tangents[1:])
        moving = self(primals[0], *operands, branches=linear) if any(needed) else ()
        return results[: len(needed)], dependence.spread(moving, needed)

    def transpose_with(self, t: Any, ct: Values, args: Values, params: Params) -> Sequence[Any]:
        index, operands = args[0], args[1:]
        linear = tuple([isinstance(x, LinearInput) for x in operands])
        ct_active = tuple([c is not None for c in ct])
        back = tuple([t.program(b, linear, ct_active) for b in params["branches"]])
        known = [x for x, lin in zip(operands, linear, strict=True) if not lin]
        found = self(index, *known, *[c for c in ct if c is not None], branches=back)
        return [None, *dependence.spread(dependence.without_zeros(found, *back), linear)]

    def batch(self, t: Any, args: Any, dims: Any, *, branches: tuple[Program, ...]) -> Any:
        index, operands = args[0], args[1:]
        made = [t.program(b, tuple(dims[1:])) for b in branches]
        batched = [any(d is not None for d in out) for out in zip(*[o for _, o in made], strict=True)]
        if dims[0] is None:
            programs = tuple([t.program(b, tuple(dims[1:]), batched)[0] for b in branches])
            outs = self(index, *operands, branches=programs)
            return outs, [0 if b else None for b in batched]
        if len(branches) == 1:
            return jit.batch(t, operands, dims[1:], program=branches[0])
        refuse_io(branches, "a branch that vmap runs for all examples")
        every = [True] * len(branches[0].outputs)
        index = clamp(literal(0, typeof(index)), index, literal(len(branches) - 1, typeof(index)))
        # Each branch runs for all examples. Its results for the examples of other branches, such as
        # infinite derivatives, must not reach the operands.
        placed = [
            t.at(x, d, 0) if is_inexact(typeof(x).dtype) else t.move(x, d, 0)
            for x, d in zip(operands, dims[1:], strict=True)
        ]
        front = [
            0 if d is not None or x is not y else None
            for x, y, d in zip(operands, placed, dims[1:], strict=True)
        ]
        results = []
        for i, branch in enumerate(branches):
            own = eq(index, literal(i, typeof(index)))
            given = [only_where(own, x, d) for x, d in zip(placed, front, strict=True)]
            results.append(jit(*given, program=t.program(branch, tuple(front), every)[0]))
        outs, outs_dims = [], []
        places = zip(*map(_places, branches), strict=True)
        for cases, found in zip(zip(*results, strict=True), places, strict=True):
            k = found[0] if len(set(found)) == 1 else None  # the operand that all branches return
            outs.append(choose(index, cases) if k is None else operands[k])
            outs_dims.append(0 if k is None else dims[1 + k])
        return outs, outs_dims

    def reached(self, params: dict[str, Any], moving: Sequence[bool]) -> Sequence[bool]:
        if self.has_effects(params) or moving[0]:
            return [True]
        each = [dependence.reached_outputs(b, moving[1:]) for b in params["branches"]]
        return [any(found) for found in zip(*each, strict=True)]

    def part(self, equation: Equation, wanted: Sequence[bool]) -> Equation:
        branches = equation.params["branches"]
        read = [any(r) for r in zip(*[dependence.reading(b, wanted) for b in branches], strict=True)]
        made = tuple([dependence.restricted(b, read, wanted) for b in branches])
        return dependence.smaller(equation, [True, *read], compress(equation.outputs, wanted), branches=made)

    def cost(self, in_types: Any, out_types: Any, *, branches: tuple[Program, ...]) -> Cost:
        """Return the highest cost of a branch."""
        costs = [jit.cost(in_types[1:], out_types, program=b) for b in branches]
        return max(costs, default=Cost(0, 0))


cond: Cond = Cond()


def _places(program: Program) -> list[int | None]:
    """Return, for each result that is an input, the index of that input."""
    inputs = {v: i for i, v in enumerate(program.inputs)}
    return [inputs.get(v) if v.__class__ is Var else None for v in program.outputs]


def choose(index: Any, cases: Sequence[Any]) -> Any:
    """Select, per example (the first axes), the case given by an array of indices or booleans."""
    axes = tuple(range(typeof(index).ndim))
    return select_n(broadcast_in_dim(index, shape=typeof(cases[0]).shape, dimensions=axes), *cases)


class OnlyWhere(Primitive):
    """The identity on x, with a derivative only where a mask over its leading axes is true.
    Elsewhere the result is discarded later, and its derivative, which may be infinite, must not
    reach x."""

    in_kernel = True
    name: str = "only_where"
    linear_in: tuple[int, ...] = (1,)
    axis_params: tuple[str, ...] = ()

    def abstract_eval(self, own: ArrayType, x: ArrayType) -> ArrayType:
        if own.dtype != np.bool_ or own.shape != x.shape[: own.ndim]:
            raise self.mismatch((own, x), "takes a mask over the first axes")
        return x

    def reference(self, own: Any, x: Any) -> Any:
        return x

    def lower(self, ctx: Any, own: Any, x: Any) -> Any:
        return x

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        return None if tangents[1] is None else _masked(primals[0], tangents[1])

    def transpose(self, ct: Any, own: Any, x: Any) -> Any:
        return None, _masked(own, ct)


_only_where = OnlyWhere()


def _masked(own: Any, x: Any) -> Any:
    t = typeof(x)
    wide = broadcast_in_dim(own, shape=t.shape, dimensions=tuple(range(typeof(own).ndim)))
    return select_n(wide, literal(0, t), x)


def only_where(own: Any, x: Any, dim: int | None) -> Any:
    """Return x, with a derivative only for the examples (the first axes) where `own` is true."""
    return x if dim is None or not is_inexact(typeof(x).dtype) else _only_where(own, x)


def _joined(
    parts: Sequence[dependence.Split], branches: Sequence[Program], needed: Sequence[bool]
) -> tuple[tuple[Program, ...], tuple[Program, ...], list[dependence.Place]]:
    """Return forward and linear parts of the branches, and the places of the operands that all linear
    parts take. Residuals of the same type in different branches share a slot; a branch without one
    returns zeros, as it does for a tangent that is zero only in it."""
    n = len(branches[0].outputs)
    own = [_slots(part.forward.out_types[n:]) for part in parts]
    slots = list(dict.fromkeys(chain.from_iterable(own)))
    met = [p for part in parts for p in part.places if p[0] != "out" or p[1] < n]
    places = [*dict.fromkeys(met), *[("out", n + i) for i in range(len(slots))]]
    in_types, out_types = branches[0].in_types, [*branches[0].out_types, *[t for t, _ in slots]]
    types = dependence.take(places, in_types, out_types, in_types)
    forward, linear = [], []
    for part, mine in zip(parts, own, strict=True):
        program = part.forward
        missing = [slot for slot in slots if slot not in mine]
        zero = stage(lambda missing=missing: [zeros(t) for t, _ in missing], [])
        extras = dict(zip((*mine, *missing), (*program.outputs[n:], *zero.outputs), strict=True))
        outputs = (*program.outputs[:n], *[extras[slot] for slot in slots])
        forward.append(program.replace(equations=[*program.equations, *zero.equations], outputs=outputs))
        at = [
            (kind, n + slots.index(mine[i - n]) if kind == "out" and i >= n else i) for kind, i in part.places
        ]
        names = dict(zip(at, part.linear.inputs, strict=True))
        inputs = [names.get(p) or Var(t) for p, t in zip(places, types, strict=True)]
        moving = compress(dependence.spread(part.linear.outputs, part.out_active), needed)
        ends = dependence.or_zeros(moving, compress(program.out_types, needed))
        linear.append(part.linear.replace(inputs=inputs, outputs=ends))
    return tuple(forward), tuple(linear), places


def _slots(types: Sequence[ArrayType]) -> list[tuple[ArrayType, int]]:
    """Return the slots of a branch's extra residuals: of each type, those numbered from 0."""
    seen = Counter[ArrayType]()
    made = []
    for t in types:
        made.append((t, seen[t]))
        seen[t] += 1
    return made


def with_common_captures(parts: Sequence[tuple[Program, Sequence[Any]]]) -> tuple[list[Any], list[Program]]:
    """Merge the captured values of several programs, their leading operands; return them, and programs that
    take all."""
    # a program may take the same value twice
    keys = [[(id(x), sum(y is x for y in xs[:i])) for i, x in enumerate(xs)] for _, xs in parts]
    captured = {k: x for of, (_, xs) in zip(keys, parts, strict=True) for k, x in zip(of, xs, strict=True)}
    programs = []
    for of, (program, _) in zip(keys, parts, strict=True):
        mine = dict(zip(of, program.inputs, strict=False))
        before = [mine.get(k) or Var(typeof(x)) for k, x in captured.items()]
        programs.append(program.replace(inputs=(*before, *program.inputs[len(of) :])))
    return list(captured.values()), programs
