"""Programs that are derived: what is found out besides, and array constants as equations.

    constant[values=(1.0, 2.0), shape=(2,), dtype=f32] -> array

Nested programs have no constants. A custom rule that runs while such a program is derived may still
use an array; `closed` turns it into an equation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from functrans import errors
from functrans.ir.program import Equation, Program
from functrans.ir.source import here, user_source
from functrans.ir.types import ArrayType, is_key_dtype
from functrans.primitives.base import Primitive
from functrans.primitives.random.bits import impl_of, random_wrap, word_type
from functrans.trace import AnyTracer, literal, stage

WRITTEN_OUT = 64  # elements


class Held:
    """An array too large to be written out, as a parameter."""

    __slots__ = ("__weakref__", "array")

    def __init__(self, array: Any):  # a NumPy array, or typed keys
        self.array: Any = array

    def __repr__(self) -> str:
        return f"{self.array.size} numbers"


class Constant(Primitive):
    """A constant array. `values` holds its elements, or is a `Held`."""

    in_kernel = True
    name = "constant"
    locally_constant = True

    def abstract_eval(self, *, values: Any, shape: tuple[int, ...], dtype: Any, weak: bool = False) -> Any:
        n = values.array.size if isinstance(values, Held) else len(values)
        made = ArrayType(shape, dtype, weak)
        if n != made.size:
            raise self.mismatch((), f"{made} has {made.size} elements, got {n}")
        return made

    def reference(self, *, values: Any, shape: Any, dtype: Any, weak: bool = False) -> Any:
        if isinstance(values, Held):
            return values.array
        return np.array(values, dtype).reshape(shape)

    def numpy_source(self, w: Any, **params: Any) -> Any:
        return w.file.constant(w.equation.outputs[0].type, self.reference(**params))

    def lower(self, ctx: Any, **params: Any) -> Any:
        array = self.reference(**params)
        keys = is_key_dtype(params["dtype"])
        return ctx.constant(np.asarray(jax.random.key_data(array)) if keys else array)


constant: Constant = Constant()


def zeros(t: ArrayType) -> Any:
    """Return zeros of any type, including key types, which have no literals."""
    if not is_key_dtype(t.dtype):
        return literal(0, t)
    return random_wrap(literal(0, word_type(t)), impl=impl_of(t.dtype))


R = TypeVar("R")


def stage_with(
    function: Callable[..., tuple[Sequence[Any], R]], types: Sequence[ArrayType], name: str = ""
) -> tuple[Program, R]:
    """`stage` a function that returns its results and something else; return that too."""
    found: list[R] = []

    def flat(*values: Any) -> Sequence[Any]:
        outs, more = function(*values)
        found.append(more)
        return outs

    return stage(flat, types, name), found[0]


def closed(program: Program) -> Program:
    """Return the program with its constants converted to equations."""
    if not program.constants:
        return program
    written = [
        Equation(constant, (), (v,), _written(v.type, x), user_source())
        for v, x in zip(program.constants, program.values, strict=True)
    ]
    return program.replace(equations=[*written, *program.equations], constants=(), values=())


def _written(t: ArrayType, value: Any) -> dict[str, Any]:
    if isinstance(value, AnyTracer):
        raise errors.ClosedOverTracer(
            f"a custom rule closes over a traced {t} of an enclosing function, while a nested "
            f"program (a jitted function, the body of a loop) is transformed, {here()}\n"
            "Pass it to the custom function as an argument; the fwd of a custom_vjp passes it to "
            "bwd in the residuals."
        )
    keys = is_key_dtype(t.dtype)
    array = value if keys else np.asarray(value, t.dtype)
    short = array.size <= WRITTEN_OUT and not keys
    values = tuple(array.ravel().tolist()) if short else Held(array)
    params: dict[str, Any] = {"values": values, "shape": t.shape, "dtype": t.dtype}
    return {**params, "weak": True} if t.weak_type else params
