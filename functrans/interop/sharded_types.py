"""Functions over meshes with explicit axes, and inside a checked `jax.shard_map`: JAX traces them,
and we take over the jaxpr.

With explicit axes the type of an array says how it is sharded, and each operation of JAX has a rule
for the sharding of its result, or an error where that is ambiguous. In a `shard_map` with
`check_vma=True` it says over which axes the array varies, and the derivative with respect to a value
that does not vary is a sum over the devices. Our types have neither. So there JAX traces the user's
function, with its own tracers, types and errors; we optimize and compile the jaxpr as any other
program.

A typed `sharding_constraint` keeps the sharding that the type of a result has. If the program becomes
a part of another, that one's results count: the constraints are removed, and XLA chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
from jax._src.config import eager_constant_folding
from jax._src.core import set_current_trace

from functrans import jax_trace, runtime
from functrans.api.jit import jit
from functrans.caching import Cache
from functrans.interop.jaxprs.opaque import is_over_all_axes, programs_in, signature
from functrans.interop.jaxprs.walk import constants_of, exactly, in_jaxpr, means, opaque, run, type_of_aval
from functrans.interop.references import made_outside
from functrans.ir.program import Program
from functrans.primitives.distributed.sharding import (
    automatic_axes,
    mesh_of_type,
    sharding_constraint,
    typed_by_jax,
)
from functrans.trace import at_once, stage, state, tracing


@runtime.answers("stage_by_jax")
def staged(function: Callable[..., Sequence[Any]], values: Sequence[Any], name: str) -> Program:
    """Let JAX trace a function from flat values to a list of flat values; return its program."""
    with tracing(None), eager_constant_folding(False), _mesh_of(values):
        closed = jax.make_jaxpr(function, axis_env=list(state.axes))(*values)
    for x in closed.consts:
        if isinstance(x, jax.Ref):
            raise made_outside(x)

    def body(*values: Any) -> list[Any]:
        outs = exactly(run(closed.jaxpr, constants_of(closed), values), closed.out_avals)
        return [
            sharding_constraint(y, sharding=a.sharding, typed=True) if a.sharding.mesh.explicit_axes else y
            for y, a in zip(outs, closed.out_avals, strict=True)
        ]

    with at_once(), automatic_axes():  # so that constants are arrays, not JAX tracers
        return stage(body, [type_of_aval(a) for a in closed.in_avals], name)


def jaxpr_of_map(mapped: Callable[..., Sequence[Any]], types: Sequence[Any]) -> Any:
    """Return the jaxpr of a function that calls `jax.shard_map`, whose constants are the values that
    it captures, ours included."""
    avals = [jax.ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak_type) for t in types]
    bridge = jax_trace.bridge()
    current = nullcontext() if bridge is None else set_current_trace(bridge)
    with current, eager_constant_folding(False), automatic_axes():
        return jax.make_jaxpr(mapped, axis_env=list(state.axes))(*avals)


_MAPPED = Cache("functions that shard_map maps", 256)


@means("shard_map")
def _mapped(eqn: Any, *values: Any) -> Any:
    """A `shard_map` of JAX maps a jitted function of ours, so that the passes see what one device does. It
    stays as it is over some axes of a mesh only; if it maps one already, a derivative of which would no
    longer be apart from the value; and if JAX then finds that a result varies along more axes."""
    if not is_over_all_axes(eqn) or any(programs_in(eqn.params["jaxpr"])):
        return opaque(eqn, *values)
    key = (*signature(in_jaxpr(eqn)), *state.axes)
    closed = _MAPPED.get(key) or _MAPPED.keep(key, _of_our_function(eqn))
    if closed is _REFUSED:
        return opaque(eqn, *values)
    return run(closed.jaxpr, constants_of(closed), values, lambda e, xs: opaque(e, *xs))


_REFUSED: Any = object()


def _of_our_function(eqn: Any) -> Any:
    """Return the jaxpr of a `shard_map` of our function."""
    params = eqn.primitive.get_bind_params(eqn.params)
    (fun,) = params.pop("subfuns")

    def ours(*xs: Any) -> Any:
        made: list[Any] = []  # JAX's flat tree of the results

        def flat(*ys: Any) -> list[Any]:
            made.append(fun(*ys))
            return list(made[-1])

        flat.__name__ = flat.__qualname__ = eqn.params["jaxpr"].debug_info.func_name
        outs = jit(flat)(*xs)
        return made[-1].update(outs)

    def whole(*xs: Any) -> list[Any]:
        return list(eqn.primitive.bind(*xs, subfuns=(ours,), **params))

    try:
        return jaxpr_of_map(whole, [v.aval for v in eqn.invars])
    except Exception:  # JAX has traced the function before: the error is about our types
        return _REFUSED


def _mesh_of(values: Sequence[Any]) -> AbstractContextManager[Any]:
    """Set the mesh of the values if none is set, so that our functions inside are JAX's too."""
    if typed_by_jax():
        return nullcontext()
    return jax.sharding.use_abstract_mesh(next(filter(None, map(mesh_of_type, values))))
