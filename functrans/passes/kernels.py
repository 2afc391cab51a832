"""Compile loops of small operations into one kernel each on XLA:CPU.

    scan[...] *operands   ->   one_kernel[program] *operands

XLA:CPU dispatches every operation of a loop anew in every step, which takes longer than a small
operation itself: simulators, filters and rollouts run many times slower than they could. A call
marked as small becomes one function of machine code with the whole loop inside, and the same
operations in the same order. Outermost loops are considered first. A loop that cannot be a kernel
may contain one.

A kernel cannot call libraries: products are expanded into sums, factorizations of small matrices
into steps (kernel_expansions.py). Short rows get another axis so that LLVM vectorizes them
(kernel_axes.py), and what XLA would compute anew for each reader is kept (fusion_boundaries.py). So a
loop is chosen if each of its operations
- is supported in a kernel (`Primitive.in_kernel`) or has an expansion;
- is small: a kernel has one thread, and a library is faster for products of large matrices.

Runs when a program is lowered for a CPU, after all other passes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import jax

from functrans.caching import cached, memo_as, memoized
from functrans.ir.program import Equation, Literal, Program, Var, program_of, prune
from functrans.ir.source import location
from functrans.ir.text import with_nested
from functrans.ir.types import ArrayType
from functrans.passes import machines
from functrans.passes.fusion_boundaries import computed_before
from functrans.passes.kernel_axes import with_short_rows_as_loops
from functrans.passes.kernel_expansions import FORMS, SUMS, products, rules
from functrans.passes.lanes import Lanes, lanes
from functrans.passes.rewrite import Rewriter, all_equations, everywhere, uses, with_equations
from functrans.passes.threads import LOOPS, counted
from functrans.passes.vector_code import in_vector_code, is_for_vector_code
from functrans.primitives.calls.jit import one_kernel
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.elementwise.families import Elementwise
from functrans.primitives.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from functrans.primitives.indexing.gather import gather
from functrans.primitives.shape.moving import Structural
from functrans.records import NamedTuple
from functrans.trace import bind, evaluate, stage

# Elements that one operation may read or write. Above, XLA splits the work among threads, and calls
# a library for a sum of as many.
SMALL = 4096

_PER_OPERATION = 64  # large products that cost as much as the start of an operation
# XLA gives a thread 100,000 operations. A kernel of blocks takes a third of the time of one thread, or less.
_FEW_CORES, _SHARED = 4, 400_000
_MANY = 8000  # operations of a kernel: LLVM optimizes it as a whole, on one core

_READ_IN_PART = (dynamic_slice, gather)  # they read only part of the first operand
_KEYS = "key<fry>"  # other generators are XLA library calls

Check = Callable[[Program], bool] | None  # whether XLA can compile a kernel; None: that is found out later

_REFUSED: set[str] = set()  # names of kernels that XLA cannot compile


def kernels(program: Program, can_be: Check = None) -> Program:
    """Turn the loops of small operations into kernels; return the same object if there are none.
    Nested programs are unchanged, and lowered separately.

    Arguments:
      program: a program that is being lowered.
      can_be: returns whether XLA can compile a kernel, if that is not found out later.
    """
    considered = [e.primitive in LOOPS or is_for_vector_code(e, False) for e in program.equations]
    if is_kept(program) or not any(considered):
        return program
    name = kernels, can_be is None, len(_REFUSED)
    return memo_as(program, name, lambda: _with_kernels(program, can_be))


def _with_kernels(program: Program, can_be: Check) -> Program:
    read = uses(program)
    equations: Sequence[Equation] = program.equations
    for found in by_lanes(program):
        kernel = _kernel(found.inside, found.part.inputs, found.part.outputs, found.blocks, can_be)
        equations = equations if kernel is found.inside[-1] else found.replaced(equations, kernel)
    equations = [_behind_a_call(e, program, read, can_be) for e in equations]
    equations = in_vector_code(program, equations, in_kernel=False)
    return with_equations(program, prune(equations, program.outputs))


def plain(program: Program) -> Program:
    """Return the program marked so that none of its loops becomes a kernel."""
    return everywhere(_kept, program, "plain")


def is_kept(program: Program) -> bool:
    """Return whether a program was made by `plain` or this pass."""
    return program.marks.settled


def is_plain(fun: Any) -> bool:
    """Return whether a function was jitted with `cpu="plain"`."""
    return getattr(getattr(fun, "jit_options", None), "plain", False)


def _kept(program: Program) -> Program:
    made = program.replace(equations=program.equations)
    made.mark(settled=True)
    return made


def refuse(*names: str) -> None:
    """Exclude kernels from now on, by name."""
    _REFUSED.update(names)


def called(program: Program) -> Program:
    """Return a program that only calls this program as a kernel."""
    outputs = [Var(t) for t in program.out_types]
    call = Equation(one_kernel, program.inputs, tuple(outputs), {"program": program})
    return Program(program.inputs, [call], outputs, name=program.name)


def name_of(program: Program) -> str:
    """Return a name that identifies a kernel, across processes."""
    return hashlib.sha256(f"{jax.__version__} {program}".encode()).hexdigest()[:32]


def _behind_a_call(e: Equation, whole: Program, read: Counter[Any], can_be: Check) -> Equation:
    """Wrap a loop in a kernel call if possible. `read`: number of uses of each value in the program."""
    outputs = [v for v in e.outputs if read[v]] if e.primitive in LOOPS else []
    if not outputs or obstacle(e, whole) is not None:
        return e
    loop = program_of([*_operands_of(e, whole, read), e], outputs, f"loop_{e.primitive.name}")
    return _kernel([e], loop.inputs, outputs, loop, can_be)


def _kernel(
    inside: Sequence[Equation], inputs: Sequence[Any], outputs: Sequence[Any], program: Program, can_be: Check
) -> Equation:
    """Return the call of a program, which computes what these equations do, as a kernel; the last of them if
    XLA cannot compile it."""
    e, steps = inside[-1], {p for e in inside for step in e.programs for p in with_nested(step)}
    expanded = everywhere(_in_forms, program, _in_forms)
    alone = everywhere(lambda p: _kept(computed_before(p)), with_short_rows_as_loops(expanded), "kernels")
    if (_REFUSED and name_of(alone) in _REFUSED) or (can_be is not None and not can_be(alone)):
        return e
    alone.mark(uncontracted=any([p.marks.uncontracted for p in steps]))
    return Equation(one_kernel, tuple(inputs), tuple(outputs), {"program": alone}, e.source, e.origin)


def _in_forms(program: Program) -> Program:
    """Expand operations into the forms that a kernel needs."""
    program = Rewriter(program, rules(program), "kernels").run()
    program = with_equations(program, in_vector_code(program, program.equations, in_kernel=True))
    if not any(map(_is_expanded, program.equations)):
        return program

    def written(e: Equation, values: Sequence[Any]) -> Any:
        if _is_expanded(e):
            return FORMS[e.primitive].write(*values, **e.params)
        return bind(e.primitive, values, e.params)

    return stage(lambda *xs: evaluate(program, xs, written), program.in_types, program.name)


# --- operands that are computed in the kernel -----------------------------------------------------
#
#     slice x;  slice x;  slice x;  ...  one_kernel ...   ->   one_kernel[slices, ...] x
#
# A loop over a state of many numbers reads each from an array before its first step, and its backward loop
# reads as many cotangents. XLA starts each such operation separately, and gives half of them to another
# thread if there are more than eight, which takes longer than all of them.

_MANY_OPERANDS = 4  # operations; fewer are left where they are
_SMALL_OPERAND = 64  # elements


def _operands_of(loop: Equation, program: Program, read: Counter[Any]) -> list[Equation]:
    """Return the equations that compute small operands of a loop, in their order, if there are many: moves of
    elements, and operations by element that nothing else reads."""
    makers = _makers(program)
    found: dict[int, Equation] = {}
    waiting, inside = [*loop.inputs], Counter(loop.inputs)
    while waiting:
        place, e = makers.get(waiting.pop(), (-1, loop))
        if e is loop or place in found or not _is_small_operand(e) or why_not(e) is not None:
            continue
        is_read_here = all([inside[v] == read[v] for v in e.outputs])
        if is_read_here or isinstance(e.primitive, Structural):
            found[place] = e
        if is_read_here:
            waiting += e.inputs
            inside.update(e.inputs)
    return [found[place] for place in sorted(found)] if len(found) >= _MANY_OPERANDS else []


@memoized
def _makers(program: Program) -> dict[Any, tuple[int, Equation]]:
    """Return the equation that computes each value, and its place."""
    return {v: (i, e) for i, e in enumerate(program.equations) for v in e.outputs}


def _is_small_operand(e: Equation) -> bool:
    known = isinstance(e.primitive, (Elementwise, Structural))
    return known and max([v.type.size for v in e.outputs]) <= _SMALL_OPERAND


# --- the choice -----------------------------------------------------------------------------------


class Obstacle(NamedTuple):
    """Why a loop is not one kernel: the operation that prevents it, and the reason."""

    equation: Equation
    problem: str

    def __str__(self) -> str:
        return f"{self.equation.primitive.name} {self.problem}, at {location(self.equation.source)}"


class Loop(NamedTuple):
    """A loop and its obstacle, None if it is one kernel; whether that runs it block by block."""

    equation: Equation
    obstacle: Obstacle | None
    is_by_blocks: bool = False


def choices(program: Program) -> Iterator[Loop]:
    """Yield the loops that are considered, outermost first."""
    by_blocks = {e for found in by_lanes(program) for e in found.loops}
    for e in program.equations:
        if e in by_blocks:
            yield Loop(e, None, True)
            continue
        if e.primitive in LOOPS:
            loop = Loop(e, obstacle(e, program))
            yield loop
            if loop.obstacle is None:
                continue
        for inner in e.programs:
            yield from choices(inner)


def obstacle(e: Equation, whole: Program) -> Obstacle | None:
    """Return what prevents a loop of a program from being one kernel, or None."""
    if is_kept(whole):
        return Obstacle(e, 'is left to XLA by cpu="plain", or with the loop around it')
    if (found := why_not(e) or _too_many(e)) is not None:
        return found
    large = [x for p in e.programs for x in _large_products(p)]
    if sum(map(products, large)) > _PER_OPERATION * _operations(e):
        return Obstacle(large[0], f"sums {products(large[0])} products")
    if "length" in e.params and e.params["length"] < 2 * e.params.get("unroll", 1):
        # Without a loop LLVM constant-folds, and may fold exp(NaN) to any number.
        return Obstacle(e, "has one iteration")
    return None


@memoized
def by_lanes(program: Program) -> list[Lanes]:
    """Return the loops of a program that are run block by block (lanes.py)."""
    if is_kept(program) or any([e.primitive in LOOPS and _is_shared(e) for e in program.equations]):
        return []
    return lanes(program, lambda e: why_not(e) or _too_many(e))


def _is_shared(e: Equation) -> bool:
    """Return whether XLA shares the operations of a step among more threads than a kernel, which has one, is
    faster."""
    return machines.CORES > _FEW_CORES and sum(map(counted, e.programs)) > _SHARED


def _too_many(e: Equation) -> Obstacle | None:
    n = _operations(e)
    return Obstacle(e, f"holds {n} operations, too many to be compiled at once") if n > _MANY else None


def why_not(e: Equation) -> Obstacle | None:
    """Return what prevents an equation from being part of a kernel, or None."""
    if not (e.primitive.in_kernel or _is_expanded(e)):
        return Obstacle(e, "calls a library")
    if not all([_size(v.type) for v in (*e.inputs, *e.outputs)]):
        return Obstacle(e, "has empty operands, or keys of another generator")
    if (found := next(filter(None, map(_obstacle, e.programs)), None)) is not None:
        return found
    if e.primitive.has_effects(e.params):
        return Obstacle(e, "has a side effect")
    if not e.primitive.holds_programs and (n := _elements(e)) >= _limit(e):
        return Obstacle(e, f"works on {n} elements")
    if e.primitive in LOOPS and any([p.marks.dispatched for p in e.programs]):
        return Obstacle(e, "makes the decisions of another loop, which cannot be a kernel")
    return None


def _is_expanded(e: Equation) -> bool:
    form = FORMS.get(e.primitive)
    return form is not None and form.takes(e)


def _operations(e: Equation) -> int:
    return 1 + sum(map(_all_operations, e.programs))


@memoized
def _all_operations(program: Program) -> int:
    return sum(map(_operations, program.equations))


@memoized
def _large_products(program: Program) -> list[Equation]:
    """Return the products in a program and the programs nested in it for which a library is faster."""
    return [e for e in all_equations(program) if e.primitive is dot_general and products(e) > SUMS]


@memoized
def _obstacle(program: Program) -> Obstacle | None:
    """Return what prevents a program from being part of a kernel, or None."""
    return next(filter(None, map(why_not, program.equations)), None)


@cached("sizes in kernels", 4096)
def _size(t: ArrayType) -> int:
    """Return the number of elements; 0 for keys of generators that are XLA library calls."""
    return 0 if "key" in str(t.dtype) != _KEYS else prod(t.shape)


def _elements(e: Equation) -> int:
    """Return the largest size of an operand or result that is read or written as a whole."""
    if _is_expanded(e):
        return FORMS[e.primitive].elements(e)
    values = [*e.inputs, *e.outputs]
    if e.primitive in _READ_IN_PART:
        values = values[1:]
    elif e.primitive is dynamic_update_slice:
        values = values[1:-1]
    return max([_size(v.type) for v in values if v.__class__ is not Literal], default=1)


def _limit(e: Equation) -> int:
    """Return how many elements are too many: one fewer if there may be a reduction."""
    form = FORMS.get(e.primitive)
    sums = not isinstance(e.primitive, (Elementwise, Structural)) if form is None else form.sums(e)
    return SMALL if sums else SMALL + 1
