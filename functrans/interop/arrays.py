"""`jax.Array` methods that accept our tracers: `table @ x`, `table[i]` and `zeros.at[0].set(y)`.

A concrete array in a user's function is a `jax.Array`. Its operators would handle our tracers with
jax.numpy, which is slower than ours; here they return NotImplemented, so that Python calls the
tracer's operator. Python has no such fallback for indexing: an index that contains a tracer, and
`.at` while tracing, are handled here. Everything else is unchanged.
"""

from __future__ import annotations

import functools
from typing import Any

from functrans.numpy.indexing import At, getitem
from functrans.numpy.operators import OPERATORS
from functrans.trace import Tracer, state
from functrans.tracer import CONCRETE, OURS

_Array: Any = CONCRETE
_jax_getitem = _Array.__getitem__
_jax_at = _Array.at


def _holds_tracer(index: Any) -> bool:
    if isinstance(index, tuple):
        return any(isinstance(i, Tracer) for i in index)
    return isinstance(index, Tracer)


def _getitem(self: Any, index: Any) -> Any:
    if state.trace is not None and _holds_tracer(index):
        return getitem(self, index)
    return _jax_getitem(self, index)


def _at(self: Any) -> Any:
    return _jax_at.__get__(self) if state.trace is None else At(self)


def _leaving(theirs: Any) -> Any:
    """Wrap a `jax.Array` operator so that it returns NotImplemented for our tracers."""

    @functools.wraps(theirs)
    def operator(self: Any, other: Any) -> Any:
        return NotImplemented if other.__class__ in OURS else theirs(self, other)

    return operator


def install() -> None:
    """Patch `jax.Array` to work with our tracers; done once, before the first trace."""
    for name in OPERATORS:
        setattr(_Array, name, _leaving(getattr(_Array, name)))
    _getitem.__doc__ = _jax_getitem.__doc__
    _Array.__getitem__ = _getitem
    _Array.at = property(_at, doc=getattr(_jax_at, "__doc__", None))


install()
