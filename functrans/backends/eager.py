"""One operation on concrete arrays, now.

Each (operation, parameters, operand types) is compiled once as a one-equation program; after that a
call is a dictionary look-up and JAX's C++ dispatch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from functrans.backends import xla
from functrans.ir.program import Equation, Literal, Program, Var
from functrans.ir.types import ArrayType
from functrans.passes.inline import inline
from functrans.trace import Tracer, leaked, out_types, set_evaluator, typeof

_COMPILED: dict[tuple, Callable[..., Any]] = {}
_SCALARS: dict[tuple, jax.Array] = {}


class Splat:
    """The type of a literal operand: it is given as a scalar and repeated inside."""

    __slots__ = ("type",)
    type: ArrayType
    _made: dict[ArrayType, Splat] = {}

    def __new__(cls, type: ArrayType) -> Splat:
        found = cls._made.get(type)
        if found is None:
            found = object.__new__(cls)
            found.type = type
            found = cls._made.setdefault(type, found)
        return found


def run_one(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """The result of one operation on arrays and literals."""
    types: list[Any] = []
    values = []
    for x in args:
        if x.__class__ is Literal:
            types.append(Splat(x.type))
            values.append(_scalar(x))
        elif isinstance(x, Tracer):
            raise leaked(x)
        else:
            types.append(typeof(x))
            values.append(x)
    key = (primitive, *types, *params.items()) if params else (primitive, *types)
    run = _COMPILED.get(key)
    if run is None:
        run = _COMPILED[key] = _compile(primitive, types, params)
    return run(*values)


def _scalar(x: Literal) -> jax.Array:
    """The literal's number as a (cached) array: cheaper to pass than a Python number."""
    value = x.value
    name = value if value != 0 else str(value)  # 0.0 == -0.0, but they are two numbers
    key = (name, value.__class__, x.type.dtype)
    found = _SCALARS.get(key)
    if found is None:
        found = jax.numpy.asarray(np.asarray(value, x.type.dtype))
        if len(_SCALARS) < 4096:
            _SCALARS[key] = found
    return found


def _compile(primitive: Any, types: Sequence[Any], params: dict[str, Any]) -> Callable[..., Any]:
    plain = tuple([t.type if t.__class__ is Splat else t for t in types])
    inputs = [Var(t) for t in plain]
    outputs = tuple([Var(t) for t in out_types(primitive, plain, params)])
    equation = Equation(primitive, tuple(inputs), outputs, params)
    program = inline(Program(inputs, [equation], outputs, name=primitive.name))

    def call(*values: Any) -> Any:
        full = [
            jax.lax.broadcast(x, t.type.shape) if t.__class__ is Splat else x
            for x, t in zip(values, types, strict=True)
        ]
        outs = xla.run_program(program, full)
        return outs if primitive.multiple else outs[0]

    call.__name__ = primitive.name
    return jax.jit(call)


set_evaluator(run_one)


def clear() -> None:
    """Forget the compiled operations."""
    _COMPILED.clear()
    _SCALARS.clear()
