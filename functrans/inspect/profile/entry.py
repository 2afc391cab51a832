"""`profile`: the milliseconds per user line, measured with JAX's profiler.

In: a function and its arguments. Out: a `ProfileReport`. The program is compiled with the numbers
of its equations in XLA's names, run repeatedly under the profiler, and the measured times are
attributed to equations (`placing`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from functrans import errors
from functrans.api.jit import How, jit_options
from functrans.backends.xla import executable, with_names
from functrans.inspect.profile import placing
from functrans.inspect.profile.report import ProfileReport, machine
from functrans.inspect.staged import Staged, located, tool
from functrans.ir.program import Program, hoist_constants
from functrans.ir.source import brief, describe, here
from functrans.ir.text import with_nested
from functrans.ir.tracebacks import boundary
from functrans.passes.kernels import plain
from functrans.passes.pipeline import DEFAULT, Choice
from functrans.typing import PyTree

if sys.platform != "win32":
    import resource

# The profiler does not name the operations of a CUDA graph; of fewer XLA makes none.
_WITHOUT_GRAPHS = {"xla_gpu_graph_min_graph_size": 1_000_000}
_LONG = 10_000  # most milliseconds of all runs together, if there are several


@boundary
def profile(
    fun: Callable[..., PyTree] | Program, *, passes: Choice | None = None, repeats: int = 10
) -> Callable[..., ProfileReport]:
    """Make a function that runs `fun` under JAX's profiler and reports the time per line.

    Arguments:
      fun: function of pytrees of arrays, which may be jitted, a gradient, ...; or a Program.
      passes: as in `ft.jit`; by default those of `fun` if it is jitted, else all.
      repeats: the number of recorded runs, after a first one; the report shows medians. Fewer runs
        are recorded if the program takes seconds or has very many small operations.

    Returns:
      A function of arrays, scalars and pytrees that returns a `ProfileReport`: print it, `save` it
      as `.html` or `.json`, pass it to `ft.explore(f, path, profile=report)`; or read `lines`,
      `operations`, `equations`, `kernels`, `milliseconds`, `busy`.

      Times are wall-clock times in which an XLA operation is at work; operations that run at the
      same time share it, so the shares of a table add up to 1. The time of an operation fused from
      several equations is divided among them by their FLOPs, with a product also by their bytes, and
      equally if they have none. The work of a loop itself (counting, slicing, starting its
      operations) is in its own line, as are copies that XLA adds in it; others are "(not placed)". A
      loop that XLA compiles to one kernel is one row, with its lines below it, because the profiler
      cannot see inside.

      FLOPs are those of `ft.cost`, with the actual steps of a `while`; bytes are those of `ft.cost`
      without values that stay inside a fused operation. The peak of the machine is measured in the
      first call, with a product of large matrices and a sum of large arrays; data in caches may be
      read faster. The profiler itself takes about half a microsecond per recorded operation:
      compare `milliseconds` and `profiled`.

      On a GPU the program is compiled without CUDA graphs, in which the profiler does not
      distinguish operations, so each takes some microseconds more to start than under `ft.jit`.

      It runs on the devices of the arguments, which are never donated; the device and compiler
      options of `ft.jit` are ignored, except `cpu="plain"`.

    Raises:
      TypeMismatch: `fun` is a Program that takes other values.
      NotAnArray: `fun` is not a function, or an argument is a type only.
      InvalidArgument: a name in `passes` is not a pass; `repeats` is not a positive integer; the
        program has side effects, which would be repeated.
      NotMeasured: the profiler recorded no operation, or another profile is being recorded.

    Source: `jax.profiler.trace`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> report = ft.profile(lambda x: jnp.sin(x @ x), repeats=2)(jnp.ones((64, 64)))
      >>> sorted(row.name for row in report.operations)
      ['dot_general', 'sin']
      >>> round(sum(row.share for row in report.lines), 6)
      1.0
    """
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise errors.InvalidArgument(
            f"profile: repeats={brief(repeats)} must be a positive integer, {here()}\nThe default is 10."
        )
    return tool("profile", fun, passes, DEFAULT, lambda made: _profiled(made, repeats, jit_options(fun)))


@jax.disable_jit(False)
def _profiled(made: Staged, repeats: int, how: How | None) -> ProfileReport:
    _check_repeatable(made.program, repeats)
    program = located(made.program)
    marked, equations = placing.numbered(program)
    closed, constants = hoist_constants(marked)
    if how is not None and how.plain:
        closed = plain(closed)
    operands = [*constants, *made.values]
    function: Any = executable(closed)  # of jax.jit, which donates nothing
    options = _WITHOUT_GRAPHS if jax.default_backend() == "gpu" else None
    with with_names():
        runs = function.lower(*operands).compile(options)
    run = partial(runs, *operands)
    results = jax.block_until_ready(run())
    device = next((d for x in results for d in x.devices()), jax.devices()[0])
    repeats = min(repeats, max(1, int(_LONG / placing.clock(run, 1))))
    before = _pages_handed()
    plainly = placing.clock(run, repeats)
    pages = (_pages_handed() - before) // repeats if device.platform == "cpu" else 0
    compiled = placing.Compiled(runs.as_text())
    spans, under, times = _seen(run, repeats, compiled, device)
    found = placing.kernels(compiled, spans, equations)
    costs = placing.costs_of(program, compiled, found)
    return ProfileReport(program, found, costs, plainly, under, times, machine(device), pages)


def _seen(
    run: Callable[[], Any], repeats: int, compiled: placing.Compiled, device: Any
) -> tuple[list[placing.Span], float, int]:
    """Return the operations of some runs, the profiled milliseconds of one, and their number."""
    spans, under = placing.recorded(run, 1, compiled.name)
    if not spans and any(o.kind not in placing.FREE for o in compiled.operations.values()):
        raise errors.NotMeasured(
            f"JAX's profiler recorded no operation on {device.device_kind} ({device.platform}), "
            f"{here()}\n"
            "On a GPU, its tracing library (CUPTI) must be installed and permitted. Otherwise "
            "profile on the CPU (JAX_PLATFORMS=cpu), or estimate the cost without running the "
            "program: ft.cost."
        )
    if len(spans) > placing.MOST:
        return spans, under, 1
    times = min(repeats, max(1, placing.MOST // max(len(spans), 1)))
    return *placing.recorded(run, times, compiled.name), times


def _pages_handed() -> int:
    """Return the number of memory pages that the system has handed to this process."""
    return 0 if sys.platform == "win32" else resource.getrusage(resource.RUSAGE_SELF).ru_minflt


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
