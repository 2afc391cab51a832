"""A linear map as a list of equations, made by `linearize` and transposed by reverse mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from functrans.ir.program import Equation, Literal, Program, Var, prune
from functrans.ir.types import is_key_dtype
from functrans.trace import Tracer, literal, typeof


class Linear:
    """A linear map: equations from tangents to tangents. Residuals are values among their operands.
    It may hold dead equations until it is `pruned`."""

    __slots__ = ("equations", "inputs", "out_types", "outputs")

    def __init__(self, equations: list[Any], inputs: list[Any], outputs: list[Any], types: list[Any]):
        self.equations: list[Any] = equations
        self.inputs: list[Any] = inputs
        self.outputs: list[Any] = outputs  # Var, or None where the tangent is zero
        self.out_types: list[Any] = types

    def pruned(self) -> Linear:
        """Return the map without dead equations, so that their residuals can be freed."""
        outputs = [v for v in self.outputs if v is not None]
        equations = prune(self.equations, outputs, values=True)
        return Linear(equations, self.inputs, self.outputs, self.out_types)

    def apart(self) -> tuple[Linear, list[Var], list[Any]]:
        """Return the map with variables in place of its residuals, the variables, and the
        residuals."""
        found: dict[int, tuple[Var, Any]] = {}

        def named(x: Any) -> Any:
            if x.__class__ is Var or x.__class__ is Literal:
                return x
            if x.__class__ is Tracer and x.ref.__class__ is Literal:
                return x.ref
            return found.setdefault(id(x), (Var(typeof(x)), x))[0]

        linear = self._with_inputs(named)
        return linear, [v for v, _ in found.values()], [x for _, x in found.values()]

    def filled(self, names: Sequence[Var], residuals: Sequence[Any]) -> Linear:
        """Return the map with residuals in place of their variables."""
        known = dict(zip(names, residuals, strict=True))
        return self._with_inputs(lambda x: known.get(x, x) if x.__class__ is Var else x)

    def _with_inputs(self, of: Callable[[Any], Any]) -> Linear:
        equations = [
            Equation(e.primitive, tuple(map(of, e.inputs)), e.outputs, e.params, e.source, e.origin)
            for e in self.equations
        ]
        return Linear(equations, self.inputs, self.outputs, self.out_types)

    def program(self) -> Program:
        """Return the map as a Program whose constants are the residuals."""
        linear, names, residuals = self.pruned().apart()
        known: dict[Any, Any] = {}  # result of a call of `LinearizedOperation` -> its value now
        equations = []
        for e in linear.equations:
            if known:
                e.inputs = tuple([known.get(x, x) for x in e.inputs])  # e is a copy
            if e.primitive.name == "jit" and e.params["program"].marks.one_operation:
                equations += _written_out(e, known)
            else:
                equations.append(e)
        outs = [
            _no_tangent(t) if v is None else known.get(v, v)
            for v, t in zip(self.outputs, self.out_types, strict=True)
        ]
        return Program(self.inputs, equations, outs, names, residuals)


def _no_tangent(t: Any) -> Literal:
    """Return a zero for the tangent of a result without one. That of a key is never read."""
    return Literal(0, t) if is_key_dtype(t.dtype) else literal(0, t)


def _written_out(call: Equation, known: dict[Any, Any]) -> list[Equation]:
    """Return the equations of the called program, with fresh variables."""
    program = call.params["program"]
    names = dict(zip(program.inputs, call.inputs, strict=True))
    made = []
    for e in program.equations:
        variables = tuple([Var(v.type) for v in e.outputs])
        values = tuple([names.get(v, v) for v in e.inputs])
        names.update(zip(e.outputs, variables, strict=True))
        made.append(Equation(e.primitive, values, variables, e.params, call.source, call.origin))
    known.update(zip(call.outputs, [names[v] for v in program.outputs], strict=True))
    return made
