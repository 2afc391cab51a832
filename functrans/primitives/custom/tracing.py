"""How a user's derivative rules run, and how they become programs.

In: a rule as a function of flat lists, where None is a tangent or cotangent known to be zero. Out:
its results where we stand; its Program; the rule of the batched function.

    JvpRule    primals, tangents -> outs, out tangents
    VjpRule    primals, active   -> outs, residuals, Pullback      (`active`: which have a tangent)
    Pullback   residuals, cts    -> cotangents of the primals

A rule is Python until a program of it is needed, which is when `vmap` batches it, or when a bwd
rule is transposed to push tangents forward. So un-jitted rules see values, a rule may call the
function whose rule it is, and one that is never asked for is never run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from functrans import errors, jax_trace
from functrans.caching import Derivable
from functrans.ir.program import Equation, Origin, Program, hoist_constants
from functrans.ir.source import describe, user_source
from functrans.ir.types import ArrayType
from functrans.primitives.control_flow.loop_layout import LoopLayout
from functrans.primitives.control_flow.scan import linear_inputs
from functrans.primitives.reductions.folds import reduce_sum
from functrans.trace import AnyTracer, Trace, Tracer, bind_in, literal, naming, stage, state, typeof

Flat = Sequence[Any]
Active = tuple[bool, ...]
Dims = Sequence[int | None]


@contextmanager
def standing(trace: Any, *records: Any) -> Iterator[None]:
    """Run a user's rule in `trace`; the equations that it makes, in the traces `records`, are known
    by the rule's own lines, and derive from what the rule is run for."""
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
    """An origin whose own beginning derives from `first`."""
    if origin is None:
        return first
    e = origin.equation
    begun = _derived_from(e.origin, first)
    return Origin(origin.how, Equation(e.primitive, e.inputs, e.outputs, e.params, e.source, begun))


class RuleTrace(Trace):
    """The trace under which a jvp rule runs in `linearize`. Its own values are the tangents; what
    is done to them must be linear, and is recorded on the LinearTrace. The rest goes to the parent.
    """

    __slots__ = ("inner", "linear", "name")

    def __init__(self, t: Any, name: str):
        super().__init__(t.parent)
        self.linear: Any = t.linear
        # Operations that hold programs are linearised at a tangent of zero: it tells apart what
        # depends on the tangents and what does not.
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
        if primitive.name == "custom_jvp_call":  # its rule may be itself, applied to tangents
            return primitive.run_eagerly(args, params)
        if primitive.holds_programs and not primitive.linear_positions(len(args)):
            return self._bind_programs(primitive, args, params)
        self._check_linear(primitive, args, moving)
        refs = [x.ref if self.own(x) else x for x in args]
        outs = bind_in(self.linear, primitive, refs, params)
        return [self.tangent(y) for y in outs] if primitive.multiple_results else self.tangent(outs)

    def _bind_programs(self, primitive: Any, args: Flat, params: dict[str, Any]) -> Any:
        if primitive.name == "while":
            self._check_condition(args, params)
        inner = self.inner
        duals = [inner.pair(literal(0, x.type), x.ref) if self.own(x) else x for x in args]
        outs = bind_in(inner, primitive, duals, params)
        return [self.tangent(y.tangent) if getattr(y, "owner", None) is inner else y for y in outs]

    def _check_condition(self, args: Flat, params: dict[str, Any]) -> None:
        cond, n, m = params["cond"], params["cond_consts"], params["body_consts"]
        given = [self.own(x) for x in args]
        moving = linear_inputs(params["body"], given[n:], LoopLayout(m, len(args) - n - m))[m:]
        read = {v for e in cond.equations for v in e.inputs} | set(cond.outputs)
        if any(a and v in read for v, a in zip(cond.inputs, [*given[:n], *moving], strict=True)):
            raise errors.NotLinear(
                f"the jvp rule of {self.name} is not linear in the tangents: a while loop in it "
                f"looks at them to decide when to stop, at\n    {describe(user_source())}\n"
                "Reverse mode transposes the rule. Use lax.custom_linear_solve for a linear "
                "equation that is solved by iteration, or a loop of a known number of steps."
            )

    def _check_linear(self, primitive: Any, args: Flat, moving: Sequence[int]) -> None:
        allowed = primitive.linear_positions(len(args))
        together = primitive.multilinear and len(moving) > 1
        if together or any(i not in allowed for i in moving):
            shown = ", ".join([str(typeof(x)) for x in args])
            raise errors.NotLinear(
                f"the jvp rule of {self.name} is not linear in the tangents: "
                f"{primitive.name}({shown}) is not linear in operand "
                f"{' and '.join(map(str, moving))}{' together' * together}, at\n"
                f"    {describe(user_source())}\n"
                "Reverse mode transposes the rule. Let its tangent output be a sum of products of "
                "tangents with functions of the primals alone."
            )


