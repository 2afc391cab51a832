"""JAX primitives applied to functrans tracers, and jax arrays that meet them.

While functrans traces, a `Bridge` is JAX's current trace (jax_trace.py); this module implements its
methods. A JAX primitive with one of our tracers as an operand, or any primitive while a program is
recorded, is translated to our operations by the table in `interop/jaxprs/`. Everything else is
passed to JAX's outer trace. So jax.numpy, and every library built on it, runs unchanged inside our
transformations, and JAX's transformations inside ours call the bridge.

    jax.jit, scan, cond, checkpoint   JAX has already staged their functions: the table has them
    jax.custom_jvp, jax.custom_vjp    become our custom calls with the same rules
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from jax._src import core, dtypes
from jax._src.ad_util import SymbolicZero, Zero, instantiate
from jax._src.config import eager_constant_folding
from jax._src.core import typeof as aval_of
from jax._src.hijax import call_hi_primitive_p
from jax._src.numpy.array_methods import _IndexUpdateHelper

from functrans import errors, runtime
from functrans.api.arguments import OF_PYTHON, Apart
from functrans.interop import references
from functrans.interop.jaxprs import walk
from functrans.interop.jaxprs.opaque import programs_in
from functrans.interop.sharded_types import jaxpr_of_map
from functrans.ir.source import here
from functrans.ir.tracebacks import hide_frames, our_class
from functrans.ir.types import is_key_dtype
from functrans.jax_trace import Bridge, bridge
from functrans.numpy.indexing import At, getitem
from functrans.numpy.operators import OPERATORS
from functrans.numpy.promotion import captured
from functrans.primitives.base import axes_inside
from functrans.primitives.custom.calls import as_type, custom_jvp_call, custom_vjp_call
from functrans.primitives.custom.tracing import JvpRule, Pullback, VjpRule
from functrans.trace import Tracer, bind, materialize, on_bridge, state, typeof
from functrans.tracer import CONCRETE, OURS, AnyTracer, is_active
from functrans.tracer import aval_of as aval_of_type
from functrans.transforms.jet import Jet
from functrans.transforms.jvp import Dual


class _Equation:
    """One application of a JAX primitive, in the role of a jaxpr equation. The abstract evaluation
    of its results is lazy, since it takes longer than everything else."""

    __slots__ = ("_avals", "_made", "params", "primitive")

    source_info = SimpleNamespace(traceback=None)  # since we are at that source line now

    def __init__(self, primitive: Any, params: dict[str, Any], operands: Sequence[Any]):
        self.primitive = primitive
        self.params = params
        self._avals = [aval_of(x) for x in operands]
        self._made: Any = None

    @property
    def invars(self) -> list[core.Var]:
        return list(map(core.Var, self._avals))

    @property
    def outvars(self) -> list[core.Var]:
        try:
            outs = self._abstract()[0]
        except Exception as error:
            kind = our_class(error)
            if kind is None:
                raise
            raise kind(f"{self.primitive.name}: {error}, {here()}") from error
        return list(map(core.Var, outs if self.primitive.multiple_results else [outs]))

    @property
    def effects(self) -> Any:
        return self._abstract()[1]

    def _abstract(self) -> Any:
        if self._made is None:
            self._made = self.primitive.abstract_eval(*self._avals, **self.params)
        return self._made

    def is_strong(self) -> bool:
        """Return whether its results are certainly not weakly typed in JAX."""
        plain = self.primitive.name in walk.PLAIN
        return plain and not all([getattr(a, "weak_type", False) for a in self._avals])


def _is_ours(bridge: Bridge, values: Sequence[Any], params: dict[str, Any] | None = None) -> bool:
    """Return whether the traces on this bridge should process the values; else JAX's outer trace does."""
    ours = [x for x in values if x.__class__ in OURS]
    if ours and (state.below is None or any([is_active(x.owner, state.innermost, None) for x in ours])):
        return True
    if state.axes and params and _names_an_axis(params):
        return True
    if not bridge.stages:
        return False
    traced = any([isinstance(x, AnyTracer) for x in values])
    return traced or not eager_constant_folding.value


