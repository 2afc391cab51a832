"""Run a jaxpr, equation by equation; JAX's functions, and single equations of it, as programs.

In: a jaxpr and functrans values for its inputs. Out: the values of its outputs, computed by binding
functrans operations in the current trace; or, `program`, the Program of a nested jaxpr.

`TABLE` maps the name of a JAX primitive to a function `(eqn, *values)` -> value or list of them.
`means` registers a handwritten one, `like` makes one for an operation of ours that differs in names
only, and one with the same names (`SAME`) needs no entry. A primitive that is missing, or that its
function does not accept, is `opaque`: it stays JAX's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from itertools import compress
from typing import Any

import jax
import numpy as np
from jax._src import core
from jax._src.config import eager_constant_folding
from jax._src.core import DropVar, Jaxpr, JaxprEqn, Var, jaxpr_as_fun, new_jaxpr_eqn
from jax._src.source_info_util import Scope

from functrans import errors
from functrans.caching import Cache, CachePerFunction
from functrans.flags import flags
from functrans.ir.program import PRIMITIVES, Literal, Program, hoist_constants
from functrans.ir.source import Source, is_users
from functrans.ir.types import ArrayType, float0, is_inexact
from functrans.jax_trace import as_varying, varies
from functrans.lax.arguments import repeated as repeated
from functrans.lax.arguments import spread as spread
from functrans.primitives.custom.calls import as_type
from functrans.primitives.distributed.sharding import of_type, sharding_constraint
from functrans.primitives.elementwise.families import Binary
from functrans.primitives.elementwise.special import Special
from functrans.primitives.random.bits import Threefry2x32
from functrans.trace import (
    concrete_value,
    derive_from,
    derived_here,
    evaluate,
    full,
    literal,
    materialize,
    provenance,
    stage,
    state,
    tracing,
    typeof,
)

Meaning = Callable[..., Any]
Flat = Sequence[Any]

PLAIN: set[str] = set()  # primitives whose results are weakly typed if all operands are
# Primitives that have the same names and parameters here.
_NAMES = (
    "abs acos acosh add and argmax argmin asin asinh atan atan2 atanh bessel_i0e bessel_i1e ceil cholesky "
    "clamp clz complex concatenate copy cosh cumlogsumexp cummax cummin cumprod cumsum digamma div "
    "dynamic_update_slice eig eq erf erf_inv floor ge gt igamma igamma_grad_a igammac imag integer_pow iota "
    "is_finite le lgamma lt lu lu_pivots_to_permutation max min mulhi name ne neg nextafter not "
    "one_minus_square optimization_barrier or polygamma population_count pow random_unwrap real reduce_and "
    "reduce_max reduce_min reduce_or reduce_precision reduce_prod reduce_sum reduce_window_max "
    "reduce_window_min reduce_window_sum reduce_xor regularized_incomplete_beta rem rev select_n shift_left "
    "shift_right_arithmetic shift_right_logical sign sinh sort split square squeeze stop_gradient sub "
    "threefry2x32 transpose triangular_solve tridiagonal_solve xor zeta"
)
SAME = frozenset(_NAMES.split())
# The keys for any other primitive, and for a jaxpr with values that are not arrays.
OTHER, WHOLE = "<other>", "<no-arrays>"


class _Table(dict[str, Meaning]):
    """JAX primitive -> what it is here. Ours of the `SAME` names are looked up when they are first met:
    their modules are imported late."""

    def __missing__(self, name: str) -> Meaning:
        return like(name) if name in SAME else opaque


TABLE: dict[str, Meaning] = _Table()


# --- the table ------------------------------------------------------------------------------------


def means(names: str) -> Callable[[Meaning], Meaning]:
    """Register the decorated function as the meaning of JAX primitives; names are separated by spaces,
    here and below."""

    def add(function: Meaning) -> Meaning:
        TABLE.update(dict.fromkeys(names.split(), function))
        return function

    return add


def like(name: str, ours: str = "", **renamed: str) -> Meaning:
    """Register an operation of ours, `ours` if it has another name, that has JAX's parameters, but for
    those given as `theirs="ours"`; "" drops one. JAX broadcasts scalars and axes of size 1; our operations
    take equal shapes."""
    primitive = PRIMITIVES[ours or name]
    spreads = isinstance(primitive, (Binary, Special, Threefry2x32))

    def apply(eqn: Any, *values: Any) -> Any:
        if spreads:
            shapes = [typeof(x).shape for x in values]
            if any([s != shapes[0] for s in shapes]):
                values = tuple([spread(x, eqn.outvars[0].aval.shape) for x in values])
        return primitive(*values, **parameters(eqn, renamed)) if eqn.params else primitive(*values)

    PLAIN.add(name)
    return means(name)(apply)


def parameters(eqn: Any, renamed: dict[str, str]) -> dict[str, Any]:
    """Return the parameters of an equation that are set and say nothing of devices, in our form."""
    given = {renamed.get(k, k): v for k, v in eqn.params.items() if v is not None and k not in _OF_LAYOUT}
    given.pop("", None)
    return {k: plain(v) for k, v in given.items()}


def each_like(names: str, function: Callable[..., Any], **renamed: str) -> None:
    """Register a function of each operand; its parameters as in `like`."""
    means(names)(lambda eqn, *values: [function(x, **parameters(eqn, renamed)) for x in values])


def plain(value: Any) -> Any:
    """Return a parameter in our form: tuples, Python numbers, dtypes, the names of choices."""
    if value.__class__ is int:
        return value
    if isinstance(value, (tuple, list)):
        return tuple([plain(v) for v in value])
    if isinstance(value, Enum):
        return value.name
    return value.item() if isinstance(value, (np.integer, np.bool_)) else value


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


def known_value(x: Any) -> Any:
    """Return the value of a literal of ours or of a concrete array, else None."""
    found = getattr(x, "ref", None)
    return found.value if isinstance(found, Literal) else concrete_value(x)


def abstract(t: Any) -> Any:
    """Return a type as JAX represents it."""
    return jax.ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak_type) if t.__class__ is ArrayType else t


def kind_of(aval: Any) -> Any:
    """Return a type of JAX as ours; itself if values vary over axes, which ours do not say."""
    return aval if varies(aval) else type_of_aval(aval)


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


def run(
    jaxpr: Any,
    consts: Sequence[Any],
    args: Sequence[Any],
    one: Callable[[Any, list[Any]], Sequence[Any]] | None = None,
) -> list[Any]:
    """Return the outputs of a jaxpr, whose equations `one` computes, by default by the table."""
    if not makes_arrays(jaxpr):
        return list(TABLE[WHOLE](jaxpr, *consts, *args))
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(v: Any) -> Any:
        if hasattr(v, "val"):  # a literal
            return number(v.val, v.aval)
        return env[v]

    here, _ = derived_here()
    with provenance():
        for eqn in jaxpr.eqns:
            derive_from(source_of(eqn, here), None)
            outs = (one or apply)(eqn, [read(v) for v in eqn.invars])
            env.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


_OF_LAYOUT = ("out_sharding", "sharding")  # parameters that say how a result is sharded
# Where JAX's operations keep the layout that a user asked for by `out_sharding=`.
_LAYOUTS = {"dot_general": "out_sharding"} | dict.fromkeys(
    ("broadcast_in_dim", "convert_element_type", "iota", "reshape"), "sharding"
)


def results(eqn: Any, values: Sequence[Any]) -> list[Any]:
    """Return the results of one equation; their weak types may differ from JAX's."""
    name = eqn.primitive.name
    try:
        outs = TABLE[name](eqn, *values)
    except errors.UnsupportedChoice:  # an option that only JAX's operation has
        outs = opaque(eqn, *values)
    if not isinstance(outs, (list, tuple)):
        outs = [outs]
    layout = _LAYOUTS.get(name, "")
    if isinstance(eqn.params.get(layout), jax.sharding.NamedSharding):
        asked = _asked(eqn, layout)
        outs = outs if asked is None else [sharding_constraint(materialize(outs[0]), sharding=asked)]
    return [materialize(y) for y in outs]


