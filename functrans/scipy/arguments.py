"""What the functions of special and stats ask of their arguments, and the families they make."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans import errors
from functrans import numpy as jnp
from functrans.interop.jax_functions import from_jax
from functrans.ir.source import describe, user_source
from functrans.ir.types import dtype_class
from functrans.numpy.arithmetic import beside
from functrans.numpy.promotion import (
    align_inexact,
    broadcast_shape,
    invalid,
    mismatch,
    promote_inexact,
    value_of,
)
from functrans.trace import ARRAYS, literal, materialize, typeof

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def numbers(name: str, *xs: Any, broadcast: bool = True) -> list[Any]:
    """Operands as arrays of one inexact dtype, and of one shape unless they stay as they are."""
    if broadcast:
        return [materialize(x) for x in align_inexact(xs, name)]
    made = [materialize(x) for x in promote_inexact(xs, name)]
    types = [typeof(x) for x in made]
    broadcast_shape([t.shape for t in types], name, types)  # they must fit
    return made


def reals(name: str, *xs: Any, broadcast: bool = True) -> list[Any]:
    """As `numbers`, of a float dtype."""
    made = numbers(name, *xs, broadcast=broadcast)
    if dtype_class(typeof(made[0]).dtype) == "complex":
        raise invalid(name, f"does not support complex-valued inputs, got {typeof(made[0])}")
    return made


def constant(value: Any, x: Any) -> Any:
    """A number, without axes, of the type of a constant beside x."""
    return literal(value, beside(typeof(x)).update(shape=()))


def float_of(name: str, x: Any) -> Any:
    """An operand that must be float32 or float64 already."""
    x = jnp.asarray(x) if isinstance(x, (list, tuple)) else value_of(x, name)
    if typeof(x).dtype not in FLOATS:
        raise mismatch(
            name,
            f"takes float32 or float64, got {typeof(x)}",
            "Cast it first: jnp.asarray(x, float).",
        )
    return materialize(x)


def documented(
    function: Callable[..., Any], module: str, name: str, does: str, example: str
) -> Callable[..., Any]:
    """Give a function its name and text. `example` is `arguments -> printed result`; without a
    result it stands in the text and is not run (what compiles for long is run by the tests)."""
    arguments, _, result = example.partition(" -> ")
    parent, _, short = f".{module}".rpartition(".")
    shown = f"{short}.{name}({arguments})"
    if result:
        shown = (
            f">>> import numpy as np\n    >>> from functrans.scipy{parent} import {short}\n"
            f"    >>> print({shown})\n    {result}\n    "
        )
    else:
        shown = f"Example: `{shown}`.\n    "
    function.__name__ = function.__qualname__ = name
    function.__module__ = f"functrans.scipy.{module}"
    function.__doc__ = f"{does}\n\n    Source: `jax.scipy.{module}.{name}`.\n\n    {shown}"
    return function


def told(imported: Callable[..., Any], name: str) -> Callable[..., Any]:
    """An imported function whose errors are ours: JAX's words with the arguments' types and the
    user's line."""

    @functools.wraps(imported)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return imported(*args, **kwargs)
        except errors.FunctransError:
            raise
        except (TypeError, ValueError, IndexError, NotImplementedError) as error:
            made = next(ours for theirs, ours in _OURS.items() if isinstance(error, theirs))
            given = [str(typeof(x)) if x.__class__ in ARRAYS else f"{x!r:.30}" for x in args]
            given += [f"{key}={value!r:.30}" for key, value in kwargs.items()]
            raise made(
                f"{name}({', '.join(given)}): {str(error).strip()}, at\n"
                f"    {describe(user_source())}"
            ) from error

    return call


_OURS: dict[type[Exception], type[errors.FunctransError]] = {
    TypeError: errors.TypeMismatch,
    NotImplementedError: errors.MissingRule,
    IndexError: errors.InvalidIndex,
    ValueError: errors.InvalidArgument,
}


def imported(
    name: str, does: str, example: str, static: tuple[str, ...] = (), module: str = "special"
) -> Callable[..., Any]:
    """A function of a module of `jax.scipy` by JAX's own program: for series, continued fractions
    and tables, of which there is nothing to gain by writing them again."""
    theirs = getattr(importlib.import_module(f"jax.scipy.{module}"), name)
    made = told(from_jax(theirs, static_argnames=static or None), name)
    return documented(made, module, name, does, example)
