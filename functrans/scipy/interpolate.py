"""Interpolation on regular grids."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.tree_util import register_pytree_node

import functrans.numpy as jnp
from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.tracebacks import guard_methods
from functrans.loading import hand_on as _hand_on
from functrans.numpy.promotion import array_of, invalid, promote_inexact
from functrans.trace import typeof

__all__ = ["RegularGridInterpolator"]

_NAME = "RegularGridInterpolator"


@guard_methods
class RegularGridInterpolator:
    """Interpolate values on a regular grid at other points.

    It is a pytree (grid, values, fill_value), and differentiable in all of them and in the points.

    Arguments:
      points: the places along each of the first axes of `values`, each a vector, increasing.
      values: array of numbers; axes without places are carried along.
      method: "linear" or "nearest".
      bounds_error: must be False: whether a traced point lies outside cannot be known.
      fill_value: the result at points outside of the grid; None: extrapolate.

    Raises:
      InvalidArgument: an unknown method, more places than axes.

    Source: `jax.scipy.interpolate.RegularGridInterpolator`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy.interpolate import RegularGridInterpolator
      >>> f = RegularGridInterpolator((jnp.arange(3.0),), jnp.array([0.0, 10.0, 30.0]))
      >>> print(f(jnp.array([0.5, 1.5])))
      [ 5. 20.]
    """

    def __init__(
        self, points: Sequence[Any], values: Any, method: str = "linear",
        bounds_error: bool = False, fill_value: Any = np.nan,
    ) -> None:  # fmt: skip
        _check_method(method)
        if bounds_error:
            raise errors.MissingRule(
                f"{_NAME}: bounds_error=True is not supported, at\n    {describe(user_source())}\n"
                "Pass a fill_value."
            )
        (values,) = promote_inexact((array_of(values, _NAME, 1),), _NAME)
        values = array_of(values, _NAME)
        ndim = typeof(values).ndim
        if len(points) > ndim:
            raise invalid(_NAME, f"there are {len(points)} points, but values have {ndim} axes")
        if fill_value is not None:
            fill_value = jnp.asarray(array_of(fill_value, _NAME, 4))
            if not jnp.can_cast(typeof(fill_value).dtype, typeof(values).dtype, "same_kind"):
                raise invalid(
                    _NAME, f"fill_value {typeof(fill_value)} does not fit values {typeof(values)}"
                )
        self.method = method
        self.bounds_error: bool = bounds_error
        self.fill_value = fill_value
        self.grid = tuple(array_of(p, _NAME) for p in points)
        self.values = values

    def __call__(self, xi: Any, method: str | None = None) -> Any:
        """The values at xi: [..., d] points, or a tuple of d arrays of coordinates.

        Returns:
          An array [..., axes of values without places].
        """
        method = self.method if method is None else method
        _check_method(method)
        d = len(self.grid)
        xi = _joined(xi, d)
        *lead, last = typeof(xi).shape
        if last != d:
            raise invalid(_NAME, f"the points have {last} coordinates, but the grid {d}")
        cells = [_cell(g, x) for g, x in zip(self.grid, jnp.reshape(xi, (-1, d)).T, strict=True)]
        made = (_linear if method == "linear" else _nearest)(self.values, cells)
        if self.fill_value is not None:
            outside = jnp.any(jnp.stack([c[2] for c in cells]), axis=0)
            outside = jnp.reshape(outside, (-1,) + (1,) * (typeof(made).ndim - 1))
            made = jnp.where(outside, self.fill_value, made)
        return jnp.reshape(made, (*lead, *typeof(self.values).shape[d:]))


def _check_method(method: str) -> None:
    if method not in ("linear", "nearest"):
        raise invalid(_NAME, f"unknown method {method!r}", "Methods are 'linear' and 'nearest'.")


def _joined(xi: Any, d: int) -> Any:
    """Points, or one array for each coordinate, as [..., d]."""
    if isinstance(xi, tuple) and len(xi) == 1:
        xi = xi[0]
    if isinstance(xi, tuple):
        return jnp.stack(jnp.broadcast_arrays(*[jnp.asarray(x, float) for x in xi]), axis=-1)
    xi = array_of(xi, _NAME)
    return jnp.reshape(xi, (-1, d)) if typeof(xi).ndim == 1 else xi


def _cell(g: Any, x: Any) -> tuple[Any, Any, Any]:
    """The cell i with g[i] <= x <= g[i + 1], where in it (0 to 1), and whether there is none."""
    i = jnp.clip(jnp.searchsorted(g, x) - 1, 0, typeof(g).shape[0] - 2)
    return i, (x - g[i]) / (g[i + 1] - g[i]), (x < g[0]) | (x > g[-1])


def _linear(values: Any, cells: list[tuple[Any, Any, Any]]) -> Any:
    """The sum over the corners of a cell, each weighted by the volume opposite to it."""
    trailing = (None,) * (typeof(values).ndim - len(cells))
    total: Any = jnp.asarray(0.0)
    for corner in itertools.product((0, 1), repeat=len(cells)):
        weight: Any = jnp.asarray(1.0)
        for side, (_, part, _) in zip(corner, cells, strict=True):
            weight = weight * (part if side else 1 - part)
        there = tuple([i + side for side, (i, _, _) in zip(corner, cells, strict=True)])
        total = total + values[there] * weight[(slice(None), *trailing)]
    return total


def _nearest(values: Any, cells: list[tuple[Any, Any, Any]]) -> Any:
    return values[tuple([jnp.where(part <= 0.5, i, i + 1) for i, part, _ in cells])]


register_pytree_node(
    RegularGridInterpolator,
    lambda f: ((f.grid, f.values, f.fill_value), (f.method, f.bounds_error)),
    lambda static, arrays: _unflattened(*arrays, *static),
)


def _unflattened(
    grid: Any, values: Any, fill_value: Any, method: str, bounds_error: bool
) -> RegularGridInterpolator:
    """Without the checks: the leaves may be anything."""
    made = object.__new__(RegularGridInterpolator)
    made.grid, made.values, made.fill_value = grid, values, fill_value
    made.method, made.bounds_error = method, bounds_error
    return made


_hand_on(__name__)
