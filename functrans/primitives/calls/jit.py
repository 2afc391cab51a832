"""Calls of nested programs: `jit` inside another transformation.

    jit[program] args -> results

The nested Program has no constants: values that the function closes over are operands. Transformed
forms are cached on the program, so twenty calls of one layer are transformed once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, TypeVar

import jax
import numpy as np
from jax import jit as jax_jit  # bound here, as `jax.jit` may be replaced by ours

from functrans import errors
from functrans import pytrees as tree
from functrans.caching import Cache, memo
from functrans.flags import decisive
from functrans.ir.program import Equation, Program, hoist_constants
from functrans.ir.types import same_types
from functrans.primitives.base import Cost, HigherOrderPrimitive, LinearInput
from functrans.primitives.calls.replay import OPTIONS, Replay, signature
from functrans.primitives.calls.residuals import fewer, take
from functrans.primitives.dependence import reached_outputs, reading, restricted, smaller
from functrans.trace import ARRAYS, Recording, Tracer, stage, staging_trace, state, typeof
from functrans.tracer import CONCRETE


class Jit(HigherOrderPrimitive):
    """Run `program` on the operands."""

    in_kernel = True
    name = "jit"

    def abstract_eval(self, *types: Any, program: Program) -> Any:
        wanted = program.in_types
        if types != wanted and not same_types(types, wanted):
            shown = ", ".join(map(str, wanted))
            raise self.mismatch(types, f"the nested program {program.name} takes ({shown})")
        return program.out_types

    def interpret(self, run: Any, values: Sequence[Any], params: dict[str, Any]) -> Any:
        return run(params["program"], values)

    def lower(self, ctx: Any, *operands: Any, program: Program, **how: Any) -> Any:
        return ctx.call(program, operands)

    def differentiate(
        self, t: Any, primals: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
    ) -> tuple[Any, Any]:
        program = params["program"]
        active = tuple([dx is not None for dx in tangents])
        given = [dx for dx in tangents if dx is not None]
        n = len(program.outputs)
        if t.linear is None:
            both, out_active = t.jvp(program, active)
            results = self(*primals, *given, program=both)
            outs, moving = results[:n], iter(results[n:])
        else:
            forward, linear, out_active, places = fewer(t.split(program, active))
            results = t.bind_primal(self, primals, {"program": forward})
            outs = results[:n]
            residuals = take(places, primals, outs, results[n:])
            moving = iter(self(*residuals, *given, program=linear) if linear.outputs else ())
        return outs, [next(moving) if a else None for a in out_active]

    def transpose_with(
        self, t: Any, ct: Sequence[Any], args: Sequence[Any], params: dict[str, Any]
    ) -> Sequence[Any]:
        linear = tuple([x.__class__ is LinearInput for x in args])
        ct_active = tuple([c is not None for c in ct])
        back = t.program(params["program"], linear, ct_active, called=True)
        known = [x for x, lin in zip(args, linear, strict=True) if not lin]
        found = iter(self(*known, *[c for c in ct if c is not None], program=back))
        return [next(found) if lin else None for lin in linear]

    def batch(self, t: Any, args: Any, dims: Any, *, program: Program, **how: Any) -> Any:
        batched, out_dims = t.program(program, tuple(dims))
        return self(*args, program=batched, **how), out_dims

    def reached(self, params: dict[str, Any], moving: Sequence[bool]) -> Sequence[bool]:
        if self.has_effects(params):  # which must not happen twice
            return [True]
        return reached_outputs(params["program"], moving)

    def part(self, equation: Equation, wanted: Sequence[bool]) -> Equation:
        program = equation.params["program"]
        read = reading(program, wanted)
        outputs = compress(equation.outputs, wanted)
        return smaller(equation, read, outputs, program=restricted(program, read, wanted))

    def cost(self, in_types: Any, out_types: Any, *, program: Program, **how: Any) -> Cost:
        return memo(program, _cost)

    def has_effects(self, params: dict[str, Any]) -> bool:
        return memo(params["program"], _has_effects)


def _cost(program: Program) -> Cost:
    inner = [
        e.primitive.cost([v.type for v in e.inputs], [v.type for v in e.outputs], **e.params)
        for e in program.equations
    ]
    return Cost(sum(c.flops for c in inner), sum(c.bytes for c in inner))


def _has_effects(program: Program) -> bool:
    return any(e.primitive.has_effects(e.params) for e in program.equations)


class OneKernel(Jit):
    """Run `program`, on a CPU as one kernel. passes/kernels.py inserts it at lowering."""

    name = "one_kernel"

    def lower(self, ctx: Any, *operands: Any, program: Program, **how: Any) -> Any:
        return ctx.kernel(program, operands)


class NotInlined(Jit):
    """Run `program` as a function that XLA:CPU does not inline, so that its operations are not fused
    with those outside. passes/kernels.py inserts it into kernels."""

    name = "not_inlined"

    def lower(self, ctx: Any, *operands: Any, program: Program, **how: Any) -> Any:
        return ctx.not_inlined(program, operands)


jit: Jit = Jit()
one_kernel: OneKernel = OneKernel()
not_inlined: NotInlined = NotInlined()


# --- library functions that run as one operation when eager ---------------------------------------

_ARRAYS = (Tracer, jax.Array, np.ndarray)
_DIRECT: Any = object()  # cached for a call that needs concrete values
_COMPILED = Cache("library functions compiled", 2048)
_RECORDED = Cache("library functions as programs", 2048)
_REPLAYS = Cache("library functions to record again", 4096)


_F = TypeVar("_F", bound=Callable[..., Any])


def composite(function: _F, numbers: tuple[type[Any], ...] = ()) -> _F:
    """Make a function of arrays and static options run as one operation when eager. Its program is
    recorded once per signature and costs one dispatch, as does its pullback. While a program is
    being recorded the operations are recorded individually, replayed (replay.py) if the signature
    is known. A call that needs concrete values runs its operations one by one. Python numbers of
    the classes `numbers` are operands; others are part of the signature."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if state.trace is not None or state.axes or state.jit_disabled:
            return record(*args, **kwargs)
        arrays = []
        options: list[Any] = [function, len(args), *kwargs]
        for x in (*args, *kwargs.values()) if kwargs else args:
            kind = x.__class__
            options.append(kind)
            if kind is CONCRETE or kind in numbers:
                arrays.append(x)
            elif kind in OPTIONS:
                options.append(x)
            elif kind is float:
                options.append(repr(x))
            else:
                return record(*args, **kwargs)
        if not arrays:
            return function(*args, **kwargs)
        key = tuple(options)
        run = _COMPILED.get(key)
        if run is None:
            run = _COMPILED.keep(key, _jitted(record, args, kwargs, (CONCRETE, *numbers)))
        if run is not _DIRECT:
            try:
                return run(*arrays)
            except jax.errors.JAXTypeError:  # it needs concrete values
                _COMPILED.replace(key, _DIRECT)
            except OverflowError:  # an integer beyond its dtype: the function's error is better
                pass
        return function(*args, **kwargs)

    def record(*args: Any, **kwargs: Any) -> Any:
        trace = state.trace
        if trace.__class__ is Recording and trace.stages and not state.jit_disabled:
            return write(trace, args, kwargs)
        if state.jit_disabled or staging_trace() is not None:
            return function(*args, **kwargs)
        arrays = []
        signature: list[Any] = [function, decisive(), state.axes]
        for x in (*args, *kwargs.values()) if kwargs else args:
            if x.__class__ in OPTIONS:
                signature.append(x.__class__)
                signature.append(x)
            elif x.__class__ in ARRAYS or isinstance(x, _ARRAYS):
                arrays.append(x)
                signature.append(typeof(x))
            else:  # 0.0 == -0.0, NaN != NaN
                signature.append((x.__class__, repr(x) if x.__class__ is float else x))
        if not arrays:
            return function(*args, **kwargs)
        key = (*signature, len(args), *kwargs)
        try:
            found = _RECORDED.get(key)
        except TypeError:  # an option that is not hashable
            return function(*args, **kwargs)
        if found is None:
            try:
                found = _recorded(function, args, kwargs, arrays)
            except errors.AbstractValueError:
                found = _DIRECT
            found = _RECORDED.keep(key, found)
        if found is _DIRECT:
            return function(*args, **kwargs)
        program, captured, out_tree = found
        outs = jit(*captured, *arrays, program=program)
        return outs[0] if out_tree is None else tree.unflatten(out_tree, outs)

    def write(trace: Recording, args: Any, kwargs: dict[str, Any]) -> Any:
        known = signature(trace, (*args, *kwargs.values()) if kwargs else args)
        if known is None:
            return function(*args, **kwargs)
        found, operands = known
        key = (function, *found, len(args), *kwargs)
        replay = _REPLAYS.get(key)
        if replay is not None and replay is not _DIRECT:
            return replay.run(trace, operands)
        start = len(trace.equations)
        out = function(*args, **kwargs)
        distinct = len({x.ref for x in operands}) == len(operands)
        if distinct and replay is None:  # a recording of f(x, x) cannot be replayed for f(x, y)
            _REPLAYS.keep(key, Replay.of(trace, start, operands, out) or _DIRECT)
        return out

    return call  # type: ignore[return-value]


