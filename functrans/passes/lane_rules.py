"""What a block of lanes computes: the rule of each kind of operation (see lanes.py).

An array has an axis of lanes if element i along it depends on elements i of other arrays, and on what is
the same for all lanes. The rules are those of operations that keep such an axis, with its size changed to
that of the block. A sum over the lanes is the block's part of it, as long as what follows is linear in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from functrans.ir.program import Equation, Literal, Program, Var
from functrans.ir.types import is_key_dtype
from functrans.primitives.base import is_zero
from functrans.primitives.calls.jit import Jit
from functrans.primitives.contractions.dot_general import DotGeneral, dot_general
from functrans.primitives.control_flow.cond import INDEX, Cond
from functrans.primitives.control_flow.scan import Scan
from functrans.primitives.control_flow.while_loop import While
from functrans.primitives.elementwise.families import Elementwise, add, div, mul, neg, sub
from functrans.primitives.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from functrans.primitives.random.bits import Random
from functrans.primitives.reductions.cumulative import Cumulative
from functrans.primitives.reductions.folds import Arg, Reduction, Softmax, reduce_sum
from functrans.primitives.shape.joining import Concatenate, Iota, Pad, Split, pad
from functrans.primitives.shape.moving import (
    BroadcastInDim,
    Reshape,
    Rev,
    Slice,
    Squeeze,
    Structural,
    Transpose,
    reshape,
)
from functrans.records import NamedTuple
from functrans.trace import bind, evaluate, literal, typeof

SUMMED = -1  # instead of an axis: the block's part of a sum over all lanes
# Multiplications that a product takes for each lane: of more, a library is faster. A loop alone gains less
# than loops forth and back: the matrices of its larger products have an axis of few elements.
_MOST, _FEW, _MOST_ALONE = 256, 4, 32
LOOPS = (Scan, While)


class NotByLane(Exception):
    """Operations mix lanes, or nobody knows."""


class Uneven(NotByLane):
    """Sums over the lanes need blocks that do not overlap."""


class Value(NamedTuple):
    """A value in a block.

    axis    : which of its axes is that of the lanes, `SUMMED`, or None if it is the same for all lanes
    smaller : returns a value that is the same for all lanes with the block's size of an axis, or None
    is_whole: it may be an array of all lanes, of which the block reads its part
    lanes   : the axis of the lanes in such an array if blocks write it: others are not complete before the
              last block
    """

    array: Any
    axis: int | None = None
    smaller: Callable[[int], Any] | None = None
    is_whole: bool = False
    lanes: int | None = None


class Block:
    """A block of `size` of `n` lanes, the first of which is `first`. `outside`: the equations of the
    program around it."""

    def __init__(self, n: int, size: int, first: Any, outside: Sequence[Equation]):
        self.n: int = n
        self.size: int = size
        self.first: Any = first
        self.outside: Sequence[Equation] = outside
        self.is_alone: bool = False  # there is one loop
        self.results: dict[Var, Any] = {}  # stacks of all lanes, into which loops write
        self.adds_twice = False  # something was added to each block's part of a sum

    def whole(self, program: Program, operands: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """Run the program for this block, from and into arrays of all lanes."""
        self.is_alone = len([e for e in program.equations if isinstance(e.primitive, LOOPS)]) == 1
        self.results = {
            v: x
            for v, x in zip(program.outputs, results, strict=True)
            for e in program.equations
            if isinstance(e.primitive, Scan) and v in e.outputs[e.params["carry"] :]
        }
        outs = self._values(program, [Value(x, is_whole=True) for x in operands])
        if self.adds_twice:
            raise NotByLane
        return [
            v.array if out in self.results else self.into(x, v)
            for v, x, out in zip(outs, results, program.outputs, strict=True)
        ]

    # --- parts of arrays of all lanes

    def axis_of(self, v: Value, skipped: int = 0) -> int | None:
        """Return the axis of the lanes in an array that may be one of all lanes; not one of the first."""
        if not v.is_whole or v.lanes is not None:
            return v.lanes
        shape = typeof(v.array).shape
        return shape.index(self.n, skipped) if self.n in shape[skipped:] else None

    def starts(self, ndim: int, axis: int) -> list[Any]:
        return [self.first if i == axis else literal(0, INDEX) for i in range(ndim)]

    def sizes(self, shape: Sequence[int], axis: int) -> tuple[int, ...]:
        if shape[axis] != self.n:
            raise NotByLane
        return (*shape[:axis], self.size, *shape[axis + 1 :])

    def part(self, v: Value) -> Value:
        """Return the block's part of an array that may be one of all lanes."""
        if not v.is_whole:
            return v
        d = self.axis_of(v)
        return Value(v.array) if d is None else Value(self.along(v, d), d)

    def into(self, whole: Any, v: Value) -> Any:
        """Write the block's part of an array of all lanes."""
        if v.axis is None:
            return v.array
        if v.axis == SUMMED:
            if self.n % self.size:
                raise Uneven
            return add(whole, v.array)
        return bind(dynamic_update_slice, (whole, v.array, *self.starts(typeof(whole).ndim, v.axis)), {})

    def row(self, stack: Any, at: Any, axis: int) -> Any:
        """Return the block's part of a slice of a stack."""
        sizes = self.sizes(typeof(stack).shape[1:], axis)
        one = dynamic_slice(stack, at, *self.starts(len(sizes), axis), sizes=(1, *sizes))
        return reshape(one, shape=sizes)

    def put(self, stack: Any, v: Value, at: Any) -> Any:
        """Write the block's part of a slice of a stack."""
        if v.axis == SUMMED:
            raise NotByLane
        shape = typeof(v.array).shape
        starts = [literal(0, INDEX)] * len(shape) if v.axis is None else self.starts(len(shape), v.axis)
        return bind(dynamic_update_slice, (stack, reshape(v.array, shape=(1, *shape)), at, *starts), {})

    def along(self, v: Value, axis: int | None) -> Any:
        """Return a value with its lanes along this axis."""
        if v.axis == axis or axis is None:
            return v.array
        if v.axis is not None or (axis == SUMMED and not is_zero(v.array)):
            raise NotByLane
        if axis == SUMMED:
            return v.array
        if v.smaller is not None and (made := v.smaller(axis)) is not None:
            return made
        shape = typeof(v.array).shape
        return dynamic_slice(v.array, *self.starts(len(shape), axis), sizes=self.sizes(shape, axis))

    # --- operations

    def run(self, program: Program, values: Sequence[Value]) -> list[Value]:
        """Run a program on values of the block, and return values that are complete in it."""
        return [v if v.lanes is None else self.part(v) for v in self._values(program, values)]

    def _values(self, program: Program, values: Sequence[Value]) -> list[Value]:
        def apply(e: Equation, values: list[Any]) -> Any:
            given = [
                Value(v) if v.__class__ is Literal else x if x.__class__ is Value else Value(x)
                for v, x in zip(e.inputs, values, strict=True)
            ]
            if not isinstance(e.primitive, LOOPS):
                given = [*map(self.part, given)]
            outs = self._applied(e, given)
            return outs if e.primitive.multiple_results else outs[0]

        outs = evaluate(program, values, apply)
        return [v if v.__class__ is Value else Value(v) for v in outs]

    def _applied(self, e: Equation, values: Sequence[Value]) -> list[Value]:
        if all([v.axis is None for v in values]) and not isinstance(e.primitive, LOOPS):
            return self._same(e, [v.array for v in values])
        rule: Any = next((rule for kind, rule in RULES.items() if isinstance(e.primitive, kind)), None)
        if any([v.axis == SUMMED for v in values]) and not isinstance(e.primitive, (*LOOPS, Jit, Cond)):
            rule = _linear
        if rule is None:
            raise NotByLane
        found = rule(self, e, values)
        outs = [*found] if found.__class__ is not Kept else self._kept(e, values, found)
        for v, out in zip(outs, e.outputs, strict=True):
            shape = out.type.shape
            if not v.is_whole and v.axis not in (None, SUMMED):
                shape = self.sizes(shape, v.axis)
            if typeof(v.array).shape != shape:
                raise NotByLane
        return outs

    def _kept(self, e: Equation, values: Sequence[Value], kept: Kept) -> list[Value]:
        """Apply an operation that keeps the axis of the lanes."""
        axes = [v.axis for v in values] if kept.axes is None else kept.axes
        xs = [self.along(v, d) for v, d in zip(values, axes, strict=True)]
        return [Value(x, kept.axis) for x in _results(e, xs, {**e.params, **kept.params})]

    def _same(self, e: Equation, values: Sequence[Any]) -> list[Value]:
        """Apply an operation to values that are the same for all lanes."""
        outs = _results(e, values, e.params)
        if not isinstance(e.primitive, (BroadcastInDim, Iota)):
            return [*map(Value, outs)]

        def smaller(axis: int) -> Any:
            if values and values[0].__class__ is Literal:
                shape = self.sizes(e.params["shape"], axis)
                return literal(values[0].value, values[0].type.update(shape=shape))
            if axis in e.params.get("dimensions", (e.params.get("dimension"),)):
                return None
            return bind(e.primitive, values, {**e.params, "shape": self.sizes(e.params["shape"], axis)})

        return [Value(x, None, smaller) for x in outs]


