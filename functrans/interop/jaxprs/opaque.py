"""Equations that are not in the table: they stay JAX's, with JAX's own rules.

In: an equation. Out: a `jax_call` of it. Equal equations share one body, so their rules are traced
once, and equal calls are recognized as equal.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import compress
from typing import Any

import jax
from jax._src import core
from jax._src.api import jit as jax_jit
from jax._src.dispatch import get_intermediate_shardings, jaxpr_has_prim_requiring_devices
from jax._src.effects import ordered_effects
from jax._src.hijax import call_hi_primitive_p
from jax._src.interpreters import mlir
from jax._src.state.discharge import discharge_state

from functrans import errors
from functrans.backends import xla
from functrans.caching import Cache, exactly
from functrans.interop.jaxprs import walk
from functrans.interop.jaxprs.shards import whole_of
from functrans.ir.program import Program
from functrans.ir.source import describe, user_source
from functrans.ir.types import ArrayType, is_inexact
from functrans.jax_trace import settings
from functrans.primitives.calls.callback import Calls
from functrans.primitives.calls.captured import closed
from functrans.primitives.calls.jax_call import jax_call
from functrans.trace import stage, state, typeof

Active = tuple[bool, ...]


class Body(walk.OneEquation):
    """One equation in the form that `jax_call` takes; see primitives/calls/jax_call.py."""

    def __init__(self, eqn: Any):
        name = eqn.primitive.name
        super().__init__(eqn, name, core.DebugInfo("jax_call", name, None, None))
        self.equation = eqn
        effects = [e for e in eqn.effects if not isinstance(e, core.NamedAxisEffect)]
        self.axes: frozenset[Any] = frozenset(
            [e.name for e in eqn.effects if isinstance(e, core.NamedAxisEffect)]
        )
        self.calls: Calls = Calls(
            bool(effects) or jaxpr_has_prim_requiring_devices(self.closed_alone.jaxpr),
            frozenset(effects),
            any(map(ordered_effects.contains, effects)),
        )
        shardings = [s for s, _ in get_intermediate_shardings(self.closed_alone.jaxpr)]
        meshes = [s.mesh for s in shardings if isinstance(s, jax.sharding.NamedSharding)]
        self.mesh: Any = next((m for m in meshes if isinstance(m, jax.sharding.Mesh)), None)
        self.compiled: Any = jax_jit(self.fun)

    def listing(self) -> str:
        return str(self.closed_alone)

    def __repr__(self) -> str:
        """In texts of programs. In another process, another equation may have the same name."""
        return f"{self.name} {hashlib.sha256(self.listing().encode()).hexdigest()[:6]}"

    def lowered(self) -> Program | None:
        """Return the program of the function that JAX lowers in place of the equation, if there is one."""
        fun = lowered_function(self.equation.primitive)
        if fun is None or self.calls.any or self.calls.effects or self.axes or self.mesh:
            return None

        def made() -> Program:
            alone = self.by(partial(fun, **self.equation.params))
            found = walk.Imported(*walk.traced(alone, self.types), self.name)
            program, n = found.program, len(found.consts)
            consts, inputs = program.inputs[:n], program.inputs[n:]
            return closed(program.replace(inputs=inputs, constants=consts, values=found.consts))

        program: Program = self.known(("lowered",), made)
        return program if program.out_types == self.out_types else None

    def whole(self) -> Program | None:
        """Return the program of whole arrays that a `shard_map` computes; None for one over some axes of
        a mesh only, or of an operation that cannot be mapped."""
        if self.name != "shard_map" or not is_over_all_axes(self.equation):
            return None

        def made() -> Program | None:
            try:
                return stage(self.by(whole_of(self.equation)), self.types, self.name)
            except errors.MissingRule:
                return None

        return self.known(("whole",), made)

    def parts(self) -> list[Program]:
        """Return the programs of ours that a `shard_map` runs on each device."""
        return list(programs_in(self.closed_alone.jaxpr)) if self.name == "shard_map" else []

    # --- rules

    def pushed(self, active: Active) -> walk.Imported:
        """Return: primals, active tangents -> results, tangents of the inexact results."""
        return self.rule("differentiated", ("jvp", active), *self.pushing(active))

    def linearized(self, active: Active) -> tuple[walk.Imported, walk.Imported]:
        """Return: primals -> results, residuals; and residuals, tangents -> tangents."""

        def forward(*primals: Any) -> Any:
            fun, given = self.of_some(active, primals), [*compress(primals, active)]
            try:
                return jax.linearize(fun, *given)
            except NotImplementedError:  # it has a rule for reverse mode only
                if len(self.moving) < len(self.out_types):
                    raise
                outs, back = jax.vjp(fun, *given)
                return outs, jax.tree_util.Partial(partial(_push_by, self.out_types), back)

        run = self.rule("linearized", ("linearize", active), forward, self.types)
        push_tree = run.out_tree.children()[1]
        types = run.program.out_types[len(self.out_types) :]
        n = len(types)

        def pushed(*values: Any) -> list[Any]:
            moved = jax.tree.unflatten(push_tree, values[:n])(*values[n:])
            return [moved[i] for i in self.moving]

        push = self.rule("linearized", ("push", active), pushed, [*types, *compress(self.types, active)])
        return run, push

    def transposed(self, linear: Active) -> walk.Imported:
        """Return: nonlinear operands, cotangents of the inexact results -> cotangents of the linear
        operands."""
        n = len(linear) - sum(linear)

        def back(*values: Any) -> Any:
            rest = iter(values[:n])
            fun = self.of_some(linear, [None if lin else next(rest) for lin in linear])

            def forth(*moving: Any) -> list[Any]:
                outs = fun(*moving)
                return [outs[i] for i in self.moving]

            given = map(walk.abstract, compress(self.types, linear))
            return jax.linear_transpose(forth, *given)(list(values[n:]))

        known = [t for t, lin in zip(self.types, linear, strict=True) if not lin]
        types = [*known, *[self.out_types[i] for i in self.moving]]
        return self.rule("transposed", ("transpose", linear), back, types)

    def batched(self, t: Any, dims: tuple[int | None, ...]) -> tuple[walk.Imported, list[int | None]]:
        """Return: operands, batched along `dims` -> results; and their batch axes."""
        names = {"axis_name": t.axis_name, "spmd_axis_name": t.spmd_axis_name or None}
        return self.told("batched", lambda: self.mapped(self.fun, self.types, dims, t.size, **names))

    def rule(
        self, done: str, key: Any, function: Callable[..., Any], types: Sequence[ArrayType]
    ) -> walk.Imported:
        """Return what a rule of JAX's computes, imported once."""
        return self.told(done, lambda: self.imported(key, function, types))

    def told(self, done: str, make: Callable[[], Any]) -> Any:
        """Return `make()`; on failure raise an error with JAX's reason and the user's line."""
        try:
            return make()
        except errors.FunctransError:
            raise
        except Exception as error:
            source = state.provenance[0] if state.provenance is not None else None
            reason = str(error).strip() or f"JAX raises {type(error).__name__} without a reason"
            raise errors.MissingRule(
                f"the JAX operation {self.name} cannot be {done}: {reason}\nIt comes from\n"
                f"    {describe(source or walk.source_of(self.equation) or user_source())}\n"
                "It uses JAX's own rules, so functrans can transform it only where JAX can. "
                "Give the function that uses it a custom rule (custom_jvp, custom_vjp, "
                "custom_vmap), or pass it stop_gradient(x)."
            ) from error


