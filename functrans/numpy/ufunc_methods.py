"""The methods of JAX's ufuncs: `jnp.add.reduce`, `jnp.maximum.at`, ...

Importing this module adds them to our functions of the same names. The methods are JAX's own,
imported (interop/delegated.py) when first called.

And the public versions (`shown`) of the functions of `functrans.numpy`: those that are several
operations run as one compiled operation in eager mode (`composite` in primitives/calls/jit.py). Internal
calls use the defining modules directly, without this overhead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import isfunction, unwrap
from types import FunctionType
from typing import Any

import jax

from functrans.ir import tracebacks
from functrans.ir.tracebacks import boundary, named_boundary
from functrans.numpy import arithmetic, ufuncs
from functrans.numpy.promotion import of_jax
from functrans.primitives.calls.jit import composite

__all__ = ["frompyfunc", "ufunc"]

_METHODS = ("reduce", "accumulate", "at", "outer", "reduceat")


def _method(theirs: Any, name: str) -> Callable[..., Any]:
    @boundary
    @functools.wraps(getattr(theirs, name), updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        return of_jax(f"{theirs.__name__}.{name}")(*args, **kwargs)

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


def _attach() -> None:
    for module in (ufuncs, arithmetic):
        for name in module.__all__:
            theirs, function = getattr(jax.numpy, name), getattr(module, name)
            if isinstance(theirs, jax.numpy.ufunc):
                _OURS.add(function)
                for attribute in ("nin", "nout", "nargs", "identity"):
                    setattr(function, attribute, getattr(theirs, attribute))
                for method in _METHODS:
                    setattr(function, method, _method(theirs, method))


_attach()


# --- public versions ------------------------------------------------------------------------------

# Functions of arrays; Python numbers are operands: those that are likely to change between calls,
# for which nothing should be recompiled.
_ELEMENTWISE = (
    "divide equal greater greater_equal less less_equal logaddexp logaddexp2 not_equal true_divide where"
)
# Functions of arrays and static integers, strings and None; floats are operands.
_WITH_OPTIONS = "diagonal dot imag clip ravel sinc"

_OPERANDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(_ELEMENTWISE.split(), (int, float, complex)),
    **dict.fromkeys(_WITH_OPTIONS.split(), (float,)),
}


def shown(package: str, name: str, value: Any) -> Any:
    """Return the public version of a name that a module of `functrans.numpy` defines."""
    if isinstance(value, FunctionType):
        made = composite(value, _OPERANDS[name]) if name in _OPERANDS else value
        return tracebacks.shown(package, name, made)
    return value
