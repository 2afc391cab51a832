"""How arrays are printed, read and written: JAX's functions, and arrays of what they read.

These are about concrete arrays; a traced one has nothing to print or write yet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from jax import numpy as _jax
from jax.numpy import array_repr as array_repr
from jax.numpy import array_str as array_str
from jax.numpy import get_printoptions as get_printoptions
from jax.numpy import printoptions as printoptions
from jax.numpy import save as save
from jax.numpy import savez as savez
from jax.numpy import set_printoptions as set_printoptions

from functrans.numpy.promotion import captured

__all__ = [
    "array_repr", "array_str", "from_dlpack", "frombuffer", "fromfile", "fromiter", "fromstring",
    "get_printoptions", "load", "printoptions", "save", "savez", "set_printoptions",
]  # fmt: skip


def _reader(read: Callable[..., Any]) -> Callable[..., Any]:
    """JAX's function that reads an array from somewhere; also while a program is recorded."""

    @functools.wraps(read)
    def of(*args: Any, **kwargs: Any) -> Any:
        found = read(*args, **kwargs)
        return captured(found) if hasattr(found, "dtype") else found

    of.__doc__ = f"Source: `jax.numpy.{read.__name__}`, which see."
    return of


from_dlpack = _reader(_jax.from_dlpack)
frombuffer = _reader(_jax.frombuffer)
fromfile = _jax.fromfile
fromiter = _jax.fromiter
fromstring = _reader(_jax.fromstring)
load = _reader(_jax.load)