def _names_an_axis(params: dict[str, Any]) -> bool:
    """Return whether the parameters of a JAX collective name an axis that functrans maps. Such a
    collective may have no operands, and may be inside of a jitted function, a branch or a loop."""
    asked = params.get("axis_name", params.get("axes", ()))
    asked = asked if isinstance(asked, tuple) else (asked,)
    inside = list(core.jaxprs_in_params(params))
    within = {e.name for jaxpr in inside for e in jaxpr.effects if isinstance(e, core.NamedAxisEffect)}
    within.update(*[axes_inside(p) for jaxpr in inside for p in programs_in(jaxpr)])
    return any([name in asked or name in within for name, _ in state.axes])


def _of_bridge(process: Callable[..., Any]) -> None:
    """Make a function the method of Bridge that JAX calls; it runs with the bridge's own traces current."""

    @functools.wraps(process)
    def done(self: Bridge, *args: Any, **kwargs: Any) -> Any:
        if bridge() is self:
            return process(self, *args, **kwargs)
        with on_bridge(self):
            return process(self, *args, **kwargs)

    name = process.__name__.removeprefix("_")
    assert hasattr(core.Trace, name) or name == "process_shard_map", name
    setattr(Bridge, name, done)


@_of_bridge
def _process_primitive(self: Bridge, primitive: Any, values: Sequence[Any], params: dict[str, Any], /) -> Any:
    if not (primitive in references.MAKING or _is_ours(self, values, params)):
        avals = [aval_of(x) for x in values]
        return primitive.bind_with_trace(self.parent, values, avals, params)
    if _is_expanded(primitive, values, params):
        with core.set_current_trace(self):
            return primitive.to_lojax(*values, **params)
    if core.trace_ctx.trace is self.parent:
        return _apply(self, primitive, values, params)
    with core.set_current_trace(self.parent):
        return _apply(self, primitive, values, params)


def _apply(self: Bridge, primitive: Any, values: Sequence[Any], params: dict[str, Any]) -> Any:
    """Run our operations for a JAX primitive; the results have the types that JAX's would have."""
    equation = _Equation(primitive, params, values)
    if references.are_in(primitive, values):
        outs = references.results(equation, _literals(values, self.stages))
        return outs if primitive.multiple_results else outs[0]
    try:
        outs = walk.results(equation, _literals(values, self.stages))
    except errors.FunctransError as error:
        raise _refused(error, equation) from None
    if self.stages:  # what an operation that does nothing returns is traced too, as in JAX
        outs = [y if y.__class__ in OURS else captured(y) for y in outs]
    else:  # JAX code would apply NumPy semantics to a NumPy array
        outs = [jax.numpy.asarray(y) if isinstance(y, np.ndarray) else y for y in outs]
    if not (equation.is_strong() and all([not typeof(y).weak_type for y in outs])):
        wanted = [walk.type_of_aval(v.aval) for v in equation.outvars]
        outs = [as_type(y, t) for y, t in zip(outs, wanted, strict=True)]
    return outs if primitive.multiple_results else outs[0]


def _refused(error: Exception, equation: _Equation) -> Exception:
    """Return our error about a JAX operation; if JAX's own is of another class, ours for that one."""
    try:
        equation._abstract()
    except Exception as theirs:
        kind = our_class(theirs)
        if kind is not None and not isinstance(error, type(theirs)):
            return kind(f"{error}\nJAX says: {str(theirs).partition(chr(10))[0]}")
    return error


def _literals(values: Sequence[Any], stages: bool) -> list[Any]:
    """Return the values, with numbers as literals, which the optimization passes can fold."""
    return [x if x.__class__ in OURS else _known(x, stages) for x in values]


def _known(x: Any, stages: bool) -> Any:
    """Return a number as a literal. A `jax.Array` is read only while a program is recorded, where
    JAX reads it too."""
    kind = x.__class__
    if kind is CONCRETE:
        if not stages or x.shape or is_key_dtype(x.dtype):
            return x
    elif not isinstance(x, OF_PYTHON) or np.ndim(x):
        return x
    return walk.number(x, aval_of(x))


def _is_expanded(primitive: Any, values: Sequence[Any], params: dict[str, Any]) -> bool:
    """Return whether JAX expands a high-level operation, or a call or loop with one inside: only where
    operands or results are of a user's own types. An expansion may lose a derivative (`ldexp`)."""
    if getattr(primitive.is_high, "__func__", None) is core.Primitive.is_high:  # the default
        return False
    avals = [aval_of(x) for x in values]
    if not primitive.is_high(*avals, **params):
        return False
    outs = params["_prim"].out_avals_flat if primitive is call_hi_primitive_p else ()
    return "is_high" not in vars(primitive) or any([a.is_high for a in (*avals, *outs)])


