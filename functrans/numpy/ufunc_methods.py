"""The methods of JAX's ufuncs: `jnp.add.reduce`, `jnp.maximum.at`, ...

Importing this module adds them to our functions of the same names. The methods are JAX's own,
imported (interop/delegated.py) when first called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import isfunction, unwrap
from typing import Any

import jax

from functrans import runtime
from functrans.ir.tracebacks import named_boundary
from functrans.numpy import ufuncs
from functrans.numpy.arithmetic import logaddexp, logaddexp2

__all__ = ["frompyfunc", "ufunc"]

_METHODS = ("reduce", "accumulate", "at", "outer", "reduceat")


def _method(theirs: Any, name: str) -> Callable[..., Any]:
    shown = f"{theirs.__name__}.{name}"

    @functools.cache
    def made() -> Callable[..., Any]:
        return runtime.delegated(getattr(theirs, name), shown, __package__)

    @functools.wraps(getattr(theirs, name), updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        return made()(*args, **kwargs)

    return call


class _Ufuncs(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, jax.numpy.ufunc) or (isfunction(x) and unwrap(x) in _OURS)


class ufunc(jax.numpy.ufunc, metaclass=_Ufuncs):
    """JAX's class, with our errors; our functions with its methods are instances too.

    Source: `jax.numpy.ufunc`.
    """


for _name in ("__call__", *_METHODS):
    setattr(ufunc, _name, named_boundary(getattr(jax.numpy.ufunc, _name), f"ufunc.{_name}"))


def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """Make an elementwise function with the methods of `ufunc` from a function of scalars.

    Arguments:
      func: function of `nin` scalars with `nout` results.
      identity: the value that leaves other elements unchanged, if there is one.

    Source: `jax.numpy.frompyfunc`.

    Example:
      >>> import functrans.numpy as jnp
      >>> f = jnp.frompyfunc(lambda x, y: x * y + 1, 2, 1)
      >>> print(f(jnp.arange(3), 2))
      [1 3 5]
    """
    return ufunc(func, nin, nout, identity=identity)


_OURS: set[Any] = set()


def _attach(*functions: Callable[..., Any]) -> None:
    for function in functions:
        _OURS.add(function)
        theirs = getattr(jax.numpy, function.__name__)
        for name in ("nin", "nout", "nargs", "identity"):
            setattr(function, name, getattr(theirs, name))
        for name in _METHODS:
            setattr(function, name, _method(theirs, name))


_attach(
    ufuncs.add,
    ufuncs.multiply,
    ufuncs.subtract,
    ufuncs.maximum,
    ufuncs.minimum,
    ufuncs.bitwise_and,
    ufuncs.bitwise_or,
    ufuncs.bitwise_xor,
    ufuncs.logical_and,
    ufuncs.logical_or,
    ufuncs.logical_xor,
    ufuncs.negative,
    logaddexp,
    logaddexp2,
)
