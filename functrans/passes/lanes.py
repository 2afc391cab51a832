"""Loops over many lanes, block by block, on XLA:CPU.

    scan x: f32[8192]   ->   for each block of 256 lanes: scan x: f32[256]

A loop under `vmap` steps many systems that do not depend on each other, its lanes. XLA:CPU runs each
operation of a step for all lanes before the next one, and what it writes leaves the first cache. Here
a block of lanes runs through all steps before the next block starts, and the whole is one kernel.

Loops over the same lanes, with what is between them, run together: a gradient's loop back follows the loop
forth of the same block, so that what the one keeps for the other is that of a block, not of all lanes. Sums
over the lanes are added block by block, so their last bits differ.

Stacks of all steps are read and written in place. The last block overlaps the one before if the number of
lanes is not a multiple of the block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from functrans.ir.program import Equation, Program, Var, copied, hoist_constants, program_of, prune
from functrans.passes.lane_rules import RULES, SUMMED, Block, NotByLane, Uneven, Value
from functrans.passes.redundancy import common_subexpressions
from functrans.passes.rewrite import uses
from functrans.primitives.calls.captured import zeros
from functrans.primitives.calls.jit import jit, one_kernel
from functrans.primitives.control_flow.cond import INDEX, Cond, with_common_captures
from functrans.primitives.control_flow.loop_layout import LoopLayout, while_operands
from functrans.primitives.control_flow.scan import Scan, scanned
from functrans.primitives.control_flow.while_loop import While
from functrans.primitives.elementwise.arithmetic import min_
from functrans.primitives.elementwise.families import mul
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.reductions.folds import reduce_or
from functrans.primitives.shape.joining import iota
from functrans.primitives.shape.moving import broadcast_in_dim
from functrans.records import NamedTuple
from functrans.trace import bind, literal, stage, typeof

FEWEST = 32  # lanes: with fewer, a step's numbers fit a few registers
SIZES = (256, 128, 64, 32)  # of blocks: what a step computes fits the first cache
_ANEW = 1.5  # times the work of all lanes: each block computes anew what is the same for all

Problem = Callable[[Equation], Any]
T = TypeVar("T")
Axes = Sequence[int | None]  # those of the lanes in several values
Outside = Sequence[Equation]  # those of the program around the loops


class Lanes(NamedTuple):
    """Loops over the same lanes.

    loops : the loops
    inside: these and the operations between them
    part  : the program of these, whose results are those that others read
    blocks: the same block by block
    """

    loops: Sequence[Equation]
    inside: Sequence[Equation]
    part: Program
    blocks: Program

    def replaced(self, equations: Sequence[Equation], by: Equation) -> list[Equation]:
        """Return the equations with the loops, and what is between them, replaced by one."""
        behind, inside = _behind(equations, self.inside), set(self.inside)
        others = [e for e in equations if e not in inside]
        return [*[e for e in others if e not in behind], by, *[e for e in others if e in behind]]


def lanes(program: Program, why_not: Problem) -> list[Lanes]:
    """Return the loops of a program that run block by block.

    Arguments:
      program: a program; those nested in it are not considered.
      why_not: returns what prevents an operation from being part of a kernel, or None.
    """
    if any([e.primitive.has_effects(e.params) for e in program.equations]):
        return []  # effects keep their order
    together: dict[int, list[Equation]] = {}
    for e in program.equations:
        if (n := lanes_of(e)) >= FEWEST:
            together.setdefault(n, []).append(e)
    found: list[Lanes] = []
    for n, loops in together.items():
        # Those found before count as one operation each: none is part of others, nor are there circles.
        here = set(program.equations)
        for more in _groups(program, n, [e for e in loops if e in here], why_not):
            found.append(more)
            outputs = [v for v in more.part.outputs if v.__class__ is Var]
            call = Equation(one_kernel, more.part.inputs, tuple(outputs), {"program": more.part})
            program = program.replace(equations=more.replaced(program.equations, call))
    return found


def lanes_of(e: Equation) -> int:
    """Return the largest size of an axis of what is carried or else scanned by a loop, or 0."""
    types = [v.type for v in e.inputs]
    if isinstance(e.primitive, While):
        shapes = [t.shape for t in types[e.params["cond_consts"] + e.params["body_consts"] :]]
    elif isinstance(e.primitive, Scan) and e.params.get("unroll", 1) == 1:
        _, carry, arrays = LoopLayout.of(e.params).operands(types)
        shapes = [t.shape for t in carry] or [t.shape[1:] for t in arrays]
    else:
        return 0
    return max([n for shape in shapes for n in shape], default=0)


def _groups(program: Program, n: int, loops: list[Equation], why_not: Problem) -> Iterator[Lanes]:
    """Yield all loops over n lanes together, or else those that run block by block alone."""
    if len(loops) > 1 and (found := _together(program, n, loops, why_not)) is not None:
        yield found
        return
    for e in loops:  # one of few lanes may stay as it is
        if n > SIZES[0] and (found := _together(program, n, [e], why_not)) is not None:
            yield found


def _together(program: Program, n: int, loops: Sequence[Equation], why_not: Problem) -> Lanes | None:
    equations = program.equations
    before = {*loops, *prune(equations, [v for e in loops for v in e.inputs])}
    behind = _behind(equations, loops)
    inside = [e for e in equations if e in before and e in behind]
    if any([e.primitive is one_kernel for e in inside]):
        return None
    chosen = set(inside)
    read = uses(program.replace(equations=[e for e in equations if e not in chosen]))
    outputs = [v for e in inside for v in e.outputs if read[v]]
    part = program_of(inside, outputs, "lanes")
    blocks = _by_blocks(part, n, equations, why_not) if outputs else None
    return None if blocks is None else Lanes(loops, inside, part, blocks)


def _behind(equations: Sequence[Equation], start: Iterable[Equation]) -> set[Equation]:
    """Return these equations and those that depend on them."""
    found, values = set(start), set[Any]()
    for e in equations:
        if e in found or not values.isdisjoint(e.inputs):
            found.add(e)
            values.update(e.outputs)
    return found


def _by_blocks(program: Program, n: int, outside: Outside, why_not: Problem) -> Program | None:
    """Return the program in blocks of the largest size of which a step is small enough for a kernel; None
    if its operations mix lanes, or cannot be in a kernel."""
    for size in dict.fromkeys([_size_for(n, most) for most in SIZES]):
        try:
            made = stage(partial(_blocks, program, n, size, outside), program.in_types, "lanes")
        except Uneven:
            continue
        except NotByLane:
            return None
        obstacle = next((x for x in map(why_not, made.equations) if x is not None), None)
        if obstacle is None and _work(made) > _ANEW * _work(program):
            continue
        if obstacle is None:
            return made
        if not obstacle.problem.startswith("works on"):  # many elements
            return None
    return None


def _work(program: Program) -> float:
    return jit.cost(program.in_types, program.out_types, program=program).flops


def _size_for(n: int, most: int) -> int:
    """Return the size of blocks of n lanes: if possible one that divides n, so that none overlap."""
    return next((size for size in range(most, most // 2, -1) if n % size == 0), min(n, most))


def _blocks(program: Program, n: int, size: int, outside: Outside, *operands: Any) -> list[Any]:
    """Run the program for each block of lanes."""
    blocks = -(-n // size)
    starts = [zeros(t) for t in program.out_types]
    if blocks == 1:
        return Block(n, size, literal(0, INDEX), outside).whole(program, operands, starts)

    def block(*values: Any) -> list[Any]:
        return Block(n, size, values[-1], outside).whole(program, operands, values[:-1])

    first = min_(mul(iota(dtype=INDEX.dtype, shape=(blocks,), dimension=0), size), n - size)
    return scanned(block, starts, [first], blocks, "block")


# --- what a block computes in loops and branches ---------------------------------------------------


def _settled(b: Block, axes: Axes, attempt: Callable[[Axes], tuple[T, Axes]]) -> tuple[T, Axes]:
    """Return what is made with the axes of results, and these, when no more of them are found. Only with
    the last axes it counts what is added to parts of sums."""
    before = b.adds_twice
    while True:
        b.adds_twice = False
        made, found = attempt(axes)
        widened = [f if d is None else d for d, f in zip(axes, found, strict=True)]
        if widened == [*axes]:
            b.adds_twice |= before
            return made, axes
        axes = widened


def _settled_loop(b: Block, axes: Axes, attempt: Callable[[Axes], tuple[T, Axes]]) -> tuple[T, Axes]:
    """The same of what a loop carries: what its steps add to parts of sums would be added many times."""
    before, b.adds_twice = b.adds_twice, False
    made, axes = _settled(b, axes, attempt)
    if b.adds_twice:
        raise NotByLane
    b.adds_twice = before
    return made, axes


def _branches(b: Block, e: Equation, values: Sequence[Value]) -> list[Value]:
    index, operands = values[0], values[1:]
    if index.axis is not None:
        raise NotByLane
    given = [v.array for v in operands]

    def attempt(axes: Axes) -> tuple[list[Program], Axes]:
        found: list[list[int | None]] = []

        def run(program: Program, *xs: Any) -> list[Any]:
            outs = b.run(program, [v._replace(array=x) for v, x in zip(operands, xs, strict=True)])
            found.append([v.axis for v in outs])
            return [b.along(v, d) for v, d in zip(outs, axes, strict=True)]

        types = [*map(typeof, given)]
        made = [stage(partial(run, program), types, program.name) for program in e.params["branches"]]
        return made, [next((d for d in ds if d is not None), None) for ds in zip(*found, strict=True)]

    made, axes = _settled(b, [None] * len(e.outputs), attempt)
    captured, branches = with_common_captures([*map(hoist_constants, made)])
    outs = bind(e.primitive, [index.array, *captured, *given], {"branches": tuple(branches)})
    return [*map(Value, outs, axes)]


def _looped(b: Block, e: Equation, values: Sequence[Value]) -> Iterator[Value]:
    """Run a loop. Stacks of all lanes are read and written in place, row by row."""
    layout, length = LoopLayout.of(e.params), e.params["length"]
    consts, carry, arrays = layout.operands(values)
    carry = [b.part(v) for v in carry]
    in_place = [None if (d := b.axis_of(v, 1)) is None else d - 1 for v in arrays]
    rows = [v.axis if v.axis is None else v.axis - 1 for v in arrays]
    if any([d in (-1, SUMMED - 1) for d in rows]):
        raise NotByLane
    results = [b.results.get(v) for v in e.outputs[layout.carry :]]
    stacks = [x for x in results if x is not None]
    sliced = [v.array for v, d in zip(arrays, in_place, strict=True) if d is None]
    at = iota(dtype=INDEX.dtype, shape=(length,), dimension=0)
    n, m = layout.carry, layout.carry + len(stacks)
    found: list[Value] = []

    def step(axes: Axes, *xs: Any) -> list[Any]:
        into, at, given = iter(xs[n:m]), xs[m], iter(xs[m + 1 :])
        slices = [
            Value(next(given), row) if d is None else Value(b.row(v.array, at, d), d)
            for v, row, d in zip(arrays, rows, in_place, strict=True)
        ]
        found[:] = b.run(e.params["program"], [*consts, *map(Value, xs[:n], axes), *slices])
        state, made = layout.results(found)
        ends = [b.along(v, d) for v, d in zip(state, axes, strict=True)]
        pairs = [*zip(made, results, strict=True)]
        written = [b.put(next(into), v, at) for v, x in pairs if x is not None]
        if any([v.axis == SUMMED for v in made]):
            raise NotByLane
        return [*ends, *written, *[v.array for v, x in pairs if x is None]]

    def attempt(axes: Axes) -> tuple[tuple[Program, list[Any]], Axes]:
        given = [*[b.along(v, d) for v, d in zip(carry, axes, strict=True)], *stacks, at, *sliced]
        types = [typeof(x) if i < m else typeof(x).without_axis(0) for i, x in enumerate(given)]
        body = stage(partial(step, axes), types, e.params["program"].name)
        return (body, given), [v.axis for v in found[:n]]

    (body, given), axes = _settled_loop(b, [v.axis for v in carry], attempt)
    body, captured = hoist_constants(body)
    params = {**e.params, "program": body, "consts": len(captured), "carry": m}
    outs = iter(bind(e.primitive, (*captured, *given), params))
    yield from [Value(next(outs), d) for d in axes]
    wholes = [next(outs) for _ in stacks]
    for v, x in zip(found[n:], results, strict=True):
        if x is not None:
            stack = wholes.pop(0)
            yield Value(stack) if v.axis is None else Value(stack, is_whole=True, lanes=v.axis + 1)
        else:
            yield Value(next(outs), v.axis if v.axis is None else v.axis + 1)


def _while(b: Block, e: Equation, values: Sequence[Value]) -> Iterator[Value]:
    """Run a loop as long as one of the block's lanes goes on: the others have to stay as they are."""
    cond, body = e.params["cond"], e.params["body"]
    first, fixed, carry = while_operands([*map(b.part, values)], e.params)
    test = _test_by_lane(e, b.outside)

    def attempt(axes: Axes) -> tuple[tuple[Program, list[Any]], Axes]:
        found: list[Value] = []

        def step(*xs: Any) -> list[Any]:
            found[:] = b.run(body, [*fixed, *map(Value, xs, axes)])
            return [b.along(v, d) for v, d in zip(found, axes, strict=True)]

        start = [b.along(v, d) for v, d in zip(carry, axes, strict=True)]
        made = stage(step, [*map(typeof, start)], body.name)
        return (made, start), [v.axis for v in found]

    (made, start), axes = _settled_loop(b, [v.axis for v in carry], attempt)

    def goes_on(*xs: Any) -> list[Any]:
        (v,) = b.run(test or cond, [*first, *map(Value, xs, axes)])
        if v.axis is not None and (test is None or v.axis != 0):
            raise NotByLane
        # If its elements are not the lanes, each block goes on until the last of all.
        return [v.array if test is None else bind(reduce_or, (v.array,), {"axes": (0,)})]

    made, captured = hoist_constants(made)
    tested, more = hoist_constants(stage(goes_on, [*map(typeof, start)], cond.name))
    params = {"cond": tested, "body": made, "cond_consts": len(more), "body_consts": len(captured)}
    yield from map(Value, bind(e.primitive, [*more, *captured, *start], params), axes)