def _asked(eqn: Any, name: str) -> Any:
    """Return the sharding that an equation asks for; None if it is that of the result anyway. JAX's
    transposes ask for many of these, and operations on both sides of a constraint are not merged."""
    aval = eqn.outvars[0].aval  # JAX's vmap may leave a spec of other axes in the parameter
    asked = of_type(aval.sharding, aval.ndim)
    if asked is None:
        return eqn.params[name] if any(eqn.params[name].spec) else None
    free = {**eqn.params, name: None}
    try:
        with jax.sharding.use_abstract_mesh(asked.mesh):
            usual, _ = eqn.primitive.abstract_eval(*[v.aval for v in eqn.invars], **free)
    except Exception:  # JAX cannot decide
        return asked
    return None if usual.sharding == asked else asked


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
_PROGRAMS = CachePerFunction("jaxprs as programs", 4)


def program(closed: Any, name: str = "") -> tuple[Program, tuple[Any, ...]]:
    """Return `converted`, made once per jaxpr, since JAX passes the same jaxpr to each call of a function."""
    known = _PROGRAMS.of(closed)
    checked = flags.jax_debug_key_reuse  # then keys stay JAX's (arrays.py)
    found = known.get(checked)
    return known.keep(checked, converted(closed, name)) if found is None else found


