"""Constant folding of literals.

A literal is an array filled with one number, so this folds operations on splats whose result is
again a splat, of any size, without creating arrays. Only operations that are exact or correctly
rounded on every platform are folded, with the primitive's reference, so the result has the same
bits as XLA's. Not folded are `exp` and similar functions, and subnormal floats, which hardware may
flush to zero.

An array without elements is known, whoever computes it: it is a literal too. Simulators carry many
(of bodies, contacts, sensors that a model does not have), and no kernel takes one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans.caching import cached
from functrans.ir.program import Equation, Literal, Program, renamed_all
from functrans.ir.types import ArrayType, dtype_class
from functrans.passes.rewrite import Rewrite, nested_pass, renaming, rewritten, smallest_normal
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.elementwise import arithmetic as arithmetic
from functrans.primitives.elementwise import bitwise as bitwise
from functrans.primitives.elementwise import families as elementwise
from functrans.primitives.elementwise.complex_numbers import abs_
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.elementwise.selection import clamp, select_n
from functrans.primitives.reductions import folds as reduction
from functrans.primitives.shape import joining as joining
from functrans.primitives.shape import moving as shape
from functrans.trace import literal

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_ORDER = (arithmetic.max_, arithmetic.min_, clamp)


@nested_pass
def fold(program: Program) -> Program:
    """Replace equations whose operands are all literals by literals."""
    known = {v: literal(0, v.type) for v in program.inputs if _is_empty(v.type)}
    notes: list[Rewrite] = []
    equations = []
    for e in renaming(program.equations, known):
        empty = [v for v in e.outputs if _is_empty(v.type)]
        if empty:
            known.update([(v, literal(0, v.type)) for v in empty])
            if len(empty) == len(e.outputs) and not e.primitive.has_effects(e.params):
                notes.append((e.primitive.name, (e,)))
                continue
        found = None
        if not e.inputs or e.inputs[0].__class__ is Literal:
            rule = _RULES.get(e.primitive)
            if rule is not None and not [v for v in e.inputs if v.__class__ is not Literal]:
                found = rule(e)
        if found is None:
            equations.append(e)
        else:
            known.update([(v, Literal(found.value, v.type)) for v in e.outputs])
            notes.append((e.primitive.name, (e,)))
    if not known:
        return program
    return rewritten(program, equations, renamed_all(program.outputs, known), notes, prunes=False)


# --- rules ----------------------------------------------------------------------------------------


def _elementwise(e: Equation) -> Literal | None:
    """Fold an elementwise operation."""
    out = e.outputs[0].type
    if not all(map(_is_plain, e.inputs)) or not _is_exact(out.dtype):
        return None
    if e.primitive in _ORDER and {"0.0", "-0.0"} <= {repr(v.value) for v in e.inputs}:
        return None  # the result may have either sign
    arrays = [np.asarray(v.value, v.type.dtype) for v in e.inputs]
    if e.primitive is elementwise.div and dtype_class(out.dtype) != "float":
        if arrays[1] == 0:
            return None
        arrays = [np.atleast_1d(x) for x in arrays]
    with np.errstate(all="ignore"):
        made = np.asarray(e.primitive.reference(*arrays, **e.params)).reshape(-1)[0]
    found = literal(made, out)
    return found if _is_plain(found) else None


def _moved(e: Equation) -> Literal:
    """Fold an operation that only changes the shape."""
    return Literal(e.inputs[0].value, e.outputs[0].type)


def _count(e: Equation) -> Literal | None:
    """Fold a count of one."""
    return literal(0, e.outputs[0].type) if e.params["shape"][e.params["dimension"]] == 1 else None


def _joined(e: Equation) -> Literal | None:
    """Fold a concatenation or padding of one number."""
    values = {repr(v.value): v.value for v in e.inputs if v.type.size}
    if len(values) != 1:
        return None
    (value,) = values.values()
    return Literal(value, e.outputs[0].type)


def _sum(e: Equation) -> Literal | None:
    """Fold sums of no numbers, and of no products."""
    return None if e.inputs[0].type.size else literal(0, e.outputs[0].type)


# --- arrays without elements ----------------------------------------------------------------------


def _is_empty(t: ArrayType) -> bool:
    """Return whether arrays of this type have no elements, and can be literals: keys cannot."""
    return not t.size and isinstance(t.dtype, np.dtype)


# --- numbers that can be folded -------------------------------------------------------------------


@cached("dtypes that are folded", 64)
def _is_exact(dtype: Any) -> bool:
    """Return whether numbers of this dtype can be folded."""
    return dtype_class(dtype) in ("bool", "int", "uint") or dtype.name in _FLOATS


def _is_plain(x: Literal) -> bool:
    """Return whether a literal is real and not subnormal."""
    if not _is_exact(x.type.dtype):
        return False
    if dtype_class(x.type.dtype) != "float" or x.value == 0 or x.value != x.value:
        return True
    return abs(x.value) >= smallest_normal(x.type.dtype)


_RULES: dict[Any, Any] = {
    **dict.fromkeys(
        [
            *[getattr(elementwise, name) for name in ("neg", "add", "sub", "mul", "div", "square")],
            *[getattr(elementwise, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")],
            *[getattr(bitwise, name) for name in ("not_", "and_", "or_", "xor")],
            *[getattr(arithmetic, name) for name in ("sign", "floor", "ceil", "round_")],
            arithmetic.is_finite,
            arithmetic.max_,
            arithmetic.min_,
            abs_,
            convert_element_type,
            select_n,
            clamp,
        ],
        _elementwise,
    ),
    **dict.fromkeys(
        [
            *[shape.broadcast_in_dim, shape.reshape, shape.squeeze, shape.transpose, shape.rev, shape.slice_],
            joining.split,
        ],
        _moved,
    ),
    joining.iota: _count,
    joining.concatenate: _joined,
    joining.pad: _joined,
    reduction.reduce_sum: _sum,
    dot_general: _sum,
}