def _results(e: Equation, values: Sequence[Any], params: dict[str, Any]) -> Sequence[Any]:
    outs = bind(e.primitive, values, params)
    return outs if e.primitive.multiple_results else [outs]


# --- the rules: how an equation keeps the axis of the lanes, or else its results ------------------


class Kept(NamedTuple):
    """The axis of the lanes in the results, the parameters that change, and the axis in each operand, if it
    is not where it was."""

    axis: int
    params: dict[str, Any] = {}  # nobody writes into it
    axes: Sequence[int | None] | None = None


def _axis_of(values: Sequence[Value]) -> int:
    """Return the axis of the lanes, which only the first operand has."""
    axis = values[0].axis
    if axis is None or any([v.axis is not None for v in values[1:]]):
        raise NotByLane
    return axis


def _common_axis(values: Sequence[Value]) -> int:
    """Return the axis of the lanes, the same in all operands that have it."""
    axes = {v.axis for v in values} - {None}
    if len(axes) != 1:
        raise NotByLane
    (axis,) = axes
    assert axis is not None
    return axis


def _elementwise(b: Block, e: Equation, values: Sequence[Value]) -> Kept:
    axis = _common_axis(values)
    return Kept(axis, axes=[axis if typeof(v.array).shape else None for v in values])


def _joined(b: Block, e: Equation, values: Sequence[Value]) -> Kept:
    axis = _common_axis(values)
    if e.params["dimension"] == axis:
        raise NotByLane
    return Kept(axis, axes=[axis] * len(values))