def converted(closed: Any, name: str) -> tuple[Program, tuple[Any, ...]]:
    """Return the program of a jaxpr with its constants as first inputs, and the constants."""
    consts = constants_of(closed)
    n, here = len(consts), derived_here()

    def body(*values: Any) -> list[Any]:
        with provenance(*here):
            return exactly(run(closed.jaxpr, values[:n], values[n:]), closed.out_avals)

    types = [*map(typeof, consts), *map(type_of_aval, closed.in_avals)]
    made, captured = hoist_constants(stage(body, types, name))
    return made, (*captured, *consts)


def close(jaxpr: Any) -> Any:
    """Return a jaxpr, without constants if it is open, as a closed one: the two are one class from
    JAX 0.11 on."""
    return jaxpr if hasattr(jaxpr, "consts") else core.ClosedJaxpr(jaxpr, ())


# --- errors and places ----------------------------------------------------------------------------


def source_of(eqn: Any, around: Source | None = None) -> Source | None:
    """Return the user's line of a JAX equation and the path of its scopes, which starts with that of the
    line around its jaxpr; or the latter, if the equation has no line of the user."""
    info = eqn.source_info
    if info.traceback is None:
        return around
    for code, offset in zip(*info.traceback.raw_frames(), strict=True):
        if is_users(code):
            inside = "".join([f"{x.name}/" for x in info.name_stack.stack if isinstance(x, Scope)])
            return code, offset, inside if around is None else around[2] + inside
    return around


# --- JAX functions as programs --------------------------------------------------------------------


def traced(fun: Callable[..., Any], types: Sequence[Any]) -> tuple[Any, Any]:
    """Return the jaxpr of a function of flat values, and the structure of its result. The types may
    be those of `kind_of`."""
    trace = jax.make_jaxpr(fun, axis_env=list(state.axes), return_shape=True)
    # inside, only JAX handles jax arrays, and fills and iotas stay operations
    with tracing(None), eager_constant_folding(False), as_varying(types):
        closed, out = trace(*map(abstract, types))
    return closed, jax.tree.structure(out)


class Imported:
    """An imported jaxpr as a Program, with the structure of its result."""

    __slots__ = ("consts", "kinds", "out_tree", "program")
    program: Program
    consts: tuple[Any, ...]

    def __init__(self, closed: Any, out_tree: Any, name: str):
        self.program, self.consts = converted(closed, name)
        self.out_tree: Any = out_tree
        self.kinds: list[Any] = list(map(kind_of, closed.out_avals))

    def __call__(self, values: Flat) -> list[Any]:
        return evaluate(self.program, [*self.consts, *values])


# --- one equation as a function -------------------------------------------------------------------
#
# Its rules are obtained from JAX: `jax.jvp`, `jax.vmap`, ... of a function of this one equation run
# its rule; the result is traced and imported when our own transformation needs it. Nothing is traced
# for a rule that is not used.


def in_jaxpr(eqn: Any) -> Any:
    """Return a jaxpr equation for a record of one: a primitive, its parameters and effects, and
    objects with an `aval` for each operand and result."""
    return eqn if isinstance(eqn, JaxprEqn) else with_variables(eqn)


def with_variables(eqn: Any) -> Any:
    """Return an equation with one variable for each operand and result."""
    inputs, outputs = ([Var(v.aval) for v in vs] for vs in (eqn.invars, eqn.outvars))
    return new_jaxpr_eqn(inputs, outputs, eqn.primitive, eqn.params, eqn.effects)


