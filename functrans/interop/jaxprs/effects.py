"""JAX's operations that reach beyond one program: Python, other examples, devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
from jax._src.debugging import _format_print_callback

from functrans import lax
from functrans import pytrees as tree
from functrans.interop.jaxprs.walk import each_like, known_value, means, plain, type_of_aval
from functrans.lax.arguments import invalid
from functrans.lax.collective import extreme, members, over
from functrans.primitives.calls import callback as calls
from functrans.primitives.calls.callback import FlatCall
from functrans.primitives.distributed import collective as prims
from functrans.primitives.distributed.sharding import sharding_constraint
from functrans.primitives.shape.moving import index_axis, reshape, squeeze
from functrans.trace import typeof

# --- calls of Python ------------------------------------------------------------------------------


def _python(callback: Any, n: int) -> FlatCall:
    """Return a function of n arrays, or the user's own, in the form in which our operations call it."""
    function = getattr(callback, "callback_func", callback)
    in_tree = getattr(callback, "in_tree", None) or tree.structure(((0,) * n, {}))
    name = getattr(function, "__name__", type(function).__name__)
    return FlatCall(function, in_tree, {}, name)


@means("pure_callback io_callback")
def _callback(eqn: Any, *values: Any) -> Any:
    p = eqn.params
    pure = eqn.primitive.name == "pure_callback"
    how = {"vmap_method": p["vmap_method"]} if pure else {"ordered": bool(p["ordered"])}
    return (calls.pure_callback if pure else calls.io_callback)(
        *values,
        callback=_python(p["callback"], len(values)),
        results=tuple([type_of_aval(a).strong() for a in p["result_avals"]]),
        sharding=p["sharding"],
        **how,
    )


def _debug(eqn: Any, values: Sequence[Any], callback: FlatCall, ordered: Any) -> Any:
    partitioned = bool(eqn.params["partitioned"])
    return calls.debug_callback(*values, callback=callback, ordered=bool(ordered), partitioned=partitioned)


@means("debug_callback")
def _debug_callback(eqn: Any, *values: Any) -> Any:
    callback = _python(eqn.params["callback"], len(values))
    return _debug(eqn, values, callback, "Ordered" in type(eqn.params["effect"]).__name__)


@means("debug_print")
def _debug_print(eqn: Any, *values: Any) -> Any:
    p = eqn.params
    options, told = dict(p["np_printoptions"]), (p["has_placeholders"], p["logging_record"])
    show = partial(_format_print_callback, p["fmt"], options, *told)
    callback = FlatCall(show, p["in_tree"], dict(p["static_args"]), f"print {p['fmt']!r}")
    return _debug(eqn, values, callback, p["ordered"])


# --- between the examples of a mapped axis --------------------------------------------------------


each_like("psum psum_invariant", lax.psum, axes="axis_name")
each_like("pmax", partial(extreme, "pmax"), axes="axis_name")
each_like("pmin", partial(extreme, "pmin"), axes="axis_name")
each_like("ppermute", lax.ppermute)


def _group(eqn: Any) -> dict[str, Any]:
    p = eqn.params
    group = over(eqn.primitive.name, plain(p["axis_name"]), p.get("axis_index_groups"))
    members(eqn.primitive.name, group)  # which all have as many
    return group


@means("all_gather all_gather_invariant")
def _all_gather(eqn: Any, x: Any) -> Any:
    d = eqn.params["all_gather_dimension"]
    if not eqn.params["tiled"]:
        shape = typeof(x).shape
        x = reshape(x, shape=(*shape[:d], 1, *shape[d:]))
    return prims.all_gather(x, **_group(eqn), dimension=d)


@means("reduce_scatter")
def _reduce_scatter(eqn: Any, x: Any) -> Any:
    d = eqn.params["scatter_dimension"]
    y = prims.psum_scatter(x, **_group(eqn), dimension=d)
    return y if eqn.params["tiled"] else squeeze(y, dimensions=(d,))


@means("all_to_all")
def _all_to_all(eqn: Any, x: Any) -> Any:
    """JAX adds and drops the axis of an exchange that is not tiled around the primitive."""
    p = eqn.params
    return prims.all_to_all(x, **_group(eqn), split=p["split_axis"], concat=p["concat_axis"])


@means("pbroadcast pbroadcast_dynamic")  # the source is a parameter, or an operand
def _pbroadcast(eqn: Any, x: Any, *sources: Any) -> Any:
    group, source = _group(eqn), (*sources, eqn.params.get("source"))[0]
    rows = prims.all_gather(reshape(x, shape=(1, *typeof(x).shape)), **group, dimension=0)
    known = known_value(source)
    if known is None:
        return lax.dynamic_index_in_dim(rows, source, 0, keepdims=False)
    n = members("pbroadcast", group)
    if not 0 <= known < n:
        raise invalid("pbroadcast", f"source {known} must lie in 0..{n - 1}, the examples")
    return index_axis(rows, 0, int(known))


@means("ragged_all_to_all")
def _ragged_all_to_all(eqn: Any, *values: Any) -> Any:
    p = eqn.params
    name, groups = plain(p["axis_name"]), p["axis_index_groups"]
    return lax.ragged_all_to_all(*values, axis_name=name, axis_index_groups=groups)


@means("axis_index")
def _axis_index(eqn: Any) -> Any:
    return lax.axis_index(plain(eqn.params["axis_name"]))


# --- devices --------------------------------------------------------------------------------------


@means("sharding_constraint")
def _constrained(eqn: Any, x: Any) -> Any:
    return sharding_constraint(x, sharding=eqn.params["sharding"])


@means("reshard")
def _reshard(eqn: Any, x: Any) -> Any:
    if not eqn.outvars[0].aval.shape:  # a number is on all devices
        return x
    return lax.with_sharding_constraint(x, eqn.params["dst_sharding"])


@means("device_put")
def _device_put(eqn: Any, *values: Any) -> Any:
    """Apply a sharding; the device of a traced value cannot be chosen."""
    return [
        lax.with_sharding_constraint(x, where) if isinstance(where, jax.sharding.NamedSharding) else x
        for x, where in zip(values, eqn.params["devices"], strict=True)
    ]