def _test_by_lane(e: Equation, outside: Sequence[Equation]) -> Program | None:
    """Return the program that tests each lane, if the loop goes on until no lane does, and a step leaves the
    lanes as they are that do not; None if the condition is another."""
    cond, body = e.params["cond"], e.params["body"]
    last = next((q for q in cond.equations if cond.outputs[0] in q.outputs), None)
    if last is None or last.primitive is not reduce_or or last.inputs[0].type.ndim != 1:
        return None
    test = last.inputs[0]
    tests = [test]
    inside = {v: q for q in body.equations for v in q.outputs}
    for v, old in zip(body.outputs, body.inputs[e.params["body_consts"] :], strict=True):
        if v is old:
            continue
        q = inside.get(v)
        if q is None or q.primitive is not select_n or len(q.inputs) != 3 or q.inputs[1] is not old:
            raise NotByLane
        which = q.inputs[0]
        if (spread := inside.get(which)) is not None and spread.primitive is broadcast_in_dim:
            if spread.params["dimensions"] != (0,):
                raise NotByLane
            which = spread.inputs[0]
        tests.append(which)
    if not _are_same(e, tests, outside):
        raise NotByLane
    return cond.replace(equations=prune(cond.equations, [test]), outputs=[test])


def _are_same(e: Equation, values: Sequence[Any], outside: Sequence[Equation]) -> bool:
    """Return whether values of a loop's condition and body are made by the same operations of the same."""
    cond, body = e.params["cond"], e.params["body"]
    first, fixed, _ = while_operands(e.inputs, e.params)
    carry = body.inputs[len(fixed) :]
    names = {
        **dict(zip(cond.inputs, (*first, *carry), strict=True)),
        **dict(zip(body.inputs, (*fixed, *carry), strict=True)),
    }
    equations = prune(outside, e.inputs)
    equations += copied(cond.equations, names)
    equations += copied(body.equations, names)
    made = common_subexpressions(program_of(equations, [names.get(v, v) for v in values]))
    return len(set(made.outputs)) == 1


RULES.update({Cond: _branches, Scan: _looped, While: _while})