class JvpRule(Derivable):
    """What `defjvp` was given, as a function of flat lists."""

    __slots__ = ("function", "name")

    def __init__(self, function: Callable[[Flat, Flat], tuple[Flat, Flat]], name: str):
        self.function = function
        self.name = name
        self._derived = None

    def __repr__(self) -> str:
        return f"jvp rule of {self.name}"

    def run(self, t: Any, primals: Flat, tangents: Flat) -> tuple[Flat, Flat]:
        """The results and their tangents where the running differentiation `t` stands."""
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
                    f"depends on the tangents, at\n    {describe(user_source())}\n"
                    "It returns (primal output, tangent output), in this order."
                )
        return outs, [dy.ref if trace.own(dy) else None for dy in moved]

    def staged(self, types: tuple[ArrayType, ...], active: Active) -> tuple[Program, Active]:
        """`primals, tangents of active -> outs, tangents of active outs`, and which outs are."""
        out_active: Active = ()

        def flat(*values: Any) -> Flat:
            nonlocal out_active
            rest = iter(values[len(types) :])
            tangents = [next(rest) if a else None for a in active]
            outs, moved = self.function(values[: len(types)], tangents)
            out_active = tuple([dy is not None for dy in moved])
            return [*outs, *[dy for dy in moved if dy is not None]]

        key = (stage, types, active, state.axes)
        found = self.known(key)
        if found is None:
            moving = [t for t, a in zip(types, active, strict=True) if a]
            made = stage(flat, [*types, *moving], self.name), out_active
            found = made if _uses_tracers(made[0]) else self.keep(key, made)
        return found

    def batched(self, t: Any, types: tuple[ArrayType, ...], dims: Dims) -> JvpRule:
        """The rule of the batched function, whose results have the batch axis in front."""

        def function(primals: Flat, tangents: Flat) -> tuple[Flat, Flat]:
            active = tuple([dx is not None for dx in tangents])
            with naming(t.axis_name, t.size):
                program, out_active = self.staged(types, active)
            moving = [d for d, a in zip(dims, active, strict=True) if a]
            args = [*primals, *[dx for dx in tangents if dx is not None]]
            outs, found = t.run(program, args, [*dims, *moving])
            front = [t.at(y, d, 0) for y, d in zip(outs, found, strict=True)]
            rest = iter(front[len(out_active) :])
            return front[: len(out_active)], [next(rest) if a else None for a in out_active]

        return JvpRule(function, self.name)


