"""Accumulate in a loop what it writes only to be summed.

In: a `scan` that stacks large values, and a `reduce_sum` over the steps that is their only user,
optionally after a reshape that merges steps with rows of a step. Out: the scan carries the sum.

    y = scan(...)  each step writes g[b, i];  reduce_sum over t and b of y[t, b, i]
    ->   a scan that carries  c[i] + reduce_sum over b of g[b, i]

So per-example gradients that `lax.map` computes in batches, each clipped, are never all in memory
at once, and within a step `contract` sees their sum.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from functrans.ir.program import Equation, Origin, Program, Var, prune
from functrans.ir.types import dtype_class
from functrans.passes.rewrite import Replaced, everywhere, program_pass, replacing
from functrans.primitives.base import bytes_of
from functrans.primitives.control_flow.loop_layout import LoopLayout
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.elementwise.families import add
from functrans.primitives.reductions.folds import reduce_sum
from functrans.primitives.shape.moving import reshape
from functrans.trace import literal

HOW = "written_sums of"
LARGE = 1 << 18  # bytes written; below this nothing is gained
Readers = dict[Any, list[Equation]]


class Sum(NamedTuple):
    """A sum of a written result of a scan: which result, and the axes of a step's slice."""

    written: int
    axes: tuple[int, ...]
    equation: Equation


@program_pass
def written_sums(program: Program) -> Program:
    """Move sums over the written results of loops into the loops.

    Arguments:
      program: any Program; nested ones are rewritten too.

    Returns:
      A Program with the same inputs and outputs; the same object if nothing changed. Sums are taken
      step by step.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> program = ft.make_ir(lambda x: ft.lax.map(jnp.sin, x).sum(0))(jnp.ones((128, 512)))
      >>> print(ft.passes.optimize(program, ("inline_calls", "written_sums", "dead_code")))
      program (a: f32[128,512]) {
        b: f32[512] = scan[length=128, consts=0, carry=1] 0.0:f32[512] a {
          program sin (c: f32[512], d: f32[512]) {
            e: f32[512] = sin d
            f: f32[512] = add c e
            return f
          }
        }
        return b
      }
    """
    return everywhere(_each, program, "written_sums")


def _each(program: Program) -> Program:
    if not any([e.primitive is scan for e in program.equations]):
        return program
    readers: Readers = defaultdict(list)
    for e in program.equations:
        for v in e.inputs:
            readers[v].append(e)
    outputs = set(program.outputs)

    def with_sums(e: Equation, known: dict[Var, Any]) -> Replaced:
        sums = _sums(e, readers, outputs)
        if not sums:
            return None
        return [_with_sums(e, sums, known)], [s.equation for s in sums]

    return replacing(program, scan, with_sums)


def _sums(e: Equation, readers: Readers, outputs: set[Any]) -> list[Sum]:
    """Return the sums that a scan should carry."""
    made: list[Sum] = []
    m = e.params["carry"]
    for i, v in enumerate(e.outputs[m:]):
        if v in outputs or bytes_of(v.type) < LARGE or dtype_class(v.type.dtype) != "float":
            continue
        found = _of(i, v, readers, outputs)
        smaller = sum([bytes_of(s.equation.outputs[0].type) for s in found]) < bytes_of(v.type)
        made += found if smaller else []
    return made


def _of(i: int, v: Var, readers: Readers, outputs: set[Any]) -> list[Sum]:
    """Return the sums over the steps of a written value; none if it has another use."""
    found = []
    for e in readers[v]:
        if e.primitive is reduce_sum:
            inside, sums = 1, [e]
        elif e.primitive is reshape and _joins_rows(e) and e.outputs[0] not in outputs:
            inside, sums = 0, readers[e.outputs[0]]
        else:
            return []
        for s in sums:
            if s.primitive is not reduce_sum or 0 not in s.params["axes"]:
                return []
            axes = tuple([a - inside for a in s.params["axes"] if a >= inside])
            found.append(Sum(i, axes, s))
    return found


def _joins_rows(e: Equation) -> bool:
    """Return whether the reshape merges the first two axes."""
    before, after = e.inputs[0].type.shape, e.outputs[0].type.shape
    return len(before) > 1 and after == (before[0] * before[1], *before[2:])


def _with_sums(e: Equation, sums: list[Sum], known: dict[Var, Any]) -> Equation:
    """Return the scan that carries the sums, and add these to `known`."""
    layout, body = LoopLayout.of(e.params), e.params["program"]
    consts, carry, slices = layout.operands(body.inputs)
    fixed, starts, arrays = layout.operands(e.inputs)
    ends, written = layout.results(body.outputs)
    results, stacked = layout.results(e.outputs)
    gone = {s.written for s in sums}
    stays = [i for i in range(len(written)) if i not in gone]
    equations, carried, after, finals = list(body.equations), [], [], []
    for s in sums:
        v, t = written[s.written], s.equation.outputs[0].type
        source, origin = s.equation.source, Origin(HOW, s.equation)
        if s.axes:
            part = Var(t)
            equations.append(Equation(reduce_sum, (v,), (part,), {"axes": s.axes}, source, origin))
            v = part
        before, total, final = Var(t), Var(t), Var(t)
        equations.append(Equation(add, (before, v), (total,), {}, source, origin))
        carried.append(before)
        after.append(total)
        finals.append(final)
        known[s.equation.outputs[0]] = final
    outputs = [*ends, *after, *[written[i] for i in stays]]
    inner = Program([*consts, *carry, *carried, *slices], prune(equations, outputs), outputs, name=body.name)
    zeros = [literal(0, v.type) for v in carried]
    inputs = (*fixed, *starts, *zeros, *arrays)
    outs = (*results, *finals, *[stacked[i] for i in stays])
    params = {**e.params, "program": inner, "carry": layout.carry + len(sums)}
    return Equation(scan, inputs, outs, params, e.source, Origin(HOW, e))
