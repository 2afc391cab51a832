"""Loops of small operations, each put behind one call that XLA:CPU compiles into one kernel; and
stretches of many small operations without a loop.

    scan[...] *operands   ->   one_kernel[program] *operands

XLA:CPU starts every operation of a loop anew in every step, which takes longer than a small
operation itself: simulators, filters, rollouts run many times slower than they could. A call marked
as small becomes one function of machine code, the loop and all it holds, with the same operations
in the same order. Outermost loops are taken first. A loop that cannot be a kernel may hold one.

In a kernel are no library calls: products are written as sums, factorizations of small matrices
step by step (kernel_forms.py). So a loop is chosen if each of its operations
- can stand there, as the operation says itself (`Primitive.in_kernel`), or has a form for it;
- is small: there is one thread, and a library's product of large matrices is faster than any loop.

Run when a program is lowered for a CPU, after all other passes.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import jax

from functrans.ir.program import PRIMITIVES, Equation, Literal, Program, Var
from functrans.ir.source import location
from functrans.ir.types import ArrayType
from functrans.passes.kernel_forms import FORMS, SCATTERS
from functrans.passes.rewrite import everywhere, uses
from functrans.primitives.call import one_kernel
from functrans.primitives.dynamic_slice import dynamic_slice, dynamic_update_slice
from functrans.primitives.elementwise import Elementwise
from functrans.primitives.indexing import gather
from functrans.primitives.scan import scan
from functrans.primitives.shape import Structural
from functrans.primitives.while_loop import while_loop
from functrans.trace import bind, evaluate, stage

# Elements that one operation may read or write. Above, XLA divides the work among threads; a sum of
# as many it hands to a library.
SMALL = 4096
# Operations of a stretch that is a kernel. Fewer are fused by XLA as well; of more the compiler
# takes longer than of their parts.
MANY, TOO_MANY = 100, 2000

LOOPS = (scan, while_loop)
_KEPT = "kernels"  # in Program.cache: the program after this pass
_READ_IN_PART = (dynamic_slice, gather)  # of the first operand
_WRITTEN_IN_PART = {dynamic_update_slice, *map(PRIMITIVES.__getitem__, SCATTERS)}
_KEYS = "key<fry>"  # other generators' bits are made by a call of XLA's
_OBSTACLE = "obstacle"  # in Program.cache: what keeps it from being part of a kernel

_REFUSED: set[str] = set()  # names of kernels that XLA cannot compile


def kernels(program: Program, can_be: Callable[[Program], bool] | None = None) -> Program:
    """The program with its loops of small operations as kernels; the same object if there are none.
    Nested programs are left as they are, and lowered by themselves.

    Arguments:
      program: a program that is being lowered.
      can_be: is asked of each kernel, if XLA compiles it, where that is not found out later.
    """
    if program.cache.get(_KEPT) is program:
        return program
    key = _KEPT, can_be is None, len(_REFUSED)
    found = program.cache.get(key)
    if found is None:
        found, groups = program, list(_groups(program))
        if any([group.is_kernel for group in groups]):
            read = uses(program)
            equations = [_behind_a_call(group, read, can_be) for group in groups]
            found = program.replace(equations=list(chain(*equations)))
        program.cache[key] = found
    return found


def plain(program: Program) -> Program:
    """The program, of which no loop becomes a kernel."""
    return everywhere(_kept, program, "plain")


def _kept(program: Program) -> Program:
    made = program.replace(equations=program.equations)
    made.cache[_KEPT] = made
    return made


def refuse(*names: str) -> None:
    """Let these not be kernels any more."""
    _REFUSED.update(names)


def called(program: Program) -> Program:
    """One that only calls this program as a kernel."""
    outputs = [Var(t) for t in program.out_types]
    call = Equation(one_kernel, program.inputs, tuple(outputs), {"program": program})
    return Program(program.inputs, [call], outputs, name=program.name)


def name_of(program: Program) -> str:
    """What tells a kernel from others, in other processes too."""
    return hashlib.sha256(f"{jax.__version__} {program}".encode()).hexdigest()[:32]


def _behind_a_call(
    group: Group, read: Counter, can_be: Callable[[Program], bool] | None
) -> Sequence[Equation]:
    """`read`: how often each value is read in the whole program."""
    equations = group.equations
    made = [v for e in equations for v in e.outputs]
    inside = Counter([v for e in equations for v in e.inputs])
    outputs = [v for v in made if read[v] > inside[v]]
    if not group.is_kernel or not outputs:
        return equations
    own = {*made}
    given = dict.fromkeys([v for v in inside if v.__class__ is not Literal and v not in own])
    alone = Program(given, equations, outputs, name=f"kernel_{equations[0].primitive.name}")
    alone = everywhere(_in_forms, alone, _KEPT)
    if (_REFUSED and name_of(alone) in _REFUSED) or (can_be is not None and not can_be(alone)):
        return equations
    first = equations[0]
    params = {"program": alone}
    return [Equation(one_kernel, (*given,), tuple(outputs), params, first.source, first.origin)]


def _in_forms(program: Program) -> Program:
    """The program with the forms that a kernel needs, which is not to be looked through again."""
    if not any([e.primitive in FORMS for e in program.equations]):
        return _kept(program)

    def written(e: Equation, values: Sequence[Any]) -> Any:
        form = FORMS.get(e.primitive)
        if form is None:
            return bind(e.primitive, values, e.params)
        return form.write(*values, **e.params)

    return _kept(stage(lambda *xs: evaluate(program, xs, written), program.in_types, program.name))


# --- the choice -----------------------------------------------------------------------------------


class Obstacle(NamedTuple):
    """Why a loop is not one kernel: the operation that cannot be part of it, and what is wrong."""

    equation: Equation
    problem: str

    def __str__(self) -> str:
        return f"{self.equation.primitive.name} {self.problem}, at {location(self.equation.source)}"


class Group(NamedTuple):
    """Equations that follow each other: a loop, or a stretch of others.

    is_kernel : do they become one kernel?
    obstacle  : of a loop, why not
    """

    equations: Sequence[Equation]
    is_kernel: bool
    obstacle: Obstacle | None = None


def choices(program: Program) -> Iterator[Group]:
    """The loops, outermost first, and the stretches that are kernels."""
    for group in _groups(program):
        if group.is_kernel or group.obstacle is not None:
            yield group
        if not group.is_kernel:
            for inner in [p for e in group.equations for p in e.programs]:
                yield from choices(inner)


def _groups(program: Program) -> Iterator[Group]:
    """The equations of a program in their order, in groups."""
    stretch: list[Equation] = []
    work = 0

    def ended() -> Iterator[Group]:
        nonlocal stretch, work
        if stretch:
            yield Group(stretch, MANY <= work <= TOO_MANY)
        stretch, work = [], 0

    for e in program.equations:
        if e.primitive in LOOPS:
            yield from ended()
            obstacle = why_not(e)
            yield Group([e], obstacle is None, obstacle)
        elif _fits(e):
            stretch.append(e)
            work += not isinstance(e.primitive, Structural)
        else:
            yield from ended()
            yield Group([e], False)
    yield from ended()


def _fits(e: Equation) -> bool:
    """`why_not(e) is None`, in a fraction of the time for almost all equations."""
    primitive = e.primitive
    if primitive not in _WRITTEN_IN_PART and not primitive.holds_programs:
        for v in e.outputs:
            if not 0 < _size(v.type) <= SMALL:
                return False
        if isinstance(primitive, Elementwise):
            return True
    return why_not(e) is None


@functools.lru_cache(4096)
def _size(t: ArrayType) -> int:
    """Elements; none are counted of keys whose bits are made by a call of XLA's."""
    return 0 if "key" in str(t.dtype) != _KEYS else prod(t.shape)


