"""Compare programs up to the names of their variables."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from functrans.ir.program import Equation, Literal, Program, Var
from functrans.ir.text import defaults, is_concrete, number_at
from functrans.ir.types import ArrayType, is_key_dtype


def equal(p: Program, q: Program) -> bool:
    """Return whether two programs have the same structure.

    Arguments:
      p, q: Programs. Compares types (with weak-type flags), primitives, parameters with nested
        programs (a missing one equals its default), literals and constants (dtype and value; NaN
        equals NaN, 0.0 does not equal -0.0). Ignores names, source lines, origins.

    Example:
      >>> import functrans as ft
      >>> p = ft.ir.parse("program (x: f32[3]) { y: f32[3] = sin x; return y }")
      >>> ft.ir.equal(p, ft.ir.parse(ft.ir.show(p)))
      True
    """
    pending = [(p, q)]
    seen: set[tuple[Program, Program]] = set()
    while pending:
        pair = pending.pop()
        if pair[0] is pair[1] or pair in seen:
            continue
        seen.add(pair)
        if not _equal_once(*pair, pending):
            return False
    return True


def _equal_once(p: Program, q: Program, pending: list[tuple[Program, Program]]) -> bool:
    """Compare two programs; push nested ones onto `pending`."""
    if len(p.equations) != len(q.equations) or len(p.constants) != len(q.constants):
        return False
    match: dict[Var, Var] = {}
    if not (_define(p.inputs, q.inputs, match) and _define(p.constants, q.constants, match)):
        return False
    for v, x, y in zip(p.constants, p.values, q.values, strict=True):
        if not _same_constant(x, y, v.type):
            return False
    for a, b in zip(p.equations, q.equations, strict=True):
        same = a.primitive is b.primitive and _same_atoms(a.inputs, b.inputs, match)
        if not (same and _same_params(a, b, pending) and _define(a.outputs, b.outputs, match)):
            return False
    return _same_atoms(p.outputs, q.outputs, match)


def _define(vs: tuple[Var, ...], ws: tuple[Var, ...], match: dict[Var, Var]) -> bool:
    match.update(zip(vs, ws, strict=False))
    return len(vs) == len(ws) and all(v.type is w.type for v, w in zip(vs, ws, strict=True))


def _same_atoms(xs: tuple[Any, ...], ys: tuple[Any, ...], match: dict[Var, Var]) -> bool:
    if len(xs) != len(ys):
        return False
    for x, y in zip(xs, ys, strict=True):
        if x.__class__ is not y.__class__:
            return False
        if not (_same_literal(x, y) if x.__class__ is Literal else match.get(x) is y):
            return False
    return True


def _same_literal(x: Literal, y: Literal) -> bool:
    dtype = x.type.dtype
    return x.type is y.type and (
        _same_value(x.value, y.value)
        or _same_value(number_at(x.value, dtype), number_at(y.value, dtype))
    )


def _same_params(a: Equation, b: Equation, pending: list[tuple[Program, Program]]) -> bool:
    if a.params is b.params:
        return True
    usual = defaults(a.primitive)
    left, right = {**usual, **a.params}, {**usual, **b.params}
    if left.keys() != right.keys():
        return False
    return all(_same_param(x, right[name], pending) for name, x in left.items())


def _same_param(x: Any, y: Any, pending: list[tuple[Program, Program]]) -> bool:
    if x.__class__ is Program and y.__class__ is Program:
        pending.append((x, y))
        return True
    if x.__class__ is tuple and y.__class__ is tuple:
        pairs = zip(x, y, strict=False)
        return len(x) == len(y) and all(_same_param(a, b, pending) for a, b in pairs)
    return _same_value(x, y)


def _same_value(x: Any, y: Any) -> bool:
    """Compare Python values: NaN equals NaN, 0.0 does not equal -0.0, True does not equal 1."""
    if x is y:
        return True
    if x is None or y is None or isinstance(x, str) or isinstance(y, str):
        return x.__class__ is y.__class__ and x == y  # NumPy dtypes equal None or "float64"
    if isinstance(x, (float, complex)):
        return isinstance(y, (float, complex)) and repr(x) == repr(y)
    return isinstance(x, bool) == isinstance(y, bool) and bool(x == y)


def _same_constant(x: Any, y: Any, type: ArrayType) -> bool:
    if x is y:
        return True
    if not (is_concrete(x) and is_concrete(y)):
        return False  # a tracer equals only itself
    if is_key_dtype(type.dtype):
        x, y = jax.random.key_data(x), jax.random.key_data(y)
        return bool(np.array_equal(x, y))
    x, y = np.asarray(x, type.dtype), np.asarray(y, type.dtype)
    return x.shape == y.shape and (x.tobytes() == y.tobytes() or _same_floats(x, y))


def _same_floats(x: np.ndarray, y: np.ndarray) -> bool:
    """Compare elements, ignoring the payloads of NaNs."""
    return all(
        _same_value(a, b) for a, b in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)
    )
