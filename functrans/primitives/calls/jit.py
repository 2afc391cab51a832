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

from functrans import pytrees as tree
from functrans.caching import Cache, memo
from functrans.ir.program import Equation, Literal, Program, Var, hoist_constants
from functrans.ir.types import ArrayType
from functrans.jax_trace import settings
from functrans.primitives import dependence
from functrans.primitives.base import (
    Cost,
    HigherOrderPrimitive,
    LinearInput,
    Params,
    Primitive,
    Values,
    axes_inside,
    own_cost,
)
from functrans.primitives.calls.captured import stage_with
from functrans.primitives.control_flow.loop_layout import Pushed, Terms, nonzero, pattern_of, taken
from functrans.trace import ARRAYS, Recording, Tracer, derived_here, evaluate, staging_trace, state, typeof
from functrans.tracer import CONCRETE


def is_inlined(inline: Any) -> bool:
    """Return whether a call with this option of `jit` is written out: True or, since JAX 0.11, one of
    the `jax.Inline` with which JAX does so. The others are calls, and False is one of these."""
    name: str | None = getattr(inline, "name", None)
    return bool(inline) if name is None else name.startswith("JAX_")


class Jit(HigherOrderPrimitive):
    """Run `program` on the operands."""

    in_kernel = True
    name = "jit"

    def abstract_eval(self, *types: Any, program: Program) -> Any:
        if types != program.in_types:
            self.check_takes(types, types, f"the nested program {program.name}", program)
        return program.out_types

    def interpret(self, run: Any, values: Values, params: Params) -> Any:
        return run(params["program"], values)

    def lower(self, ctx: Any, *operands: Any, program: Program, **how: Any) -> Any:
        return ctx.call(program, operands)

    def push(self, t: Any, primals: Values, series: Sequence[Terms], params: Params) -> Pushed:
        program = params["program"]
        made, patterns = t.pushed(program, tuple([pattern_of(c) for c in series]))
        results = self(*primals, *nonzero(series), **{**params, "program": made})
        n = len(program.outputs)
        return results[:n], taken(patterns, iter(results[n:]))

    def differentiate(self, t: Any, primals: Values, tangents: Values, params: Params) -> tuple[Any, Any]:
        if t.linear is None:
            return t.along(self, primals, tangents, params)
        program = params["program"]
        active = tuple([dx is not None for dx in tangents])
        forward, linear, out_active, places = dependence.fewer(t.split(program, active))
        results = t.bind_primal(self, primals, {"program": forward})
        operands = dependence.take(places, primals, results, tangents)
        moving = self(*operands, program=linear) if linear.outputs else ()
        return results[: len(program.outputs)], dependence.spread(moving, out_active)

    def transpose_with(self, t: Any, ct: Values, args: Values, params: Params) -> Sequence[Any]:
        linear = tuple([x.__class__ is LinearInput for x in args])
        ct_active = tuple([c is not None for c in ct])
        back = t.program(params["program"], linear, ct_active, called=True)
        known = [x for x, lin in zip(args, linear, strict=True) if not lin]
        found = self(*known, *[c for c in ct if c is not None], program=back)
        return dependence.spread(dependence.without_zeros(found, back), linear)

    def batch(self, t: Any, args: Any, dims: Any, *, program: Program, **how: Any) -> Any:
        batched, out_dims = t.program(program, tuple(dims))
        return self(*args, program=batched, **how), out_dims

    def reached(self, params: dict[str, Any], moving: Sequence[bool]) -> Sequence[bool]:
        if self.has_effects(params):  # which must not happen twice
            return [True]
        return dependence.reached_outputs(params["program"], moving)

    def part(self, equation: Equation, wanted: Sequence[bool]) -> Equation:
        program = equation.params["program"]
        read = dependence.reading(program, wanted)
        made = dependence.restricted(program, read, wanted)
        return dependence.smaller(equation, read, compress(equation.outputs, wanted), program=made)

    def cost(self, in_types: Any, out_types: Any, *, program: Program, **how: Any) -> Cost:
        return memo(program, _cost)


