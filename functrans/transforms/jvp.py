"""Forward mode, and linearization for reverse mode.

`JvpTrace` is the trace in which a function is differentiated. Each value is a pair (primal,
tangent). Each operation runs on the primals in the parent trace (eagerly on concrete arrays, so
Python sees values), and its jvp rule runs on the tangents.

    jvp        tangents are values like the primals
    linearize  tangents are variables of a `LinearTrace`: operations on tangents are recorded there,
               others run in the parent trace. Primal values among the operands of recorded
               equations are the residuals.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import compress
from operator import or_
from typing import Any

from functrans.caching import Cache, memo, memoized
from functrans.ir.program import PRIMITIVES, Equation, Literal, Origin, Program, Var, keep_names
from functrans.ir.source import user_source
from functrans.ir.types import ArrayType
from functrans.primitives.base import Params, Values
from functrans.primitives.calls.captured import closed, stage_with
from functrans.primitives.control_flow.loop_layout import Pattern, Terms, filled, nonzero, pattern_of, taken
from functrans.primitives.dependence import Split, needed_for, placed, spread
from functrans.trace import Trace, bind_in, derive_from, evaluate, one_operation, out_types, state, tracing
from functrans.tracer import Tracer, concrete_value, typeof
from functrans.transforms.transpose import Linear


class Dual(Tracer):
    """A primal (`ref`) and its tangent; both are concrete or belong to an enclosing trace."""

    __slots__ = ("tangent",)

    def __init__(self, trace: Any, primal: Any, tangent: Any, type: Any = None):
        self.owner: Any = trace
        self.type: ArrayType = type or typeof(primal)
        self.ref: Any = primal
        self.tangent: Any = tangent

    def to_concrete_value(self) -> Any:
        return concrete_value(self.ref)


class LinearTrace(Trace):
    """Records the operations on tangents, with residuals among their inputs. The parent gets the others."""

    __slots__ = ("equations",)

    def __init__(self, parent: Any):
        super().__init__(parent)
        self.equations: list[Equation] = []

    def bind(self, primitive: Any, args: Values, params: Params) -> Any:
        inputs, types = [], []
        own = False
        for x in args:
            if x.__class__ is Tracer:
                types.append(x.type)
                if x.owner is self:
                    own = True
                    x = x.ref
            else:
                types.append(typeof(x))
            inputs.append(x)
        if not own:
            return bind_in(self.parent, primitive, args, params)
        if primitive.holds_functions and params["program"].__class__ is not Program:
            return primitive.record(self, True, args, params)
        variables = tuple([Var(t) for t in out_types(primitive, tuple(types), params)])
        source, origin = state.provenance or (user_source(), None)
        self.equations.append(Equation(primitive, tuple(inputs), variables, params, source, origin))
        results = [Tracer(self, v.type, v) for v in variables]
        return results if primitive.multiple_results else results[0]


class RuleRunner(Trace):
    """Base class of traces that run an operation in their parent, and its rule next to it."""

    __slots__ = ()
    how = ""  # what the rule makes of the operation

    @abstractmethod
    def parts(self, x: Any) -> tuple[Any, Any]:
        """Return a value, and what travels along with it in this trace."""

    def run(self, function: Callable[..., Values], values: Values) -> tuple[list[Any], list[Any]]:
        """Call a flat function in this trace; return the parts of its results."""
        with tracing(self):
            outs = function(*values)
        found = [self.parts(y) for y in outs]
        return [y for y, _ in found], [more for _, more in found]

    def bind_primal(self, primitive: Any, primals: Values, params: Params) -> Any:
        """Run the operation itself, and set the origin of what its rule adds next to it."""
        outs = bind_in(self.parent, primitive, primals, params)
        source, origin = state.provenance  # type: ignore[misc]
        recorded = getattr(self.parent, "equations", None)
        # an eager operation is represented by an equation without variables
        ran = recorded[-1] if recorded else Equation(primitive, (), (), params, source, origin)
        derive_from(source, Origin(self.how, ran))
        return outs


class JvpTrace(RuleRunner):
    """The trace of jvp, and of linearize if a LinearTrace is given."""

    __slots__ = ("at_once", "linear", "rules_in")
    how = "jvp of"

    def __init__(self, parent: Any, linear: LinearTrace | None = None):
        super().__init__(parent)
        self.linear: LinearTrace | None = linear
        self.at_once: bool = (
            parent is None and linear is not None
        )  # linearize eagerly, one operation at a time
        self.rules_in: Any = parent if linear is None else linear  # the trace for jvp rules

    def bind(self, primitive: Any, args: Values, params: Params) -> Any:
        if self.at_once and (not primitive.holds_programs or primitive.name == "jit"):
            return self.bind_at_once(primitive, args, params)
        primals = []
        tangents = []
        active = False
        for x in args:
            if x.__class__ is Dual and x.owner is self:
                primals.append(x.ref)
                tangents.append(x.tangent)
                active = True
            else:
                primals.append(x)
                tangents.append(None)
        if not active:
            return bind_in(self.parent, primitive, primals, params)
        outer = state.provenance
        try:  # `with provenance` and the change of trace written out, for speed
            if outer is None:
                state.provenance = (user_source(), None)
            state.innermost = self.rules_in
            outs, out_tangents = primitive.differentiate(self, primals, tangents, params)
        finally:
            state.innermost = self
            state.provenance = outer
        if primitive.multiple_results:
            return [self.pair(y, dy) for y, dy in zip(outs, out_tangents, strict=True)]
        return self.pair(outs, out_tangents)

    def bind_at_once(self, primitive: Any, args: Values, params: Params) -> Any:
        """Bind eagerly, by the operation's `LinearizedOperation`."""
        primals, types, given, moving = [], [], [], []
        for x in args:
            own = x.__class__ is Dual and x.owner is self
            if own:
                primals.append(x.ref)
                types.append(x.type)
                given.append(x.tangent.ref)
            else:
                primals.append(x)
                types.append(typeof(x))
                given.append(None)
            moving.append(own)
        if True not in moving:
            return bind_in(None, primitive, primals, params)
        known = at_once(primitive, tuple(types), tuple(moving), params)
        source, origin = state.provenance or (user_source(), None)
        if origin is None:
            origin = known.origin
        else:
            origin = Origin("jvp of", Equation(primitive, (), (), params, source, origin))
        outs = known.run(primitive, primals, params)
        pool = [*given, *primals, *outs, *known.literals]
        names = known.record(self.linear, pool, source, origin)
        pairs = [
            y if v is None else Dual(self, y, Tracer(self.linear, t, v), t)
            for y, v, t in zip(outs, names, known.out_types, strict=False)
        ]
        return pairs if primitive.multiple_results else pairs[0]

    def pair(self, primal: Any, tangent: Any) -> Any:
        """Return a Dual, or the primal if there is no tangent."""
        return primal if tangent is None else Dual(self, primal, tangent)

    def parts(self, x: Any) -> tuple[Any, Any]:
        return (x.ref, x.tangent) if x.__class__ is Dual and x.owner is self else (x, None)

    # For higher-order primitives: see `Jit.differentiate`.

    def run_dual(self, function: Any, primals: Values, tangents: Values) -> tuple[list[Any], list[Any]]:
        return run_dual(function, primals, tangents)

    def along(self, primitive: Any, primals: Values, tangents: Values, params: Params) -> tuple[Any, Any]:
        """Return the results and their tangents by the rule `push`: a tangent is a series of one term."""
        outs, series = primitive.push(self, primals, [(dx,) for dx in tangents], params)
        return outs, [dy for (dy,) in series]

    def pushed(
        self, program: Program, patterns: tuple[Pattern, ...], needed: tuple[Pattern, ...] = ()
    ) -> tuple[Program, tuple[Pattern, ...]]:
        both, active = jvp_program(program, tuple([a for (a,) in patterns]), tuple([a for (a,) in needed]))
        return both, tuple([(a,) for a in active])

    def linearized(self, program: Program, *how: tuple[bool, ...]) -> tuple[Split, tuple[bool, ...]]:
        part = split(program, *how)
        return part, part.out_active

    def split(self, program: Program, active: tuple[bool, ...], needed: tuple[bool, ...] = ()) -> Split:
        return split(program, active, needed)


