"""Arrays written with slices in brackets: `mgrid[0:3, 0:2]`, `r_[1, 2:5]`, `c_[x, y]`.

A slice start:stop:step means `arange(start, stop, step)`; with an imaginary step, start:stop:5j,
five points from start to stop, both included.
"""

from __future__ import annotations

import builtins
from typing import Any

from jax.numpy import index_exp as index_exp
from jax.numpy import s_ as s_

from functrans.ir.tracebacks import guard_methods
from functrans.ir.types import promote
from functrans.numpy.grids import meshgrid
from functrans.numpy.joining import concatenate, stack
from functrans.numpy.promotion import array_of, cast, invalid
from functrans.numpy.ranges import arange, linspace
from functrans.numpy.shaping import atleast_1d, expand_dims, moveaxis
from functrans.trace import typeof

__all__ = ["c_", "index_exp", "mgrid", "ogrid", "r_", "s_"]


def _range(s: builtins.slice, name: str) -> Any:
    start, step = s.start or 0, 1 if s.step is None else s.step
    if s.stop is None:
        raise invalid(name, f"a slice needs a stop, got {s}")
    if isinstance(step, complex):
        return linspace(start, s.stop, int(builtins.abs(step)))
    return arange(start, s.stop, step)


@guard_methods
class _Grid:
    """`mgrid` and `ogrid`: the coordinates of the points of a grid.

    Source: `jax.numpy.mgrid`, `jax.numpy.ogrid`.
    """

    def __init__(self, name: str, sparse: bool):
        self.said, self.sparse = name, sparse

    def __repr__(self) -> str:
        return self.said

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, builtins.slice):
            return _range(key, self.said)
        axes = [_range(s, self.said) for s in key]
        if axes:
            dtype, _ = promote(tuple([typeof(x) for x in axes]))
            axes = [cast(x, dtype) for x in axes]
        grids = meshgrid(*axes, indexing="ij", sparse=self.sparse)
        if self.sparse:
            return grids
        return stack(grids) if grids else arange(0)


mgrid = _Grid("mgrid", sparse=False)
ogrid = _Grid("ogrid", sparse=True)


@guard_methods
class _Join:
    """`r_` and `c_`: arrays, numbers and ranges joined along an axis.

    A string as the first entry changes how: "axis", "axis,ndim" or "axis,ndim,start"; "r" and "c"
    join vectors as a row or a column of a matrix.
    Source: `jax.numpy.r_`, `jax.numpy.c_`.
    """

    def __init__(self, name: str, axis: int, ndim: int, start: int):
        self.said, self.how = name, (axis, ndim, start)

    def __repr__(self) -> str:
        return self.said

    def __getitem__(self, key: Any) -> Any:
        items = list(key) if isinstance(key, tuple) else [key]
        axis, ndim, start = self.how
        column = False
        if items and isinstance(items[0], str):
            text = items.pop(0)
            column = text == "c"
            axis, ndim, start = self._directive(text)
        if not items:
            raise invalid(self.said, "needs at least one entry")
        entries = [self._entry(x, ndim, start) for x in items]
        joined = concatenate(entries, axis)
        return moveaxis(joined, -1, 0) if column and typeof(joined).shape[0] == 1 else joined

    def _directive(self, text: str) -> tuple[int, int, int]:
        if text in ("r", "c"):
            return -1, 2, -1
        try:
            numbers = [int(part) for part in text.split(",")]
        except ValueError:
            numbers = []
        if not 1 <= len(numbers) <= 3:
            raise invalid(
                self.said, f"{text!r} is not understood",
                "A string in front is 'axis', 'axis,ndim', 'axis,ndim,start', 'r' or 'c'.",
            )  # fmt: skip
        axis, ndim, start = (*numbers, *self.how[len(numbers) :])
        return axis, ndim, start

    def _entry(self, x: Any, ndim: int, start: int) -> Any:
        """An entry as an array of at least `ndim` axes; `start`: where its first axis goes."""
        if isinstance(x, builtins.slice):
            x = _range(x, self.said)
        elif isinstance(x, str):
            raise invalid(self.said, "a string may stand only in front")
        x = atleast_1d(array_of(x, self.said))
        have = typeof(x).ndim
        missing = ndim - have
        if missing <= 0:
            return x
        at = start if start >= 0 else missing + 1 + start
        at = builtins.min(builtins.max(at, 0), missing)
        for k in range(missing):
            x = expand_dims(x, 0 if k < at else typeof(x).ndim)
        return x


r_ = _Join("r_", 0, 1, -1)
c_ = _Join("c_", -1, 2, 0)
