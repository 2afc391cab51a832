"""`explain_cache`: how often a jitted function was traced, from where, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from functrans.api import retracing
from functrans.api.arguments import check_callable
from functrans.api.retracing import TraceInfo
from functrans.ir.tracebacks import boundary
from functrans.typing import PyTree


@dataclass(frozen=True)
class CacheReport:
    """The traces of a function; printable."""

    name: str
    defined: str
    count: int
    traces: tuple[TraceInfo, ...]

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count} times"
        head = f"{self.name}, defined at {self.defined}, was traced {times}"
        left_out = self.count - len(self.traces)
        if left_out:
            head += f" (the first {left_out} were not kept)"
        return "\n".join([head, *map(str, self.traces)])


@boundary
def explain_cache(fun: Callable[..., PyTree]) -> CacheReport:
    """Explain the cache misses of a jitted function: how often it was traced, by which calls, why.

    Each call is compared with the most similar earlier trace: the types, treedefs and static values
    of arguments, the closure, and flags. Functions defined on the same line, such as a lambda that
    a loop creates repeatedly, count as one. With `FUNCTRANS_EXPLAIN_CACHE=1` in the environment
    each trace after the first is logged as it happens (logger `functrans.cache`).

    Arguments:
      fun: the function returned by `jit`, or the one passed to it.

    Returns:
      A printable report with `count` and `traces` (the last 64).

    Raises:
      NotAnArray: `fun` is not a function.

    Source: JAX's flag `jax_explain_cache_misses`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> f = ft.jit(lambda x, n: x * n, static_argnames="n")
      >>> _ = f(jnp.ones(3), n=2), f(jnp.ones(3), n=2), f(jnp.ones(4), n=2), f(jnp.ones(4), n=5)
      >>> for trace in ft.explain_cache(f).traces[1:]:
      ...     print(trace.reasons)
      ('x: f32[4], was f32[3] (different shape)',)
      ('n: the static value 5, was the static value 2',)
    """
    check_callable(fun, "explain_cache")
    history = retracing.history_of(getattr(fun, "jitted_function", fun))
    return CacheReport(history.name, history.defined, history.count, history.explained())
