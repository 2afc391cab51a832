"""`checkify` rules for our programs.

JAX's checkify interprets the equations of a function and calls an error-check rule per primitive.
In: a JAX equation that holds one of our programs. Out: its results and the updated error. The
program's equations are handled like JAX's:

    jax_call                 `checkify.check` and other JAX primitives: by JAX's rule
    div, dynamic_slice, ...  by JAX's rules for its operations
    scan, while, cond        as JAX loops over our programs, whose rules call us again
    gather, scatter          with JAX's out-of-bounds error
    others, for NaNs         by JAX's rule for any result
    custom rules             bound as is, for the results; the called program is only checked
    runs of others           one equation each, as without checks
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax._src import checkify

from functrans.backends import xla
from functrans.backends.xla import Preparation
from functrans.interop.loops import LOOPS, by_jax
from functrans.interop.sharded_programs import divided, run_parts
from functrans.ir.program import Equation, Program, Var, program_of, prune
from functrans.ir.text import with_nested
from functrans.ir.types import is_inexact
from functrans.primitives.calls.jax_call import jax_call
from functrans.primitives.calls.jit import Jit, jit
from functrans.primitives.elementwise.families import div
from functrans.primitives.indexing.dynamic_slice import Window, dynamic_slice, dynamic_update_slice
from functrans.primitives.indexing.gather import Indexed

# JAX's operation for an equation, of its operands.
_OF_JAX: dict[Any, Callable[..., Any]] = {
    jax_call: lambda e, *xs: e.params["body"].fun(*xs),
    div: lambda e, *xs: jax.lax.div_p.bind(*xs),
    dynamic_slice: lambda e, *xs: jax.lax.dynamic_slice_p.bind(*xs, slice_sizes=e.params["sizes"]),
    dynamic_update_slice: lambda e, *xs: jax.lax.dynamic_update_slice_p.bind(*xs),
}
_with_error: Any = checkify.assert_func  # takes a context since JAX 0.11


def checked(*given: Any, program: Program, preparation: Preparation) -> tuple[Any, list[Any]]:
    """Apply the error-check rule: ([context, since JAX 0.11], error, enabled errors, *operands) ->
    (error, results)."""
    i = next(i for i, x in enumerate(given) if isinstance(x, checkify.Error))
    checks = _Checks(given[:i], given[i], given[i + 1], preparation)
    outs = checks.run(program, given[i + 2 :])
    return checks.error, outs


@dataclass
class _Checks:
    """The accumulated error while a program is interpreted."""

    context: Sequence[Any]
    error: Any
    kinds: Any
    preparation: Preparation

    def run(self, program: Program, operands: Sequence[Any]) -> list[Any]:
        env = dict(zip(program.inputs, operands, strict=True))
        parts = divided(program.equations, program.outputs, self.stands_alone)
        return run_parts(parts, program.outputs, env, self.equation, self.preparation)

    def stands_alone(self, e: Equation) -> bool:
        """Return whether the equation has something to check."""
        if e.primitive is jax_call:
            return True
        if checkify.NaNError in self.kinds and any(is_inexact(v.type.dtype) for v in e.outputs):
            return True
        if checkify.DivisionByZeroError in self.kinds and e.primitive is div:
            return True
        if checkify.OOBError in self.kinds and isinstance(e.primitive, (Window, Indexed)):
            return True
        alone = Program((), [e], ())
        return any(self.stands_alone(x) for p in with_nested(alone)[1:] for x in p.equations)

    def equation(self, e: Equation, values: Sequence[Any]) -> Any:
        if e.primitive is jit:
            return self.run(e.params["program"], values)
        if e.primitive in _OF_JAX:
            return self.jaxpr(partial(_OF_JAX[e.primitive], e), values)
        if e.primitive in LOOPS:
            return self.jaxpr(lambda *xs: by_jax(e, self.bound, xs), values)
        if checkify.OOBError in self.kinds and isinstance(e.primitive, Indexed):
            self.indices(e, values)
        elif isinstance(e.primitive, Jit) and "program" in e.params:
            self.run(e.params["program"], values)
            e = _without_checks(e)
        self.error, outs = checkify.nan_error_check(
            _Alone(e, self.preparation), *self.context, self.error, self.kinds, *values
        )
        return outs

    def bound(self, program: Program, values: Sequence[Any]) -> list[Any]:
        return xla.bind(program, values, self.preparation)

    def indices(self, e: Equation, values: Sequence[Any]) -> None:
        """Add the error of the first window of an equation that is out of bounds."""
        params: Any = e.params
        starts, shape = values[1], e.inputs[0].type.shape
        axes = [params["operand"].index(name) for name in params["indexed"]]
        last = np.array([shape[d] - params["sizes"][d] for d in axes], starts.dtype)
        outside = (starts < 0) | (starts > last)
        first = checkify.oob_payload(outside, starts, axes, shape)
        name = e.primitive.name.replace("scatter_", "scatter-")
        problem = checkify.OOBError(checkify.get_traceback(), name, shape, first)
        self.error = _with_error(*self.context, self.error, outside.any(), problem)

    def jaxpr(self, fun: Any, values: Sequence[Any]) -> Any:
        """Trace a function to a jaxpr, and let JAX apply its rules to the equations."""
        closed = jax.make_jaxpr(fun)(*values)
        leaves, structure = jax.tree.flatten(self.error)
        given = closed.jaxpr, closed.consts, self.kinds, structure, *leaves, *values
        self.error, outs = checkify.checkify_jaxpr_flat(*self.context, *given)
        return outs


def _without_checks(e: Equation) -> Equation:
    """Return a call equation without the `checkify.check` equations in its program."""
    program: Any = e.params["program"]
    left = [
        x
        for x in program.equations
        if x.primitive is not jax_call or x.params["body"].equation.primitive is not checkify.check_p
    ]
    if len(left) == len(program.equations):
        return e
    params = {**e.params, "program": program.replace(equations=prune(left, program.outputs))}
    return Equation(e.primitive, e.inputs, e.outputs, params, e.source, e.origin)


class _Alone:
    """One of our equations in the role of a primitive, for JAX's NaN rule."""

    multiple_results = True

    def __init__(self, e: Equation, preparation: Preparation):
        self.name = e.primitive.name
        self.inputs = e.inputs
        self.program = program_of([e], e.outputs)
        self.preparation = preparation

    def bind(self, *values: Any) -> Any:
        pairs = zip(self.inputs, values, strict=True)
        known = {v: x for v, x in pairs if v.__class__ is Var}
        return xla.bind(self.program, [known[v] for v in self.program.inputs], self.preparation)


for _primitive in xla.PRIMITIVES:
    checkify.error_checks[_primitive] = checked