def run_dual(
    function: Callable[..., Values], primals: Values, tangents: Values, linear: LinearTrace | None = None
) -> tuple[list[Any], list[Any]]:
    """Call a flat function on pairs; return the primals and tangents of its results (None: zero)."""
    trace = JvpTrace(state.trace, linear)
    duals = [
        p if t is None else Dual(trace, p, t, t.type if linear is not None else None)
        for p, t in zip(primals, tangents, strict=True)
    ]
    return trace.run(function, duals)


def run_linearize(
    function: Callable[..., Values], primals: Values, types: Values, active: Sequence[bool]
) -> tuple[list[Any], Linear]:
    """Call a flat function on primals; return its results and the linear map of its active arguments."""
    trace = LinearTrace(state.trace)
    tangents = [trace.new_input(t) if a else None for t, a in zip(types, active, strict=True)]
    outs, out_tangents = run_dual(function, primals, tangents, trace)
    trace.alive = False
    return outs, Linear(
        trace.equations,
        [t.ref for t in tangents if t is not None],
        [t.ref if t is not None else None for t in out_tangents],
        [typeof(y) for y in outs],
    )


# --- Program -> Program ---------------------------------------------------------------------------


@memoized
def jvp_program(
    program: Program, active: tuple[bool, ...], needed: tuple[bool, ...] = ()
) -> tuple[Program, tuple[bool, ...]]:
    """Return `primals, tangents of active -> outs, tangents of active outs`, and which outs are
    active. Outs in `needed` get a tangent even if it is zero."""

    def push(function: Any, primals: Values, series: Sequence[Terms]) -> tuple[list[Any], list[Terms]]:
        outs, tangents = run_dual(function, primals, [dx for (dx,) in series])
        return outs, [(dy,) for dy in tangents]

    made, patterns = pushed_program(program, push, [(a,) for a in active], [(a,) for a in needed])
    return made, tuple([a for (a,) in patterns])


