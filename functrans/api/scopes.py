"""Contexts around the user's code while it is traced: names for its operations, and values that are
computed at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import jax

from functrans import errors
from functrans.api.checks import check_callable
from functrans.api.flat import function_name
from functrans.ir.source import describe, scopes, user_source
from functrans.ir.tracebacks import boundary
from functrans.trace import Trace, bind_in, state
from functrans.tracer import Tracer

# The function's own type, for mypy infers no lambda through a ParamSpec where any may stand.
_F = TypeVar("_F", bound=Callable[..., Any])


@contextmanager
def named_scope(name: str) -> Iterator[None]:
    """Give a name to the operations that are traced inside, for messages and profilers.

    Arguments:
      name: stands in front of the function's name wherever a line of the user's is shown, and in
        the compiled program, nested names apart by slashes.

    Returns:
      A context manager, which also decorates functions.

    Raises:
      TypeMismatch: the name is no string.

    Source: `jax.named_scope`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> def f(x):
      ...     with ft.named_scope("decoder"):
      ...         return jnp.sin(x)
      >>> "decoder/f" in ft.jit(f).lower(1.0).as_text(debug_info=True)
      True
    """
    if not isinstance(name, str):
        raise errors.TypeMismatch(
            f"named_scope takes a string, got {name!r:.60} of type {type(name).__qualname__}, at\n"
            f"    {describe(user_source())}"
        )
    outer = scopes.path
    scopes.path = f"{outer}{name}/"
    try:
        yield
    finally:
        scopes.path = outer


def named_call(fun: _F, *, name: str | None = None) -> _F:
    """Make a function whose operations are in a `named_scope`.

    Arguments:
      fun: a function.
      name: of the scope. Left out: that of the function.

    Returns:
      A function of the same arguments.

    Raises:
      NotAnArray: `fun` is not a function.

    Source: `jax.named_call`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.named_call(jnp.sin, name="wave")(0.0))
      0.0
    """
    check_callable(fun, "named_call")
    scope = function_name(fun) if name is None else name

    @boundary
    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        with named_scope(scope):
            return fun(*args, **kwargs)

    return call  # type: ignore[return-value]


class _AtOnce(Trace):
    """A trace in which what touches no traced value is computed, not recorded."""

    __slots__ = ()
    at_once = True

    def bind(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        traced = any([isinstance(x, Tracer) for x in args])
        return bind_in(self.parent if traced else None, primitive, args, params)


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Compute at once, while a function is traced, what depends on no traced value.

    Returns:
      A context manager. Inside, results of concrete arrays are concrete: they may be conditions,
      sizes and indices of Python. Operations on traced values are recorded as ever.

    Source: `jax.ensure_compile_time_eval`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> @ft.jit
      ... def f(x):
      ...     with ft.ensure_compile_time_eval():
      ...         n = int(jnp.sum(jnp.arange(3)))
      ...     return x[:n]
      >>> print(f(jnp.arange(5)))
      [0 1 2]
    """
    outer = state.innermost
    if state.trace is not None:
        state.innermost = _AtOnce(outer)
    try:
        with jax.ensure_compile_time_eval():
            yield
    finally:
        state.innermost = outer
