"""`checkify` rules for our programs.

JAX's checkify interprets the equations of a function and calls an error-check rule per primitive.
In: a JAX equation that holds one of our programs. Out: its results and the updated error. A program
with something to check is traced to a jaxpr, and JAX applies its rules to that:

    jax_call                 `checkify.check` and other JAX primitives: by JAX's rule
    div, dynamic_slice, ...  by JAX's rules for its operations
    scan, while, cond        as JAX loops over our programs, whose rules call us again
    others                   one equation each, for which our rule adds an error:
                             of gather and scatter, JAX's out-of-bounds error;
                             of custom rules, that of the called program, run for this only;
                             of all, JAX's for NaNs
    runs without checks      one equation, as it would be otherwise
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
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
from functrans.trace import materialize

Bind = Callable[[Program, Sequence[Any]], list[Any]]

# What is traced for an equation: JAX's operation, of its operands, or our programs that it calls.
_EXPANDED: dict[Any, Callable[..., Sequence[Any]]] = {
    jax_call: lambda e, bind, xs: e.params["body"].fun(*xs),
    div: lambda e, bind, xs: [jax.lax.div_p.bind(*xs)],
    dynamic_slice: lambda e, bind, xs: [jax.lax.dynamic_slice_p.bind(*xs, slice_sizes=e.params["sizes"])],
    dynamic_update_slice: lambda e, bind, xs: [jax.lax.dynamic_update_slice_p.bind(*xs)],
    jit: lambda e, bind, xs: bind(e.params["program"], xs),
    **dict.fromkeys(LOOPS, by_jax),
}
_with_error: Any = checkify.assert_func  # takes a context since JAX 0.11


def checked(*given: Any, program: Program, preparation: Preparation) -> tuple[Any, Sequence[Any]]:
    """Apply the error-check rule: ([context, since JAX 0.11], error, enabled errors, *operands) ->
    (error, results)."""
    i = next(i for i, x in enumerate(given) if isinstance(x, checkify.Error))
    context, (error, kinds), operands = given[:i], given[i : i + 2], given[i + 2 :]
    bind = partial(xla.bind, preparation=preparation)
    stands_alone = partial(_is_checked, kinds)
    if not any(map(stands_alone, program.equations)):
        return error, bind(program, operands)
    env = dict(zip(program.inputs, operands, strict=True))
    e = program.equations[0]
    if len(program.equations) > 1 or e.primitive in _EXPANDED or tuple(program.outputs) != e.outputs:
        parts = divided(program.equations, program.outputs, stands_alone)

        def expanded(*xs: Any) -> list[Any]:
            env = dict(zip(program.inputs, xs, strict=True))
            return run_parts(parts, program.outputs, env, partial(_expanded, bind), preparation)

        closed = jax.make_jaxpr(expanded)(*operands)
        leaves, structure = jax.tree.flatten(error)
        traced = closed.jaxpr, closed.consts, kinds, structure, *leaves, *operands
        return checkify.checkify_jaxpr_flat(*context, *traced)
    values = [env[v] if v.__class__ is Var else materialize(v) for v in e.inputs]
    if isinstance(e.primitive, Indexed) and checkify.OOBError in kinds:
        error = _with_error(*context, error, *_out_of_bounds(e, values[1]))
    elif isinstance(e.primitive, Jit) and "program" in e.params:
        inside: Any = e.params["program"]
        error, _ = checked(*context, error, kinds, *values, program=inside, preparation=preparation)
        program = program.replace(equations=[_without_checks(e)])
    alone = SimpleNamespace(name=e.primitive.name, bind=lambda *xs: bind(program, xs), multiple_results=True)
    return checkify.nan_error_check(alone, *context, error, kinds, *operands)


def _is_checked(kinds: Any, e: Equation) -> bool:
    """Return whether an equation has something to check."""
    if e.primitive is jax_call:
        return True
    if checkify.NaNError in kinds and any(is_inexact(v.type.dtype) for v in e.outputs):
        return True
    if checkify.DivisionByZeroError in kinds and e.primitive is div:
        return True
    if checkify.OOBError in kinds and isinstance(e.primitive, (Window, Indexed)):
        return True
    inside = with_nested(Program((), [e], ()))[1:]
    return any(_is_checked(kinds, x) for p in inside for x in p.equations)


def _expanded(bind: Bind, e: Equation, values: Sequence[Any]) -> Sequence[Any]:
    if e.primitive in _EXPANDED:
        return _EXPANDED[e.primitive](e, bind, values)
    program = program_of([e], e.outputs)
    known = dict(zip(e.inputs, values, strict=True))
    return bind(program, [known[v] for v in program.inputs])


def _out_of_bounds(e: Equation, starts: Any) -> tuple[Any, Any]:
    """Return whether a window of an equation is out of bounds, and the error of the first one that is."""
    params: Any = e.params
    shape = e.inputs[0].type.shape
    axes = [params["operand"].index(name) for name in params["indexed"]]
    last = np.array([shape[d] - params["sizes"][d] for d in axes], starts.dtype)
    outside = (starts < 0) | (starts > last)
    first = checkify.oob_payload(outside, starts, axes, shape)
    name = e.primitive.name.replace("scatter_", "scatter-")
    return outside.any(), checkify.OOBError(checkify.get_traceback(), name, shape, first)


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


for _primitive in xla.PRIMITIVES:
    checkify.error_checks[_primitive] = checked