def _along(name: str, drops: bool = False) -> Callable[..., Kept]:
    """Return the rule of an operation along the axes of this parameter, which are not those of lanes.
    `drops`: the results do not have these axes."""

    def rule(b: Block, e: Equation, values: Sequence[Value]) -> Kept:
        axis, found = _axis_of(values), e.params[name]
        along = found if isinstance(found, tuple) else (found,)
        if axis in along:
            raise NotByLane
        return Kept(axis - sum([a < axis for a in along]) if drops else axis)

    return rule


def _broadcast(b: Block, e: Equation, values: Sequence[Value]) -> Kept:
    axis = e.params["dimensions"][_axis_of(values)]
    return Kept(axis, {"shape": b.sizes(e.params["shape"], axis)})


def _reshaped(b: Block, e: Equation, values: Sequence[Value]) -> Kept:
    shape = e.params["shape"]
    before = prod(typeof(values[0].array).shape[: _axis_of(values)])
    places = [i for i, n in enumerate(shape) if n == b.n and prod(shape[:i]) == before]
    if not places:
        raise NotByLane
    return Kept(places[0], {"shape": b.sizes(shape, places[0])})


def _transposed(b: Block, e: Equation, values: Sequence[Value]) -> Kept:
    return Kept(e.params["permutation"].index(values[0].axis))


def _sliced(b: Block, e: Equation, values: Sequence[Value]) -> Kept:
    d = _axis_of(values)
    start, limit, strides = (e.params[k] for k in ("start", "limit", "strides"))
    if (start[d], limit[d], strides[d]) != (0, b.n, 1):
        raise NotByLane
    return Kept(d, {"limit": b.sizes(limit, d)})


