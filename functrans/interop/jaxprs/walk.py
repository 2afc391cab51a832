"""Run a jaxpr, equation by equation.

In: a jaxpr and functrans values for its inputs. Out: the values of its outputs, computed by binding
functrans operations in the current trace; or, `program`, the Program of a nested jaxpr.

`TABLE` maps the name of a JAX primitive to a function `(eqn, *values)` -> value or list of them.
`same` and `like` generate such functions, `means` registers a handwritten one. A primitive that is
missing, or that its function does not accept, is `opaque`: it stays JAX's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src.core import ClosedJaxpr

from functrans import errors
from functrans.caching import CachePerFunction
from functrans.ir.program import PRIMITIVES, Program, hoist_constants
from functrans.ir.source import Source, is_users
from functrans.ir.types import ArrayType, float0
from functrans.primitives.custom.calls import as_type
from functrans.primitives.distributed.sharding import sharding_constraint
from functrans.primitives.shape.moving import broadcast_in_dim, reshape
from functrans.trace import derive_from, derived_here, full, materialize, provenance, stage, typeof

Meaning = Callable[..., Any]

TABLE: dict[str, Meaning] = {}
PLAIN: set[str] = set()  # primitives whose results are weakly typed if all operands are
# The keys for any other primitive, and for a jaxpr with values that are not arrays.
OTHER, WHOLE = "<any other>", "<no arrays>"


# --- the table ------------------------------------------------------------------------------------


def means(*names: str) -> Callable[[Meaning], Meaning]:
    """Register the decorated function as the meaning of these JAX primitives."""

    def add(function: Meaning) -> Meaning:
        TABLE.update(dict.fromkeys(names, function))
        return function

    return add


def same(*names: str) -> None:
    """Register elementwise operations without parameters that have the same name here. JAX
    broadcasts scalars and axes of size 1; our operations take equal shapes."""
    for name in names:
        means(name)(_elementwise(name))


def _elementwise(name: str) -> Meaning:
    def apply(eqn: Any, *values: Any) -> Any:
        shapes = [typeof(x).shape for x in values]
        if any([s != shapes[0] for s in shapes]):
            shape = eqn.outvars[0].aval.shape
            values = tuple([spread(x, shape) for x in values])
        return operation(eqn, name)(*values)

    PLAIN.add(name)
    return apply


def like(name: str, ours: str | None = None, /, **params: str) -> None:
    """Register an operation whose parameters have other names here: `ours="theirs"`."""

    def apply(eqn: Any, *values: Any) -> Any:
        given = {k: plain(eqn.params[v]) for k, v in params.items()}
        return operation(eqn, ours or name)(*values, **given)

    means(name)(apply)
    PLAIN.add(name)


def operation(eqn: Any, name: str) -> Any:
    """Return our operation of a name for a JAX equation."""
    return PRIMITIVES[name]


def plain(value: Any) -> Any:
    """Return a parameter in our form: tuples, Python numbers, dtypes."""
    if isinstance(value, (tuple, list)):
        return tuple([plain(v) for v in value])
    return value.item() if isinstance(value, (np.integer, np.bool_)) else value


def spread(x: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast x: its axes of size 1, or a scalar, to the shape."""
    ndim = typeof(x).ndim
    return repeated(x, shape, range(len(shape) - ndim, len(shape)) if ndim else ())


def repeated(x: Any, shape: tuple[int, ...], dimensions: Sequence[int]) -> Any:
    """Broadcast x to the shape, with axis i as axis `dimensions[i]`."""
    old = typeof(x).shape
    if old == shape:
        return x
    kept = [(n, d) for n, d in zip(old, dimensions, strict=True) if n == shape[d]]
    if len(kept) < len(old):
        x = reshape(x, shape=tuple([n for n, _ in kept]))
    return broadcast_in_dim(x, shape=shape, dimensions=tuple([d for _, d in kept]))


def spread_front(x: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast x along new trailing axes."""
    return repeated(x, shape, range(typeof(x).ndim))


def opaque(eqn: Any, *values: Any) -> Any:
    """Keep the equation as it is, with JAX's own rules."""
    return TABLE[OTHER](eqn, *values)


# --- walking --------------------------------------------------------------------------------------


def type_of_aval(aval: Any) -> ArrayType:
    """Return our type for a JAX aval; raise TypeError if it is not an array."""
    return ArrayType(tuple(aval.shape), aval.dtype, bool(getattr(aval, "weak_type", False)))


def number(x: Any, aval: Any) -> Any:
    """Return a Python number as an operand of the type that JAX gives it."""
    return full(np.asarray(x).item(), type_of_aval(aval))


def read_literal(v: Any) -> Any:
    """Return the value of a JAX literal."""
    return number(v.val, v.aval)


def abstract(t: ArrayType) -> jax.ShapeDtypeStruct:
    """Return a type as JAX represents it."""
    return jax.ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak_type)


