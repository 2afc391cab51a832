"""`fwd_and_bwd`: `vjp` as two jitted functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec

from functrans import errors
from functrans.api.arguments import check_callable, choose, here, of_chosen, positions
from functrans.api.derivatives import Pullback, vjp
from functrans.api.jit import jit
from functrans.ir.tracebacks import boundary
from functrans.typing import PyTree

_P = ParamSpec("_P")


@boundary
def fwd_and_bwd(
    fun: Callable[_P, PyTree], argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
) -> tuple[Callable[_P, tuple[PyTree, ...]], Callable[[Pullback, PyTree], PyTree]]:
    """Split a function's VJP into separate forward and backward functions.

    Arguments:
      fun: function of pytrees of arrays.
      argnums: position or positions of the arguments to differentiate with respect to.
      has_aux: `fun` returns `(out, aux)`.
      jitted: jit both functions; each is traced once per signature.

    Returns:
      `fwd(*args) -> (out, residuals)`, or `(out, residuals, aux)` if `has_aux`; and
      `bwd(residuals, ct) -> cotangent`, where `ct` has the structure and types of `out`, and the
      result is the cotangent of the argument (a tuple of cotangents if `argnums` is a sequence).
      The residuals are a pytree.

    Raises:
      MissingArgument: (from fwd) an argument to differentiate was not given.
      InvalidArgument: (from bwd) the cotangent does not match the output.
      NotAnArray: (from bwd) the residuals are not those that fwd returned.

    Source: `jax.fwd_and_bwd`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> fwd, bwd = ft.fwd_and_bwd(jnp.dot, argnums=(0, 1))
      >>> out, residuals = fwd(jnp.ones(2), jnp.array([2.0, 3.0]))
      >>> print(out, *bwd(residuals, 1.0))
      5.0 [2. 3.] [1. 1.]
    """
    check_callable(fun, "fwd_and_bwd")
    numbers, several = positions(argnums)

    @wraps(fun)
    def fwd(*args: Any, **kwargs: Any) -> Any:
        chosen = choose(fun, args, numbers)
        return vjp(of_chosen(fun, numbers, args, kwargs), *chosen, has_aux=has_aux)

    def bwd(residuals: Any, ct: Any) -> Any:
        if not isinstance(residuals, Pullback):
            raise errors.NotAnArray(
                f"bwd takes the residuals that fwd returned, got {residuals!r:.60}, "
                f"{here()}\nWrite out, residuals = fwd(x), then bwd(residuals, ct)."
            )
        found = residuals(ct)
        return found if several else found[0]

    # `__wrapped__` tells `explain_cache` which function this belongs to; the signature is bwd's own
    bwd.__signature__ = inspect.signature(bwd)  # type: ignore[attr-defined]
    bwd.__wrapped__ = fun  # type: ignore[attr-defined]
    return (jit(fwd), jit(bwd)) if jitted else (fwd, bwd)