def _push_by(types: Any, back: Any, *tangents: Any) -> Any:
    """Return the tangents of results by the transpose of a pullback."""
    return jax.linear_transpose(lambda *cts: back([*cts]), *map(walk.abstract, types))(tangents)


# --- what JAX lowers ------------------------------------------------------------------------------

_BY_FUNCTION = mlir.lower_fun(abs).__code__


def lowered_function(primitive: Any) -> Callable[..., Any] | None:
    """Return the function of operands and parameters that JAX traces and lowers for a primitive, on
    every platform; None if its lowering emits operations by itself.

    Libraries define primitives for the sake of a batching or derivative rule, and lower them as what
    they compute: `mlir.register_lowering(p, mlir.lower_fun(jnp.any))`. JAX's high-level operations are
    expanded.
    """
    if primitive is call_hi_primitive_p:
        expand: Callable[..., Any] = primitive.to_lojax
        return expand
    entry = mlir._lowerings.get(primitive)
    if entry is None or getattr(entry.rule, "__code__", None) is not _BY_FUNCTION:
        return None
    if any([primitive in table for table in mlir._platform_specific_lowerings.values()]):
        return None
    given = inspect.getclosurevars(entry.rule).nonlocals
    fun: Callable[..., Any] = given["fun"]
    return fun if given["multiple_results"] else lambda *xs, **params: [fun(*xs, **params)]


