"""The reference interpreter: runs a program with NumPy, one equation at a time, same dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from functrans import runtime
from functrans.ir.program import Literal, Program
from functrans.ir.types import ArrayType, is_key_dtype
from functrans.primitives.shape.moving import Moving


@runtime.answers("run_in_numpy")
def run(program: Program, args: Sequence[Any], step: int | None = None) -> list[Any]:
    """Run a program and return its results as NumPy arrays (typed keys: JAX key arrays). `step`,
    the step of the loop around it, is ignored here."""
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
    """Run one operation and return its results, always as a list."""
    if primitive.holds_programs:
        return primitive.interpret(run, values, params)
    if isinstance(primitive, Moving) and is_key_dtype(values[0].dtype):
        words = [np.asarray(jax.random.key_data(x)) if is_key_dtype(x.dtype) else x for x in values]
        moved = run_one(primitive, words, primitive.under_trailing_axis(words[0].shape[-1], params))
        return [jax.random.wrap_key_data(y, impl=jax.random.key_impl(values[0])) for y in moved]
    out = primitive.reference(*values, **params)
    return out if primitive.multiple_results else [out]


def _value(v: Any, env: dict[Any, Any]) -> Any:
    return np.full(v.type.shape, v.value, v.type.dtype) if v.__class__ is Literal else env[v]


def as_numpy(x: Any, type: ArrayType) -> Any:
    """Convert a concrete value to a NumPy array of the given dtype; keys stay JAX key arrays."""
    if is_key_dtype(type.dtype):
        return x
    if isinstance(x, jax.Array):
        return np.asarray(x)
    return np.asarray(x, type.dtype)
