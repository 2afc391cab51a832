"""Tracing: run a user's function and record its operations.

In: a function and the types of its arguments. Out: a `Program`.

Every operation goes through `bind(primitive, args, params)`, which reads the innermost active trace
from a thread-local. Without a trace the operation runs eagerly (`runtime.run_operation`).
Otherwise the trace decides:

- `Recording(stages=True)` (`jit`, `make_ir`) records everything;
- `Recording()` (`vmap`) records operations on its own tracers and passes others to its parent;
- the traces of `transforms/` (`jvp`, `linearize`) apply rules instead of recording.

A value that is not the trace's own, a concrete array or a tracer of an enclosing trace, becomes a
captured constant of its Program.
"""

from __future__ import annotations

import contextvars
import operator
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from math import isfinite
from typing import Any

import jax
import numpy as np

from functrans import jax_trace, runtime
from functrans.caching import Cache, cached
from functrans.ir.program import Equation, Literal, Origin, Program, Var, programs_among, prune
from functrans.ir.source import Source, here, user_source
from functrans.ir.types import ArrayType
from functrans.jax_trace import is_above
from functrans.records import NamedTuple
from functrans.tracer import ARRAYS as ARRAYS
from functrans.tracer import AnyTracer as AnyTracer
from functrans.tracer import Tracer as Tracer
from functrans.tracer import check_alive as check_alive
from functrans.tracer import concrete_value as concrete_value
from functrans.tracer import is_jax_tracer as is_jax_tracer
from functrans.tracer import leaked as leaked
from functrans.tracer import typeof as typeof


class Level(NamedTuple):
    """The traces of functrans on one bridge, below a trace of JAX."""

    innermost: Any
    bridge: Any
    below: Level | None


class _State(threading.local):
    """What this thread is tracing, and the provenance of the equations it records."""

    innermost: Any = None  # trace of functrans
    below: Level | None = None  # our traces below a trace of JAX that is below `innermost`
    provenance: tuple[Source | None, Origin | None] | None = None  # None: the user's line
    depth: int = 0  # nesting depth of the programs being staged
    axes: tuple[tuple[Any, int], ...] = ()  # named axes in scope and their sizes, innermost last

    @property
    def trace(self) -> Any:
        """The trace that gets operations; None if they run eagerly or in a trace of JAX above ours."""
        trace = self.innermost
        return None if trace is None or jax_trace.is_above() else trace


state: _State = _State()


class provenance:
    """Context manager that sets the provenance of equations recorded inside: a user's line, and the
    equation that was transformed. Restores the previous provenance at exit.

        with provenance(source, origin): ...
        with provenance():
            derive_from(source, origin)   from here on
    """

    __slots__ = ("_given", "_outer")

    def __init__(self, *given: Any):
        self._given: Any = given

    def __enter__(self) -> None:
        self._outer = state.provenance
        if self._given:
            state.provenance = self._given

    def __exit__(self, *_: object) -> None:
        state.provenance = self._outer


def derive_from(source: Source | None, origin: Origin | None) -> None:
    """Set the provenance of the equations that follow, inside a `provenance`."""
    state.provenance = source, origin


def derived_here() -> tuple[Source | None, Origin | None]:
    """Return the current provenance; by default the user's line."""
    return state.provenance or (user_source(), None)


# --- result types, computed once per signature ----------------------------------------------------


def out_types(primitive: Any, types: tuple[ArrayType, ...], params: dict[str, Any]) -> tuple[ArrayType, ...]:
    """Return the types of the results; raise the primitive's own error for invalid operands."""
    if primitive.holds_programs:
        return primitive.result_types(types, params)
    try:
        return _out_types(primitive, types, *params.items()) if params else _out_types(primitive, types)
    except TypeError:
        for x in jax.tree.leaves(params):
            if isinstance(x, Tracer):
                operator.index(x)  # raises the error for a value that must be known
        raise


@cached("types of results", 16_384)
def _out_types(primitive: Any, types: tuple[Any, ...], *params: tuple[str, Any]) -> tuple[ArrayType, ...]:
    return primitive.result_types(types, dict(params))


# --- programs of one operation --------------------------------------------------------------------

_ALONE = Cache("operations as programs", 4096)