def why_not(e: Equation) -> Obstacle | None:
    """What keeps an equation from being part of a kernel, if anything does."""
    form = FORMS.get(e.primitive)
    if not (e.primitive.in_kernel if form is None else form.takes(e)):
        return Obstacle(e, "is a call of a library")
    if not _has_elements(e):
        return Obstacle(e, "has operands that are empty, or keys of another generator")
    for program in e.programs:
        if _OBSTACLE not in program.cache:
            found = (why_not(inner) for inner in program.equations)
            program.cache[_OBSTACLE] = next((x for x in found if x is not None), None)
        if program.cache[_OBSTACLE] is not None:
            return program.cache[_OBSTACLE]
    if e.primitive.has_effects(e.params):
        return Obstacle(e, "has an effect")
    if not e.primitive.holds_programs and (n := _elements(e)) >= _limit(e):
        return Obstacle(e, f"works on {n} elements")
    return None


def _has_elements(e: Equation) -> bool:
    return all([_size(v.type) for v in (*e.inputs, *e.outputs)])


def _elements(e: Equation) -> int:
    """The most elements of an operand or result that it reads or writes whole."""
    form = FORMS.get(e.primitive)
    if form is not None:
        return form.elements(e)
    values = [*e.inputs, *e.outputs]
    if e.primitive in _READ_IN_PART:
        values = values[1:]
    elif e.primitive is dynamic_update_slice:
        values = values[1:-1]
    return max([_size(v.type) for v in values if v.__class__ is not Literal], default=1)


def _limit(e: Equation) -> int:
    """How many elements are too many: one less where there may be a reduction."""
    form = FORMS.get(e.primitive)
    sums = not isinstance(e.primitive, (Elementwise, Structural)) if form is None else form.sums(e)
    return SMALL if sums else SMALL + 1