def pushed_program(
    program: Program,
    push: Callable[..., tuple[list[Any], list[Terms]]],
    patterns: Sequence[Pattern],
    needed: Sequence[Pattern],
) -> tuple[Program, tuple[Pattern, ...]]:
    """Return the program `inputs, their terms -> outs, their terms`, and the patterns of the outs.
    `push` calls a function on values with their terms. Terms in `needed` are returned even if zero."""
    n = len(program.inputs)

    def both(*args: Any) -> tuple[list[Any], tuple[Pattern, ...]]:
        series = taken(patterns, iter(args[n:]))
        outs, found = push(lambda *xs: evaluate(program, xs), args[:n], series)
        for i, wanted in enumerate(needed):
            found[i] = filled(found[i], wanted, program.out_types[i])
        return [*outs, *nonzero(found)], tuple(map(pattern_of, found))

    types = [t for t, p in zip(program.in_types, patterns, strict=True) for a in p if a]
    made, out_patterns = stage_with(both, [*program.in_types, *types], program.name)
    return keep_names(closed(made), program), out_patterns


@memoized
def split(program: Program, active: tuple[bool, ...], needed: tuple[bool, ...]) -> Split:
    """Linearize a program; see `Split`. The first outs get a tangent even if it is zero, where `needed`."""

    def run(*args: Any) -> tuple[list[Any], tuple[Program, tuple[bool, ...], list[Any]]]:
        outs, found = run_linearize(lambda *xs: evaluate(program, xs), args, program.in_types, active)
        moves = [v is not None for v in found.outputs]
        out_active = (*map(or_, moves, needed), *moves[len(needed) :])
        part = found.program()  # zero tangents are literals
        ends = [*compress(part.outputs, out_active)]
        equations = needed_for(part.equations, ends)
        read = set(ends).union(*[e.inputs for e in equations])
        inputs = [v for v in (*part.constants, *part.inputs) if v in read]
        residuals = [x for v, x in zip(part.constants, part.values, strict=True) if v in read]
        linear = Program(inputs, equations, ends, name=program.name)
        return [*outs, *residuals], (linear, out_active, spread([v in read for v in part.inputs], active))

    made, (linear, out_active, read) = stage_with(run, program.in_types, program.name)
    forward, n = keep_names(closed(made), program), len(program.outputs)
    outs, residuals = forward.outputs[:n], forward.outputs[n:]
    extra, places = placed(residuals, forward.inputs, outs)
    tangents = [("tangent", i) for i, r in enumerate(read) if r]
    return Split(forward.replace(outputs=(*outs, *extra)), linear, out_active, (*places, *tangents))


# --- one operation at a time ----------------------------------------------------------------------


