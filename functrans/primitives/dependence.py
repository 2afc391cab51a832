"""Dependence analysis: which parts of a program depend on some inputs or are needed for some
outputs, which equations compute the same, and which values of a linearized program to store.

In: programs and equations. Out: sets of variables, smaller programs. Higher-order primitives
implement `reached` and `part` with these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any

from functrans.caching import exactly, memo_as, memoized
from functrans.ir.program import (
    Equation,
    Literal,
    Program,
    Var,
    copied,
    prune,
    renamed,
    renamed_all,
    with_programs,
)
from functrans.ir.text import with_nested
from functrans.ir.types import ArrayType
from functrans.primitives.base import bytes_of, effects_inside, is_zero
from functrans.primitives.elementwise.bitwise import and_, or_, xor
from functrans.primitives.elementwise.families import Elementwise, add, eq, mul, ne
from functrans.records import NamedTuple
from functrans.trace import literal, typeof


def depending(equations: Sequence[Equation], moving: Iterable[Var]) -> set[Var]:
    """Return the variables that depend on the `moving` ones, including these."""
    found = set(moving)
    for e in equations:
        touched = [v in found for v in e.inputs]
        if any(touched):
            reached = e.primitive.reached(e.params, touched)
            found.update(e.outputs if all(reached) else compress(e.outputs, reached))
    return found


def apart(
    equations: Sequence[Equation], moving: Iterable[Var]
) -> tuple[list[Equation], list[Equation], set[Var]]:
    """Return the equations that do not depend on the moving variables, those that do, and the
    variables that do. An equation with results of both kinds is split into two."""
    found = depending(equations, moving)
    still, moved = [], []
    for e in equations:
        if found.isdisjoint(e.inputs):
            still.append(e)
        elif found.issuperset(e.outputs):
            moved.append(e)
        else:
            own = [v in found for v in e.outputs]
            still.append(e.primitive.part(e, [not m for m in own]))
            moved.append(e.primitive.part(e, own))
    return still, moved, found


@memoized
def reached_outputs(program: Program, moving: Sequence[bool]) -> list[bool]:
    """Return which outputs depend on the moving inputs."""
    found = depending(program.equations, compress(program.inputs, moving))
    return [y in found for y in program.outputs]


def reading(program: Program, wanted: Sequence[bool]) -> list[bool]:
    """Return which inputs the wanted outputs depend on."""
    read: set[Any] = {v for e in _needed(program, wanted) for v in e.inputs}
    read.update(compress(program.outputs, wanted))
    return [v in read for v in program.inputs]


@memoized
def _needed(program: Program, wanted: Sequence[bool]) -> list[Equation]:
    return needed_for(program.equations, compress(program.outputs, wanted))


def needed_for(equations: Sequence[Equation], outputs: Iterable[Any]) -> list[Equation]:
    """Return the equations that the outputs need or that have an effect. Of an equation with results
    that are not needed only a part is: so what is read is what `reached` is reached from."""
    read: set[Any] = set(outputs)
    kept = []
    for e in reversed(equations):
        if not e.primitive.has_effects(e.params):
            own = [v in read for v in e.outputs]
            if not any(own):
                continue
            e = e if all(own) else e.primitive.part(e, own)
        kept.append(e)
        read.update(e.inputs)
    kept.reverse()
    return kept


@memoized
def restricted(program: Program, inputs: Sequence[bool], outputs: Sequence[bool]) -> Program:
    """Return the program with only some inputs and outputs."""
    return program.replace(
        inputs=compress(program.inputs, inputs),
        equations=_needed(program, outputs),
        outputs=compress(program.outputs, outputs),
    )


@memoized
def transposes_zeros(program: Program) -> bool:
    """Return whether an equation, also a nested one, is transposed even if its cotangents are zero."""
    return any([e.primitive.transposes_zeros(e.params) for p in with_nested(program) for e in p.equations])


@memoized
def silent(program: Program) -> Program:
    """Return the program for running it again, without equations that only have effects: those that
    its results need, also in nested programs. A callback whose value is needed stays."""
    if not effects_inside(program):
        return program
    kept = program.replace(equations=prune(program.equations, program.outputs, effects=False))
    return with_programs(kept, {p: silent(p) for p in kept.children})


def smaller(equation: Equation, inputs: Sequence[bool], outputs: Iterable[Var], **changed: Any) -> Equation:
    """Return the equation with a subset of its operands, new results and changed parameters."""
    return Equation(
        equation.primitive,
        tuple(compress(equation.inputs, inputs)),
        tuple(outputs),
        {**equation.params, **changed},
        equation.source,
        equation.origin,
    )


def spread(values: Iterable[Any], where: Iterable[bool]) -> list[Any]:
    """Return the values, in order, at the places where `where` holds; None at the others."""
    rest = iter(values)
    return [next(rest) if here else None for here in where]


def nonlinearity(primitive: Any, operands: Sequence[Any], moving: Sequence[int]) -> str:
    """Say in which of the `moving` operands an operation is not linear; "" if it is in all together."""
    together = primitive.multilinear and len(moving) > 1
    if not together and all([i in primitive.linear_positions(len(operands)) for i in moving]):
        return ""
    shown = ", ".join([str(x.type if x.__class__ is Var else typeof(x)) for x in operands])
    where = f"{' and '.join(map(str, moving))}{' together' * together}"
    return f"{primitive.name}({shown}) is not linear in operand {where}"


def without_zeros(cts: Sequence[Any], *back: Program) -> list[Any]:
    """Return the cotangents that transposed programs compute; None for one that is zero in each of them: a
    zero times an infinite slope further back would be NaN."""
    return [None if all([is_zero(p.outputs[i]) for p in back]) else ct for i, ct in enumerate(cts)]


def or_zeros(values: Iterable[Any], types: Iterable[ArrayType]) -> list[Any]:
    """Replace None by zeros of the given types."""
    return [literal(0, t) if x is None else x for x, t in zip(values, types, strict=True)]


# --- equal equations ------------------------------------------------------------------------------

# Not max and min: for 0.0 and -0.0 the result may depend on the order of the operands.
_COMMUTATIVE = frozenset([add, mul, and_, or_, xor, eq, ne])


def is_pure(e: Equation) -> bool:
    """Return whether the equation may become one with an equal one, or leave a loop."""
    return e.primitive.mergeable and not e.primitive.has_effects(e.params)


def operation_key(primitive: Any, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a key of an operation; operands of a commutative one may come in either order."""
    for v in operands:
        if v.__class__ is Literal:
            operands = tuple(map(_atom, operands))
            break
    return (primitive, frozenset(operands) if primitive in _COMMUTATIVE else operands)


