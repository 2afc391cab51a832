"""One equation of JAX's as a function, and JAX's functions as programs.

An equation's rules are obtained from JAX: `jax.jvp`, `jax.vmap`, ... of a function of this one
equation run its rule; the result is traced and imported when our own transformation needs it.
Nothing is traced for a rule that is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax._src.config import eager_constant_folding, trace_context
from jax._src.core import ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Var, jaxpr_as_fun, new_jaxpr_eqn

from functrans.caching import Cache
from functrans.interop.jaxprs.walk import abstract, constants_of, exactly, run, type_of_aval
from functrans.ir.program import Program, hoist_constants
from functrans.ir.types import ArrayType, is_inexact
from functrans.trace import evaluate, full, stage, state, tracing, typeof

Flat = Sequence[Any]


# --- JAX functions as programs --------------------------------------------------------------------


def traced(fun: Callable[..., Any], types: Sequence[ArrayType]) -> tuple[Any, Any]:
    """Return the jaxpr of a function of flat values, and the structure of its result."""
    trace = jax.make_jaxpr(fun, axis_env=list(state.axes), return_shape=True)
    # inside, only JAX handles jax arrays, and fills and iotas stay operations
    with tracing(None), eager_constant_folding(False):
        closed, out = trace(*map(abstract, types))
    return closed, jax.tree.structure(out)


class Imported:
    """An imported jaxpr as a Program, with the structure of its result."""

    __slots__ = ("consts", "out_tree", "program")
    program: Program

    def __init__(self, closed: Any, out_tree: Any, name: str):
        consts = constants_of(closed)
        n = len(consts)

        def body(*values: Any) -> list[Any]:
            return exactly(run(closed.jaxpr, values[:n], values[n:]), closed.out_avals)

        types = [*map(typeof, consts), *map(type_of_aval, closed.in_avals)]
        self.program, captured = hoist_constants(stage(body, types, name))
        self.consts: tuple[Any, ...] = (*captured, *consts)
        self.out_tree: Any = out_tree

    def __call__(self, values: Flat) -> list[Any]:
        return evaluate(self.program, [*self.consts, *values])

    @property
    def types(self) -> tuple[ArrayType, ...]:
        """Return the types of the results."""
        return self.program.out_types


def _contexts(folding: bool) -> tuple[Any, ...]:
    with eager_constant_folding(folding):
        return trace_context()


# The position among JAX's flags of the one that our jit and `traced` set.
_FOLDING = [a is b for a, b in zip(_contexts(False), _contexts(True), strict=True)].index(False)


def context() -> tuple[Any, ...]:
    """Return the flags of JAX that programs depend on."""
    context = trace_context()
    return context[:_FOLDING] + context[_FOLDING + 1 :]


# --- one equation ---------------------------------------------------------------------------------


def in_jaxpr(eqn: Any) -> Any:
    """Return a jaxpr equation for a record of one: a primitive, its parameters and effects, and
    objects with an `aval` for each operand and result."""
    if isinstance(eqn, JaxprEqn):
        return eqn
    inputs, outputs = ([Var(v.aval) for v in vs] for vs in (eqn.invars, eqn.outvars))
    return new_jaxpr_eqn(inputs, outputs, eqn.primitive, eqn.params, eqn.effects)


class OneEquation:
    """One equation with its rules, as a JAX function `fun` of its distinct operands, without
    literals."""

    atoms: Any
    all_outputs: Any

    def __init__(self, eqn: Any, name: str, known: Any):
        self.name = name
        eqn = in_jaxpr(eqn)
        self.atoms, self.all_outputs = eqn.invars, eqn.outvars
        self.inputs: list[Any] = list(dict.fromkeys([v for v in eqn.invars if not hasattr(v, "val")]))
        dropped = DropVar
        self.outputs: list[Any] = [v for v in eqn.outvars if not isinstance(v, dropped)]
        alone = Jaxpr([], self.inputs, self.outputs, [eqn], eqn.effects, debug_info=known)
        self.closed_alone = ClosedJaxpr(alone, ())
        self.fun = jaxpr_as_fun(self.closed_alone)
        self.types = tuple([type_of_aval(v.aval) for v in self.inputs])
        self.out_types = tuple([type_of_aval(v.aval) for v in self.outputs])
        self.moving = [i for i, t in enumerate(self.out_types) if is_inexact(t.dtype)]
        self.made = Cache("rules of JAX's operations", 64)

    def operands(self, values: Flat) -> list[Any]:
        """Return the values of `inputs`, out of the values of all operands of the equation."""
        env = {v: x for v, x in zip(self.atoms, values, strict=True) if not hasattr(v, "val")}
        return [env[v] for v in self.inputs]

    def results(self, found: Flat) -> list[Any]:
        """Return all results of the equation; unused ones are zeros."""
        outs, used = iter(found), set(self.outputs)
        return [next(outs) if v in used else full(0, type_of_aval(v.aval)) for v in self.all_outputs]

    def known(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return `make()`, computed once per key and named axes in scope."""
        key = (*key, state.axes)
        found = self.made.get(key)
        return self.made.keep(key, make()) if found is None else found

    def of_some(self, active: Sequence[bool], primals: Flat) -> Callable[..., Any]:
        """Return the function of the active operands only."""

        def fun(*moving: Any) -> Any:
            rest = iter(moving)
            return self.fun(*[next(rest) if a else x for a, x in zip(active, primals, strict=True)])

        return fun

    def pushing(self, active: Sequence[bool]) -> tuple[Callable[..., Any], list[ArrayType]]:
        """Return `jax.jvp` as a function of the primals and the active tangents that returns the
        results and the tangents of inexact results; also return its argument types."""
        n = len(self.types)

        def pushed(*values: Any) -> Any:
            given = only(values[:n], active)
            outs, moved = jax.jvp(self.of_some(active, values[:n]), given, list(values[n:]))
            return outs, [moved[i] for i in self.moving]

        return pushed, [*self.types, *only(self.types, active)]


def only(values: Sequence[Any], chosen: Sequence[bool]) -> list[Any]:
    return [x for x, c in zip(values, chosen, strict=True) if c]
