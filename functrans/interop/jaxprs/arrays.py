"""JAX's operations on whole arrays: elementwise, shapes, reductions, products; and on random keys."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
from jax._src.core import jaxpr_as_fun

from functrans import lax
from functrans.flags import flags
from functrans.interop.jaxprs import walk
from functrans.ir.program import PRIMITIVES
from functrans.ir.types import ArrayType, dtype_class, float0
from functrans.lax.arguments import mode_of, promises
from functrans.lax.contraction import contraction_options
from functrans.primitives.distributed.collective import fold, unfold
from functrans.primitives.elementwise.conversion import bitcast_convert_type, convert_element_type, flipped
from functrans.primitives.elementwise.families import add, lt, mul
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.indexing.gather import FILL, PROMISE, gather
from functrans.primitives.random import bits as prims
from functrans.primitives.shape.joining import concatenate, stack
from functrans.primitives.shape.joining import split as cut
from functrans.primitives.shape.moving import reshape, squeeze
from functrans.trace import literal, typeof

# --- elementwise ----------------------------------------------------------------------------------

walk.like("bitcast_convert_type", new_dtype="dtype")
walk.like("add_any", "add")
walk.like("conj", input_dtype="")


@walk.means("erfc")
def _erfc(eqn: Any, x: Any) -> Any:
    return PRIMITIVES["erfc"](x) if eqn.params.get("accuracy") is None else walk.opaque(eqn, x)


@walk.means("polynomial")
def _polynomial(eqn: Any, x: Any, *coefficients: Any) -> Any:
    """Horner's rule, written out; in a loop if it is long and the coefficients have one shape."""
    shape = eqn.outvars[0].aval.shape
    x, y, rest = walk.spread(x, shape), walk.spread(coefficients[-1], shape), coefficients[-2::-1]
    if len(rest) > 64 and len({typeof(c).shape for c in rest}) == 1:
        return lax.scan(lambda y, c: (add(mul(y, x), walk.spread(c, shape)), None), y, stack(rest, 0))[0]
    for c in rest:
        y = add(mul(y, x), walk.spread(c, shape))
    return y


@walk.means("exp exp2 expm1 log log1p log2 sqrt rsqrt cbrt logistic sin cos tan tanh")
def _accurate(eqn: Any, x: Any) -> Any:
    return getattr(lax, eqn.primitive.name)(x, accuracy=eqn.params.get("accuracy"))


@walk.means("eq_to lt_to le_to")
def _in_total_order(eqn: Any, x: Any, y: Any) -> Any:
    """Compare floats in total order, from -NaN to NaN: as integers of their bits, with the
    magnitude of negative numbers flipped."""
    shape = eqn.outvars[0].aval.shape
    keys = []
    for v in (walk.spread(x, shape), walk.spread(y, shape)):
        t = typeof(v)
        if dtype_class(t.dtype) == "complex":
            return walk.opaque(eqn, x, y)
        if dtype_class(t.dtype) == "float":
            v = flipped(bitcast_convert_type(v, dtype=np.dtype(f"int{8 * t.dtype.itemsize}")))
        keys.append(v)
    return PRIMITIVES[eqn.primitive.name.removesuffix("_to")](*keys)


@walk.means("round")
def _round(eqn: Any, x: Any) -> Any:
    return PRIMITIVES["round"](x, rounding_method=int(eqn.params["rounding_method"]))


@walk.means("mul")
def _mul(eqn: Any, x: Any, y: Any) -> Any:
    shape = eqn.outvars[0].aval.shape
    return lax.mul(walk.spread(x, shape), walk.spread(y, shape), out_dtype=eqn.params.get("out_dtype"))


@walk.means("convert_element_type")
def _convert(eqn: Any, x: Any) -> Any:
    dtype, weak = eqn.params["new_dtype"], eqn.params["weak_type"]
    t = typeof(x)
    if t.dtype == dtype and t.weak_type == weak:
        return x
    if t.dtype == float0:  # the tangent of an integer, which JAX reads as zeros
        return literal(0, t.update(dtype=np.dtype(dtype), weak_type=bool(weak)))
    return convert_element_type(x, dtype=np.dtype(dtype), weak_type=bool(weak))


@walk.means("pvary dce_sink layout_constraint with_memory_space_constraint pin unpin")
def _itself(eqn: Any, *values: Any) -> Any:
    """Return the operand: placement and copies of values cannot be controlled while tracing."""
    return list(values)[: len(eqn.outvars)]


# --- shapes ---------------------------------------------------------------------------------------

walk.like("pad", padding_config="config")
walk.like("top_k", is_stable="")


@walk.means("broadcast_in_dim")
def _broadcast(eqn: Any, x: Any) -> Any:
    shape, dimensions = walk.plain(eqn.params["shape"]), [*eqn.params["broadcast_dimensions"]]
    if dimensions != sorted(dimensions) and typeof(x).shape != shape:  # JAX keeps one of its shape
        order = sorted(range(len(dimensions)), key=dimensions.__getitem__)
        x = PRIMITIVES["transpose"](x, permutation=tuple(order))
    return walk.repeated(x, shape, sorted(dimensions))