def _cost(program: Program) -> Cost:
    inner = list(map(own_cost, program.equations))
    return Cost(sum(c.flops for c in inner), sum(c.bytes for c in inner))


def axes_in_loops(program: Program) -> set[Any]:
    """Return the axes used by name inside loops, branches and functions with custom rules, which
    stay equations; the programs of calls are written out."""
    found: set[Any] = set()
    for e in program.equations:
        found.update(*map(axes_in_loops if e.primitive is jit else axes_inside, e.programs))
    return found


def speaks_of_others_axes(program: Program) -> bool:
    """Does it speak of an axis that JAX has named? Then its sizes are not in our signatures."""
    given = {name for name, _ in state.axes}
    return not axes_inside(program) <= given


class OneKernel(Jit):
    """A call that becomes one kernel on a CPU. passes/kernels.py inserts such calls."""

    name = "one_kernel"

    def lower(self, ctx: Any, *operands: Any, program: Program, **how: Any) -> Any:
        return ctx.kernel(program, operands)


class Outlined(Jit):
    """A call that XLA:CPU does not inline, so that its operations are not fused with those outside."""

    name = "outlined"

    def lower(self, ctx: Any, *operands: Any, program: Program, **how: Any) -> Any:
        return ctx.call_outlined(program, operands)


class Expanded(HigherOrderPrimitive):
    """Base class of primitives that stand for a program of their operands, with some rules of their
    own. The others are those of a call of that program, as which it is lowered
    (passes/inlining.py)."""

    in_kernel = True
    has_effects: Callable[..., bool] = Primitive.has_effects  # not those of a program among the parameters

    def expansion(self, types: Sequence[ArrayType], params: Params) -> Program:
        """Return the program, for operands of these types."""
        raise self.missing("expansion")

    def _called(self, values: Values, params: Params) -> Program:
        return self.expansion([typeof(x) for x in values], params)

    def interpret(self, run: Any, values: Values, params: Params) -> Any:
        return run(self._called(values, params), values)

    def run_eagerly(self, values: Values, params: Params) -> Any:
        return evaluate(self._called(values, params), values)

    def lower(self, ctx: Any, *operands: Any, **params: Any) -> Any:
        return ctx.call(self.expansion(ctx.in_types, params), operands)

    def push(self, t: Any, primals: Values, series: Sequence[Terms], params: Params) -> Pushed:
        return jit.push(t, primals, series, {"program": self._called(primals, params)})

    def differentiate(self, t: Any, primals: Values, tangents: Values, params: Params) -> tuple[Any, Any]:
        return jit.differentiate(t, primals, tangents, {"program": self._called(primals, params)})

    def cost(self, in_types: Any, out_types: Any, **params: Any) -> Cost:
        return memo(self.expansion(in_types, params), _cost)


jit: Jit = Jit()
one_kernel: OneKernel = OneKernel()
outlined: Outlined = Outlined()


# --- library functions that run as one operation when eager ---------------------------------------

_ARRAYS = (Tracer, jax.Array, np.ndarray)
_OPTIONS: set[type[Any]] = {bool, int, str, type(None), type(tree.structure(0))}
_DIRECT: Any = object()  # cached for a call that needs concrete values
_COMPILED = Cache("library functions compiled", 2048)
_RECORDED = Cache("library functions as programs", 2048)

_F = TypeVar("_F", bound=Callable[..., Any])


