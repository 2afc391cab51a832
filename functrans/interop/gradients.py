"""`jax.grad` inside of functrans is ours.

JAX's gradients trace, linearise and transpose in Python, once more beside us. Where functrans
stands innermost, `jax.grad`, `jax.value_and_grad`, `jax.jacrev` and `jax.hessian` check their
arguments and results as ever; the pullback between is ours, which is faster, and
which our passes know. `jax.vjp` itself stays JAX's: its pullback has parts that callers look into.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax._src import api

from functrans.api.derivatives import vjp as our_vjp
from functrans.interop import jax_trace

_jax_vjp = api.vjp


def _vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False, **how: Any) -> Any:
    if how or not jax_trace.is_innermost():
        return _jax_vjp(fun, *primals, has_aux=has_aux, **how)
    return our_vjp(fun, *primals, has_aux=has_aux)


api.vjp = _vjp