def one_operation(
    primitive: Any, operands: Sequence[Any], params: dict[str, Any], source: Source | None = None
) -> Program:
    """Return the program of one operation on inputs of some types, and literals; cached."""
    kinds = [(x.value.__class__, str(x.value), x.type) if x.__class__ is Literal else x for x in operands]
    key = (one_operation, primitive, source, *kinds, *params.items())
    held = programs_among(params)  # perhaps of a user's function, with which it is freed
    found = held[0].known(key) if held else _ALONE.get(key)
    if found is not None:
        return found
    atoms = tuple([x if x.__class__ is Literal else Var(x) for x in operands])
    outputs = tuple([Var(t) for t in out_types(primitive, tuple([v.type for v in atoms]), params)])
    equation = Equation(primitive, atoms, outputs, params, source)
    made = Program([v for v in atoms if v.__class__ is Var], [equation], outputs, name=primitive.name)
    return held[0].keep(key, made) if held else _ALONE.keep(key, made)


# --- recording ------------------------------------------------------------------------------------


class Trace(ABC):
    """One level of tracing. The innermost one interprets each operation.

    parent    : the enclosing trace, for operations on none of its tracers; None: they run eagerly
    stages    : whether it records everything, not only operations on its tracers
    evaluates : whether operations on no tracers run eagerly, whatever the enclosing traces do
    alive     : whether the traced function is still running
    """

    __slots__ = ("alive", "parent", "stages")
    evaluates = False

    def __init__(self, parent: Any = None, stages: bool = False):
        self.parent: Any = parent
        self.stages: bool = stages
        self.alive: bool = True

    def new_input(self, type: ArrayType) -> Tracer:
        return Tracer(self, type, Var(type))

    @abstractmethod
    def bind(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Return the result of an operation: one value, or a list with `multiple_results`."""


class Recording(Trace):
    """A trace that records equations.

    axis_name  : axis name of the vmap being recorded; it records collectives over this axis
    references : outer JAX references that it may use (interop/references.py); None: none allowed
    """

    __slots__ = ("axis_name", "captures", "equations", "references")

    def __init__(self, parent: Any = None, stages: bool = False, axis_name: Any = None):
        super().__init__(parent, stages)
        self.axis_name: Any = axis_name
        self.equations: list[Equation] = []
        self.captures: dict[int, tuple[Var, Any]] = {}
        self.references: dict[int, Any] | None = None

    def bind(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        inputs = []
        types = []
        own = self.stages
        for x in args:
            if x.__class__ is Tracer and x.owner is self:
                own = True
                inputs.append(x.ref)
                types.append(x.type)
            else:
                ref = x if x.__class__ is Literal else self.capture(x)
                inputs.append(ref)
                types.append(ref.type)
        if primitive.holds_functions and params["program"].__class__ is not Program:
            return primitive.record(self, own, args, params)
        if not own and not primitive.has_effects(params):  # effects keep their order
            name = self.axis_name
            if name is None or name not in primitive.named_axes(params):
                return bind_in(self.parent, primitive, args, params)
        outs = out_types(primitive, tuple(types), params)
        derived = state.provenance
        if derived is None:
            derived = (user_source(), None)
        if primitive.multiple_results:
            variables, results = [], []
            for t in outs:
                var = Var(t)
                variables.append(var)
                results.append(Tracer(self, t, var))
            made = Equation(primitive, tuple(inputs), tuple(variables), params, *derived)
            self.equations.append(made)
            return results
        var = Var(outs[0])
        self.equations.append(Equation(primitive, tuple(inputs), (var,), params, *derived))
        return Tracer(self, var.type, var)

    def capture(self, x: Any) -> Var:
        """Return the variable of a value that is not this trace's own."""
        found = self.captures.get(id(x))
        if found is None:
            if isinstance(x, Tracer):
                check_alive(x, self.parent, state.below)
            found = self.captures[id(x)] = (Var(typeof(x)), x)
        return found[0]

    def ref(self, x: Any) -> Any:
        """Return the Var or Literal of a value in this trace's program."""
        if x.__class__ is Tracer and x.owner is self:
            return x.ref
        return x if x.__class__ is Literal else self.capture(x)

    def close(self, inputs: Sequence[Tracer], outputs: Sequence[Any], name: str = "") -> Program:
        """Return the program from `inputs` to `outputs`, without dead equations."""
        outs = [self.ref(x) for x in outputs]
        equations = prune(self.equations, outs)
        captured: list[tuple[Var, Any]] = []
        if self.captures:
            used = set(outs).union(*[eqn.inputs for eqn in equations])
            captured = [(v, x) for v, x in self.captures.values() if v in used]
        return Program(
            [x.ref for x in inputs], equations, outs, [v for v, _ in captured], [x for _, x in captured], name
        )


# --- binding --------------------------------------------------------------------------------------


def _evaluate(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Run one operation in the JAX trace around ours, where JAX's fast dispatch applies."""
    bridge = jax_trace.leave()
    if bridge is None:
        return runtime.run_operation(primitive, args, params)
    try:
        return runtime.run_operation(primitive, args, params)
    finally:
        jax_trace.come_back(bridge)


def bind(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Apply a primitive to values: one result, or a list if it has `multiple_results`."""
    trace = state.innermost
    if trace is None:
        return _evaluate(primitive, args, params)
    if is_above():
        return _bind_below(trace, primitive, args, params)
    return trace.bind(primitive, args, params)


def _bind_below(trace: Any, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Bind where a trace of JAX is above ours. JAX handles an operation on its own tracers, or any
    operation if it is recording, and calls us in turn. Others are bound in our trace below."""
    if jax_trace.is_recording() or any([is_jax_tracer(x) for x in args]):
        return _evaluate(primitive, args, params)
    place = jax_trace.place()
    jax_trace.go_to((place[1], place[1]))
    try:
        return trace.bind(primitive, args, params)
    finally:
        jax_trace.go_to(place)


def bind_in(trace: Any, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Bind as if `trace` were the innermost one."""
    outer = state.innermost
    state.innermost = trace
    try:
        if trace is None:
            return _evaluate(primitive, args, params)
        return trace.bind(primitive, args, params)
    finally:
        state.innermost = outer


@contextmanager
def tracing(trace: Any) -> Iterator[Any]:
    """Make `trace` the innermost one, also for JAX, and restore the previous one at exit."""
    if "tracers" in runtime.waiting:
        runtime.load("tracers")
    outer, derived, below = state.innermost, state.provenance, state.below
    place = jax_trace.place()
    if is_above():
        state.below = Level(outer, place[1], below)
    if trace is None:
        jax_trace.leave()
    else:
        jax_trace.enter(staging_trace(trace) is not None)
    state.innermost, state.provenance = trace, None
    try:
        yield trace
    finally:
        jax_trace.go_to(place)
        state.innermost, state.provenance, state.below = outer, derived, below
        if trace is not None:
            trace.alive = False


@contextmanager
def at_once() -> Iterator[None]:
    """Leave all traces: operations inside run eagerly. Values of enclosing traces can still be captured."""
    outer, derived, below = state.innermost, state.provenance, state.below
    if outer is not None:
        state.below = Level(outer, jax_trace.bridge(), below)
    state.innermost, state.provenance = None, None
    try:
        with jax_trace.evaluating():
            yield
    finally:
        state.innermost, state.provenance, state.below = outer, derived, below


@contextmanager
def on_bridge(bridge: Any) -> Iterator[None]:
    """Make the traces of a bridge current, when the JAX trace above it calls us."""
    here, derived, level = (state.innermost, state.below), state.provenance, state.below
    while level is not None and level.bridge is not bridge:
        level = level.below
    if level is None:  # a trace of JAX that outlived its transformation
        yield
        return
    place = jax_trace.place()
    state.innermost, _, state.below = level
    state.provenance = None
    jax_trace.go_to((place[0], bridge))
    try:
        yield
    finally:
        jax_trace.go_to(place)
        (state.innermost, state.below), state.provenance = here, derived


@contextmanager
def naming(axis_name: Any, size: int) -> Iterator[None]:
    """Bind a named axis and its size, for our collectives and JAX's. None binds nothing."""
    if axis_name is None:
        yield
        return
    outer = state.axes
    state.axes = (*outer, (axis_name, size))
    try:
        with jax_trace.named_axis(axis_name, size):
            yield
    finally:
        state.axes = outer


def stage(function: Callable[..., Sequence[Any]], types: Sequence[ArrayType], name: str = "") -> Program:
    """Trace a function from flat values to a list of flat values; return its program."""
    state.depth += 1
    try:
        if state.depth % _LEVELS_PER_STACK == 0:
            return _on_new_stack(lambda: _stage(function, types, name))
        return _stage(function, types, name)
    finally:
        state.depth -= 1


def _stage(function: Callable[..., Sequence[Any]], types: Sequence[ArrayType], name: str) -> Program:
    trace = Recording(state.trace, stages=True)
    inputs = [trace.new_input(t) for t in types]
    # a constant of a program is no transfer to a device; JAX's tracers hold it on the host
    with tracing(trace), jax_trace.without_varying(), jax.transfer_guard_host_to_device("allow"):
        outs = function(*inputs)
        return trace.close(inputs, outs, name)


# Programs nest as deep as the user's calls, with about twelve Python frames per level. To avoid
# Python's recursion limit, tracing continues in a new thread, which has its own stack, every so
# many levels.
_LEVELS_PER_STACK = 25


def _on_new_stack(run: Callable[[], Program]) -> Program:
    if state.depth > sys.getrecursionlimit():  # as many calls would be too deep without tracing
        problem = f"functions are traced {state.depth} levels deep inside each other, {here()}"
        raise RecursionError(f"{problem}\nOne that calls itself must stop: by a shape, or a static argument.")
    around = state.__dict__.copy()
    adopt = jax_trace.for_new_thread()

    done: Future[Program] = Future()

    def work() -> None:
        state.__dict__.update(around)
        adopt()
        try:
            done.set_result(run())
        except BaseException as error:  # raised again in the caller's thread
            done.set_exception(error)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="functrans-stage", daemon=True).start()
    return done.result()


def evaluate(
    program: Program, args: Sequence[Any], apply: Callable[[Equation, list[Any]], Any] | None = None
) -> list[Any]:
    """Run a program on values: bind each equation in the current trace, or call `apply(equation, values)`."""
    env: dict[Any, Any] = dict(zip(program.inputs, args, strict=True))
    env.update(zip(program.constants, program.values, strict=True))
    with provenance():
        for eqn in program.equations:
            derive_from(eqn.source, eqn.origin)
            values = [v if v.__class__ is Literal else env[v] for v in eqn.inputs]
            if apply is None:
                outs = bind(eqn.primitive, values, eqn.params)
            else:
                outs = apply(eqn, [materialize(x) for x in values])
            if eqn.primitive.multiple_results:
                env.update(zip(eqn.outputs, outs, strict=True))
            else:
                env[eqn.outputs[0]] = outs
    return [v if v.__class__ is Literal else env[v] for v in program.outputs]


# --- literals and constants -----------------------------------------------------------------------


def literal(value: Any, type: ArrayType) -> Any:
    """Return a splat literal of `value`, cast to the dtype of `type` as a Python number."""
    return Literal(_python_number(value, type.dtype), type)


def _python_number(value: Any, dtype: Any) -> Any:
    array = np.asarray(value)
    if value.__class__ is float and not isfinite(value):
        with np.errstate(invalid="ignore"):  # casts of infinities to integers: silent, as in XLA
            return array.astype(dtype).item()
    return array.astype(dtype).item()


def staging_trace(innermost: Any = None) -> Any:
    """Return the innermost trace that records everything, or None if concrete arrays can be made."""
    trace = state.trace if innermost is None else innermost
    while trace is not None and not trace.stages:
        trace = None if trace.evaluates else trace.parent
    return trace


def full(value: Any, type: ArrayType) -> Any:
    """Return an array filled with one number: a tracer of a literal while staging, else a jax array."""
    trace = staging_trace()
    if trace is None:
        with jax_trace.outside():
            if type.weak_type or value.__class__ is bool:
                number = _python_number(value, type.dtype)
                made = jax.lax.full(type.shape, number) if type.shape else jax.numpy.asarray(number)
                if (made.dtype, made.weak_type) == (type.dtype, type.weak_type):  # as of Python's number
                    return made
            return jax.numpy.full(type.shape, value, type.dtype)
    return Tracer(trace, type, literal(value, type))


def materialize(x: Any) -> Any:
    """Return a value that a user may hold: literals become arrays."""
    if x.__class__ is Literal:
        return full(x.value, x.type)
    return x