def composite(function: _F, numbers: tuple[type[Any], ...] = ()) -> _F:
    """Make a function of arrays and static options run as one operation when eager. Its program is
    recorded once per signature and costs one dispatch, as does its pullback. While a program is
    being recorded the operations are added to it individually. A call that needs concrete values runs
    its operations one by one. Python numbers of the classes `numbers` are operands; others are part
    of the signature."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if state.trace is not None or state.axes:
            return record(*args, **kwargs)
        arrays = []
        options: list[Any] = [function, len(args), *kwargs]
        for x in (*args, *kwargs.values()) if kwargs else args:
            kind = x.__class__
            options.append(kind)
            if kind is CONCRETE or kind in numbers:
                arrays.append(x)
            elif kind in _OPTIONS:
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
        stages = trace.__class__ is Recording and trace.stages
        if not stages and staging_trace() is not None:
            return function(*args, **kwargs)
        arrays = []
        signature: list[Any] = [function, settings(), state.axes]
        for x in (*args, *kwargs.values()) if kwargs else args:
            kind = x.__class__
            if kind is Tracer and x.owner is trace and x.ref.__class__ is not Literal:
                arrays.append(x)
                signature.append(x.type)
            elif kind in _OPTIONS:
                signature.append(kind)
                signature.append(x)
            elif kind not in ARRAYS and not isinstance(x, _ARRAYS):  # 0.0 == -0.0, NaN != NaN
                signature.append((kind, repr(x) if kind is float else x))
            elif stages:  # the equations of a call of it depend on more than types
                return function(*args, **kwargs)
            else:
                arrays.append(x)
                signature.append(typeof(x))
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
            except jax.errors.JAXTypeError:  # it needs concrete values
                found = _DIRECT
            found = _RECORDED.keep(key, found)
        if found is _DIRECT:
            return function(*args, **kwargs)
        program, captured, out_tree = found
        if stages:
            known = memo(program, _steps)
            if known is None:
                return function(*args, **kwargs)
            values = [*map(trace.capture, captured), *[x.ref for x in arrays]]
            outs = _written(trace, known, values)
        else:
            outs = jit(*captured, *arrays, program=program)
        return outs[0] if out_tree is None else tree.unflatten(out_tree, outs)

    return call  # type: ignore[return-value]


def _jitted(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    operands: tuple[type[Any], ...],
) -> Callable[..., Any]:
    """Return a call as a function of its operands, jitted by JAX: its look-up is faster than ours."""
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
    """Return a call's program, its captured values, the tree of its result (None: an array)."""

    def flat(*values: Any) -> tuple[list[Any], Any]:
        rest = iter(values)
        given = [next(rest) if isinstance(x, _ARRAYS) else x for x in (*args, *kwargs.values())]
        out = function(*given[: len(args)], **dict(zip(kwargs, given[len(args) :], strict=True)))
        if isinstance(out, _ARRAYS):
            return [out], None
        return tree.flatten(out)

    with jax.ensure_compile_time_eval():  # it is cached: constants must not be JAX's tracers
        program, out_tree = stage_with(flat, [typeof(x) for x in arrays], function.__name__)
    return (*hoist_constants(program), out_tree)


def _steps(program: Program) -> tuple[list[Any], list[Any]] | None:
    """Return equations and results of a program with indices instead of variables: of the inputs, then
    of each result in turn. None if it holds programs, whose equations have source lines of their own."""
    places: dict[Any, int] = {v: i for i, v in enumerate(program.inputs)}
    steps = []
    for e in program.equations:
        ins = [places[v] if v.__class__ is Var else v for v in e.inputs]
        for v in e.outputs:
            places[v] = len(places)
        steps.append((e.primitive, ins, [v.type for v in e.outputs], e.params))
    outs = [places[v] if v.__class__ is Var else v for v in program.outputs]
    return None if program.children else (steps, outs)


def _written(trace: Recording, known: tuple[list[Any], list[Any]], values: list[Any]) -> list[Tracer]:
    """Record a program's equations, for these values of its inputs, at the line of this call. Running
    the function again would check its arguments, promote types and compare shapes with the same
    outcome."""
    steps, outs = known
    source, origin = derived_here()
    add = trace.equations.append
    for primitive, ins, types, params in steps:
        inputs = tuple([values[i] if i.__class__ is int else i for i in ins])
        made = tuple([Var(t) for t in types])
        add(Equation(primitive, inputs, made, params, source, origin))
        values += made
    refs = [values[i] if i.__class__ is int else i for i in outs]
    return [Tracer(trace, v.type, v) for v in refs]
