"""Running a user's function so that its operations are recorded.

In: a function, the types of its arguments. Out: a `Program`.

`bind(primitive, args, params)` is the one door. It looks at one thread-local, the innermost active
trace. None: the operation runs now (`runtime.run_operation`). Else the trace decides:

- `Recording(stages=True)` (`jit`, `make_ir`) records everything;
- `Recording()` (`vmap`) records what touches its own tracers and hands the rest to its parent;
- the traces of `transforms/` (`jvp`, `linearize`) run rules instead of recording.

What a trace meets that is not its own, a concrete array or a tracer of an enclosing trace, becomes
a captured constant of its Program.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any, NamedTuple

import jax
import numpy as np

from functrans import jax_trace, runtime
from functrans.caching import cached
from functrans.flags import deciding, decisive
from functrans.ir.program import Equation, Literal, Origin, Program, Var, prune
from functrans.ir.source import Source, user_source
from functrans.ir.types import ArrayType
from functrans.jax_trace import is_above
from functrans.tracer import ARRAYS as ARRAYS
from functrans.tracer import AnyTracer as AnyTracer
from functrans.tracer import Tracer as Tracer
from functrans.tracer import check_alive as check_alive
from functrans.tracer import concrete_value as concrete_value
from functrans.tracer import is_jax_tracer as is_jax_tracer
from functrans.tracer import leaked as leaked
from functrans.tracer import register_type as register_type
from functrans.tracer import typeof as typeof


class Level(NamedTuple):
    """Traces of functrans that stand on one bridge, with a trace of JAX's above them."""

    innermost: Any
    bridge: Any
    below: Level | None


class _State(threading.local):
    """What this thread is tracing, and what the equations it records now are derived from."""

    innermost: Any = None  # trace of functrans
    below: Level | None = None  # what stands under a trace of JAX's that is under `innermost`
    provenance: tuple[Source | None, Origin | None] | None = None  # None: the user's line
    depth: int = 0  # of nested programs being staged
    axes: tuple[tuple[Any, int], ...] = ()  # named axes in scope and their sizes, innermost last
    jit_disabled: bool = (
        False  # jitted functions, and the functions of loops and branches, are Python
    )

    @property
    def trace(self) -> Any:
        """The trace that operations go to; None: they run at once, or in JAX's trace above ours."""
        trace = self.innermost
        return None if trace is None or jax_trace.is_above() else trace


state: _State = _State()


class provenance:
    """What the equations that are recorded inside derive from: a line of the user's, and the
    equation that was transformed. What it was before comes back, whatever happens.

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
    """Say what follows derives from, inside of a `provenance`."""
    state.provenance = source, origin


def derived_here() -> tuple[Source | None, Origin | None]:
    """What is recorded now derives from: the user's line, if nothing else was said."""
    return state.provenance or (user_source(), None)


# --- what the operations of a program may be asked, computed once per signature -------------------


def out_types(
    primitive: Any, types: tuple[ArrayType, ...], params: dict[str, Any]
) -> tuple[ArrayType, ...]:
    """The types of the results; raises the operation's own error where operands do not fit."""
    if primitive.holds_programs:
        return primitive.result_types(types, params)
    return _out_types(primitive, types, *params.items()) if params else _out_types(primitive, types)


@cached("types of results", 16_384)
def _out_types(
    primitive: Any, types: tuple[Any, ...], *params: tuple[str, Any]
) -> tuple[ArrayType, ...]:
    return primitive.result_types(types, dict(params))


# --- recording ------------------------------------------------------------------------------------


