"""`checkify` of programs of ours.

JAX's checkify walks the equations of a function and asks a rule of each primitive for what may go
wrong there. In: an equation that holds a program of ours. Out: its results, and the error of what
the program checks. Its equations are walked as JAX's are:

    jax_call                 `checkify.check` and all that JAX alone knows: by JAX's rule
    scan, while, cond        JAX's own loops of programs of ours, whose rules call us again
    div; others, for NaNs    by JAX's rules for a division, for any result
    all between              one equation, as it would be without checks

Which indices are out of range is not looked for: a warning says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import jax
from jax._src import checkify

from functrans.backends import xla
from functrans.backends.xla import Preparation
from functrans.interop.shards import Part, divided
from functrans.ir.program import Equation, Program, Var
from functrans.ir.text import with_nested
from functrans.ir.types import is_inexact
from functrans.primitives.call import jit
from functrans.primitives.cond import cond
from functrans.primitives.elementwise import div
from functrans.primitives.opaque import jax_call
from functrans.primitives.scan import scan
from functrans.primitives.while_loop import while_loop
from functrans.trace import materialize

_INDEXING = ("gather", "scatter", "dynamic_slice", "dynamic_update_slice")
_LOOPS = (scan, while_loop, cond)


def checked(*given: Any, program: Program, preparation: Preparation) -> tuple[Any, list[Any]]:
    """JAX's rule: (since 0.11 its context,) error so far, kinds that are looked for, operands ->
    error, results."""
    i = next(i for i, x in enumerate(given) if isinstance(x, checkify.Error))
    checks = _Checks(given[:i], given[i], given[i + 1], preparation)
    if checkify.OOBError in checks.kinds and _reads_by_index(program):
        warnings.warn(
            "checkify looks for no index that is out of range in what functrans has traced. Trace "
            "the function that is checked with jax.jit, or say it by checkify.check.",
            stacklevel=2,
        )
    outs = checks.run(program, given[i + 2 :])
    return checks.error, outs


def _reads_by_index(program: Program) -> bool:
    nested = [e for p in with_nested(program) for e in p.equations]
    return any(e.primitive.name.startswith(_INDEXING) for e in nested)


class _Checks:
    """The error as it grows along a program."""

    def __init__(self, context: Sequence[Any], error: Any, kinds: Any, preparation: Preparation):
        self.context = context
        self.error = error
        self.kinds = kinds
        self.preparation = preparation

    def run(self, program: Program, operands: Sequence[Any]) -> list[Any]:
        env: dict[Any, Any] = dict(zip(program.inputs, operands, strict=True))

        def read(v: Any) -> Any:
            return env[v] if v.__class__ is Var else materialize(v)

        for part in divided(program.equations, program.outputs, self.stands_alone):
            if part.__class__ is Part:
                outs = xla.bind(part.program, [env[v] for v in part.reads], self.preparation)
                env.update(zip(part.gives, outs, strict=True))
            else:
                outs = self.equation(part, [read(v) for v in part.inputs])
                env.update(zip(part.outputs, outs, strict=True))
        return [read(v) for v in program.outputs]

    def stands_alone(self, e: Equation) -> bool:
        """Is there something to check in it?"""
        if e.primitive is jax_call:
            return True
        if checkify.NaNError in self.kinds and any(is_inexact(v.type.dtype) for v in e.outputs):
            return True
        if checkify.DivisionByZeroError in self.kinds and e.primitive is div:
            return True
        alone = Program((), [e], ())
        return any(self.stands_alone(x) for p in with_nested(alone)[1:] for x in p.equations)

    def equation(self, e: Equation, values: Sequence[Any]) -> Any:
        if e.primitive is jit:
            return self.run(e.params["program"], values)
        if e.primitive is jax_call:
            inner = e.params["body"].equation
            return self.by_jax(inner.primitive, values, inner.params)
        if e.primitive is div:
            return self.by_jax(jax.lax.div_p, values, {})
        if e.primitive in _LOOPS:
            return self.jaxpr(_loop(e, self.preparation), values)
        self.error, outs = checkify.nan_error_check(
            _Alone(e, self.preparation), *self.context, self.error, self.kinds, *values
        )
        return outs

    def jaxpr(self, fun: Any, values: Sequence[Any]) -> Any:
        """A function of JAX's that is one equation."""
        closed = jax.make_jaxpr(fun)(*values)
        env = dict(zip(closed.jaxpr.invars, values, strict=True))
        env.update(zip(closed.jaxpr.constvars, closed.consts, strict=True))

        def read(v: Any) -> Any:
            return v.val if hasattr(v, "val") else env[v]

        for e in closed.jaxpr.eqns:
            outs = self.by_jax(e.primitive, [read(v) for v in e.invars], e.params)
            env.update(zip(e.outvars, outs, strict=True))
        return [read(v) for v in closed.jaxpr.outvars]

    def by_jax(self, primitive: Any, values: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        rule = checkify.error_checks.get(primitive)
        if rule is None:
            outs = primitive.bind(*values, **params)
        else:
            self.error, outs = rule(*self.context, self.error, self.kinds, *values, **params)
        return list(outs) if primitive.multiple_results else [outs]


class _Alone:
    """An equation of ours as JAX's rule for NaNs takes a primitive."""

    multiple_results = True

    def __init__(self, e: Equation, preparation: Preparation):
        self.name = e.primitive.name
        self.inputs = e.inputs
        read = dict.fromkeys([v for v in e.inputs if v.__class__ is Var])
        self.program = Program(tuple(read), [e], tuple(e.outputs))
        self.preparation = preparation

    def bind(self, *values: Any) -> Any:
        pairs = zip(self.inputs, values, strict=True)
        known = {v: x for v, x in pairs if v.__class__ is Var}
        return xla.bind(self.program, [known[v] for v in self.program.inputs], self.preparation)


def _loop(e: Equation, preparation: Preparation) -> Any:
    """The equation as a function that calls JAX's loop, of programs of ours."""
    params: Any = e.params

    def of(program: Program) -> Any:
        return lambda *xs: xla.bind(program, xs, preparation)

    if e.primitive is cond:
        return lambda i, *xs: jax.lax.switch(i, [of(b) for b in params["branches"]], *xs)
    if e.primitive is while_loop:
        n, m = params["cond_consts"], params["body_consts"]
        holds, step = of(params["cond"]), of(params["body"])
        return lambda *xs: jax.lax.while_loop(
            lambda c: holds(*xs[:n], *c)[0], lambda c: step(*xs[n : n + m], *c), list(xs[n + m :])
        )
    n, m = params["consts"], params["carry"]
    body = of(params["program"])

    def scanned(*xs: Any) -> list[Any]:
        def step(carry: Any, x: Any) -> tuple[list[Any], list[Any]]:
            outs = body(*xs[:n], *carry, *x)
            return outs[:m], outs[m:]

        how = {k: params[k] for k in ("length", "reverse", "unroll") if k in params}
        carry, ys = jax.lax.scan(step, list(xs[n : n + m]), list(xs[n + m :]), **how)
        return [*carry, *ys]

    return scanned


for _primitive in xla.PRIMITIVES:
    checkify.error_checks[_primitive] = checked
