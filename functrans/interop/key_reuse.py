"""`jax_debug_key_reuse`: JAX's check for random keys that are used twice, for our programs.

In: a JAX equation that holds one of our programs. Out: its signature, that is which keys it
consumes and which it creates, or JAX's `KeyReuseError`. While JAX checks, what uses keys stays JAX's
operation in our programs (jaxprs/arrays.py). So the program is traced to a jaxpr of those, and of JAX's
in place of our loops and of what moves keys; JAX computes the signature of that. Zeros and new keys
stand for all other results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.experimental.key_reuse import _core as theirs

from functrans.backends import xla
from functrans.caching import memo
from functrans.interop.loops import LOOPS, by_jax
from functrans.ir.program import Equation, Program
from functrans.ir.types import is_key_dtype
from functrans.primitives.calls.jax_call import jax_call
from functrans.trace import at_once, evaluate


@theirs.dynamic_key_reuse_signature
def signature(eqn: Any) -> Any:
    """Return the key-reuse signature of an equation."""
    program: Program = eqn.params["program"]
    return memo(program, _signature)


for _primitive in xla.PRIMITIVES:
    theirs.key_reuse_signatures[_primitive] = signature


def _signature(program: Program) -> Any:
    types = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in program.in_types]
    with at_once():
        closed = jax.make_jaxpr(lambda *xs: _run(program, xs))(*types)
    return theirs.jaxpr_type_signature(closed.jaxpr)


def _run(program: Program, values: Sequence[Any]) -> list[Any]:
    return evaluate(program, values, _equation)


def _equation(e: Equation, values: list[Any]) -> Any:
    program, takes_keys = e.params.get("program"), any([is_key_dtype(v.type.dtype) for v in e.inputs])
    if e.primitive in LOOPS:
        return by_jax(e, _run, values)
    if program.__class__ is Program and len(program.inputs) == len(values):
        return _run(program, values)
    if takes_keys and e.primitive is jax_call:
        return e.params["body"].fun(*values)
    if takes_keys and e.primitive.name in _MOVES:
        return _MOVES[e.primitive.name](e.outputs[0].type.shape, *values, **e.params)
    outs = [jax.numpy.zeros(v.type.shape, v.type.dtype) for v in e.outputs]
    return outs if e.primitive.multiple_results else outs[0]


def _parted(to: Any, x: Any, sizes: Sequence[int], axis: int) -> list[Any]:
    stops = np.cumsum(sizes).tolist()
    return [lax.slice_in_dim(x, a, b, axis=axis) for a, b in zip([0, *stops], stops, strict=False)]


# JAX's operations for those of ours that move keys, given the shape `to` of the first result.
_MOVES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("reshape", "squeeze"), lambda to, x, **_: lax.reshape(x, to)),
    "broadcast_in_dim": lambda to, x, dimensions, **_: lax.broadcast_in_dim(x, to, dimensions),
    "slice": lambda to, x, start, limit, strides: lax.slice(x, start, limit, strides),
    "split": _parted,
    "concatenate": lambda to, *xs, dimension: lax.concatenate(xs, dimension),
    "dynamic_slice": lambda to, x, *starts, sizes: lax.dynamic_slice(x, starts, sizes),
    "gather": lambda to, x, i, **_: x.reshape(-1)[np.zeros(to, int)],
    "sharding_constraint": lambda to, x, **_: x,
}
