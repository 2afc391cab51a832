"""Context managers for use while tracing: `named_scope`, and `ensure_compile_time_eval`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax

from functrans import errors
from functrans.api.arguments import check_callable
from functrans.ir.source import brief_with_type, here, scopes
from functrans.ir.tracebacks import boundary
from functrans.pytrees.functions import function_name
from functrans.runtime import F
from functrans.trace import Trace, bind_in, state
from functrans.tracer import Tracer


@contextmanager
def named_scope(name: str) -> Iterator[None]:
    """Add a name to the operations traced inside, for error messages and profilers.

    Arguments:
      name: a prefix to the function's name wherever a user line is shown, and in the compiled
        program. Nested names are separated by slashes.

    Returns:
      A context manager that is also a decorator.

    Raises:
      TypeMismatch: the name is not a string.

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
        raise errors.TypeMismatch(f"named_scope takes a string, got {brief_with_type(name)}, {here()}")
    outer = scopes.path
    scopes.path = f"{outer}{name}/"
    try:
        yield
    finally:
        scopes.path = outer


@boundary
def named_call(fun: F, *, name: str | None = None) -> F:
    """Wrap a function so that it runs in a `named_scope`.

    Arguments:
      fun: a function.
      name: name of the scope. Left out: the name of the function.

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
    return boundary(named_scope(function_name(fun) if name is None else name)(fun))


class _AtOnce(Trace):
    """A trace that evaluates operations without tracer operands instead of recording them."""

    __slots__ = ()
    evaluates = True

    def bind(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        traced = any([isinstance(x, Tracer) for x in args])
        return bind_in(self.parent if traced else None, primitive, args, params)


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Evaluate operations on concrete values eagerly, even while a function is traced.

    Returns:
      A context manager. Inside, results of concrete operands are concrete, so they can be used as
      Python conditions, sizes and indices. Operations on tracers are recorded as usual.

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
