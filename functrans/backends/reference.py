"""The reference: a program run on NumPy arrays, equation after equation, at the same dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from functrans.ir.program import Literal, Program
from functrans.ir.types import ArrayType, is_key_dtype


def run(program: Program, args: Sequence[Any], step: int | None = None) -> list[Any]:
    """The results of a program as NumPy arrays (typed keys: jax key arrays). `step`: of the loop
    around it, which makes no difference here."""
    env: dict[Any, Any] = {}
    for v, x in zip((*program.constants, *program.inputs), (*program.values, *args), strict=True):
        env[v] = as_numpy(x, v.type)
    with np.errstate(all="ignore"):
        for eqn in program.equations:
            values = [_value(v, env) for v in eqn.inputs]
            outs = run_one(eqn.primitive, values, eqn.params)
            env.update(zip(eqn.outputs, outs, strict=True))
    return [_value(v, env) for v in program.outputs]


def run_one(primitive: Any, values: Sequence[Any], params: dict[str, Any]) -> Sequence[Any]:
    """The results of one operation, always as a list."""
    if primitive.holds_programs:
        return primitive.interpret(run, values, params)
    out = primitive.reference(*values, **params)
    return out if primitive.multiple_results else [out]


def _value(v: Any, env: dict[Any, Any]) -> Any:
    return np.full(v.type.shape, v.value, v.type.dtype) if v.__class__ is Literal else env[v]


def as_numpy(x: Any, type: ArrayType) -> Any:
    """A concrete value as a NumPy array of the given dtype; keys stay jax key arrays."""
    if is_key_dtype(type.dtype):
        return x
    if isinstance(x, jax.Array):
        return np.asarray(x)
    return np.asarray(x, type.dtype)