# --- functions with custom rules ------------------------------------------------------------------


@_of_bridge
def _stage_value(self: Bridge, x: Any) -> Any:
    """Lift a value into the trace; while a program is recorded, a number becomes a literal."""
    if x.__class__ in OURS:
        return x
    if isinstance(x, AnyTracer) or not _is_ours(self, [x]):
        return self.parent.stage_value(x)
    with core.set_current_trace(self.parent):
        x = _known(x, self.stages)
        if x.__class__ in OURS:
            return x
        x = self.parent.stage_value(x)
        return captured(x) if self.stages else x


@_of_bridge
def _process_custom_jvp_call(
    self: Bridge, primitive: Any, fun: Any, jvp: Any, values: Sequence[Any], /, *, symbolic_zeros: bool
) -> Any:
    if not _is_ours(self, values):
        return self.parent.process_custom_jvp_call(primitive, fun, jvp, values, symbolic_zeros=symbolic_zeros)

    def pushed(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        primals = list(map(materialize, primals))
        zeros = [_zero(aval_of(x).to_tangent_aval(), symbolic_zeros) for x in primals]
        given = [z if t is None else t for t, z in zip(tangents, zeros, strict=True)]
        outs = _again(jvp, [*primals, *given])
        n = len(outs) // 2
        return outs[:n], [_nothing_if_zero(t) for t in outs[n:]]

    name = fun.debug_info.func_name
    return _called(self, custom_jvp_call, fun, jvp, values, JvpRule(pushed, name))


@_of_bridge
def _process_custom_vjp_call(
    self: Bridge,
    primitive: Any,
    fun: Any,
    fwd: Any,
    bwd: Any,
    values: Sequence[Any],
    /,
    *,
    out_trees: Callable[[], Any],
    symbolic_zeros: bool,
) -> Any:
    if not _is_ours(self, values):
        return self.parent.process_custom_vjp_call(
            primitive, fun, fwd, bwd, values, out_trees=out_trees, symbolic_zeros=symbolic_zeros
        )
    name = fun.debug_info.func_name
    arguments = Apart(values, references.is_reference)

    def forward(primals: Sequence[Any], active: Sequence[bool]) -> tuple[list[Any], list[Any], Pullback]:
        given = arguments(primals)
        pairs = zip(given, arguments(active, other=False), strict=True)
        found = _again(fwd, [x for pair in pairs for x in pair])
        _, res_tree, places = trees = out_trees()  # places: argument index of each forwarded residual
        n = res_tree.num_leaves - sum(i is not None for i in places)
        own, outs = iter(found[:n]), found[n:]
        residuals = [next(own) if i is None else given[i] for i in places]
        kept = Apart(residuals, lambda x: isinstance(x, OF_PYTHON) or references.is_reference(x))
        types = tuple([typeof(x) for x in outs])

        def backward(residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
            zeros = [_zero(aval_of_type(t.tangent()), symbolic_zeros) for t in types]
            given = [z if c is None else c for c, z in zip(cts, zeros, strict=True)]
            store = next((s for s in fwd.stores if s is not None), None)  # none: it comes from a jaxpr
            if store is not None and not any(_filled(fwd)):  # it was emptied since, by `_called`
                store.store(trees)
            found = bwd.call_wrapped(*map(materialize, [*kept(residuals), *given]))
            if isinstance(found, tuple):  # since JAX 0.11, with logs of the backward pass
                found = found[0]
            return [_nothing_if_zero(c) for c in arguments.arrays(found)]

        types_in = tuple(map(typeof, primals))
        return outs, kept.arrays(residuals), Pullback(backward, name, types_in, types)

    return _called(self, custom_vjp_call, fun, fwd, values, VjpRule(forward, name))


@_of_bridge
def _process_shard_map(
    self: Bridge, primitive: Any, fun: Any, values: Sequence[Any], /, **params: Any
) -> Any:
    """Let JAX stage the `shard_map`, as under `jax.jit`, then run the jaxpr; the function may capture
    our values. Its result is a JAX flat tree, whose leaves are then replaced by the values."""
    made: list[Any] = []

    def whole(*xs: Any) -> list[Any]:
        made.append(primitive.bind(*xs, subfuns=(fun,), **params))
        return list(made[-1])

    closed = jaxpr_of_map(whole, [aval_of(x) for x in values])
    with core.set_current_trace(self.parent):
        outs = walk.run(closed.jaxpr, walk.constants_of(closed), values)
    return made[-1].update(outs)


def _called(
    bridge: Bridge, primitive: Any, fun: Any, rule: Any, values: Sequence[Any], made: Any
) -> list[Any]:
    """Bind our primitive for a function with a custom rule. Afterwards JAX reads the output tree
    from the store of the function or of its rule; only one of the two may be filled."""
    arguments = Apart(values, references.is_reference)
    with core.set_current_trace(bridge):
        arrays = _literals(arguments.arrays(values), bridge.stages)
        params = {"program": lambda *xs: _again(fun, arguments(xs)), "rule": made}
        outs = bind(primitive, arrays, params)
    if any(_filled(fun)):
        _forget(rule)
    return outs


def _filled(fun: Any) -> list[bool]:
    """Return which of a function's stores are full."""
    return [bool(getattr(store, "_store", store)) for store in fun.stores]


def _again(fun: Any, values: Sequence[Any]) -> list[Any]:
    """Call a function that stores its output tree, after clearing that store."""
    _forget(fun)
    return list(fun.call_wrapped(*map(materialize, values)))


def _forget(fun: Any) -> None:
    for store in fun.stores:
        if store is not None:
            store.reset()


def _zero(aval: Any, symbolic: bool) -> Any:
    """Return a zero tangent as JAX rules take it."""
    return SymbolicZero(aval) if symbolic else instantiate(Zero(aval))


def _nothing_if_zero(t: Any) -> Any:
    """Convert a JAX tangent or cotangent to ours, with None for zero."""
    if isinstance(t, (Zero, SymbolicZero)) or aval_of(t).dtype == dtypes.float0:
        return None
    return t


# --- arrays that meet tracers: `table @ x`, `table[i]` and `zeros.at[0].set(y)` -------------------
# A concrete array in a user's function is a `jax.Array`. Its operators would handle our tracers with
# jax.numpy, which is slower than ours; here they return NotImplemented, so that Python calls the
# tracer's operator. Python has no such fallback for indexing: an index that contains a tracer, and
# `.at` while tracing, are handled here. Everything else is unchanged.

_Array: Any = CONCRETE
_jax_getitem = _Array.__getitem__
_jax_at = _Array.at


def _holds_tracer(index: Any) -> bool:
    given = index if isinstance(index, tuple) else (index,)
    return any(isinstance(getattr(i, "start", i), Tracer) for i in given)


def _getitem(self: Any, index: Any) -> Any:
    try:
        if state.trace is not None and _holds_tracer(index):
            return getitem(self, index)
        return _jax_getitem(self, index)
    except Exception as error:
        hide_frames(error)
        raise


@runtime.answers("at_by_jax")
def _at_by_jax(x: Any, index: Any) -> Any:
    return _IndexUpdateHelper(x)[index]


def _at(self: Any) -> Any:
    return _jax_at.__get__(self) if state.trace is None else At(self)


def _leaving(theirs: Any) -> Any:
    """Wrap a `jax.Array` operator so that it returns NotImplemented for our tracers."""

    @functools.wraps(theirs)
    def operator(self: Any, other: Any) -> Any:
        try:
            return NotImplemented if other.__class__ in OURS else theirs(self, other)
        except Exception as error:
            hide_frames(error)
            raise

    return operator


# --- registration with JAX ------------------------------------------------------------------------


# Direct entries are faster than JAX's lookup by base class; views of references have only these.
for _kind in (Tracer, Dual, Jet, references.Reference):
    core.pytype_aval_mappings[_kind] = lambda x: x.aval
    dtypes.register_canonicalize_value_handler(_kind, None)
for _name in OPERATORS:
    setattr(_Array, _name, _leaving(getattr(_Array, _name)))
_getitem.__doc__ = _jax_getitem.__doc__
_Array.__getitem__ = _getitem
_Array.at = property(_at, doc=getattr(_jax_at, "__doc__", None))
