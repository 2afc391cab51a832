"""Forward mode, and the linear part of reverse mode.

`Differentiation` is the trace under which a function runs to be differentiated: each value is a
pair (primal, tangent); each operation runs on the primals where the trace stands (concrete arrays:
at once, so Python sees values) and its jvp rule on the tangents.

    jvp        the tangents are values like the primals
    linearize  the tangents are names on a `LinearTrace`: an operation with a tangent among its
               operands is recorded there, any other runs where we stand. What the recorded
               equations hold of ordinary values are the residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from functrans.ir.program import Equation, Literal, Origin, Program, Var, prune
from functrans.ir.source import user_source
from functrans.trace import (
    Tracer,
    bind_in,
    evaluate,
    literal,
    out_types,
    register_type,
    stage,
    state,
    tracing,
    typeof,
)


class Dual(Tracer):
    """A primal (`ref`) and its tangent, each of an enclosing trace or concrete."""

    __slots__ = ("tangent",)

    def __init__(self, trace: Any, primal: Any, tangent: Any):
        self.trace = trace
        self.type = typeof(primal)
        self.ref = primal
        self.tangent = tangent

    def concrete(self) -> Any:
        return self.ref.concrete() if isinstance(self.ref, Tracer) else self.ref


register_type(Dual, lambda x: x.type)


class LinearTrace:
    """Records the operations on tangents. Residuals stand as they are in its equations' inputs;
    operations that touch no tangent go to the parent."""

    __slots__ = ("alive", "equations", "parent", "stages")

    def __init__(self, parent: Any):
        self.parent = parent
        self.equations: list[Equation] = []
        self.alive = True
        self.stages = False

    def bind(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        inputs = []
        types = []
        own = False
        for x in args:
            if x.__class__ is Tracer and x.trace is self:
                own = True
                inputs.append(x.ref)
                types.append(x.type)
            else:
                inputs.append(x)
                types.append(typeof(x))
        if not own:
            return bind_in(self.parent, primitive, args, params)
        outs = out_types(primitive, tuple(types), params)
        variables = tuple([Var(t) for t in outs])
        source, origin = state.derived or (user_source(), None)
        self.equations.append(Equation(primitive, tuple(inputs), variables, params, source, origin))
        results = [Tracer(self, v.type, v) for v in variables]
        return results if primitive.multiple else results[0]

    def new_input(self, type: Any) -> Tracer:
        return Tracer(self, type, Var(type))


class Differentiation:
    """The trace of jvp, and of linearize when a LinearTrace is given."""

    __slots__ = ("alive", "linear", "parent", "rules_in", "stages")

    def __init__(self, parent: Any, linear: LinearTrace | None = None):
        self.parent = parent
        self.linear = linear
        self.rules_in = parent if linear is None else linear  # the trace in which rules run
        self.alive = True
        self.stages = False

    def bind(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        primals = []
        tangents = []
        active = False
        for x in args:
            if x.__class__ is Dual and x.trace is self:
                primals.append(x.ref)
                tangents.append(x.tangent)
                active = True
            else:
                primals.append(x)
                tangents.append(None)
        if not active:
            return bind_in(self.parent, primitive, primals, params)
        derived = state.derived
        try:
            if derived is None:
                state.derived = (user_source(), None)
            state.trace = self.rules_in
            outs, out_tangents = primitive.differentiate(self, primals, tangents, params)
        finally:
            state.trace = self
            state.derived = derived
        if primitive.multiple:
            return [self.pair(y, dy) for y, dy in zip(outs, out_tangents, strict=True)]
        return self.pair(outs, out_tangents)

    def pair(self, primal: Any, tangent: Any) -> Any:
        """A Dual; a value without a tangent is just itself."""
        return primal if tangent is None else Dual(self, primal, tangent)

    def bind_primal(self, primitive: Any, primals: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run the operation itself; what its rule adds from here on derives from it."""
        outs = bind_in(self.parent, primitive, primals, params)
        recorded = getattr(self.parent, "equations", None)
        source, _ = state.derived  # type: ignore[misc]
        state.derived = (source, Origin("jvp of", recorded[-1] if recorded else None))
        return outs

    # What primitives that hold programs ask for: see `Jit.differentiate`.

    def jvp(self, program: Program, active: tuple[bool, ...]) -> tuple[Program, tuple[bool, ...]]:
        return jvp_program(program, active)

    def linearized(
        self, program: Program, active: tuple[bool, ...]
    ) -> tuple[Program, Program, tuple[bool, ...]]:
        return linearized(program, active)


