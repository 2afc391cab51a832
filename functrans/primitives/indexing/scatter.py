"""Scatter: write slices at dynamic indices. The axes are those of gather: see gather.py.

Every scatter takes x, indices, updates; its class defines how an update is combined with an
element. In the modes "fill_or_drop" and "promise_in_bounds" a window that is not inside x is
dropped as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.source import here
from functrans.ir.types import ArrayType
from functrans.mlir import hlo, ir
from functrans.primitives.base import PRIMITIVES, Cost, LinearInput, bytes_of, sum_of
from functrans.primitives.elementwise.families import ANY, NUMBERS, div, mul, neg
from functrans.primitives.elementwise.selection import one_for_zero
from functrans.primitives.indexing.gather import (
    CLIP,
    Indexed,
    Windows,
    batched_axes,
    filled_with_zero,
    gather,
    last_places,
    places,
    rows,
)
from functrans.primitives.shape.joining import iota
from functrans.primitives.shape.moving import reshape
from functrans.trace import literal, typeof


def _numpy_set(x: Any, at: Any, u: Any) -> None:
    x[at] = u


def _scattered(x: Any, i: Any, u: Any, into: Any, windows: Any, mode: str) -> Any:
    """Return x with the updates u written at indices by `into`."""
    out = np.array(x).reshape(-1)
    if out.size and u.size:
        at, inside = places(x.shape, i, windows)
        kept = inside | (mode == CLIP)
        into(out, at[kept], u[kept])
    return out.reshape(x.shape)


def _read(x: Any, i: Any, shape: tuple[int, ...], params: dict[str, Any]) -> Any:
    """Return the elements of x at the updates' places; zeros if x has none."""
    t = typeof(x)
    if not t.size:
        return literal(0, t.update(shape=shape))
    return gather(x, i, **filled_with_zero(params))


class Scatter(Indexed):
    """x with the updates written at dynamic indices; if several hit one element, the last one wins.

    `combine` is the primitive that combines an element and its update (None: the update wins),
    `into` the NumPy equivalent.
    """

    linear_in: tuple[int, ...] = (0, 2)

    def __init__(self, name: str, combine: str | None, into: Callable[..., Any], takes: tuple[str, ...]):
        self.combine: str | None = combine
        self.into: Any = into
        self.takes: tuple[str, ...] = takes
        super().__init__(name)

    def abstract_eval(
        self,
        x: ArrayType,
        i: ArrayType,
        u: ArrayType,
        *,
        mode: str,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        **axes: Any,
    ) -> ArrayType:
        if x.dtype != u.dtype:
            raise self.mismatch((x, i, u), f"the updates must be of dtype {x.dtype}, got {u.dtype}")
        shape = self.slices_shape((x, i, u), mode, Windows(**axes))
        self.check_dtype((x, i, u))
        if shape != u.shape:
            raise self.mismatch((x, i, u), f"the updates must have shape {shape}, got {u.shape}")
        return x

    def reference(self, x: Any, i: Any, u: Any, **params: Any) -> Any:
        return _scattered(x, i, u, self.into, Windows.of(params), params["mode"])

    def numpy_source(self, w: Any, *xs: Any, **params: Any) -> Any:
        return w.copied(
            _scattered, xs, {"into": self.into, "windows": Windows.of(params), "mode": params["mode"]}
        )

    def lower(self, ctx: Any, x: Any, i: Any, u: Any, **params: Any) -> Any:
        t, i_type, u_type = ctx.in_types
        if not t.size or not u_type.size:
            return x
        if not t.shape:  # XLA's scatter_simplifier fails on several updates of a scalar
            new = 1 + max(params["indices"], default=-1)
            row = t.update(shape=(1,))
            x, i_type = hlo.reshape(ctx.type(row), x), i_type.update(shape=(*u_type.shape, 1))
            params = {**params, "operand": (new,), "indexed": (new,), "sizes": (1,)}
            made = self._emit(ctx, x, ctx.full(0, i_type), u, row, i_type, params)
            return hlo.reshape(ctx.type(t), made)
        return self._emit(ctx, x, i, u, t, i_type, params)

    def _emit(
        self, ctx: Any, x: Any, i: Any, u: Any, t: ArrayType, i_type: ArrayType, params: dict[str, Any]
    ) -> Any:
        windows = Windows.of(params)
        if params["mode"] == CLIP:
            i = hlo.clamp(
                ctx.full(0, i_type), i, rows(last_places(t.shape, i_type.dtype, windows), i_type, ctx)
            )
        promises = {name: params.get(name, False) for name in ("indices_are_sorted", "unique_indices")}
        numbers = hlo.ScatterDimensionNumbers.get(*windows.dimension_numbers())
        made = hlo.ScatterOp((ctx.type(t),), [x], i, [u], numbers, **promises)
        scalar = ArrayType((), t.dtype)
        ctx.in_types, ctx.out_types = (scalar, scalar), (scalar,)  # of what the block holds
        block = made.update_computation.blocks.append(ctx.type(scalar), ctx.type(scalar))
        with ir.InsertionPoint(block):
            old, new = block.arguments
            hlo.return_([PRIMITIVES[self.combine].lower(ctx, old, new) if self.combine else new])
        return made.results[0]

    def transpose(self, ct: Any, x: Any, i: Any, u: Any, **params: Any) -> Any:
        ct_x = ct_u = None
        if isinstance(x, LinearInput):
            ct_x = self(ct, i, literal(0, u.type if isinstance(u, LinearInput) else typeof(u)), **params)
        if isinstance(u, LinearInput):
            ct_u = _read(ct, i, u.shape, params)
            if not params.get("unique_indices") and typeof(ct).size:
                won = self._who_stays(ct, i, u.shape, params)
                ct_u = PRIMITIVES["select_n"](won, literal(0, typeof(ct_u)), ct_u)
        return ct_x, None, ct_u

    def _who_stays(self, like: Any, i: Any, shape: Any, params: dict[str, Any]) -> Any:
        """Return which updates stay: number them, scatter the numbers, gather them."""
        n = int(np.prod(shape))
        count = reshape(iota(dtype=np.dtype(np.int32), shape=(n,), dimension=0), shape=shape)
        nobody = literal(-1, ArrayType(typeof(like).shape, np.dtype(np.int32)))
        return PRIMITIVES["eq"](gather(self(nobody, i, count, **params), i, **params), count)

    def batch(self, t: Any, args: Any, dims: Any, **params: Any) -> Any:
        (x, i, u), (d, di, du) = args, dims
        axes = batched_axes(t, True, di is not None, params)
        return self(t.at(x, d, 0), t.move(i, di, 0), t.at(u, du, 0), **axes), 0

    def cost(self, in_types: Any, out_types: Any, **params: Any) -> Cost:
        return Cost(0 if self.combine is None else in_types[2].size, bytes_of(*in_types, *out_types))