# --- bodies ---------------------------------------------------------------------------------------

_BODIES = Cache("equations that stay JAX's", 2048)


def is_over_all_axes(eqn: Any) -> bool:
    """Return whether a `shard_map` maps over all axes of its mesh."""
    return bool(eqn.params["newly_manual_axes"] == frozenset(eqn.params["mesh"].axis_names))


def programs_in(jaxpr: Any) -> Iterator[Program]:
    """Yield the programs of ours that a jaxpr runs."""
    for e in jaxpr.eqns:
        if e.primitive in xla.PRIMITIVES:
            yield e.params["program"]
        for inner in core.jaxprs_in_params(e.params):
            yield from programs_in(inner)


def body_of(eqn: Any) -> Body:
    """Return the body of an equation; equal equations share one."""
    try:
        key = signature(eqn)
        found = _BODIES.get(key)
    except TypeError:  # a parameter that is not hashable
        return Body(eqn)
    return found or _BODIES.keep(key, Body(eqn))


def signature(eqn: Any) -> tuple[Any, ...]:
    """Return a key that is equal for equations that differ only in their variables."""
    number: dict[Any, int] = {}
    inputs = []
    for v in eqn.invars:
        literal = hasattr(v, "val")
        inputs.append((exactly(v.val) if literal else number.setdefault(v, len(number)), v.aval))
    outputs = [(isinstance(v, core.DropVar), v.aval) for v in eqn.outvars]
    params = [(k, exactly(v)) for k, v in sorted(eqn.params.items())]
    return (eqn.primitive, *inputs, *outputs, *params, eqn.ctx, settings())


@walk.means(walk.OTHER)
def _other(eqn: Any, *values: Any) -> walk.Flat:
    kind = jax.core.ShapedArray
    if not all([isinstance(v.aval, kind) for v in (*eqn.invars, *eqn.outvars)]):
        raise no_arrays(eqn)
    body = body_of(walk.in_jaxpr(eqn))
    return body.results(jax_call(*body.operands(values), body=body))


@walk.means("call_hi_primitive")
def _high_level(eqn: Any, *values: Any) -> walk.Flat:
    """A high-level operation of JAX: expanded if its results have no derivative, which an expansion
    may lose."""
    if any([is_inexact(getattr(v.aval, "dtype", "float32")) for v in eqn.outvars]):
        return _other(eqn, *values)
    closed, _ = walk.traced(partial(call_hi_primitive_p.to_lojax, **eqn.params), [typeof(x) for x in values])
    return walk.run(closed.jaxpr, walk.constants_of(closed), values)


def no_arrays(eqn: Any) -> errors.NotSupported:
    """Return the error for a single equation with values that are not arrays."""
    kinds = [str(v.aval) for v in (*eqn.invars, *eqn.outvars)]
    return errors.NotSupported(
        f"the JAX operation {eqn.primitive.name} ({', '.join(kinds)}) has operands or results that "
        f"are not arrays, at\n    {describe(walk.source_of(eqn) or user_source())}\n"
        "Put all that uses them into one jax.jit function whose arguments and results are arrays: "
        "functrans treats it as a whole."
    )


# --- what is no array -----------------------------------------------------------------------------


@walk.means(walk.WHOLE)
def _whole(jaxpr: Any, *values: Any) -> walk.Flat:
    """A jaxpr with values that are not arrays. References to memory become the values in them; any
    other equation becomes one call of JAX."""
    names = core.DebugInfo("jax_call", jaxpr.debug_info.func_src_info, None, None)
    inputs = [*jaxpr.constvars, *jaxpr.invars]
    closed = walk.close(jaxpr.replace(constvars=[], invars=inputs, debug_info=names))
    if core.internal_mutable_array_effect in jaxpr.effects:
        closed = discharge_state(closed)
        if walk.makes_arrays(closed.jaxpr):
            return walk.run(closed.jaxpr, walk.constants_of(closed), values)
    returned = [v for v in jaxpr.outvars if not isinstance(v.aval, jax.core.ShapedArray)]
    if returned:
        raise no_arrays(next(e for e in jaxpr.eqns if returned[0] in e.outvars))
    called, _ = walk.traced(jax_jit(core.jaxpr_as_fun(closed)), [typeof(x) for x in values])
    return walk.run(called.jaxpr, walk.constants_of(called), values, lambda eqn, xs: _other(eqn, *xs))
