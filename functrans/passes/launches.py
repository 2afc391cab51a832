"""Fewer kernel launches on a GPU, where starting an operation takes longer than a small operation.

    lu x                               ->   its steps, which XLA fuses
    scan[program, length] *operands    ->   length/4 turns of four steps each, which write their rows,
                                            and carry many numbers, as few arrays

Factorizations of small matrices (kernel_factorizations.py) are fused with what reads them, and so are
products of small matrices in loops. Of four steps in a turn XLA makes hardly more operations than of
one: it fuses them, and they read and write four rows at once. It writes each array by an operation
of its own, so arrays of one type are joined. The operations and their order stay the same.

Runs when a program is lowered for a GPU, after all other passes. Measured by `python -m benchmarks
accelerator`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from functrans.caching import memoized
from functrans.ir.program import Equation, Program, program_of, replaced_programs
from functrans.ir.types import dtype_class
from functrans.passes.kernel_expansions import FEW, FORMS, sum_of_terms, summed_axes
from functrans.passes.kernel_factorizations import FACTORIZATIONS, is_a_loop
from functrans.passes.kernels import LOOPS, is_kept
from functrans.passes.rewrite import Replaced, all_equations, everywhere, replacing
from functrans.primitives.calls.jit import jit
from functrans.primitives.contractions.convolution import conv_general_dilated
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.control_flow.loop_layout import LoopLayout
from functrans.primitives.control_flow.scan import scan, scanned
from functrans.primitives.shape.joining import stack
from functrans.primitives.shape.moving import index_axis
from functrans.trace import evaluate, stage

# The steps of a turn, and for how many equations in a step at most. Compiling takes 1.2 times as long
# with two steps and twice as long with four.
STEPS = ((4, 64), (2, 512))
TURNS = 8  # fewer are not worth it
# Elements that an operation may read or write. Above, it takes longer than its start, and the rows of
# several steps take memory.
ELEMENTS = 2**20
MATRICES = 16  # rows and columns of the matrices in products that are expanded
# Arrays are joined to at most so many, of at most so many elements in a step. XLA tells apart by
# conditions which of them an element belongs to, and compiles many more for several times as long.
JOINED, JOINED_ELEMENTS = 16, 4096


def fewer_launches(program: Program, joins: bool = True) -> Program:
    """Return the program for a GPU, with all programs nested in it; the same object if nothing is
    to change. `joins`: loops may join arrays, which on several GPUs may be distributed differently.
    """
    if is_kept(program):
        return program

    def on_a_gpu(e: Equation, _: Any) -> Replaced | None:
        if e.primitive in LOOPS:
            return _in_a_loop(e, joins)
        write, takes = FACTORIZATIONS[e.primitive]
        return _called(e, write) if takes(e) and not is_a_loop(e) else None

    rewritten = (*LOOPS, *FACTORIZATIONS)
    return everywhere(lambda p: replacing(p, rewritten, on_a_gpu), program, (fewer_launches, joins))


def unrolled(program: Program) -> Iterator[tuple[Equation, int]]:
    """Yield each loop of a program of which one turn runs several steps on a GPU, and how many."""
    for e in all_equations(fewer_launches(program)):
        if e.primitive is scan and e.params.get("unroll", 1) > 1:
            yield e, e.params["unroll"]


def _product(e: Equation, _: Any) -> Replaced | None:
    summed = [n for _, n in summed_axes(e)]
    sizes = [n for v in e.inputs for n in v.type.shape[-2:]]
    small = len(summed) == 1 and 0 < summed[0] <= FEW and max(sizes) <= MATRICES
    return _called(e, sum_of_terms) if small and FORMS[dot_general].takes(e) else None


def _called(e: Equation, write: Callable[..., Any]) -> Replaced:
    """Replace an equation by a call of `write(*operands, **params)`, traced for it."""
    alone = program_of([e], e.outputs, e.primitive.name)
    program = stage(
        lambda *xs: evaluate(alone, xs, lambda e, values: write(*values, **e.params)),
        alone.in_types,
        alone.name,
    )
    return Replaced([Equation(jit, alone.inputs, e.outputs, {"program": program}, e.source, e.origin)])


# --- loops ----------------------------------------------------------------------------------------


def _in_a_loop(e: Equation, joins: bool) -> Replaced | None:
    """Write small products out, and let a scan of small steps run several in a turn and join arrays."""
    products: Any = partial(replacing, primitives=(dot_general,), rule=_product)
    inside = {p: everywhere(products, p, "small products") for p in e.programs}
    changed = any([p is not made for p, made in inside.items()])
    e = replace(e, params=replaced_programs(e.params, inside)) if changed else e
    found = _in_turns(e, joins) if e.primitive is scan else None
    return found or (Replaced([e]) if changed else None)


def _in_turns(e: Equation, joins: bool) -> Replaced | None:
    program, length = e.params["program"], e.params["length"]
    n = _equations(program)
    if e.params.get("unroll", 1) != 1 or n == 0 or length < TURNS:
        return None
    steps = next((k for k, most in STEPS if n <= most and length >= TURNS * k), 1)
    state, rows = LoopLayout.of(e.params).results(program.out_types)
    least = (JOINED, 2) if joins else (math.inf, math.inf)
    states, written = _groups(state, least[0]), _groups(rows, least[1])
    if len(states) < len(state):
        steps = 1  # of many numbers, for which XLA compiles two steps too long
    elif len(written) == len(rows):
        return None if steps == 1 else Replaced([replace(e, params={**e.params, "unroll": steps})])

    def write(*xs: Any, **params: Any) -> Any:
        return _joined_loop(xs, {**params, "unroll": steps}, states, written)

    return _called(e, write)


def _joined_loop(
    xs: Sequence[Any], params: dict[str, Any], states: list[list[int]], rows: list[list[int]]
) -> list[Any]:
    """Return the results of a scan that carries and writes groups of arrays."""
    body, layout, n = params["program"], LoopLayout.of(params), len(states)
    consts, state, arrays = layout.operands(xs)

    def step(*xs: Any) -> list[Any]:
        given = [*consts, *_apart(xs[:n], states, 0), *xs[n:]]
        ends, row = layout.results(evaluate(body, given))
        return [*_joined(ends, states), *_joined(row, rows)]

    how = {name: params[name] for name in ("reverse", "unroll") if name in params}
    made = scanned(step, _joined(state, states), arrays, params["length"], body.name, **how)
    return [*_apart(made[:n], states, 0), *_apart(made[n:], rows, 1)]


def _groups(types: Sequence[Any], least: float) -> list[list[int]]:
    """Return the places of small arrays of one type together, if there are at least so many, and
    those of others alone."""
    same: dict[Any, list[int]] = {}
    for i, t in enumerate(types):
        same.setdefault(t, []).append(i)
    groups = []
    for t, places in same.items():
        n = min(JOINED, JOINED_ELEMENTS // max(1, t.size))
        n = n if len(places) >= least and dtype_class(t.dtype) != "key" else 1
        groups += [places[i : i + n] for i in range(0, len(places), max(1, n))]
    return groups


def _joined(xs: Sequence[Any], groups: list[list[int]]) -> list[Any]:
    """Return an array for each group, stacked along the first axis unless it is alone."""
    rows = [[xs[i] for i in places] for places in groups]
    return [x[0] if len(x) == 1 else stack(x, 0) for x in rows]


def _apart(xs: Sequence[Any], groups: list[list[int]], axis: int) -> list[Any]:
    """Return the arrays that were joined along an axis, in their places."""
    found = {}
    for x, places in zip(xs, groups, strict=True):
        for k, i in enumerate(places):
            found[i] = index_axis(x, axis, k) if len(places) > 1 else x
    return [found[i] for i in range(len(found))]


@memoized
def _equations(program: Program) -> int:
    """Return the number of equations of a body; 0 if its steps are not small."""
    equations = all_equations(program)
    return len(equations) if all(map(_is_small, equations)) else 0


def _is_small(e: Equation) -> bool:
    if e.primitive is conv_general_dilated:  # XLA times many algorithms for each of them
        return False
    if e.primitive.has_effects(e.params) or (e.primitive.holds_programs and e.primitive is not jit):
        return False
    return all([v.type.size <= ELEMENTS for v in (*e.inputs, *e.outputs)])
