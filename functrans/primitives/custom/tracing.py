"""Running a user's derivative rules and tracing them to programs.

In: a rule as a function of flat lists, where None is a tangent or cotangent known to be zero. Out:
its results in the current trace; its Program; the rule of the batched function.

    JvpRule    primals, tangents -> outs, out tangents
    VjpRule    primals, active   -> outs, residuals, Pullback      (`active`: which have a tangent)
    Pullback   residuals, cts    -> cotangents of the primals

A rule stays Python until its program is needed: when `vmap` batches it, or when a bwd rule is
transposed for forward mode. So rules see concrete values outside of `jit`, a rule may call its own
function, and a rule that is not needed is never run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress
from typing import Any

from functrans import errors, jax_trace, runtime
from functrans.caching import Derivable
from functrans.ir.program import Equation, Origin, Program, hoist_constants
from functrans.ir.source import here
from functrans.ir.types import ArrayType, is_inexact
from functrans.primitives.calls.captured import stage_with
from functrans.primitives.dependence import nonlinearity, or_zeros, spread
from functrans.primitives.distributed.sharding import traced_by_jax
from functrans.primitives.reductions.folds import reduce_sum
from functrans.trace import (
    AnyTracer,
    Trace,
    Tracer,
    bind_in,
    evaluate,
    literal,
    materialize,
    naming,
    stage,
    state,
    typeof,
)

Flat = Sequence[Any]
Active = tuple[bool, ...]
Dims = Sequence[int | None]
Types = tuple[ArrayType, ...]


@contextmanager
def standing(trace: Any, *records: Any) -> Iterator[None]:
    """Run a user's rule in `trace`. The equations it adds to the traces `records` keep the rule's
    source lines and get the current origin."""
    outer, derived = state.innermost, state.provenance
    lists = [x.equations for x in records or (trace,) if hasattr(x, "equations")]
    starts = [*map(len, lists)]
    state.innermost, state.provenance = trace, None
    place = jax_trace.return_to_bridge()
    try:
        yield
    finally:
        jax_trace.go_to(place)
        state.innermost, state.provenance = outer, derived
        if derived is not None and derived[1] is not None:
            for made, start in zip(lists, starts, strict=True):
                for e in made[start:]:
                    e.origin = _derived_from(e.origin, derived[1])


def _derived_from(origin: Origin | None, first: Origin) -> Origin:
    """Return the origin with `first` appended at the start of its chain."""
    if origin is None:
        return first
    e = origin.equation
    begun = _derived_from(e.origin, first)
    return Origin(origin.how, Equation(e.primitive, e.inputs, e.outputs, e.params, e.source, begun))


class RuleTrace(Trace):
    """The trace in which linearize runs a jvp rule. Its own tracers are the tangents. Operations on
    them must be linear and are recorded on the LinearTrace. All others go to the parent."""

    __slots__ = ("inner", "linear", "name")

    def __init__(self, t: Any, name: str):
        super().__init__(t.parent)
        self.linear: Any = t.linear
        # Higher-order primitives are linearized at a zero tangent, which separates the values that
        # depend on the tangents from the others.
        self.inner: Any = t.__class__(t.parent, t.linear)
        self.name: str = name

    def own(self, x: Any) -> bool:
        return x.__class__ is Tracer and x.owner is self

    def tangent(self, ref: Any) -> Tracer:
        return Tracer(self, typeof(ref), ref)

    def bind(self, primitive: Any, args: Flat, params: dict[str, Any]) -> Any:
        moving = [i for i, x in enumerate(args) if self.own(x)]
        if not moving:
            return bind_in(self.parent, primitive, args, params)
        if primitive.name == "custom_jvp_call":  # a rule may apply its own function to tangents
            return primitive.run_eagerly(args, params)
        if primitive.holds_programs and not primitive.linear_positions(len(args)):
            return self._bind_programs(primitive, args, params)
        if problem := nonlinearity(primitive, args, moving):
            raise errors.NotLinear(
                f"the jvp rule of {self.name} is not linear in the tangents: {problem}, {here()}\n"
                "Reverse mode transposes the rule. Its tangent output must be a sum of products of "
                "tangents and functions of the primals."
            )
        refs = [x.ref if self.own(x) else x for x in args]
        outs = bind_in(self.linear, primitive, refs, params)
        return [self.tangent(y) for y in outs] if primitive.multiple_results else self.tangent(outs)

    def _bind_programs(self, primitive: Any, args: Flat, params: dict[str, Any]) -> Any:
        if primitive.name == "while" and primitive.moved(params, [self.own(x) for x in args])[1]:
            raise errors.NotLinear(
                f"the jvp rule of {self.name} is not linear in the tangents: the condition of a "
                f"while loop depends on them, {here()}\n"
                "Reverse mode transposes the rule. Use lax.custom_linear_solve for a linear "
                "equation that is solved by iteration, or a loop with a static number of steps."
            )
        inner = self.inner
        duals = [inner.pair(literal(0, x.type), x.ref) if self.own(x) else x for x in args]
        outs = bind_in(inner, primitive, duals, params)
        return [self.tangent(y.tangent) if getattr(y, "owner", None) is inner else y for y in outs]


@dataclass(eq=False, repr=False)
class Staged(Derivable):
    """Base class of rules of two flat lists, of which the second holds tangents or cotangents."""

    function: Callable[[Flat, Flat], Any]
    name: str

    def __post_init__(self) -> None:
        self._derived = None

    def results(self, known: Flat, moving: Flat) -> tuple[Flat, Flat]:
        """Return the results that are always there, and tangents or cotangents."""
        return self.function(known, moving)

    def staged(self, types: Types, moving: Types, active: Active) -> tuple[Program, Active]:
        """Return the rule as a program of the values that are not None, and which tangents or
        cotangents of its results are not None."""

        def flat(*values: Any) -> tuple[Flat, Active]:
            outs, found = self.results(values[: len(types)], spread(values[len(types) :], active))
            return [*outs, *[x for x in found if x is not None]], tuple([x is not None for x in found])

        key = (stage, types, active, state.axes)
        known = self.known(key)
        if known is None:
            made = stage_with(flat, [*types, *compress(moving, active)], self.name)
            known = made if any(isinstance(x, AnyTracer) for x in made[0].values) else self.keep(key, made)
        return known

    def mapped(
        self, t: Any, types: tuple[Types, Types], values: tuple[Flat, Flat], dims: tuple[Dims, Dims]
    ) -> tuple[Flat, Active]:
        """Return the rule's results for batched operands, with the batch axis at 0, and which tangents or
        cotangents are not None. Types, values and dims are those of both lists."""
        active = tuple([x is not None for x in values[1]])
        with naming(t.axis_name, t.size):
            program, out_active = self.staged(*types, active)
        args, axes = ([*known, *compress(moving, active)] for known, moving in (values, dims))
        outs, found = t.run(program, args, axes)
        return [t.at(y, d, 0) for y, d in zip(outs, found, strict=True)], out_active


class JvpRule(Staged):
    """A `defjvp` rule as a function of flat lists."""

    def __repr__(self) -> str:
        return f"jvp rule of {self.name}"

    def run(self, t: Any, primals: Flat, tangents: Flat) -> tuple[Flat, Flat]:
        """Return the results and their tangents, computed under the running differentiation `t`."""
        if t.linear is None:
            with standing(t.parent):
                return self.function(primals, tangents)
        trace = RuleTrace(t, self.name)
        with standing(trace, t.parent, t.linear):
            given = [None if dx is None else trace.tangent(dx) for dx in tangents]
            outs, moved = self.function(primals, given)
            trace.alive = False
        for y in outs:
            if trace.own(y):
                raise errors.RuleMismatch(
                    f"the jvp rule of {self.name} returned a primal output {typeof(y)} that "
                    f"depends on the tangents, {here()}\n"
                    "It must return (primal output, tangent output), in this order."
                )
        return outs, [dy.ref if trace.own(dy) else None for dy in moved]

    def closed(self, types: tuple[ArrayType, ...]) -> tuple[JvpRule, Flat]:
        """Return the rule as one of the values that it closes over and its operands, and these values."""
        active = tuple([is_inexact(t.dtype) for t in types])
        staged, out_active = self.staged(types, types, active)
        program, captured = hoist_constants(staged)
        k, n = len(captured), len(out_active)

        def function(primals: Flat, tangents: Flat) -> tuple[Flat, Flat]:
            check_not_moving(tangents[:k], self.name)
            outs = evaluate(program, [*primals, *compress(or_zeros(tangents[k:], types), active)])
            return outs[:n], spread(outs[n:], out_active)

        return JvpRule(function, self.name), captured

    def batched(self, t: Any, types: tuple[ArrayType, ...], dims: Dims) -> JvpRule:
        """Return the rule of the batched function. Its results have the batch axis at 0."""

        def function(primals: Flat, tangents: Flat) -> tuple[Flat, Flat]:
            front, out_active = self.mapped(t, (types, types), (primals, tangents), (dims, dims))
            return front[: len(out_active)], spread(front[len(out_active) :], out_active)

        return JvpRule(function, self.name)


@dataclass(eq=False, repr=False)
class Pullback(Staged):
    """A bwd rule for residuals of given types, as a function of flat lists."""

    in_types: tuple[ArrayType, ...]
    out_types: tuple[ArrayType, ...]

    def __repr__(self) -> str:
        return f"bwd rule of {self.name}"

    def run(self, residuals: Flat, cts: Flat) -> Flat:
        """Return the cotangents of the primals, computed in the current trace; None is zero."""
        with standing(state.trace):
            return self.function(residuals, cts)

    def results(self, known: Flat, moving: Flat) -> tuple[Flat, Flat]:
        return [], self.function(known, moving)

    def batched(self, t: Any, types: tuple[ArrayType, ...], res_dims: Dims, dims: Dims) -> Pullback:
        """Return the rule of the batched function. Batched primals and all results have the batch
        axis at 0. The cotangent of an unbatched primal is summed over the batch."""

        def function(residuals: Flat, cts: Flat) -> Flat:
            both = (types, self.out_types), (residuals, cts), (res_dims, [0] * len(cts))
            front, in_active = self.mapped(t, *both)
            return [
                reduce_sum(c, axes=(0,)) if d is None and c is not None else c
                for c, d in zip(spread(front, in_active), dims, strict=True)
            ]

        return Pullback(
            function,
            self.name,
            tuple([x if d is None else longer(x, t.size) for x, d in zip(self.in_types, dims, strict=True)]),
            tuple([longer(x, t.size) for x in self.out_types]),
        )


def longer(t: ArrayType, size: int) -> ArrayType:
    """Return the type with a leading axis added."""
    return t.update(shape=(size, *t.shape))


@dataclass(eq=False, repr=False, slots=True, weakref_slot=True)
class VjpRule:
    """A `defvjp` rule as a function of flat lists."""

    function: Callable[[Flat, Active], tuple[Flat, Flat, Pullback]]
    name: str
    linear: bool = False  # in what is active, as JAX's linear_call: its pullback is its transpose

    def __repr__(self) -> str:
        return f"vjp rule of {self.name}"

    def run(self, trace: Any, primals: Flat, active: Active) -> tuple[Flat, Flat, Pullback]:
        """Return the results, the residuals and the pullback, computed in `trace`."""
        with standing(trace):
            return self.function(primals, active)

    def forward(self, types: tuple[ArrayType, ...], active: Active) -> tuple[Program, int, Pullback]:
        """Return the program of the results and residuals, the number of results, and the pullback."""

        def flat(*values: Any) -> tuple[Flat, tuple[int, Pullback]]:
            outs, residuals, pullback = self.function(values, active)
            return [*outs, *residuals], (len(outs), pullback)

        program, made = stage_with(flat, types, self.name)
        return program, *made

    def closed(self, types: tuple[ArrayType, ...]) -> tuple[VjpRule, Flat]:
        """Return the rule as one of the values that its fwd closes over and its operands, and these
        values."""
        staged, n, pullback = self.forward(types, tuple([is_inexact(t.dtype) for t in types]))
        program, captured = hoist_constants(staged)
        k = len(captured)

        def back(residuals: Flat, cts: Flat) -> Flat:
            return [*[None] * k, *pullback.function(residuals, cts)]

        def function(primals: Flat, active: Active) -> tuple[Flat, Flat, Pullback]:
            check_not_moving([a or None for a in active[:k]], self.name)
            found = evaluate(program, primals)
            moved = Pullback(back, self.name, program.in_types, pullback.out_types)
            return found[:n], found[n:], moved

        return VjpRule(function, self.name), captured

    def batched(self, t: Any, types: tuple[ArrayType, ...], dims: Dims) -> VjpRule:
        """Return the rule of the batched function; axes as in `Pullback.batched`."""

        def function(primals: Flat, active: Active) -> tuple[Flat, Flat, Pullback]:
            with naming(t.axis_name, t.size):
                program, n, pullback = self.forward(types, active)
            outs, found = t.run(program, primals, dims)
            front = [t.at(y, d, 0) for y, d in zip(outs[:n], found[:n], strict=True)]
            back = pullback.batched(t, program.out_types[n:], found[n:], dims)
            return front, outs[n:], back

        return VjpRule(function, self.name, self.linear)


def check_not_moving(tangents: Flat, name: str) -> None:
    """Raise ClosedOverTracer for a derivative by a value that a custom function closes over."""
    if any(dx is not None for dx in tangents):
        raise closed_over(name)


def closed_over(name: str) -> Exception:
    """Return the error for a derivative by a value that a custom function closes over."""
    return errors.ClosedOverTracer(
        f"cannot differentiate with respect to a value that {name} closes over: its custom rule "
        f"covers only its arguments, {here()}\n"
        f"Pass the value to {name} as an argument, and return its derivative from the rule (zero "
        "if there is none). For a function passed as an argument, see closure_convert."
    )


def staged_call(function: Callable[..., Flat], args: Flat, name: str) -> tuple[Program, tuple[Any, ...]]:
    """Return the closed program of a function at these arguments, and its captured values."""
    if traced_by_jax():
        return hoist_constants(runtime.stage_by_jax(function, [materialize(x) for x in args], name))
    return hoist_constants(stage(function, [typeof(x) for x in args], name))
