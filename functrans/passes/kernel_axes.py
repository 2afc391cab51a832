"""Another axis for short rows of numbers in a kernel, so that LLVM vectorizes the loops over them.

    sin x: f32[16]   ->   sin x: f32[16,1]

XLA:CPU writes a loop for each axis, and lets LLVM unroll only the one over the last axis. LLVM does
so before it vectorizes loops, and XLA leaves out the pass that would vectorize what was unrolled: the
operations of a short row are done one by one. With a last axis of size one the loop over the row
stays a loop. The operations and their order stay the same, so the results do.

Whether an array has the axis depends on its shape alone, and the axis is added by the batching rules
of the operations. Matrices whose rows are joined or padded stay, and vectors with few other operations:
LLVM knows by unrolling which part an element belongs to. So do rows that are most of a longer one: LLVM
vectorizes neither what moves between the two forms nor what is fused with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from functrans.caching import memoized
from functrans.ir.program import Equation, Literal, Program, replaced_programs
from functrans.ir.types import ArrayType, dtype_class
from functrans.passes.rewrite import all_equations
from functrans.primitives.calls.jit import Jit
from functrans.primitives.control_flow.cond import Cond
from functrans.primitives.control_flow.loop_layout import LoopLayout
from functrans.primitives.control_flow.scan import Scan
from functrans.primitives.control_flow.while_loop import While
from functrans.primitives.elementwise.families import Elementwise
from functrans.primitives.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from functrans.primitives.shape.joining import concatenate, pad
from functrans.primitives.shape.moving import reshape, slice_
from functrans.trace import bind, evaluate, stage, typeof
from functrans.transforms.batch import Batching

# Numbers in a row. With fewer nothing is gained, and of more LLVM vectorizes what it unrolled: in matrices
# the loop over the rows too.
SHORT = 16
LONG, LONG_VECTOR = 36, 55
WORK = 12  # operations of vectors, for each join of some, that are worth the conditions it becomes

Shape = tuple[int, ...]

_AXIS = Batching(1)


def with_short_rows_as_loops(program: Program) -> Program:
    """Return the program of a kernel with another axis for each array of short rows inside; the same
    object if there are none."""
    equations = all_equations(program)
    shapes = {v.type.shape for e in equations for v in e.outputs if _has_short_rows(v.type)}
    shapes -= {*_joined(equations), *_parts(equations)}
    if not shapes:
        return program
    inner = _with_axes(program, frozenset(shapes))

    def run(*xs: Any) -> list[Any]:
        wide = _as_types(xs, inner.in_types)
        return _as_types(evaluate(inner, wide), program.out_types)

    return stage(run, program.in_types, program.name)


def _has_short_rows(t: ArrayType) -> bool:
    return t.ndim > 0 and SHORT <= t.shape[-1] <= _long(t.shape) and dtype_class(t.dtype) != "key"


def _long(shape: Shape) -> int:
    return LONG_VECTOR if len(shape) == 1 else LONG


def _joined(equations: list[Equation]) -> Iterator[Shape]:
    """Yield the shapes of rows that are joined or padded, and of what they are made from; of vectors
    only if there are few other operations."""
    joins = [e for e in equations if e.primitive in (concatenate, pad) and _joins_rows(e)]
    vectors = [e for e in equations if e.outputs[0].type.ndim == 1]
    work = sum([e.primitive.flops for e in vectors if isinstance(e.primitive, Elementwise)])
    is_worth_it = work >= WORK * len([e for e in vectors if e in joins])
    for e in joins:
        if e.outputs[0].type.ndim > 1 or not is_worth_it:
            yield from [v.type.shape for v in (*e.inputs, *e.outputs)]


def _parts(equations: list[Equation]) -> Iterator[Shape]:
    """Yield the shapes of rows that are most of a row without another axis."""
    for e in equations:
        if e.primitive in (slice_, dynamic_slice, dynamic_update_slice):
            part = e.inputs[1] if e.primitive is dynamic_update_slice else e.outputs[0]
            whole, shape = e.inputs[0].type.shape, part.type.shape
            if shape and _long(whole) < whole[-1] < 2 * shape[-1]:
                yield shape


def _joins_rows(e: Equation) -> bool:
    last = e.outputs[0].type.ndim - 1
    if e.primitive is concatenate:
        return bool(e.params["dimension"] == last)
    return last >= 0 and any(e.params["config"][last])


@memoized
def _with_axes(program: Program, shapes: frozenset[Shape]) -> Program:
    """Return the program with another axis for arrays of these shapes, its operands and results included."""

    def wide(types: Sequence[ArrayType]) -> list[ArrayType]:
        return [t.update(shape=(*t.shape, 1)) if _in(t, shapes) else t for t in types]

    def apply(e: Equation, values: list[Any]) -> Any:
        given = _as_types(values, wide([v.type for v in e.inputs]))
        runs_programs = isinstance(e.primitive, (Scan, While, Cond, Jit))
        outs = (_run if runs_programs else _batched)(e, given, shapes)
        outs = _as_types(outs, wide([v.type for v in e.outputs]))
        return outs if e.primitive.multiple_results else outs[0]

    def run(*xs: Any) -> list[Any]:
        return _as_types(evaluate(program, xs, apply), wide(program.out_types))

    return stage(run, wide(program.in_types), program.name)


def _in(t: ArrayType, shapes: frozenset[Shape]) -> bool:
    return t.shape in shapes and dtype_class(t.dtype) != "key"


def _batched(e: Equation, values: list[Any], shapes: frozenset[Shape]) -> list[Any]:
    """Apply an operation to arrays with a last axis more; the axis is the last of the results."""
    dims = [v.type.ndim if _in(v.type, shapes) else None for v in e.inputs]
    outs, found = _AXIS.apply(e.primitive, values, dims, e.params)
    last = [v.type.ndim for v in e.outputs]
    return [_AXIS.move(x, d, n) for x, d, n in zip(outs, found, last, strict=True)]


def _run(e: Equation, values: list[Any], shapes: frozenset[Shape]) -> list[Any]:
    """Run a loop, a branch or a call with the axes in its programs."""
    inside = {p: _with_axes(p, shapes) for p in e.programs}
    if isinstance(e.primitive, Scan):  # whether an array has the axis depends on its slices
        fixed, n = LoopLayout.of(e.params).fixed, e.params["length"]
        slices = inside[e.params["program"]].in_types[fixed:]
        stacks = [t.update(shape=(n, *t.shape)) for t in slices]
        values = [*values[:fixed], *_as_types(values[fixed:], stacks)]
    return bind(e.primitive, values, replaced_programs(e.params, inside))


def _as_types(values: Sequence[Any], types: Sequence[ArrayType]) -> list[Any]:
    return [_as(x, t.shape) for x, t in zip(values, types, strict=True)]


def _as(x: Any, shape: Shape) -> Any:
    """Return a value in another shape, which differs in axes of size one."""
    if typeof(x).shape == shape:
        return x
    return Literal(x.value, x.type.update(shape=shape)) if x.__class__ is Literal else reshape(x, shape=shape)