class ScatterAdd(Scatter):
    """x plus the updates at dynamic indices; also minus (`scatter_sub`)."""

    def transpose(self, ct: Any, x: Any, i: Any, u: Any, **params: Any) -> Any:
        ct_u = None
        if isinstance(u, LinearInput):
            ct_u = _read(ct, i, u.shape, params)
            if self.combine == "sub":
                ct_u = neg(ct_u)
        return ct if isinstance(x, LinearInput) else None, None, ct_u


class ScatterMul(Scatter):
    """x times the updates at dynamic indices."""

    linear_in: tuple[int, ...] = (0,)

    def jvp(self, primals: Any, tangents: Any, out: Any, **params: Any) -> Any:
        (x, i, u), (dx, _, du) = primals, tangents
        total = None if dx is None else self(dx, i, u, **params)
        if du is None:
            return total
        if not params.get("unique_indices"):
            raise errors.MissingRule(
                "scatter_mul can be differentiated with respect to its updates only if no two of "
                f"them are for the same element, {here()}\n"
                "If all are distinct, pass unique_indices=True: x.at[i].multiply(u, unique_indices=True)."
            )
        return sum_of(total, mul(x, scatter_add(literal(0, typeof(x).strong()), i, du, **params)))

    def transpose(self, ct: Any, x: Any, i: Any, u: Any, **params: Any) -> Any:
        return self(ct, i, u, **params), None, None


class ScatterExtreme(Scatter):
    """The minimum or maximum of x and the updates at dynamic indices.

    Tangents: the mean of those of x and of the updates that equal the result; zero if an update
    makes it NaN.
    """

    linear_in: tuple[int, ...] = ()

    def jvp(self, primals: Any, tangents: Any, out: Any, **params: Any) -> Any:
        (x, i, u), (dx, _, du) = primals, tangents
        eq, cast = PRIMITIVES["eq"], PRIMITIVES["convert_element_type"]
        dtype = typeof(x).dtype
        stays = eq(x, out)
        if dx is not None:  # NaN in x stays NaN
            stays = PRIMITIVES["or"](stays, PRIMITIVES["ne"](x, x))
        kept = cast(stays, dtype=dtype)
        won = cast(eq(u, _read(out, i, typeof(u).shape, params)), dtype=dtype)
        winners = scatter_add(kept, i, won, **params)
        moved = literal(0, typeof(x).strong()) if dx is None else mul(dx, kept)
        if du is not None:
            moved = scatter_add(moved, i, mul(du, won), **params)
        return div(moved, one_for_zero(winners))


scatter: Scatter = Scatter("scatter", None, _numpy_set, (*ANY, "key"))
scatter_add: ScatterAdd = ScatterAdd("scatter_add", "add", np.add.at, NUMBERS)
scatter_sub: ScatterAdd = ScatterAdd("scatter_sub", "sub", np.subtract.at, NUMBERS)
scatter_mul: ScatterMul = ScatterMul("scatter_mul", "mul", np.multiply.at, NUMBERS)
scatter_min: ScatterExtreme = ScatterExtreme("scatter_min", "min", np.minimum.at, ANY)
scatter_max: ScatterExtreme = ScatterExtreme("scatter_max", "max", np.maximum.at, ANY)

SCATTERS: tuple[Scatter, ...] = (scatter, scatter_add, scatter_sub, scatter_mul, scatter_min, scatter_max)