def _padded(b: Block, e: Equation, values: Sequence[Value]) -> Kept:
    axis = _axis_of(values)
    if any(e.params["config"][axis]):
        raise NotByLane
    return Kept(axis)


def _product(b: Block, e: Equation, values: Sequence[Value]) -> Kept:
    names = e.params["lhs"], e.params["rhs"]
    lanes = {of[v.axis] for v, of in zip(values, names, strict=True) if v.axis is not None}
    if len(lanes) != 1:
        raise NotByLane
    (lane,) = lanes
    out = e.params["out"]
    sizes = {
        k: n for v, of in zip(e.inputs, names, strict=True) for k, n in zip(of, v.type.shape, strict=True)
    }
    kept = prod([sizes[k] for k in out if k != lane])
    summed = prod([n for k, n in sizes.items() if k not in out and k != lane])
    most = _MOST_ALONE if b.is_alone and min(kept, summed) > _FEW else _MOST
    if kept * summed > most:
        raise NotByLane
    axes = [of.index(lane) if lane in of else None for of in names]
    return Kept(out.index(lane) if lane in out else SUMMED, axes=axes)


def _random(b: Block, e: Equation, values: Sequence[Value]) -> Kept:
    """Keys of lanes: their axes come first."""
    axis, t = _common_axis(values), typeof(values[0].array)
    if not is_key_dtype(t.dtype) and axis == t.ndim - 1:  # that of their words
        raise NotByLane
    return Kept(axis, axes=[axis] * len(values))


def _read_part(b: Block, e: Equation, values: Sequence[Value]) -> Kept:
    d = _axis_of(values)
    if not is_zero(values[1 + d].array):
        raise NotByLane
    return Kept(d, {"sizes": b.sizes(e.params["sizes"], d)})


def _write_part(b: Block, e: Equation, values: Sequence[Value]) -> Kept:
    axis = _common_axis(values[:2])
    if any([v.axis is not None for v in values[2:]]) or not is_zero(values[2 + axis].array):
        raise NotByLane
    return Kept(axis, axes=[axis, axis, *[None] * (len(values) - 2)])


def _called(b: Block, e: Equation, values: Sequence[Value]) -> list[Value]:
    if e.primitive.__class__ is not Jit:
        raise NotByLane
    return b.run(e.params["program"], values)


def _linear(b: Block, e: Equation, values: Sequence[Value]) -> Kept:
    """An operation that is linear in the block's part of a sum."""
    summed = [v.axis == SUMMED for v in values]
    others = [v.axis is not None for v, s in zip(values, summed, strict=True) if not s]
    is_linear = e.primitive in (add, sub, neg) or isinstance(e.primitive, (Structural, Concatenate))
    is_scaled = summed in ([True, False], [False, True]) and e.primitive in (mul, dot_general)
    if summed[0] and not any(summed[1:]):
        is_inexact = typeof(values[0].array).dtype.kind not in "iub"  # quotients of integers are rounded
        is_scaled |= e.primitive in (dynamic_slice, reduce_sum) or (e.primitive is div and is_inexact)
        is_scaled |= e.primitive is pad and is_zero(values[1].array)
    if any(others) or not (is_scaled or is_linear):
        raise NotByLane
    b.adds_twice |= not is_scaled and not all(summed)  # not if it turns out to be summed too
    return Kept(SUMMED)


def _summed(b: Block, e: Equation, values: Sequence[Value]) -> Kept:
    over_lanes = values[0].axis in e.params["axes"] and e.primitive is reduce_sum
    return Kept(SUMMED) if over_lanes else _along("axes", drops=True)(b, e, values)


RULES: dict[type, Callable[..., Any]] = {
    Elementwise: _elementwise,
    BroadcastInDim: _broadcast,
    Reshape: _reshaped,
    Transpose: _transposed,
    Slice: _sliced,
    Squeeze: _along("dimensions", drops=True),
    Rev: _along("dimensions"),
    Split: _along("axis"),
    Cumulative: _along("axis"),
    Reduction: _summed,
    Arg: _along("axes", drops=True),
    Softmax: _along("axes"),
    Concatenate: _joined,
    Pad: _padded,
    DotGeneral: _product,
    Random: _random,
    type(dynamic_slice): _read_part,
    type(dynamic_update_slice): _write_part,
    Jit: _called,
}