class LinearizedOperation:
    """The linearization of one eager operation, cached per signature.

    Its result and the residuals of its derivative are one compiled function. Its linear equations
    are a template that is instantiated for each call. So no rule runs in Python, and a nonlinear
    operation costs one dispatch instead of one for each operation of its rule.
    """

    __slots__ = ("equation", "forward", "literals", "origin", "out_tangents", "out_types", "places")

    def __init__(self, program: Program, moving: tuple[bool, ...], of: Equation, call: bool):
        self.out_types: tuple[ArrayType, ...] = program.out_types
        self.origin: Origin = Origin("jvp of", of)
        forward, linear, out_moving, places = split(program, moving, ())
        n = len(self.out_types)
        # None: only the operation itself runs. A call always runs the forward program: in it,
        # functions with custom rules may run these instead.
        self.forward: dict[str, Program] | None = (
            {"program": forward} if call or len(forward.outputs) > n else None
        )
        equations: list[Equation] = linear.equations
        ends: tuple[Any, ...] = linear.outputs
        if len(equations) > 1:  # wrapped in one call, so that its transpose is one dispatch too
            linear.mark(one_operation=not call)
            ends = tuple([Var(t) for t in linear.out_types])
            equations = [Equation(PRIMITIVES["jit"], linear.inputs, ends, {"program": linear})]
        self.equation: Equation | None = equations[0] if equations else None
        operands, results = (equations[0].inputs, equations[0].outputs) if equations else ((), ())
        self.literals: list[Any] = [v for v in operands if v.__class__ is Literal]
        # the index of each of its operands in: tangents, operands of the operation, results and extra
        # residuals, literals
        k = len(moving)
        begins = {"tangent": 0, "in": k, "out": 2 * k}
        known = zip(linear.inputs, places, strict=True)
        where: dict[Any, int] = {v: begins[kind] + i for v, (kind, i) in known}
        where.update({v: i for i, v in enumerate(self.literals, 2 * k + len(forward.outputs))})
        self.places: Any = [where[v] for v in operands]
        made: dict[Any, int] = {v: i for i, v in enumerate(results)}
        made.update({v: ~i for v, i in where.items() if i < k})  # a tangent passed through
        rest = iter(ends)
        self.out_tangents: list[int | None] = [made[next(rest)] if a else None for a in out_moving]

    @property
    def owned_programs(self) -> list[Program]:
        """The programs that it calls, and no one else."""
        called = [] if self.forward is None else [self.forward["program"]]
        return called if self.equation is None else [*called, *self.equation.programs]

    def run(self, primitive: Any, primals: list[Any], params: Params) -> list[Any]:
        """Return the operation's results, followed by the extra residuals."""
        if self.forward is not None:
            return bind_in(None, PRIMITIVES["jit"], primals, self.forward)
        outs = bind_in(None, primitive, primals, params)
        return outs if primitive.multiple_results else [outs]

    def record(self, trace: Any, pool: list[Any], source: Any, origin: Origin) -> list[Any]:
        """Add the linear equation to the trace; return the variables of the results' tangents, or None."""
        e = self.equation
        if e is None:
            return [None if i is None else pool[~i] for i in self.out_tangents]
        inputs = tuple([pool[i] for i in self.places])
        variables = tuple([Var(v.type) for v in e.outputs])
        trace.equations.append(Equation(e.primitive, inputs, variables, e.params, source, origin))
        return [None if i is None else variables[i] if i >= 0 else pool[~i] for i in self.out_tangents]


def at_once(
    primitive: Any, types: tuple[Any, ...], moving: tuple[bool, ...], params: Params
) -> LinearizedOperation:
    """Return the linearization of an operation, or of a nested program; cached."""
    if primitive.holds_programs:
        return memo(params["program"], _program_at_once, primitive, moving)
    key = (primitive, types, moving, *params.items())
    found = _OPERATIONS.get(key)
    if found is None:
        of = Equation(primitive, (), (), params)
        made = LinearizedOperation(one_operation(primitive, types, params), moving, of, False)
        found = _OPERATIONS.keep(key, made)
    return found


_OPERATIONS = Cache("operations linearized", 2048)


def _program_at_once(program: Program, primitive: Any, moving: tuple[bool, ...]) -> LinearizedOperation:
    # an eager operation has no recorded equation: use one without variables
    return LinearizedOperation(program, moving, Equation(primitive, (), (), {"program": program}), True)
