"""`explain_cache`: how often a jitted function was traced, where, and why again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from functrans.api import retracing
from functrans.api.checks import check_callable
from functrans.ir.source import describe, line_of, location
from functrans.ir.tracebacks import boundary
from functrans.typing import PyTree


class TraceInfo(NamedTuple):
    """One trace: its number, the user's line that called, and why it had to be, one text each (of
    the first: none)."""

    number: int
    file: str
    line: int
    where: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        reasons = "".join(f"\n  - {r}" for r in self.reasons) or "\n  - the first"
        return f"trace {self.number}, called at\n    {self.where}{reasons}"


@dataclass(frozen=True)
class CacheReport:
    """The traces of a function; print it."""

    name: str
    defined: str
    count: int
    traces: tuple[TraceInfo, ...]

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count} times"
        head = f"{self.name}, defined at {self.defined}, was traced {times}"
        left_out = self.count - len(self.traces)
        if left_out:
            head += f" (the first {left_out} are not kept)"
        return "\n".join([head, *map(str, self.traces)])


@boundary
def explain_cache(fun: Callable[..., PyTree]) -> CacheReport:
    """Say how often a jitted function was traced, by which calls, and what each found changed.

    A call is compared with the earlier trace that differs least: the type, tree or static value of
    which argument, what of the closure, which flag. Functions that are defined on the same line,
    such as a lambda that a loop makes anew, count as one. With `FUNCTRANS_EXPLAIN_CACHE=1` in the
    environment each trace after the first is logged as it happens (logger `functrans.cache`).

    Arguments:
      fun: what `jit` returned, or the function that it was given.

    Returns:
      A report with `count` and, of the last 64, `traces`; its text is made for reading.

    Raises:
      NotAnArray: `fun` is not a function.

    Source: JAX's flag `jax_explain_cache_misses`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> f = ft.jit(lambda x, n: x * n, static_argnames="n")
      >>> _ = f(jnp.ones(3), n=2), f(jnp.ones(3), n=2), f(jnp.ones(4), n=2), f(jnp.ones(4), n=5)
      >>> for trace in ft.explain_cache(f).traces[1:]:
      ...     print(trace.reasons)
      ('x: f32[4], was f32[3] (another shape)',)
      ('n: the static value 5, was the static value 2',)
    """
    check_callable(fun, "explain_cache")
    history = retracing.history_of(getattr(fun, "jitted_function", fun))
    traces = [
        TraceInfo(
            made.number,
            made.source[0].co_filename if made.source else "<unknown>",
            line_of(made.source) if made.source else 0,
            describe(made.source) if made.source else location(None),
            tuple(reasons),
        )
        for made, reasons in history.explained()
    ]
    return CacheReport(history.name, history.defined, history.count, tuple(traces))
