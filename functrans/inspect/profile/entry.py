"""`profile`: the milliseconds that each line of the user's took, by JAX's profiler.

In: a function and its arguments. Out: a `ProfileReport`. The program is compiled with the numbers
of its equations in XLA's names (`compiled`), run some times under the profiler (`events`), and what
was seen is led back (`placing`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import jax

from functrans import errors
from functrans.api.jit import How, jit_options
from functrans.backends.xla import executable
from functrans.inspect.profile.compiled import FREE, Compiled, numbered
from functrans.inspect.profile.placing import MOST, Span, costs_of, kernels, pieces, recorded
from functrans.inspect.profile.report import ProfileReport, machine
from functrans.inspect.staged import Staged, check_given, check_values, passes_of, staged
from functrans.ir.program import Program, hoist_constants
from functrans.ir.source import describe, user_source
from functrans.ir.text import with_nested
from functrans.ir.tracebacks import boundary
from functrans.passes.kernels import plain
from functrans.passes.pipeline import DEFAULT, Choice
from functrans.typing import PyTree

_LONG = 10_000  # milliseconds that all runs may take together, if it is more than one


@boundary
def profile(
    fun: Callable[..., PyTree] | Program, *, passes: Choice | None = None, repeats: int = 10
) -> Callable[..., ProfileReport]:
    """Make a function that runs `fun` under JAX's profiler and tells where its time went, by line.

    Arguments:
      fun: function of pytrees of arrays, which may be jitted, a gradient, ...; or a Program.
      passes: as in `ft.jit`; left out: those of `fun` if it is jitted, else all.
      repeats: how many runs are recorded, after a first one; medians of them are shown. Fewer are
        recorded of a program that runs for seconds or consists of very many small operations.

    Returns:
      A function of arrays, scalars and pytrees that returns a `ProfileReport`: print it, `save` it
      as `.html` or `.json`, give it to `ft.explore(f, path, profile=report)`; `lines`,
      `operations`, `equations`, `kernels`, `milliseconds`, `busy`.

      What counts is the time by the clock in which an operation of XLA's is at work; at a moment
      when several are, each has its part, so the shares of a table add up to 1. An operation that
      XLA fused of several equations is shared among them by their FLOPs, alike if they have none.
      What a loop does itself (counting, taking rows, starting its operations) is in its own line,
      as are copies that XLA adds in it; others are "(not placed)". A loop that XLA compiles into
      one kernel is one row, with its lines below it, because the profiler does not see inside.

      FLOPs are those of `ft.cost`, each step of a `while` counted as it ran; bytes those of
      `ft.cost` without what stays inside of a fused operation. What the machine can do is measured
      at the first call, by a product of large matrices and a sum of large arrays; what stays in
      caches may be read faster than that. The profiler itself takes some half a microsecond for
      each operation that it records: compare `milliseconds` and `profiled`.

      It runs on the devices that the arguments are on, which stay as they are, donated or not;
      options of `ft.jit` about devices and the compiler do not count here; `cpu="plain"` does.

    Raises:
      TypeMismatch: `fun` is a Program that takes other values.
      NotAnArray: `fun` is not a function, or an argument is a type only.
      InvalidArgument: a name among `passes` is not that of a pass; `repeats` is not a positive
        integer; the program has side effects, which would be repeated.
      NotMeasured: the profiler of the device tells of no operation, or another profile is running.

    Source: `jax.profiler.trace`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> report = ft.profile(lambda x: jnp.sin(x @ x), repeats=2)(jnp.ones((64, 64)))
      >>> sorted(row.name for row in report.operations)
      ['dot_general', 'sin']
      >>> round(sum(row.share for row in report.lines), 6)
      1.0
    """
    check_given(fun, "profile")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise errors.InvalidArgument(
            f"profile: repeats={repeats!r:.60} must be a positive integer, at\n"
            f"    {describe(user_source())}\nThe default is 10."
        )

    @boundary
    def profiled(*args: Any, **kwargs: Any) -> ProfileReport:
        made = staged(fun, args, kwargs, passes_of(fun, DEFAULT) if passes is None else passes)
        check_values(made.values, "profile")
        _check_repeatable(made.program, repeats)
        return _profiled(made, repeats, jit_options(fun))

    return profiled


def _profiled(made: Staged, repeats: int, how: How | None) -> ProfileReport:
    program = made.program
    marked, equations = numbered(program)
    closed, constants = hoist_constants(marked)
    if how is not None and how.plain:
        closed = plain(closed)
    operands = [*constants, *made.values]
    function: Any = executable(closed)  # of jax.jit, which donates nothing
    with _names_kept():
        xla = function.lower(*operands).compile()

    def run() -> Any:
        return xla(*operands)

    results = jax.block_until_ready(run())
    device = next((d for x in results for d in x.devices()), jax.devices()[0])
    repeats = min(repeats, max(1, int(_LONG / _clock(run, 1))))
    plainly = _clock(run, repeats)
    compiled = Compiled(xla.as_text())
    spans, under, times = _seen(run, repeats, compiled, device)
    found = kernels(compiled, spans, equations)
    costs = costs_of(program, compiled, found)
    placed = found, pieces(found, costs), costs
    return ProfileReport(program, placed, (plainly, under), times, machine(device))


def _seen(
    run: Callable[[], Any], repeats: int, compiled: Compiled, device: Any
) -> tuple[list[Span], float, int]:
    """The operations of some runs, the milliseconds of one under the profiler, and how many."""
    taken: list[float] = []

    def timed() -> Any:
        taken.append(_clock(run, 1))

    spans = recorded(timed, 1, compiled.name)
    if not spans and any(o.kind not in FREE for o in compiled.operations.values()):
        raise errors.NotMeasured(
            f"JAX's profiler recorded no operation on {device.device_kind} ({device.platform}), "
            f"at\n    {describe(user_source())}\n"
            "On a GPU, its tracing library (CUPTI) must be installed and permitted. Otherwise "
            "profile on the CPU (JAX_PLATFORMS=cpu), or estimate the cost without running the "
            "program: ft.cost."
        )
    if len(spans) > MOST:
        return spans, taken[0], 1
    times = min(repeats, max(1, MOST // max(len(spans), 1)))
    taken.clear()
    spans = recorded(timed, times, compiled.name)
    return spans, median(taken), times


def _clock(run: Callable[[], Any], times: int) -> float:
    """Milliseconds of a run, the median."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        jax.block_until_ready(run())
        taken.append(1e3 * (time.perf_counter() - start))
    return median(taken)


@contextmanager
def _names_kept() -> Iterator[None]:
    """Compile with the names given now: JAX's cache on disk takes programs for the same that
    differ in their names only."""
    flag = "jax_compilation_cache_include_metadata_in_key"
    before = getattr(jax.config, flag)
    jax.config.update(flag, True)
    try:
        yield
    finally:
        jax.config.update(flag, before)


def _check_repeatable(program: Program, repeats: int) -> None:
    for e in [e for p in with_nested(program) for e in p.equations]:
        calls = e.primitive.calls(e.params)
        if calls is None or not calls.effects:
            continue
        raise errors.InvalidArgument(
            f"profile runs the program more than {repeats} times, and would repeat its side "
            f"effect: {e.primitive.called(e.params)}, at\n"
            f"    {describe(e.source)}\n"
            "Remove it from the profiled function. An ft.pure_callback may stay."
        )