def constants_of(closed: Any) -> list[Any]:
    """Return the constants of a jaxpr at the types that it names: JAX may have traced it while
    64-bit types were enabled, and reuse it when they are not."""
    made = []
    for x, v in zip(closed.consts, closed.jaxpr.constvars, strict=True):
        if typeof(x).dtype != v.aval.dtype:
            with jax.enable_x64(True), jax.ensure_compile_time_eval():
                x = jax.numpy.asarray(x, v.aval.dtype)
        made.append(x)
    return made


def makes_arrays(jaxpr: Any) -> bool:
    """Return whether all values are arrays. Others are tokens, references and the user's types."""
    kind = jax.core.ShapedArray
    return all([isinstance(v.aval, kind) for e in jaxpr.eqns for v in e.outvars])


def run(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """Return the outputs of a jaxpr."""
    if not makes_arrays(jaxpr):
        return list(TABLE[WHOLE](jaxpr, *consts, *args))
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(v: Any) -> Any:
        if hasattr(v, "val"):  # a literal
            return read_literal(v)
        return env[v]

    here, _ = derived_here()
    with provenance():
        for eqn in jaxpr.eqns:
            derive_from(source_of(eqn) or here, None)
            env.update(zip(eqn.outvars, apply(eqn, [read(v) for v in eqn.invars]), strict=True))
    return [read(v) for v in jaxpr.outvars]


# Where JAX's operations keep the layout that a user asked for by `out_sharding=`.
_LAYOUTS = {"dot_general": "out_sharding"} | dict.fromkeys(
    ("broadcast_in_dim", "convert_element_type", "iota", "reshape"), "sharding"
)


def results(eqn: Any, values: Sequence[Any]) -> list[Any]:
    """Return the results of one equation; their weak types may differ from JAX's."""
    try:
        outs = TABLE.get(eqn.primitive.name, opaque)(eqn, *values)
    except errors.UnsupportedChoice:  # an option that only JAX's operation has
        outs = opaque(eqn, *values)
    if not isinstance(outs, (list, tuple)):
        outs = [outs]
    asked = eqn.params.get(_LAYOUTS.get(eqn.primitive.name))
    if isinstance(asked, jax.sharding.NamedSharding) and any(asked.spec):
        outs = [sharding_constraint(materialize(outs[0]), sharding=asked)]
    return [materialize(y) for y in outs]


def apply(eqn: Any, values: Sequence[Any]) -> list[Any]:
    """Return the results of an equation of a jaxpr, at the types that it names."""
    outs = results(eqn, values)
    for y, v in zip(outs, eqn.outvars, strict=True):
        want = type_of_aval(v.aval)
        if want.dtype != float0:  # tangents of integers are never used
            have = typeof(y)
            assert have.same(want), f"import of {eqn.primitive}: {have} where JAX has {want}"
    return outs


def exactly(outs: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
    """Return results with JAX's weak types."""
    return [as_type(y, type_of_aval(a)) for y, a in zip(outs, avals, strict=True)]


# closed jaxpr -> its program, and the values of the program's first inputs
_PROGRAMS = CachePerFunction("jaxprs as programs", 2)


def program(closed: Any, name: str = "") -> tuple[Program, tuple[Any, ...]]:
    """Return the program of a nested jaxpr with its constants as first inputs, and the constants.
    It is made once per jaxpr, since JAX passes the same jaxpr to each call of a function."""
    known = _PROGRAMS.of(closed)
    found = known.get("program")
    if found is None:
        consts, avals = constants_of(closed), closed.out_avals
        n = len(consts)

        def body(*values: Any) -> list[Any]:
            return exactly(run(closed.jaxpr, values[:n], values[n:]), avals)

        types = [*map(typeof, consts), *map(type_of_aval, closed.in_avals)]
        made, captured = hoist_constants(stage(body, types, name))
        found = known.keep("program", (made, (*captured, *consts)))
    return found


def closed_like(jaxpr: Any) -> Any:
    """Return an open jaxpr without constants as a closed one."""
    return ClosedJaxpr(jaxpr, ())


# --- errors and places ----------------------------------------------------------------------------


def source_of(eqn: Any) -> Source | None:
    """Return the user's line of a JAX equation."""
    traceback = eqn.source_info.traceback
    if traceback is None:
        return None
    for code, offset in zip(*traceback.raw_frames(), strict=True):
        if is_users(code):
            return code, offset
    return None
