"""General contraction: products summed over shared axes."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

import jax
import numpy as np

from functrans.caching import cached
from functrans.ir.types import ArrayType, dtype_class, is_inexact
from functrans.mlir import hlo, ir
from functrans.primitives.base import Cost, LinearInput, Primitive, bytes_of
from functrans.primitives.elementwise.conversion import cast
from functrans.trace import typeof

Axes = tuple[int, ...]

HIGHEST = ("HIGHEST", "HIGHEST")  # the full precision of the dtype on every platform

_LETTERS = "ijklmnopqrstuvwxyzabcdefghIJKLMNOPQRSTUVWXYZABCDEFGH"  # of axes 0, 1, ...


class DotGeneral(Primitive):
    """An einsum of two operands whose axes have names (small integers).

    A name in both operands and in `out` is a batch axis, one in both operands only is summed, one
    in a single operand is kept. `precision`: None, a pair of names of `jax.lax.Precision`, or the
    name of a `jax.lax.DotAlgorithmPreset`. `preferred`: dtype of the result and of the
    accumulation, or None.
    """

    name: str = "dot_general"
    linear_in: tuple[int, ...] = (0, 1)
    multilinear: bool = True

    def abstract_eval(
        self,
        x: ArrayType,
        y: ArrayType,
        *,
        lhs: Axes,
        rhs: Axes,
        out: Axes,
        precision: Any = None,
        preferred: Any = None,
    ) -> ArrayType:
        size: dict[int, int] = {}
        for t, names in ((x, lhs), (y, rhs)):
            if len(names) != t.ndim or len(set(names)) != t.ndim:
                raise self.mismatch((x, y), f"axes {names} must name each axis of {t} once")
            for n, name in zip(t.shape, names, strict=True):
                if size.setdefault(name, n) != n:
                    i, j = lhs.index(name), rhs.index(name)
                    raise self.mismatch(
                        (x, y),
                        f"axis {i} of the first operand and axis {j} of the second are contracted "
                        f"and must have equal sizes, got {x.shape[i]} and {y.shape[j]}",
                        "Transpose or reshape one of the operands.",
                    )
        if len(set(out)) != len(out) or not set(lhs) ^ set(rhs) <= set(out) <= set(size):
            raise self.mismatch(
                (x, y),
                f"the result's axes {out} must be among {lhs} and {rhs}, each once, and contain "
                "every axis that only one operand has",
            )
        self._check_dtypes(x, y, precision, preferred)
        shape = tuple([size[name] for name in out])
        return ArrayType(shape, preferred or x.dtype, x.weak_type and y.weak_type)

    def _check_dtypes(self, x: ArrayType, y: ArrayType, precision: Any, preferred: Any) -> None:
        self.check_one_dtype((x, y))
        if preferred is None or precision.__class__ is str or dtype_class(x.dtype) == "float":
            return
        if np.dtype(preferred).itemsize < x.dtype.itemsize:
            raise self.mismatch(
                (x, y), f"preferred_element_type {preferred} must not be narrower than {x.dtype}"
            )

    def reference(
        self, x: Any, y: Any, *, lhs: Any, rhs: Any, out: Any, precision: Any = None, preferred: Any = None
    ) -> Any:
        return _contraction(x, y, lhs, rhs, out, np.dtype(preferred or x.dtype), _read_as(precision))

    def numpy_source(self, w: Any, x: Any, y: Any, *, lhs: Any, rhs: Any, out: Any, **how: Any) -> Any:
        dtype = w.out_types[0].dtype
        wide = accumulation_dtype(x.dtype, dtype)
        names = {"lhs": lhs, "rhs": rhs, "out": out}
        axes, rest = self.short_params(names)
        read_as = _read_as(how.get("precision"))
        if rest or read_as is not None:
            return w.copied(_contraction, (x, y), {**names, "dtype": dtype, "read_as": read_as})
        given = [v.full if v.dtype == wide else f"{v.full}.astype({w.dtype(wide)})" for v in (x, y)]
        sums = "" if set(lhs) | set(rhs) == set(out) else ", optimize=True"  # by BLAS
        text = _as_matmul(given[0], given[1], axes)
        text = text or f'np.einsum("{axes}", {", ".join(given)}{sums})'
        if wide == dtype:
            return text
        text = f"({text})" if "@" in text else text
        return f"{text}.astype({w.dtype(dtype)})"

    def lower(
        self,
        ctx: Any,
        x: Any,
        y: Any,
        *,
        lhs: Any,
        rhs: Any,
        out: Any,
        precision: Any = None,
        preferred: Any = None,
    ) -> Any:
        batch = [n for n in out if n in lhs and n in rhs]
        summed = [n for n in lhs if n in rhs and n not in out]
        if not summed and preferred is None:
            return self._outer_product(ctx, x, y, lhs, rhs, out)
        if preferred is None and precision.__class__ is not str and ctx.has_few_terms(lhs, rhs, out):
            return self._sum_of_terms(ctx, x, y, lhs, rhs, (*out, *summed))
        if precision is None and preferred is None:
            crossed = ctx.crossed(x, y, lhs, rhs, out)
            if crossed is not None:
                return crossed
        in_types = ctx.in_types
        n = len(summed)
        as_rows = not batch and lhs[:n] == rhs[:n] and ctx.with_rows(x, y, n)
        if as_rows:
            x, y, in_types = as_rows
            lhs, rhs, summed = lhs[n - 1 :], rhs[n - 1 :], summed[-1:]

        def natural(first: Axes, second: Axes) -> list[int]:
            return [*batch, *[n for n in (*first, *second) if n in out and n not in batch]]

        turned = natural(lhs, rhs) != list(out) == natural(rhs, lhs)  # saves a transposition
        if in_types[0].size > in_types[1].size if as_rows else turned:
            x, y, lhs, rhs, in_types = y, x, rhs, lhs, in_types[::-1]
            precision = precision[::-1] if precision.__class__ is tuple else precision
        made_in = natural(lhs, rhs)
        size = dict(zip(out, ctx.out_types[0].shape, strict=True))
        made_type = ctx.out_types[0].update(shape=tuple([size[n] for n in made_in]))
        numbers = [[axes.index(n) for n in names] for names in (batch, summed) for axes in (lhs, rhs)]
        if precision.__class__ is str:
            made = _by_algorithm(ctx, x, y, in_types, made_type, numbers, precision)
        else:
            made = ctx.op(
                "stablehlo.dot_general",
                [x, y],
                {
                    "dot_dimension_numbers": ctx.attribute(
                        (lhs, rhs, out),
                        lambda: hlo.DotDimensionNumbers.get(numbers[0], numbers[1], numbers[2], numbers[3]),
                    ),
                    "precision_config": ctx.attribute(
                        ("precision", precision), lambda: precision_config(precision)
                    ),
                },
                made_type,
            )
        order = [made_in.index(n) for n in out]
        return made if order == sorted(order) else hlo.transpose(made, order)

    def _outer_product(self, ctx: Any, x: Any, y: Any, lhs: Axes, rhs: Axes, out: Axes) -> Any:
        """Emit a product, as nothing is summed: XLA:CPU's dot is up to twice as slow here."""
        both = []
        for value, names in ((x, lhs), (y, rhs)):
            order = [names.index(n) for n in out if n in names]
            if order != sorted(order):
                value = hlo.transpose(value, order)
            at = ctx.axes([i for i, n in enumerate(out) if n in names])
            both.append(ctx.op("stablehlo.broadcast_in_dim", [value], at))
        return ctx.op("stablehlo.multiply", both)

    def _sum_of_terms(self, ctx: Any, x: Any, y: Any, lhs: Axes, rhs: Axes, axes: Axes) -> Any:
        """Emit the terms, along the last of these axes, and their sum: half as many operations to compile as
        terms that are multiplied one by one."""
        t, n = ctx.out_types[0], ctx.in_types[0].shape[lhs.index(axes[-1])]
        ctx.out_types = (t.update(shape=(*t.shape, n)),)
        terms = self._outer_product(ctx, x, y, lhs, rhs, axes)
        ctx.out_types = (t,)
        first, ones = [0] * t.ndim, [1] * (t.ndim + 1)
        parts = [hlo.slice(terms, [*first, k], [*t.shape, k + 1], ones) for k in range(n)]
        parts = [hlo.reshape(ctx.type(t), x) for x in parts]
        return reduce(lambda a, b: ctx.op("stablehlo.add", [a, b]), parts)

    def transpose(self, ct: Any, x: Any, y: Any, *, lhs: Any, rhs: Any, out: Any, **how: Any) -> Any:
        # `preferred` may make ct wider than the operands: multiply in its dtype, then narrow
        if isinstance(x, LinearInput):
            made = self(ct, cast(y, typeof(ct).dtype), lhs=out, rhs=rhs, out=lhs, **how)
            return cast(made, x.dtype), None
        made = self(cast(x, typeof(ct).dtype), ct, lhs=lhs, rhs=out, out=rhs, **how)
        return None, cast(made, y.dtype)

    def batch(self, t: Any, args: Any, dims: Any, *, lhs: Any, rhs: Any, out: Any, **how: Any) -> Any:
        new = 1 + max((*lhs, *rhs), default=-1)
        lhs, rhs = with_batch_axis(lhs, dims[0], new), with_batch_axis(rhs, dims[1], new)
        return self(*args, lhs=lhs, rhs=rhs, out=(new, *out), **how), 0

    def short_params(self, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the axes in einsum notation: `ij,jk->ik`."""
        rest = dict(params)
        axes = [rest.pop(name) for name in ("lhs", "rhs", "out")]
        if any(n >= len(_LETTERS) for names in axes for n in names):
            return "", params
        lhs, rhs, out = ("".join([_LETTERS[n] for n in names]) for names in axes)
        return f"{lhs},{rhs}->{out}", rest

    def read_params(self, short: str) -> dict[str, Any]:
        lhs, _, right = short.partition(",")
        rhs, _, out = right.partition("->")
        axes = [tuple([_LETTERS.index(letter) for letter in part]) for part in (lhs, rhs, out)]
        return dict(zip(("lhs", "rhs", "out"), axes, strict=True))

    def cost(self, in_types: Any, out_types: Any, *, lhs: Any, rhs: Any, **how: Any) -> Cost:
        x, y = in_types
        return Cost(flops(x.shape, y.shape, lhs, rhs), bytes_of(x, y, *out_types))


dot_general: DotGeneral = DotGeneral()


@cached("costs of contractions", 4096)
def flops(x: tuple[int, ...], y: tuple[int, ...], lhs: Axes, rhs: Axes) -> int:
    """Return the operations of a `dot_general` of operands of these shapes."""
    return 2 * prod(dict(zip((*lhs, *rhs), (*x, *y), strict=True)).values())


@cached("orders of axes", 4096)
def _orders(lhs: Axes, rhs: Axes, out: Axes) -> tuple[list[int], list[int], list[int], int, int]:
    """Return the order of the axes of both operands and of the result for a matrix product,

        [batch, rows, summed] @ [batch, summed, columns] -> [batch, rows, columns]

    and the numbers of batch axes and of summed axes."""
    batch = [n for n in out if n in lhs and n in rhs]
    summed = [n for n in lhs if n in rhs and n not in out]
    rows = [n for n in out if n not in rhs]
    columns = [n for n in out if n not in lhs]
    first = [lhs.index(n) for n in (*batch, *rows, *summed)]
    second = [rhs.index(n) for n in (*batch, *summed, *columns)]
    made = [*batch, *rows, *columns]
    return first, second, [made.index(n) for n in out], len(batch), len(summed)


def _contraction(x: Any, y: Any, lhs: Axes, rhs: Axes, out: Axes, dtype: Any, read_as: Any) -> Any:
    """Return an einsum of arrays, as one of a dtype."""
    if read_as is not None:
        x, y = [v if v.dtype in read_as else v.astype(read_as[0]).astype(v.dtype) for v in (x, y)]
    wide = accumulation_dtype(x.dtype, dtype)
    made = _contracted(x.astype(wide, copy=False), y.astype(wide, copy=False), lhs, rhs, out)
    return made.astype(dtype, copy=False)


def _contracted(x: Any, y: Any, lhs: Axes, rhs: Axes, out: Axes) -> Any:
    """Compute an einsum; planning `np.einsum` would take longer than small products."""
    first, second, order, n, m = _orders(lhs, rhs, out)
    x, y = x.transpose(first), y.transpose(second)
    batch, rows, columns = x.shape[:n], x.shape[n : x.ndim - m], y.shape[n + m :]
    length, height, width = prod(y.shape[n : n + m]), prod(rows), prod(columns)
    x, y = x.reshape((*batch, height, length)), y.reshape((*batch, length, width))
    return _product(x, y).reshape((*batch, *rows, *columns)).transpose(order)


# Up to this many multiplications OpenBLAS uses one thread. Its other threads, once started, spin on
# the cores that XLA computes on: 20 times slower if there are few cores.
_ONE_THREAD = 2**18
_MANY = 2**24  # from here on several threads pay


def _product(x: Any, y: Any) -> Any:
    """Compute `x @ y` for stacks of matrices; products of medium size by groups of rows."""
    height, length = x.shape[-2:]
    width = y.shape[-1]
    few = _ONE_THREAD // max(length * width, 1)
    if few < 2 or not few < height <= few * (_MANY // _ONE_THREAD):
        return x @ y
    return np.concatenate([x[..., i : i + few, :] @ y for i in range(0, height, few)], axis=-2)


def _as_matmul(x: str, y: str, axes: str) -> str | None:
    """Return a product of matrices and vectors as Python code; None for any other."""
    lhs, rhs, out = axes.replace("->", ",").split(",")
    both = [(x, lhs), (y, rhs)]
    for turns in ("", ""), (".T", ""), ("", ".T"), (".T", ".T"):
        for pair in both, both[::-1]:
            (a, left), (b, right) = [
                (f"{v}{t}", names[::-1] if t else names) for (v, names), t in zip(pair, turns, strict=True)
            ]
            if not (1 <= len(left) <= 2 and 1 <= len(right) <= 2) or left[-1] != right[0]:
                continue
            if out == left[:-1] + right[1:] and len({*left, *right}) == len(left + right) - 1:
                return f"{a} @ {b}"
    return None


def _read_as(precision: Any) -> tuple[Any, ...] | None:
    """Return the dtypes to which a preset rounds operands: F16_F16_F16 multiplies float16 numbers."""
    if precision.__class__ is not str:
        return None
    found = jax.lax.DotAlgorithmPreset[precision].supported_lhs_types
    return None if found is None else tuple(map(np.dtype, found))


def _by_algorithm(ctx: Any, x: Any, y: Any, in_types: Any, made: ArrayType, numbers: Any, preset: str) -> Any:
    """Lower through JAX, which knows each platform's presets and the casts of their operands."""
    (lhs_batch, rhs_batch, lhs_summed, rhs_summed) = numbers
    ctx.in_types, ctx.out_types = in_types, [made]
    return ctx.via_jax(
        lambda a, b: jax.lax.dot_general(
            a,
            b,
            ((lhs_summed, rhs_summed), (lhs_batch, rhs_batch)),
            precision=preset,
            preferred_element_type=made.dtype,
        ),
        x,
        y,
    )[0]


# --- shared with convolutions ---------------------------------------------------------------------


def precision_config(precision: tuple[str, str] | str | None) -> ir.ArrayAttr:
    """Return the StableHLO attribute of a pair of precisions. (Presets apply to matrix products
    only; a convolution ignores them.)"""
    if precision.__class__ is str:
        precision = None
    return ir.ArrayAttr.get([hlo.PrecisionAttr.get(p) for p in precision or ("DEFAULT", "DEFAULT")])


def with_batch_axis(names: Axes, d: int | None, new: int) -> Axes:
    """Return the axes of an operand with a batch axis at d."""
    return names if d is None else (*names[:d], new, *names[d:])


def accumulation_dtype(dtype: Any, result: Any) -> Any:
    """Return the dtype of sums: float32 for narrower floats, as in XLA."""
    narrow = is_inexact(dtype) and not is_inexact(result)
    wide = dtype if narrow else result
    return np.result_type(wide, np.float32) if is_inexact(wide) else wide