@walk.means("reshape")
def _reshape(eqn: Any, x: Any) -> Any:
    order = eqn.params.get("dimensions")
    if order is not None:
        x = PRIMITIVES["transpose"](x, permutation=walk.plain(order))
    return reshape(x, shape=walk.plain(eqn.params["new_sizes"]))


@walk.means("slice")
def _slice(eqn: Any, x: Any) -> Any:
    start, limit = walk.plain(eqn.params["start_indices"]), walk.plain(eqn.params["limit_indices"])
    strides = walk.plain(eqn.params["strides"] or (1,) * len(start))
    return PRIMITIVES["slice"](x, start=start, limit=limit, strides=strides)


@walk.means("stack")
def _stack(eqn: Any, *xs: Any) -> Any:
    return stack(xs, eqn.params["axis"])


@walk.means("unstack")
def _unstack(eqn: Any, x: Any) -> Any:
    axis = eqn.params["axis"]
    parts = cut(x, sizes=(1,) * typeof(x).shape[axis], axis=axis)
    return [squeeze(part, dimensions=(axis,)) for part in parts]


@walk.means("tile")
def _tile(eqn: Any, x: Any) -> Any:
    (repeats,) = [v for v in eqn.params.values() if isinstance(v, tuple)]
    for axis, n in enumerate(repeats):
        x = x if n == 1 else concatenate(*[x] * n, dimension=axis)
    return x


@walk.means("empty empty2")
def _empty(eqn: Any) -> Any:
    """Return zeros in place of uninitialized memory."""
    aval = eqn.outvars[0].aval
    return jax.numpy.zeros(aval.shape, aval.dtype)


# --- products -------------------------------------------------------------------------------------


def _preferred(eqn: Any, x: Any) -> Any:
    """Return the requested dtype if it is not the default."""
    dtype = eqn.params["preferred_element_type"]
    return None if dtype is None or dtype == typeof(x).dtype else dtype


@walk.means("dot_general")
def _dot_general(eqn: Any, x: Any, y: Any) -> Any:
    p = eqn.params
    out = lax.dot_general(x, y, walk.plain(p["dimension_numbers"]), p["precision"], _preferred(eqn, x))
    dtype = eqn.outvars[0].aval.dtype
    return out if typeof(out).dtype == dtype else convert_element_type(out, dtype=dtype)


@walk.means("conv_general_dilated")
def _conv(eqn: Any, x: Any, y: Any) -> Any:
    """Name the axes: 0 examples, 1 input features, 2 output features, then spatial axes, then groups.
    Groups are the outer part of features or examples, so a reshape splits them off."""
    p, n = eqn.params, typeof(x).ndim
    numbers, spatial = p["dimension_numbers"], tuple(range(3, 1 + n))
    options = contraction_options(p["precision"], _preferred(eqn, x))
    axes = [
        tuple([name for _, name in sorted(zip(spec, (*own, *spatial), strict=True))])
        for spec, own in zip(numbers, ((0, 1), (2, 1), (0, 2)), strict=True)
    ]
    groups = p["feature_group_count"] * p["batch_group_count"]
    lhs, rhs, out = numbers
    places = lhs[p["feature_group_count"] > 1], rhs[0], out[1]
    if groups > 1:
        axes = [(*a[:i], 1 + n, *a[i:]) for a, i in zip(axes, places, strict=True)]
        x, y = unfold(x, places[0], (groups,)), unfold(y, places[1], (groups,))
    made = PRIMITIVES["conv_general_dilated"](
        x,
        y,
        **dict(zip(("lhs", "rhs", "out"), axes, strict=True)),
        spatial=spatial,
        strides=walk.plain(p["window_strides"]),
        **{name: walk.plain(p[name]) for name in ("padding", "lhs_dilation", "rhs_dilation")},
        **options,
    )
    return fold(made, places[2], 2) if groups > 1 else made


# --- operations at computed indices ---------------------------------------------------------------

walk.like("dynamic_slice", slice_sizes="sizes")


def _windows(
    x: Any, i: Any, windows: Any, dropped: Any, indexed: Any, batch: Any, batch_of: Any
) -> dict[str, Any]:
    """Convert XLA's dimension numbers to names of axes: 0.. for x, and further ones for the axes of the
    indices that are not batch axes."""
    n, m = typeof(x).ndim, typeof(i).ndim - 1
    shared = dict(zip(batch_of, batch, strict=True))
    indices = tuple([shared.get(j, n + j) for j in range(m)])
    rest, kept = iter(indices), iter([d for d in range(n) if d not in dropped and d not in batch])
    slices = tuple([next(kept) if k in windows else next(rest) for k in range(m + len(windows))])
    return {"operand": tuple(range(n)), "indices": indices, "slices": slices, "indexed": walk.plain(indexed)}


