"""jax arrays that meet traced values: `table[i]` and `zeros.at[0].set(y)`.

A concrete array in a user's function is a `jax.Array`, whose operators hand an unknown operand
over to ours; but for indexing Python asks only the array. So that `table[i]` works with a traced
`i`, and `.at` with traced indices or values, the two are wrapped here: an index that holds a
tracer, and `.at` while something is traced, are ours; everything else is JAX's own, unchanged.
"""

from __future__ import annotations

from typing import Any

from functrans.numpy.indexing import At, getitem
from functrans.trace import Tracer, state
from functrans.tracer import CONCRETE

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


def install() -> None:
    """Teach jax arrays to be indexed by traced values; done once, before the first trace."""
    _getitem.__doc__ = _jax_getitem.__doc__
    _Array.__getitem__ = _getitem
    _Array.at = property(_at, doc=getattr(_jax_at, "__doc__", None))


install()
