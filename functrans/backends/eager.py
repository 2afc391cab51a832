"""One operation on concrete arrays, now.

Each (operation, parameters) is a `jax.jit`ted function that makes a one-equation program for the
types it is traced with; after that a call is one look-up here and JAX's C++ dispatch, which looks
at the types itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import jit as jax_jit  # the program may exchange the name in JAX's module

from functrans import runtime
from functrans.backends import debug_nans, xla
from functrans.caching import Cache, cached
from functrans.ir.program import Equation, Literal, Program, Var, programs_among
from functrans.ir.source import user_source
from functrans.ir.types import ArrayType
from functrans.passes.inlining import inline
from functrans.trace import out_types
from functrans.tracer import CONCRETE, Tracer, check_kept, is_jax_tracer, leaked, typeof


@runtime.answers(runtime.run_operation)
def run_one(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """The result of one operation on arrays and literals."""
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
            if not xla.is_outermost():
                return run_in_jax(primitive, _whole(args, splats), params)
            return primitive.run_eagerly(_whole(args, splats), params)
        # the program may be of a user's function, and what is compiled goes with it
        program = params.get("program") or programs_among(params)[0]
        key = (compiled, primitive, splats, *params.items())
        run = program.known(key)
        if run is None:
            run = program.keep(key, compiled.__wrapped__(*key[1:]))
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
            typeof(x)  # raises for what is not an array
        raise


_ALONE = Cache("operations inside of JAX", 2048)


def run_in_jax(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """One operation on values of which some belong to a trace of JAX's, or while JAX traces: an
    equation there, whose program is kept, as is what JAX's transformations make of it."""
    if primitive.holds_functions and params["program"].__class__ is not Program:
        return primitive.record(None, True, args, params)
    types = tuple([typeof(x) for x in args])
    numbers = tuple([_number(x) if x.__class__ is Literal else None for x in args])
    held = programs_among(params)
    source = user_source()
    key = (run_in_jax, primitive, types, numbers, source, *params.items())
    program = held[0].known(key) if held else _ALONE.get(key)
    if program is None:
        inputs = [Var(t) for t, n in zip(types, numbers, strict=True) if n is None]
        rest = iter(inputs)
        operands = tuple([x if x.__class__ is Literal else next(rest) for x in args])
        outputs = tuple([Var(t) for t in out_types(primitive, types, params)])
        equation = Equation(primitive, operands, outputs, params, source)
        program = Program(inputs, [equation], outputs, name=primitive.name)
        program = held[0].keep(key, program) if held else _ALONE.keep(key, program)
    outs = xla.run_program(program, [x for x in args if x.__class__ is not Literal])
    return outs if primitive.multiple_results else outs[0]


def _number(x: Literal) -> tuple[Any, ...]:
    """What tells the numbers of literals apart: 0.0 == -0.0 == False, NaN != NaN."""
    return x.value.__class__, str(x.value)


def _scalar(x: Literal) -> jax.Array:
    """The literal's number as a (cached) array: cheaper to pass than a Python number."""
    value = x.value
    kind: Any = value.__class__
    # 0.0 == -0.0, but they are two numbers, and either part of a complex one may be one of these
    name = value if value != 0 and kind is not complex else str(value)
    return _number_array(name, kind, x.type.dtype)


@cached("numbers as arrays", 4096)
def _number_array(name: Any, kind: Any, dtype: Any) -> jax.Array:
    value = kind(name) if kind is not bool else name is True
    # it outlives what it is made under: the flag, and someone's `jax.jit` with its own values
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        return jax.numpy.asarray(np.asarray(value, dtype))


def _whole(values: Sequence[Any], splats: Sequence[ArrayType | None] | None) -> Sequence[Any]:
    """Values among which literals, given as scalars, are repeated to their types."""
    if splats is None:
        return values
    return [
        x if s is None else jax.lax.broadcast(x, s.shape)
        for x, s in zip(values, splats, strict=True)
    ]


@cached("operations compiled", 2048)
def compiled(
    primitive: Any, splats: Sequence[ArrayType | None] | None, *items: tuple[str, Any]
) -> Any:
    """A function of `jax.jit` that does the operation."""
    params = dict(items)

    def call(*values: Any) -> Any:
        types = tuple([typeof(x) for x in values])
        if splats is not None:  # literals were given as scalars and are repeated here
            types = tuple([s or t for s, t in zip(splats, types, strict=True)])
            values = tuple(_whole(values, splats))
        inputs = [Var(t) for t in types]
        outputs = tuple([Var(t) for t in out_types(primitive, types, params)])
        equation = Equation(primitive, tuple(inputs), outputs, params)
        program = inline(Program(inputs, [equation], outputs, name=primitive.name))
        if debug_nans.is_asked():
            debug_nans.say_where(program, values)
        outs = xla.run_program(program, values)
        return outs if primitive.multiple_results else outs[0]

    call.__name__ = primitive.name
    return jax_jit(call)