def _jitted(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    operands: tuple[type[Any], ...],
) -> Callable[..., Any]:
    """Return a call as a function of its operands, jitted by JAX, whose cache look-up is faster
    than ours."""
    values = (*args, *kwargs.values())

    def run(*arrays: Any) -> Any:
        rest = iter(arrays)
        given = [next(rest) if x is None else x[0] for x in fixed]
        return function(*given[:n], **dict(zip(names, given[n:], strict=True)))

    fixed = [None if x.__class__ in operands else (x,) for x in values]  # without the arrays
    n, names = len(args), list(kwargs)
    run.__name__ = function.__name__
    return jax_jit(run)


def _recorded(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], arrays: list[Any]
) -> tuple[Program, tuple[Any, ...], Any]:
    """Return the program of a call, its captured values, and the tree of its result (None: an
    array)."""
    out_tree = None

    def flat(*values: Any) -> list[Any]:
        nonlocal out_tree
        rest = iter(values)
        given = [next(rest) if isinstance(x, _ARRAYS) else x for x in (*args, *kwargs.values())]
        out = function(*given[: len(args)], **dict(zip(kwargs, given[len(args) :], strict=True)))
        if isinstance(out, _ARRAYS):
            return [out]
        outs, out_tree = tree.flatten(out)
        return outs

    with jax.ensure_compile_time_eval():  # it is cached: constants must not be JAX's tracers
        program = stage(flat, [typeof(x) for x in arrays], function.__name__)
    return (*hoist_constants(program), out_tree)