class Pullback(Derivable):
    """What a bwd rule does to one set of residuals' types, as a function of flat lists."""

    __slots__ = ("function", "in_types", "name", "out_types")

    def __init__(
        self,
        function: Callable[[Flat, Flat], Flat],
        in_types: tuple[ArrayType, ...],
        out_types: tuple[ArrayType, ...],
        name: str,
    ):
        self.function = function
        self.in_types = in_types
        self.out_types = out_types
        self.name = name
        self._derived = None

    def __repr__(self) -> str:
        return f"bwd rule of {self.name}"

    def run(self, residuals: Flat, cts: Flat) -> Flat:
        """The cotangents of the primals where we stand; None is zero."""
        with standing(state.trace):
            return self.function(residuals, cts)

    def staged(self, types: tuple[ArrayType, ...], active: Active) -> tuple[Program, Active]:
        """`residuals, active cotangents -> cotangents that are not zero`, and which are not."""
        in_active: Active = ()

        def flat(*values: Any) -> Flat:
            nonlocal in_active
            rest = iter(values[len(types) :])
            found = self.function(values[: len(types)], [next(rest) if a else None for a in active])
            in_active = tuple([c is not None for c in found])
            return [c for c in found if c is not None]

        key = (stage, types, active, state.axes)
        found = self.known(key)
        if found is None:
            given = [t for t, a in zip(self.out_types, active, strict=True) if a]
            made = stage(flat, [*types, *given], self.name), in_active
            found = made if _uses_tracers(made[0]) else self.keep(key, made)
        return found

    def batched(self, t: Any, types: tuple[ArrayType, ...], res_dims: Dims, dims: Dims) -> Pullback:
        """The rule of the batched function. Batched primals and all results have the batch axis in
        front; the cotangent of a primal that is the same for all examples is their sum."""

        def function(residuals: Flat, cts: Flat) -> Flat:
            active = tuple([c is not None for c in cts])
            with naming(t.axis_name, t.size):
                program, in_active = self.staged(types, active)
            given = [c for c in cts if c is not None]
            outs, found = t.run(program, [*residuals, *given], [*res_dims, *[0] * len(given)])
            rest = iter(zip(outs, found, strict=True))
            return [
                _placed(t, *next(rest), d) if a else None
                for d, a in zip(dims, in_active, strict=True)
            ]

        return Pullback(
            function,
            tuple(
                [
                    x if d is None else longer(x, t.size)
                    for x, d in zip(self.in_types, dims, strict=True)
                ]
            ),
            tuple([longer(x, t.size) for x in self.out_types]),
            self.name,
        )


def _placed(t: Any, ct: Any, found: int | None, wanted: int | None) -> Any:
    if wanted is not None:
        return t.at(ct, found, 0)
    return reduce_sum(t.at(ct, found, 0), axes=(0,))


def longer(t: ArrayType, size: int) -> ArrayType:
    """The type with one more axis in front."""
    return t.update(shape=(size, *t.shape))


class VjpRule:
    """What `defvjp` was given, as a function of flat lists."""

    __slots__ = ("__weakref__", "function", "name")

    def __init__(self, function: Callable[[Flat, Active], tuple[Flat, Flat, Pullback]], name: str):
        self.function: Callable[[Flat, Active], tuple[Flat, Flat, Pullback]] = function
        self.name: str = name

    def __repr__(self) -> str:
        return f"vjp rule of {self.name}"

    def run(self, trace: Any, primals: Flat, active: Active) -> tuple[Flat, Flat, Pullback]:
        """The results, the residuals and the pullback, as `trace` has them."""
        with standing(trace):
            return self.function(primals, active)

    def batched(self, t: Any, types: tuple[ArrayType, ...], dims: Dims) -> VjpRule:
        """The rule of the batched function; axes as in `Pullback.batched`."""

        def function(primals: Flat, active: Active) -> tuple[Flat, Flat, Pullback]:
            made: list[Any] = []

            def flat(*values: Any) -> Flat:
                outs, residuals, pullback = self.function(values, active)
                made.extend([len(outs), pullback])
                return [*outs, *residuals]

            with naming(t.axis_name, t.size):
                program = stage(flat, types, self.name)
            n, pullback = made
            outs, found = t.run(program, primals, dims)
            front = [t.at(y, d, 0) for y, d in zip(outs[:n], found[:n], strict=True)]
            back = pullback.batched(t, program.out_types[n:], found[n:], dims)
            return front, outs[n:], back

        return VjpRule(function, self.name)


def _uses_tracers(program: Program) -> bool:
    return any(isinstance(x, AnyTracer) for x in program.values)


def staged_call(
    function: Callable[..., Flat], args: Flat, name: str
) -> tuple[Program, tuple[Any, ...]]:
    """The closed program of a function at these arguments, and what it closed over."""
    return hoist_constants(stage(function, [typeof(x) for x in args], name))
