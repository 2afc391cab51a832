"""Sums of all elements of an array, taken row by row in one kernel.

In: a program. Out: for each such sum, with the elementwise operations that only it reads, a program
that adds rows of 64 elements in a loop, and then the 64:

    b = mul a a;  c = reduce_sum b       ->       s = scan(s + row * row) over rows of a;  c = sum s

XLA:CPU runs a program in another thread if it counts 1,000 operations, and counts a loop once. So a
short program whose sums are loops is run by the thread that calls it: the mean of 2,000 squares takes
5 us instead of 8 to 50. A lane adds at most 256 elements, so that the sum stays accurate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from functrans.ir.program import Equation, Literal, Program, Var, program_of
from functrans.passes.vector_code import FUNCTIONS
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.elementwise.families import Elementwise, add
from functrans.primitives.reductions.folds import reduce_sum
from functrans.primitives.shape.moving import broadcast_in_dim, reshape, slice_axis
from functrans.trace import bind, derive_from, literal, provenance, stage, typeof

_ROW, _FEWEST, _MOST = 64, 256, 64 * 256


class RowSum(NamedTuple):
    """A sum that can be taken by rows, its elementwise operations, and what these read."""

    equation: Equation
    operations: list[Equation]
    inputs: tuple[Var, ...]

    @property
    def share(self) -> float:
        """The share of its operations that XLA counts if it is taken by rows: those of a row, of the
        elements after the last row, and of the sum of the row."""
        size = self.equation.inputs[0].type.size
        return float((2 * _ROW + size % _ROW) / size)

    def program(self) -> Program:
        """Return it as a program of its inputs."""

        def total(*values: Any) -> list[Any]:
            with provenance():
                derive_from(self.equation.source, self.equation.origin)
                return [_by_rows(self.operations, self.equation, self.inputs, values)]

        return stage(total, [v.type for v in self.inputs], "sum")


def row_sums(program: Program, read: Counter[Any]) -> list[RowSum]:
    """Return the sums of a program that can be taken by rows. `read`: number of uses of each value."""
    found = []
    for i, e in enumerate(program.equations):
        if _is_whole(e):
            operations = _operations(program.equations[: i + 1], read)
            found.append(RowSum(e, operations, program_of([*operations, e], e.outputs).inputs))
    return found


def _is_whole(e: Equation) -> bool:
    """Return whether this is the sum of all elements of an array that is neither short nor long."""
    if e.primitive is not reduce_sum or e.outputs[0].type.shape:
        return False
    t = e.inputs[0].type
    return _FEWEST <= t.size <= _MOST and t.dtype.name in ("float32", "float64")


def _operations(equations: Sequence[Equation], read: Counter[Any]) -> list[Equation]:
    """Return the operations, in order, that only the last equation reads, a sum, or one another."""
    *before, last = equations
    shape, found = last.inputs[0].type.shape, list[Equation]()
    inside = Counter(last.inputs)
    for e in reversed(before):
        v = e.outputs[0] if e.outputs else None
        if inside[v] and inside[v] == read[v] and _is_by_element(e, shape):
            found.append(e)
            inside.update(e.inputs)
    return found[::-1]


def _is_by_element(e: Equation, shape: tuple[int, ...]) -> bool:
    """Return whether each element of the result depends on one element of arrays of this shape, and
    on numbers."""
    if e.primitive is broadcast_in_dim:
        return not e.inputs[0].type.shape and e.outputs[0].type.shape == shape
    if not isinstance(e.primitive, Elementwise) or e.outputs[0].type.shape != shape:
        return False
    if e.primitive in FUNCTIONS:  # in the loop they would be vector code, whose operations are counted
        return False
    return all([v.type.shape in ((), shape) for v in e.inputs])


def _by_rows(
    operations: Sequence[Equation], last: Equation, inputs: Sequence[Var], values: Sequence[Any]
) -> Any:
    """Return the sum: of the rows, and of the elements after the last row."""
    summed = last.inputs[0]
    shape = summed.type.shape
    size = summed.type.size
    rows, after = size // _ROW, size % _ROW
    is_array = [v.type.shape == shape for v in inputs]
    arrays = [reshape(x, shape=(size,)) for x, a in zip(values, is_array, strict=True) if a]
    numbers = [x for x, a in zip(values, is_array, strict=True) if not a]

    def part(numbers: Sequence[Any], arrays: Sequence[Any], n: int) -> Any:
        each = iter(arrays), iter(numbers)
        known = {v: next(each[0] if a else each[1]) for v, a in zip(inputs, is_array, strict=True)}
        found = _elements(operations, summed, known, n)
        derive_from(last.source, last.origin)
        return found

    def step(*values: Any) -> list[Any]:
        k = len(numbers)
        return [add(values[k], part(values[:k], values[k + 1 :], _ROW))]

    start = literal(0, summed.type.update(shape=(_ROW,)))
    slices = [reshape(slice_axis(x, 0, 0, rows * _ROW), shape=(rows, _ROW)) for x in arrays]
    types = [*map(typeof, numbers), typeof(start), *[typeof(x).update(shape=(_ROW,)) for x in arrays]]
    body = stage(step, types, "row")
    (lanes,) = scan(*numbers, start, *slices, program=body, length=rows, consts=len(numbers), carry=1)
    total = reduce_sum(lanes, axes=(0,))
    if after:
        rest = part(numbers, [slice_axis(x, 0, rows * _ROW, size) for x in arrays], after)
        total = add(total, reduce_sum(rest, axes=(0,)))
    return total


def _elements(operations: Sequence[Equation], out: Any, known: dict[Any, Any], n: int) -> Any:
    """Apply the operations to `n` elements of each array."""
    shape = out.type.shape

    def value(v: Any) -> Any:
        if v.__class__ is Literal:
            return literal(v.value, v.type.update(shape=(n,)) if v.type.shape == shape else v.type)
        return known[v]

    for e in operations:
        derive_from(e.source, e.origin)
        values = [value(v) for v in e.inputs]
        if e.primitive is broadcast_in_dim:
            known[e.outputs[0]] = broadcast_in_dim(values[0], shape=(n,), dimensions=())
        else:
            known[e.outputs[0]] = bind(e.primitive, values, e.params)
    return value(out)
