"""Eager execution: one operation on concrete arrays.

Each (primitive, parameters) is a `jax.jit`ted function that builds a one-equation program for the
types it is traced with. A later call is one cache lookup here and JAX's C++ dispatch, which checks
the types itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from functrans import runtime
from functrans.backends import xla
from functrans.caching import Cache, cached
from functrans.ir.program import Literal, Program, programs_among
from functrans.ir.source import user_source
from functrans.ir.tracebacks import leave_to_jax
from functrans.ir.types import ArrayType
from functrans.passes.inlining import inline
from functrans.primitives.dependence import structure
from functrans.primitives.distributed.sharding import traced_by_jax, typed_by_jax
from functrans.trace import one_operation
from functrans.tracer import CONCRETE, Tracer, check_kept, is_jax_tracer, leaked, typeof


@runtime.answers("run_operation")
def run_one(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Run one operation on arrays and literals."""
    splats: tuple[Any, ...] | None = None
    for x in args:
        if x.__class__ is CONCRETE:
            continue
        if x.__class__ is Literal:
            if splats is None:
                splats = tuple([y.type if y.__class__ is Literal else None for y in args])
        elif is_jax_tracer(x):
            return run_in_jax(primitive, args, params)
    if splats is not None:
        args = [_scalar(x) if x.__class__ is Literal else x for x in args]
    if not params:
        run = compiled(primitive, splats)
    elif primitive.holds_programs:
        if primitive.runs_eagerly:
            if not xla.is_outermost() or typed_by_jax():
                return run_in_jax(primitive, _whole(args, splats), params)
            return primitive.run_eagerly(_whole(args, splats), params)
        # the program may belong to a user's function: the executable is freed with it
        program = params.get("program") or programs_among(params)[0]
        key = (compiled, primitive, splats, *params.items())
        run = program.known(key)
        if run is None:
            run = program.keep(key, _compiled_alike(primitive, splats, params))
    else:
        run = compiled(primitive, splats, *params.items())
    try:
        return run(*args)
    except (TypeError, ValueError, RuntimeError) as error:
        if xla.without_kernel(error):
            run.clear_cache()
            return run(*args)
        for x in args:
            if isinstance(x, Tracer):
                raise leaked(x) from None
            check_kept(x)
            typeof(x)  # raises an error unless it is an array
        raise


_ALIKE = Cache("operations that hold programs, compiled", 64)


def _compiled_alike(primitive: Any, splats: Any, params: dict[str, Any]) -> Any:
    """Return the jitted function of an operation that holds programs, or that of an equal one: a
    `scan` of a lambda, which is a new function in each call, is compiled once."""

    def made() -> Any:
        return compiled.__wrapped__(primitive, splats, *params.items())

    try:
        key = (primitive, splats, structure(params, lines=True))
        return _ALIKE.get(key) or _ALIKE.keep(key, made())
    except TypeError:  # a parameter is not hashable, or a program has constants
        return made()


def run_in_jax(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Record one operation on JAX tracers, or while JAX traces, as a JAX equation. Its program is
    cached, together with the programs that JAX's transformations derive from it."""
    if traced_by_jax() and primitive.name != "while":  # JAX's has no reverse mode
        leave_to_jax()
    if primitive.holds_functions and params["program"].__class__ is not Program:
        return primitive.record(None, True, args, params)
    operands = [x if x.__class__ is Literal else typeof(x) for x in args]
    program = one_operation(primitive, operands, params, user_source())
    outs = xla.run_program(program, [x for x in args if x.__class__ is not Literal], xla.ALONE)
    return outs if primitive.multiple_results else outs[0]


def _scalar(x: Literal) -> jax.Array:
    """Return the literal's number as a cached array: cheaper to pass than a Python number."""
    value = x.value
    kind: Any = value.__class__
    # distinguishes 0.0 from -0.0, also in the parts of a complex number
    name = value if value != 0 and kind is not complex else str(value)
    return _number_array(name, kind, x.type.dtype)


@cached("numbers as arrays", 4096)
def _number_array(name: Any, kind: Any, dtype: Any) -> jax.Array:
    value = kind(name) if kind is not bool else name is True
    # it is cached, so it must not depend on the x64 flag or belong to a running `jax.jit` trace
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        return jax.device_put(np.asarray(value, dtype))  # without a compilation


def _whole(values: Sequence[Any], splats: Sequence[ArrayType | None] | None) -> Sequence[Any]:
    """Return the values, with literals that were passed as scalars broadcast to their types."""
    if splats is None:
        return values
    return [x if s is None else jax.lax.broadcast(x, s.shape) for x, s in zip(values, splats, strict=True)]


@cached("operations compiled", 2048)
def compiled(primitive: Any, splats: Sequence[ArrayType | None] | None, *items: tuple[str, Any]) -> Any:
    """Return a jitted function that runs the operation."""
    params = dict(items)

    def call(*values: Any) -> Any:
        types = [typeof(x) for x in values]
        if splats is not None:  # literals were passed as scalars; broadcast them here
            types = [s or t for s, t in zip(splats, types, strict=True)]
            values = tuple(_whole(values, splats))
        program = inline(one_operation(primitive, types, params))
        if xla.is_looking_for_nans():
            xla.stop_at_first_nan(program, values)
        outs = xla.run_program(program, values, xla.ALONE)
        return outs if primitive.multiple_results else outs[0]

    call.__name__ = primitive.name
    return xla.jax_jit(call)
