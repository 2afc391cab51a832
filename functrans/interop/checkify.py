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
from dataclasses import replace
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
_theirs: Any = checkify  # whose functions take a context since JAX 0.11


def checked(*given: Any, program: Program, preparation: Preparation) -> tuple[Any, Sequence[Any]]:
    """Apply the error-check rule: ([context, since JAX 0.11], error, enabled errors, *operands) ->
    (error, results). A program becomes a jaxpr, whose equations are JAX's, or ours with a smaller program:
    one with nothing to check, one that is called, or one that `_is_alone`. So it ends."""
    i = next(i for i, x in enumerate(given) if isinstance(x, checkify.Error))
    context, (error, kinds), operands = given[:i], given[i : i + 2], given[i + 2 :]
    bind = partial(xla.bind, preparation=preparation)
    stands_alone = partial(_is_checked, kinds)
    if not any(map(stands_alone, program.equations)):
        return error, bind(program, operands)
    if _is_alone(program):
        return _checked_alone(program, preparation, context, error, kinds, operands)
    parts = divided(program, stands_alone)

    def run_one(e: Equation, xs: Sequence[Any]) -> Sequence[Any]:
        return _EXPANDED.get(e.primitive, _alone)(e, bind, xs)

    closed = jax.make_jaxpr(lambda *xs: run_parts(program, parts, xs, run_one, preparation))(*operands)
    leaves, structure = jax.tree.flatten(error)
    return checkify.checkify_jaxpr_flat(
        *context, closed.jaxpr, closed.consts, kinds, structure, *leaves, *operands
    )


def _alone(e: Equation, bind: Bind, xs: Sequence[Any]) -> Sequence[Any]:
    """Bind an equation as a program of its own."""
    program = program_of([e], e.outputs)
    known = dict(zip(e.inputs, xs, strict=True))
    return bind(program, [known[v] for v in program.inputs])


def _is_alone(program: Program) -> bool:
    """Return whether a program is what `_alone` binds for an equation that is not expanded."""
    e, *more = program.equations
    return not more and e.primitive not in _EXPANDED and tuple(program.outputs) == e.outputs


def _checked_alone(
    program: Program, preparation: Preparation, context: Any, error: Any, kinds: Any, operands: Any
) -> tuple[Any, Sequence[Any]]:
    """Return the error and results of a program of one equation; for a call, also the errors inside."""
    (e,) = program.equations
    env = dict(zip(program.inputs, operands, strict=True))
    values = [env[v] if v.__class__ is Var else materialize(v) for v in e.inputs]
    if isinstance(e.primitive, Indexed) and checkify.OOBError in kinds:
        error = _theirs.assert_func(*context, error, *_out_of_bounds(e, values[1]))
    elif isinstance(e.primitive, Jit) and "program" in e.params:
        inside: Any = e.params["program"]
        error, _ = checked(*context, error, kinds, *values, program=inside, preparation=preparation)
        program = program.replace(equations=[_without_checks(e)])
    outs = xla.bind(program, operands, preparation)
    named = SimpleNamespace(name=e.primitive.name, multiple_results=True)
    return _theirs.check_nans(named, *context, error, kinds, outs), outs


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
    return replace(e, params={**e.params, "program": program.replace(equations=prune(left, program.outputs))})


for _primitive in xla.PRIMITIVES:
    checkify.error_checks[_primitive] = checked