class OneEquation:
    """One equation with its rules, as a JAX function `fun` of its distinct operands, without literals."""

    atoms: Any
    all_outputs: Any

    def __init__(self, eqn: Any, name: str, known: Any):
        self.name: str = name
        eqn = in_jaxpr(eqn)
        self.atoms, self.all_outputs = eqn.invars, eqn.outvars
        self.inputs: list[Any] = list(dict.fromkeys([v for v in eqn.invars if not hasattr(v, "val")]))
        self.outputs: list[Any] = [v for v in eqn.outvars if not isinstance(v, DropVar)]
        alone = Jaxpr([], self.inputs, self.outputs, [eqn], eqn.effects, debug_info=known)
        self.closed_alone: Any = close(alone)
        self.fun: Callable[..., Any] = jaxpr_as_fun(self.closed_alone)
        self.types: tuple[ArrayType, ...] = tuple([type_of_aval(v.aval) for v in self.inputs])
        self.out_types: tuple[ArrayType, ...] = tuple([type_of_aval(v.aval) for v in self.outputs])
        self.kinds: list[Any] = [kind_of(v.aval) for v in self.inputs]
        self.moving: list[int] = [i for i, t in enumerate(self.out_types) if is_inexact(t.dtype)]
        self.made: Cache = Cache("rules of JAX's operations", 64)

    def operands(self, values: Flat) -> list[Any]:
        """Return the values of `inputs`, out of the values of all operands of the equation."""
        env = {v: x for v, x in zip(self.atoms, values, strict=True) if not hasattr(v, "val")}
        return [env[v] for v in self.inputs]

    def results(self, found: Flat) -> list[Any]:
        """Return all results of the equation; unused ones are zeros."""
        outs, used = iter(found), set(self.outputs)
        return [next(outs) if v in used else full(0, type_of_aval(v.aval)) for v in self.all_outputs]

    def by(self, fun: Callable[..., Flat]) -> Callable[..., list[Any]]:
        """Return a function like `self.fun` that calls another one of the equation's operands."""

        def alone(*values: Any) -> list[Any]:
            env = dict(zip(self.inputs, values, strict=True))
            outs = fun(*[v.val if hasattr(v, "val") else env[v] for v in self.atoms])
            kept = zip(self.all_outputs, outs, strict=True)
            return [y for v, y in kept if not isinstance(v, DropVar)]

        return alone

    def cotangents(self, cts: Flat) -> list[Any]:
        """Return the cotangents of the inexact results, out of those of all; None is zero."""
        return [literal(0, self.out_types[i]) if cts[i] is None else cts[i] for i in self.moving]

    def known(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return `make()`, computed once per key and named axes in scope."""
        key = (*key, state.axes)
        found = self.made.get(key)
        return self.made.keep(key, make()) if found is None else found

    def imported(self, key: Any, fun: Callable[..., Any], types: Sequence[Any]) -> Imported:
        """Return a function of JAX's on these types as a program, `known` by the key."""
        return self.known(key, lambda: Imported(*traced(fun, types), self.name))

    def of_some(self, active: Sequence[bool], primals: Flat) -> Callable[..., Any]:
        """Return the function of the active operands only."""

        def fun(*moving: Any) -> Any:
            rest = iter(moving)
            return self.fun(*[next(rest) if a else x for a, x in zip(active, primals, strict=True)])

        return fun

    def pushing(self, active: Sequence[bool]) -> tuple[Callable[..., Any], list[Any]]:
        """Return `jax.jvp` as a function of the primals and the active tangents that returns the
        results and the tangents of inexact results; also return its argument types."""
        n = len(self.types)

        def pushed(*values: Any) -> Any:
            given = list(compress(values[:n], active))
            outs, moved = jax.jvp(self.of_some(active, values[:n]), given, list(values[n:]))
            return outs, [moved[i] for i in self.moving]

        return pushed, [*self.kinds, *compress(self.kinds, active)]

    def mapped(
        self, fun: Callable[..., Any], one: Flat, dims: Sequence[int | None], size: int, **names: Any
    ) -> tuple[Imported, list[int | None]]:
        """Return `jax.vmap` of `fun`, which takes values of the types `one` of an example, for values
        batched along `dims`; and the batch axes of its results."""
        given = zip(dims, one, strict=True)
        types = [t if d is None else t.update(shape=(*t.shape[:d], size, *t.shape[d:])) for d, t in given]
        found: list[bool] = []

        def noting(*values: Any) -> list[Any]:
            outs = fun(*values)
            found[:] = [getattr(y, "batch_dim", None) is not None for y in outs]
            return outs

        def over(out_axes: Any) -> Callable[..., Any]:
            return jax.vmap(noting, in_axes=dims, out_axes=out_axes, axis_size=size, **names)

        def made() -> tuple[Imported, list[int | None]]:
            closed, tree = traced(over(0), types)
            axes = [0 if b else None for b in found]
            if not all(found):  # results that are the same for all examples stay unbatched
                closed, tree = traced(over(axes), types)
            return Imported(closed, tree, self.name), axes

        return self.known(("vmap", size, dims, *names.values()), made)