class Trace(ABC):
    """One level of tracing: it is asked what an operation means while it is the innermost one.

    parent : the trace around it, which does what does not touch its tracers; None: it runs at once
    stages : does it record everything, not only what touches its tracers?
    alive  : is the function that it traces still running?
    """

    __slots__ = ("alive", "parent", "stages")

    def __init__(self, parent: Any = None, stages: bool = False):
        self.parent: Any = parent
        self.stages: bool = stages
        self.alive: bool = True

    @abstractmethod
    def bind(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Return the result of an operation: one value, or a list with `multiple_results`."""


class Recording(Trace):
    """Records equations.

    axis_name  : of the vmap that it records for; collectives over it are its own
    references : of JAX's, made outside, that it may use (interop/references.py); None: it may not
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
        """The variable of a value that is not this trace's own."""
        found = self.captures.get(id(x))
        if found is None:
            if isinstance(x, Tracer):
                check_alive(x, self.parent, state.below)
            found = self.captures[id(x)] = (Var(typeof(x)), x)
        return found[0]

    def ref(self, x: Any) -> Any:
        """The Var or Literal by which this trace's program knows a value."""
        if x.__class__ is Tracer and x.owner is self:
            return x.ref
        return x if x.__class__ is Literal else self.capture(x)

    def new_input(self, type: ArrayType) -> Tracer:
        return Tracer(self, type, Var(type))

    def close(self, inputs: Sequence[Tracer], outputs: Sequence[Any], name: str = "") -> Program:
        """The program from `inputs` to `outputs`, without the equations that it does not need."""
        outs = [self.ref(x) for x in outputs]
        equations = prune(self.equations, outs)
        captured: list[tuple[Var, Any]] = []
        if self.captures:
            used = set(outs).union(*[eqn.inputs for eqn in equations])
            captured = [(v, x) for v, x in self.captures.values() if v in used]
        return Program(
            [x.ref for x in inputs],
            equations,
            outs,
            [v for v, _ in captured],
            [x for _, x in captured],
            name,
        )


# --- the door -------------------------------------------------------------------------------------


def _evaluate(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Run one operation, in JAX's trace around ours: only there JAX dispatches it fast."""
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
    """`bind` where a trace of JAX's stands above ours. An operation that touches its tracers is for
    JAX to do, which calls us in its turn, and so is any where it records; else it is done below."""
    if jax_trace.is_recording() or any([is_jax_tracer(x) for x in args]):
        return _evaluate(primitive, args, params)
    place = jax_trace.place()
    jax_trace.go_to((place[1], place[1]))
    try:
        return trace.bind(primitive, args, params)
    finally:
        jax_trace.go_to(place)


def bind_in(trace: Any, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """`bind` as if `trace` were the innermost one."""
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
    """Make `trace` the innermost one, for JAX too; whatever happens inside, the former one comes
    back."""
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
    """Stand where nothing is traced: what is made here are arrays. The values of the traces around
    may be captured still."""
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
    """Stand where the traces of a bridge do that may be below: JAX's trace above it calls it."""
    here, derived, level = (state.innermost, state.below), state.provenance, state.below
    while level is not None and level.bridge is not bridge:
        level = level.below
    if level is None:  # a trace of JAX's that was kept after its end
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
    """Put a named axis in scope, where collectives, ours and JAX's, find its size; None is no
    name."""
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


def stage(
    function: Callable[..., Sequence[Any]], types: Sequence[ArrayType], name: str = ""
) -> Program:
    """The program of a function from flat values to a list of flat values."""
    state.depth += 1
    try:
        if state.depth % _LEVELS_PER_STACK == 0:
            return _on_new_stack(lambda: _stage(function, types, name))
        return _stage(function, types, name)
    finally:
        state.depth -= 1


def _stage(
    function: Callable[..., Sequence[Any]], types: Sequence[ArrayType], name: str
) -> Program:
    trace = Recording(state.trace, stages=True)
    inputs = [trace.new_input(t) for t in types]
    with tracing(trace):
        outs = function(*inputs)
        return trace.close(inputs, outs, name)


# Programs nest as deep as the user's calls, some twelve Python frames a level. So that Python's
# limit on recursion is not ours, every so many levels go on in a thread, which has a stack of its
# own.
_LEVELS_PER_STACK = 25
_STATE = ("innermost", "below", "provenance", "depth", "axes", "jit_disabled")


def _on_new_stack(run: Callable[[], Program]) -> Program:
    here = {k: getattr(state, k) for k in _STATE}
    place = jax_trace.place()
    decided = decisive()
    made: list[Program] = []
    failed: list[BaseException] = []

    def work() -> None:
        state.__dict__.update(here)
        jax_trace.go_to(place)
        try:
            with deciding(decided):
                made.append(run())
        except BaseException as error:  # raised again below, in the caller's thread
            failed.append(error)

    thread = threading.Thread(target=work, name="functrans-stage", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


def evaluate(
    program: Program,
    args: Sequence[Any],
    apply: Callable[[Equation, list[Any]], Any] | None = None,
) -> list[Any]:
    """Run a program on values by binding its equations where we stand now, or by what
    `apply(equation, values)` says that each one means."""
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
    """A splat of `value`, cast to the dtype of `type`, as Python sees it."""
    return Literal(_python_number(value, type.dtype), type)


def _python_number(value: Any, dtype: Any) -> Any:
    to = _caster(dtype)
    if value.__class__ is float and not isfinite(value):
        with np.errstate(invalid="ignore"):  # integers have no infinities: silent, as XLA's cast is
            return to(value)
    return to(value)


@cached("casts of numbers", 256)
def _caster(dtype: Any) -> Callable[[Any], Any]:
    kind = np.dtype(dtype)
    return lambda v: np.asarray(v).astype(kind).item()


def staging_trace(innermost: Any = None) -> Any:
    """The innermost trace that records everything, or None if concrete arrays can be made now."""
    trace = state.trace if innermost is None else innermost
    while trace is not None and not trace.stages:
        trace = trace.parent
    return trace


def full(value: Any, type: ArrayType) -> Any:
    """An array filled with one number: a tracer of a literal while staging, else a jax array."""
    trace = staging_trace()
    if trace is None:
        with jax_trace.outside():
            if type.weak_type:
                made = jax.lax.full(type.shape, _python_number(value, type.dtype))
                if made.dtype == type.dtype:  # a weak type that Python numbers have by themselves
                    return made
            return jax.numpy.full(type.shape, value, type.dtype)
    return Tracer(trace, type, literal(value, type))


def materialize(x: Any) -> Any:
    """A value that a user may hold: literals become arrays."""
    if x.__class__ is Literal:
        return full(x.value, x.type)
    return x