def _atom(x: Any) -> Any:
    """Return a variable itself, or a key that is equal for equal literals."""
    if x.__class__ is Var:
        return x
    value = x.value
    # 0.0 == -0.0, also in complex numbers, and NaN != NaN
    plain = value and value == value and value.__class__ is not complex
    return (value if plain else repr(value), x.type)


def parameters_key(e: Equation) -> tuple[Any, ...]:
    """Return a key of parameters of one primitive. Programs are equal only to themselves."""
    values: Iterable[Any] = e.params.values()
    if e.primitive.name == "constant" or float in map(type, values):
        values = [repr(v) for v in values]  # 0.0 == -0.0, but they must not be merged
    return (*e.params, *values)


def same_parameters(e: Equation, other: Equation) -> bool:
    """Return whether equations of one primitive have equal parameters, programs by `structure`."""
    if e.params is other.params or not (e.params or other.params):
        return True
    try:
        return structure(e.params) in {structure(other.params)}
    except TypeError:  # a parameter is not hashable
        return False


def structure(x: Any, lines: bool = False) -> Any:
    """Return a key of parameters. Programs of equal equations, with `lines` also from the same lines,
    have one key. TypeError: a program has constants."""
    kind = x.__class__
    if kind is dict:
        return tuple([(k, structure(v, lines)) for k, v in x.items()])
    if kind is tuple:
        return tuple([structure(v, lines) for v in x])
    if kind is not Program:
        return exactly(x)
    if x.values:
        raise TypeError("constants have no key")
    number: dict[Any, Any] = {v: i for i, v in enumerate(x.inputs)}

    def place(v: Any) -> Any:
        return number[v] if v.__class__ is Var else _atom(v)

    made: list[Any] = [x.name if lines else None, x.in_types]
    for e in x.equations:
        line = e.source and (id(e.source[0]), e.source[1])  # the program keeps its code
        key = e.primitive, tuple(map(place, e.inputs)), structure(e.params, lines), lines and line
        made.append(key)
        for v in e.outputs:
            number[v] = len(number)
            made.append(v.type)
    return (*made, tuple(map(place, x.outputs)))


# --- residuals: which values a loop step, call or branch stores for reverse mode ------------------
#
# In: a linearized program. Out: the values to store, and the linear part as a program of them. A
# value is not stored if cheap operations (few flops per element, or data movement) compute it from
# smaller values or from values that are stored anyway: 1 - y^2 from y, a broadcast from its operand.
# XLA fuses these operations into their users, so this saves time as well as memory. A result is stored
# rather than an equally large value that is computed from it: there XLA only copies.

_MOST = 8  # a value made of more values than this is stored
_FEW = 3  # flops per element of a cheap operation: 1 - y^2 takes as many


Place = tuple[str, int]


class Split(NamedTuple):
    """A linearized program. Its residuals may be inputs and results.

    forward    : inputs -> outs, extra residuals (those that are neither inputs nor results)
    linear     : residuals, tangents -> tangents of active outs
    out_active : which outs have a tangent
    places     : of each operand of `linear`: a residual is ("in", i) or ("out", i) of `forward`; the
                 tangent of input i, ("tangent", i). A tangent that is not read is not an operand: its
                 cotangent stays None, where 0 * inf would be NaN.
    """

    forward: Program
    linear: Program
    out_active: tuple[bool, ...]
    places: tuple[Place, ...]

    @property
    def residuals(self) -> list[Any]:
        """The residuals, as values of `forward`."""
        return take([p for p in self.places if p[0] != "tangent"], self.forward.inputs, self.forward.outputs)

    @property
    def tangents(self) -> list[int]:
        """The inputs whose tangents are operands of `linear`."""
        return [i for kind, i in self.places if kind == "tangent"]


