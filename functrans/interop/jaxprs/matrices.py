"""JAX's operations on matrices, transforms and windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans.interop.jaxprs import walk
from functrans.ir.program import PRIMITIVES, Program
from functrans.ir.types import dtype_class
from functrans.primitives.elementwise.families import add, mul
from functrans.primitives.linalg.matrices import einsum
from functrans.primitives.shape.moving import reshape, slice_axis
from functrans.trace import stage, typeof

# --- linear algebra -------------------------------------------------------------------------------

walk.like("qr", use_magma="")


def _part(x: Any, span: Any, axis: int) -> Any:
    """Return x from start to stop along an axis; all of it for None."""
    return x if span is None else slice_axis(x, typeof(x).ndim + axis, *span)


@walk.means("eigh")
def _eigh(eqn: Any, x: Any) -> Any:
    how = walk.parameters(eqn, {"algorithm": "implementation"})  # the name differs between JAX versions
    span = how.pop("subset_by_index", None)
    return [_part(y, span, -1) for y in PRIMITIVES["eigh"](x, **how)]


@walk.means("svd")
def _svd(eqn: Any, x: Any) -> Any:
    how, (m, n) = walk.parameters(eqn, {}), typeof(x).shape[-2:]
    span = how.pop("subset_by_index", None)
    found = PRIMITIVES["svd"](x, **how | {"full_matrices": how["full_matrices"] and m != n})
    return [_part(y, span, d) for y, d in zip(found, (-1, -1, -2), strict=False)]  # s, u, v^H


@walk.means("symmetric_product")
def _symmetric_product(eqn: Any, a: Any, c: Any) -> Any:
    """alpha a a^T + beta c; here it can be differentiated."""
    made = mul(einsum("ij,kj->ik", a, a), eqn.params["alpha"])
    return add(made, mul(c, eqn.params["beta"])) if eqn.params["beta"] else made


# --- transforms and windows -----------------------------------------------------------------------

_WINDOW = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")


def _window(eqn: Any) -> dict[str, Any]:
    once = (1,) * len(eqn.params["window_dimensions"])
    return {k: walk.plain(eqn.params.get(k, once)) for k in _WINDOW}


walk.like("fft", fft_type="kind", fft_lengths="lengths")


@walk.means("select_and_gather_add select_and_scatter_add")
def _select_in_windows(eqn: Any, x: Any, y: Any) -> Any:
    select = eqn.params["select_prim"].name
    return PRIMITIVES[eqn.primitive.name](x, y, select=select, **_window(eqn))


_FOLDS = {"add": "sum", "max": "max", "min": "min"}  # operation of a computation -> reduction


@walk.means("reduce_window")
def _reduce_window(eqn: Any, *values: Any) -> Any:
    p = eqn.params
    body = _computation(p["jaxpr"], p["consts"])
    if body is None:
        return walk.opaque(eqn, *values)
    name = _fold(body, values)
    if name is not None:
        return PRIMITIVES[f"reduce_window_{name}"](values[0], **_window(eqn))
    return PRIMITIVES["reduce_window"](*values, computation=body, **_window(eqn))


@walk.means("reduce")
def _reduce(eqn: Any, *values: Any) -> Any:
    """A general reduction as one window as large as the axes, which can be differentiated."""
    axes, shape = eqn.params["dimensions"], typeof(values[0]).shape
    body = _computation(eqn.params["jaxpr"].jaxpr, eqn.params["jaxpr"].consts)
    if body is None or 0 in shape:
        return walk.opaque(eqn, *values)
    name = _fold(body, values)
    if name is not None:
        return PRIMITIVES[f"reduce_{name}"](values[0], axes=walk.plain(axes))
    n, once = len(shape), (1,) * len(shape)
    folded = PRIMITIVES["reduce_window"](
        *values,
        computation=body,
        padding=((0, 0),) * n,
        window_strides=once,
        base_dilation=once,
        window_dilation=once,
        window_dimensions=tuple([k if d in axes else 1 for d, k in enumerate(shape)]),
    )
    return [reshape(y, shape=v.aval.shape) for y, v in zip(folded, eqn.outvars, strict=True)]


def _computation(jaxpr: Any, consts: Sequence[Any]) -> Program | None:
    """Return a computation on scalars as a program; None if it closes over arrays."""
    if not consts:
        return walk.program(walk.close(jaxpr), "computation")[0]
    if any([v.aval.shape for v in jaxpr.constvars]):
        return None

    def body(*values: Any) -> list[Any]:
        known = [walk.number(x, v.aval) for x, v in zip(consts, jaxpr.constvars, strict=True)]
        return walk.exactly(walk.run(jaxpr, known, values), [v.aval for v in jaxpr.outvars])

    return stage(body, [walk.type_of_aval(v.aval) for v in jaxpr.invars], "computation")


def _fold(body: Program, values: Sequence[Any]) -> str | None:
    """Return the name of the reduction that body and start are, if any, or None."""
    if len(body.equations) != 1 or len(values) != 2:
        return None
    (e,), start = body.equations, values[1]
    t = typeof(start)
    mine = e.outputs[0] is body.outputs[0] and set(e.inputs) == set(body.inputs)
    if not mine or e.primitive.name not in _FOLDS or dtype_class(t.dtype) in ("bool", "complex"):
        return None
    value, name = walk.known_value(start), _FOLDS[e.primitive.name]
    return name if value is not None and value == PRIMITIVES[f"reduce_{name}"].start(t.dtype) else None