def run_dual(
    function: Callable[..., Sequence[Any]],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    linear: LinearTrace | None = None,
) -> tuple[list[Any], list[Any]]:
    """Call a flat function on pairs; the results' primals and tangents (None: zero)."""
    trace = Differentiation(state.trace, linear)
    duals = [trace.pair(p, t) for p, t in zip(primals, tangents, strict=True)]
    with tracing(trace):
        outs = function(*duals)
    own = [y.__class__ is Dual and y.trace is trace for y in outs]
    return (
        [y.ref if mine else y for y, mine in zip(outs, own, strict=True)],
        [y.tangent if mine else None for y, mine in zip(outs, own, strict=True)],
    )


class Linear:
    """A linear map: equations from tangents to tangents. Residuals are values inside it."""

    __slots__ = ("equations", "inputs", "out_types", "outputs")

    def __init__(self, equations: list, inputs: list, outputs: list, types: list):
        self.equations = equations
        self.inputs = inputs
        self.outputs = outputs  # Var, or None where the tangent is zero
        self.out_types = types

    def program(self) -> Program:
        """As a Program whose constants are the residuals."""
        constants: dict[int, tuple[Var, Any]] = {}

        def named(x: Any) -> Any:
            if x.__class__ is Var or x.__class__ is Literal:
                return x
            if x.__class__ is Tracer and x.ref.__class__ is Literal:
                return x.ref
            return constants.setdefault(id(x), (Var(typeof(x)), x))[0]

        equations = [
            Equation(e.primitive, tuple(map(named, e.inputs)), e.outputs, e.params, e.source,
            e.origin) for e in self.equations
        ]  # fmt: skip
        outs = [
            literal(0, t) if v is None else v
            for v, t in zip(self.outputs, self.out_types, strict=True)
        ]
        variables = [v for v, _ in constants.values()]
        values = [x for _, x in constants.values()]
        return Program(self.inputs, equations, outs, variables, values)


def run_linearize(
    function: Callable[..., Sequence[Any]], primals: Sequence[Any], active: Sequence[bool]
) -> tuple[list[Any], Linear]:
    """Call a flat function on primals; its results and the linear map of its active arguments."""
    trace = LinearTrace(state.trace)
    inputs = [trace.new_input(typeof(p)) for p, a in zip(primals, active, strict=True) if a]
    names = iter(inputs)
    tangents = [next(names) if a else None for a in active]
    outs, out_tangents = run_dual(function, primals, tangents, trace)
    outputs = [t.ref if t is not None else None for t in out_tangents]
    equations = prune(trace.equations, [v for v in outputs if v is not None])
    trace.alive = False
    types = [typeof(y) for y in outs]
    return outs, Linear(equations, [x.ref for x in inputs], outputs, types)


# --- Program -> Program ---------------------------------------------------------------------------


def jvp_program(program: Program, active: tuple[bool, ...]) -> tuple[Program, tuple[bool, ...]]:
    """`primals, tangents of active -> outs, tangents of active outs`, and which outs are active."""
    key = ("jvp", active)
    if key in program.cache:
        return program.cache[key]
    n = len(program.inputs)
    out_active: tuple[bool, ...] = ()

    def both(*args: Any) -> list[Any]:
        nonlocal out_active
        names = iter(args[n:])
        tangents = [next(names) if a else None for a in active]
        outs, out_tangents = run_dual(lambda *xs: evaluate(program, xs), args[:n], tangents)
        out_active = tuple(t is not None for t in out_tangents)
        return [*outs, *(t for t in out_tangents if t is not None)]

    tangent_types = [t for t, a in zip(program.in_types, active, strict=True) if a]
    made = stage(both, [*program.in_types, *tangent_types], program.name)
    program.cache[key] = made, out_active
    return made, out_active


def linearized(
    program: Program, active: tuple[bool, ...]
) -> tuple[Program, Program, tuple[bool, ...]]:
    """`primals -> outs, residuals`; `residuals, tangents -> tangents of active outs`; which are."""
    key = ("linearize", active)
    if key in program.cache:
        return program.cache[key]
    linear_part: Program | None = None
    out_active: tuple[bool, ...] = ()

    def forward(*args: Any) -> list[Any]:
        nonlocal linear_part, out_active
        outs, linear = run_linearize(lambda *xs: evaluate(program, xs), args, active)
        out_active = tuple(v is not None for v in linear.outputs)
        closed = linear.program()
        kept = [v for v, a in zip(closed.outputs, out_active, strict=True) if a]
        linear_part = closed.replace(
            inputs=(*closed.constants, *closed.inputs),
            outputs=kept,
            constants=(),
            values=(),
            name=program.name,
        )
        return [*outs, *closed.values]

    primal_part = stage(forward, program.in_types, program.name)
    made = primal_part, linear_part, out_active
    program.cache[key] = made
    return made  # type: ignore[return-value]