def take(places: Iterable[Place], ins: Sequence[Any], outs: Sequence[Any], tangents: Any = ()) -> list[Any]:
    """Return the operands of the linear part at these places; see `Split`."""
    stores = {"in": ins, "out": outs, "tangent": tangents}
    return [stores[kind][i] for kind, i in places]


def placed(values: Sequence[Any], ins: Iterable[Any], outs: Sequence[Any]) -> tuple[list[Any], list[Place]]:
    """Return the values that are neither operands nor results, which become results; and all places."""
    known = {v: ("out", i) for i, v in enumerate(outs)} | {v: ("in", i) for i, v in enumerate(ins)}
    extra = [v for v in values if v not in known]
    known.update({v: ("out", i) for i, v in enumerate(extra, len(outs))})
    return extra, [known[v] for v in values]


def fewer(part: Split) -> Split:
    """Return the parts without the residuals that are cheap to recompute."""
    return memo_as(part.forward, (fewer,), lambda: _fewer(part))


def _fewer(part: Split) -> Split:
    forward, n, needed = part.forward, len(part.out_active), part.residuals
    ins, outs = forward.inputs, forward.outputs[:n]
    kept, linear = fewest(forward, needed, part.linear, [*ins, *outs])
    extra, places = placed(kept, ins, outs)
    outs = (*outs, *extra)
    forward = forward.replace(outputs=outs, equations=prune(forward.equations, outs))
    return Split(forward, linear, part.out_active, (*places, *part.places[len(needed) :]))


def fewest(
    forward: Program, needed: Sequence[Any], linear: Program, free: Iterable[Any]
) -> tuple[list[Any], Program]:
    """Return the values of `forward` to store for those `needed`, and `linear` as a program of
    (these, tangents). Those in `free` cost nothing."""
    free = set(free)
    have = free | set(needed)
    kept = dict.fromkeys(needed)
    results = set(forward.outputs) - have
    cheap = [*filter(_cheap, forward.equations)]
    together = Counter[frozenset[Var]]()  # parts -> bytes of the needed values that are made of them
    for v, parts in _made(cheap, have):
        if v in kept and v not in free:
            together[frozenset(parts)] += bytes_of(v.type)
    dropped = set()
    for v, parts in _made(cheap, have):
        saved = max(together[frozenset(parts)], bytes_of(v.type))
        gains = _bytes(parts) < saved or results.issuperset(parts)
        if v in kept and v not in free and gains:
            dropped.add(v)
            del kept[v]
            kept.update(parts)
            have.update(parts)
    if not dropped:
        return list(needed), linear
    return _computed_again(forward, needed, linear, kept, free)


def _made(equations: Iterable[Equation], have: Collection[Var]) -> Iterator[tuple[Var, dict[Var, None]]]:
    """Yield the values that equations compute, and from which values that we do not `have`: the fewest,
    which are not larger than the value. `have` may grow meanwhile."""
    made_of: dict[Any, dict[Var, None]] = {}
    for e in equations:
        (v,) = e.outputs
        parts = dict.fromkeys(
            [p for x in e.inputs if x.__class__ is Var and x not in have for p in made_of.get(x, (x,))]
        )
        if _bytes(parts) <= bytes_of(v.type) and len(parts) <= _MOST:
            made_of[v] = parts
            yield v, parts


def _cheap(e: Equation) -> bool:
    p = e.primitive
    if p.multiple_results or p.holds_programs or p.has_effects(e.params) or p.named_axes(e.params):
        return False
    if isinstance(p, Elementwise):
        return p.flops <= _FEW
    types = [v.type for v in e.inputs], [v.type for v in e.outputs]
    return p.cost(*types, **e.params).flops == 0


def _bytes(values: Iterable[Var]) -> int:
    return bytes_of(*[v.type for v in values])


def _computed_again(
    forward: Program, needed: Sequence[Any], linear: Program, kept: Iterable[Any], free: set[Any]
) -> tuple[list[Any], Program]:
    """Return `kept` and what is read of `free`, and `linear` after recomputing the others."""
    settled = free | set(kept)
    unsettled = [e for e in forward.equations if _cheap(e) and e.outputs[0] not in settled]
    again = prune(unsettled, needed)
    inputs = list(dict.fromkeys([*kept, *[v for e in again for v in e.inputs if v in free]]))
    names: dict[Any, Any] = {v: Var(v.type) for v in inputs}
    equations = copied(again, names)
    known = {old: names[v] for v, old in zip(needed, linear.inputs, strict=False)}
    rerun = linear.replace(
        inputs=[*[names[v] for v in inputs], *linear.inputs[len(needed) :]],
        equations=[*equations, *[renamed(e, known) for e in linear.equations]],
        outputs=renamed_all(linear.outputs, known),
    )
    return inputs, rerun