def _promises(eqn: Any) -> dict[str, Any]:
    p = eqn.params
    return promises(mode_of(p["mode"], PROMISE, ""), p["indices_are_sorted"], p["unique_indices"])


@walk.means("gather")
def _gather(eqn: Any, x: Any, i: Any) -> Any:
    d, sizes, how = eqn.params["dimension_numbers"], list(eqn.params["slice_sizes"]), _promises(eqn)
    for axis in d.operand_batching_dims:
        sizes[axis] = 1  # JAX's vmap over no examples gives 0
    roles = d.offset_dims, d.collapsed_slice_dims, d.start_index_map
    axes = _windows(x, i, *roles, d.operand_batching_dims, d.start_indices_batching_dims)
    fill = eqn.params["fill_value"]
    if how["mode"] == FILL and fill is not None:
        how["fill"] = np.asarray(fill).item()
    return gather(x, i, **axes, sizes=walk.plain(sizes), **how)


@walk.means("scatter scatter-add scatter-sub scatter-mul scatter-min scatter-max")
def _scatter(eqn: Any, x: Any, i: Any, u: Any) -> Any:
    d, name = eqn.params["dimension_numbers"], eqn.primitive.name
    roles = d.update_window_dims, d.inserted_window_dims, d.scatter_dims_to_operand_dims
    how = _windows(x, i, *roles, d.operand_batching_dims, d.scatter_indices_batching_dims)
    size = dict(zip(how["slices"], typeof(u).shape, strict=True))
    windows = set(size) - set(how["indices"])
    how["sizes"] = tuple([size[a] if a in windows else 1 for a in how["operand"]])
    how |= _promises(eqn)
    body = eqn.params["update_jaxpr"]
    if name != "scatter" or body is None or body.outvars[0] is body.invars[1]:
        return PRIMITIVES[name.replace("-", "_")](x, i, u, **how)
    # lax.scatter_apply: the function of all elements, where something is scattered to
    t, count = typeof(x), np.dtype(np.int32)
    each = jaxpr_as_fun(walk.close(body))
    for _ in t.shape:
        each = jax.vmap(each)
    changed = walk.Imported(*walk.traced(each, [t, t]), "scatter_apply")([x, x])[0]
    zeros, ones = literal(0, ArrayType(t.shape, count)), literal(1, ArrayType(typeof(u).shape, count))
    return select_n(lt(0, PRIMITIVES["scatter_add"](zeros, i, ones, **how)), x, changed)


# --- random keys: a program works on their data, unless JAX checks that no key is used twice ------


def _unless_checked(ours: walk.Meaning) -> walk.Meaning:
    """Return a meaning that keeps JAX's operation while JAX checks keys (interop/key_reuse.py)."""
    return lambda eqn, *values: (walk.opaque if flags.jax_debug_key_reuse else ours)(eqn, *values)


def _impl(eqn: Any) -> Any:
    return prims.impl_of(eqn.outvars[0].aval.dtype)


def _wrapped(data: Any, key: Any) -> Any:
    return prims.random_wrap(data, impl=prims.impl_of(typeof(key).dtype))


@walk.means("random_seed")
def _seed(eqn: Any, seed: Any) -> Any:
    impl = _impl(eqn)
    return prims.random_wrap(prims.random_seed(seed, impl=impl), impl=impl)


@walk.means("random_wrap")
def _wrap(eqn: Any, data: Any) -> Any:
    return prims.random_wrap(data, impl=_impl(eqn))


@walk.means("random_bits random_gamma random_split")
@_unless_checked
def _draw(eqn: Any, key: Any, *values: Any) -> Any:
    name, how = eqn.primitive.name, walk.parameters(eqn, {})
    how |= {"impl": prims.impl_of(typeof(key).dtype), "partitionable": flags.jax_threefry_partitionable}
    found = PRIMITIVES[name](prims.random_unwrap(key), *values, **how)
    return _wrapped(found, key) if name == "random_split" else found


@walk.means("random_fold_in")
@_unless_checked
def _fold_in(eqn: Any, key: Any, number: Any) -> Any:
    shape = eqn.outvars[0].aval.shape
    key, number = walk.spread(key, shape), walk.spread(number, shape)
    impl = prims.impl_of(typeof(key).dtype)
    return _wrapped(prims.random_fold_in(prims.random_unwrap(key), number, impl=impl), key)


walk.means("random_clone")(_unless_checked(lambda eqn, key: key))


_CALLS = itertools.count()


@walk.means("rng_uniform")
def _drawn(eqn: Any, low: Any, high: Any) -> Any:
    """An operation that is never merged with another: no two draw the same numbers."""
    shape = walk.plain(eqn.params["shape"])
    return PRIMITIVES["rng_uniform"](low, high, shape=shape, call=next(_CALLS))
