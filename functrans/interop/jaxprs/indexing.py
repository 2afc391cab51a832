"""JAX's operations at computed places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax._src.core import ClosedJaxpr, jaxpr_as_fun

from functrans import lax
from functrans.interop.jaxprs.equation import Imported, traced
from functrans.interop.jaxprs.walk import means, plain
from functrans.primitives.elementwise.conversion import cast
from functrans.primitives.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from functrans.trace import typeof


def _starts(values: Sequence[Any]) -> list[Any]:
    """Start indices of one dtype, the widest."""
    dtypes = {typeof(s).dtype for s in values}
    if len(dtypes) < 2:
        return list(values)
    widest = max(dtypes, key=lambda d: d.itemsize)
    return [cast(s, widest) for s in values]


@means("dynamic_slice")
def _dynamic_slice(eqn: Any, x: Any, *starts: Any) -> Any:
    return dynamic_slice(x, *_starts(starts), sizes=plain(eqn.params["slice_sizes"]))


@means("dynamic_update_slice")
def _dynamic_update_slice(eqn: Any, x: Any, u: Any, *starts: Any) -> Any:
    return dynamic_update_slice(x, u, *_starts(starts))


@means("gather")
def _gather(eqn: Any, x: Any, i: Any) -> Any:
    how = dict(eqn.params)
    numbers, sizes = how.pop("dimension_numbers"), list(how.pop("slice_sizes"))
    for axis in numbers.operand_batching_dims:
        sizes[axis] = 1  # JAX's vmap over no examples says 0
    return lax.gather(x, i, numbers, sizes, **how)


_SCATTERS = {
    "scatter-add": lax.scatter_add,
    "scatter-sub": lax.scatter_sub,
    "scatter-mul": lax.scatter_mul,
    "scatter-min": lax.scatter_min,
    "scatter-max": lax.scatter_max,
}


@means("scatter", *_SCATTERS)
def _scatter(eqn: Any, x: Any, i: Any, u: Any) -> Any:
    names = ("indices_are_sorted", "unique_indices", "mode")
    how = {name: eqn.params[name] for name in names}
    numbers, body = eqn.params["dimension_numbers"], eqn.params["update_jaxpr"]
    made = _SCATTERS.get(eqn.primitive.name)
    if made is not None:
        return made(x, i, u, numbers, **how)
    if body is None or body.outvars[0] is body.invars[1]:
        return lax.scatter(x, i, u, numbers, **how)

    def function(value: Any) -> Any:  # lax.scatter_apply has all the elements at once
        t = typeof(value)
        each = jaxpr_as_fun(ClosedJaxpr(body, ()))
        for _ in t.shape:
            each = jax.vmap(each)
        return Imported(*traced(each, [t, t]), "scatter_apply")([value, value])[0]

    return lax.scatter_apply(x, i, function, numbers, update_shape=typeof(u).shape, **how)
