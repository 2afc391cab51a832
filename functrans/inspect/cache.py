"""`explain_cache`: how often a jitted function was traced, from where, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from functrans.api import retracing
from functrans.api.arguments import check_callable
from functrans.ir.source import describe, line_of
from functrans.ir.tracebacks import boundary
from functrans.typing import PyTree


class TraceInfo(NamedTuple):
    """One trace: its number, the user line of the call, and the reasons (none for the first)."""

    number: int
    file: str
    line: int
    where: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        reasons = "".join(f"\n  - {r}" for r in self.reasons) or "\n  - first trace"
        return f"trace {self.number}, called at\n    {self.where}{reasons}"


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
    traces = [
        TraceInfo(
            made.number,
            made.source[0].co_filename if made.source else "<unknown>",
            line_of(made.source) if made.source else 0,
            describe(made.source),
            tuple(reasons),
        )
        for made, reasons in history.explained()
    ]
    return CacheReport(history.name, history.defined, history.count, tuple(traces))
