"""Tracing for the tools of this package: from a user's function or a Program to a program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TextIO, TypeVar

import jax
import numpy as np

from functrans import errors
from functrans import pytrees as tree
from functrans.api.jit import jit_options
from functrans.api.programs import check_takes
from functrans.api.static_arguments import Staged, StaticArguments
from functrans.caching import memoized
from functrans.inspect.observers import is_key
from functrans.ir.check import check_program
from functrans.ir.program import Program, replaced_programs
from functrans.ir.source import Source, brief_with_type, here
from functrans.ir.tracebacks import boundary
from functrans.ir.types import ArrayType
from functrans.passes.inlining import inline
from functrans.passes.pipeline import Choice, optimize
from functrans.tracer import Tracer, depending

R = TypeVar("R")


def tool(
    name: str, fun: Any, passes: Choice | None, default: Choice, use: Callable[[Staged], R], runs: bool = True
) -> Callable[..., R]:
    """Return the function of the arguments of `fun` that a tool returns: it calls `use` with what
    `staged` returns. `runs`: the values are used, so they must be concrete."""
    check_given(fun, name)

    @boundary
    def used(*args: Any, **kwargs: Any) -> R:
        made = staged(fun, args, kwargs, passes, default)
        if runs:
            check_values(made.leaves, name)
        return use(made)

    return used


def staged(
    fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any], passes: Choice | None, default: Choice
) -> Staged:
    """Trace a function and run passes on the program, by default those of a jitted function, and
    `default` for another; a Program is used as it is."""
    if isinstance(fun, Program):
        leaves = tree.leaves((args, kwargs))
        check_takes(fun, leaves)
        return Staged(inline(fun), leaves, tree.structure([*fun.outputs]))
    jitted = jit_options(fun)
    statics = StaticArguments(fun, None, None) if jitted is None else jitted.statics
    if passes is None:
        passes = default if jitted is None else jitted.passes
    made = statics.staged(args, kwargs)
    return made._replace(program=optimize(made.program, passes))


@memoized
def located(program: Program, line: Source | None) -> Program:
    """Return the program with the equations of library functions, which have no lines of their own,
    at the lines of their calls; the same object if there are none. A function that is called from
    two lines is copied. `line`: that of the call of this program, if any."""
    made = []
    for e in program.equations:
        source = e.source or line
        new = {p: located(p, source) for p in e.programs}
        if source is not e.source or any([p is not q for p, q in new.items()]):
            e = replace(e, params=replaced_programs(e.params, new), source=source)
        made.append(e)
    if all([e is old for e, old in zip(made, program.equations, strict=True)]):
        return program
    found = program.replace(equations=made)
    found.marks = program.marks
    return found


def check_given(fun: Any, name: str, argument: str = "fun") -> None:
    """Raise an error unless it is a function or a well-formed Program."""
    if isinstance(fun, Program):
        check_program(fun, name)
    elif not callable(fun):
        raise errors.NotAnArray(
            f"{name}: {argument} must be a function or a Program, got {brief_with_type(fun)}, {here()}\n"
            "Pass the function itself: f, not f(x)."
        )


def check_values(values: Sequence[Any], name: str) -> None:
    """Raise an error for an argument that is a `ShapeDtypeStruct` or a tracer."""
    runs = f"{name} runs the function, so it takes arrays and numbers, got"
    for x in values:
        if isinstance(x, jax.ShapeDtypeStruct):
            raise errors.NotAnArray(
                f"{runs} {x}, {here()}\nMake an array of that type: jnp.ones(x.shape, x.dtype)."
            )
        if isinstance(x, Tracer):
            raise errors.AbstractArrayError(
                f"{runs} a traced {x.type}{depending(x)}, {here()}\n"
                f"Call {name} outside of f, as in ft.{name}(ft.grad(f))(*args)."
            )


def output_stream(given: Any, name: str) -> TextIO:
    """Return the stream that a tool writes to, by default the terminal; raise an error if it is none."""
    if given is not None and not hasattr(given, "write"):
        raise errors.InvalidArgument(
            f"{name}: output must be a stream of text, got {brief_with_type(given)}, {here()}\n"
            "Pass an open file or an io.StringIO; leave it out to write to the terminal."
        )
    return given or sys.stdout


def summary(x: Any, type: ArrayType) -> str:
    """Describe a value in one line: its type, the range and mean of the finite elements, and the
    number of others; small values are shown in full."""
    if is_key(x):
        return f"{type} keys"
    x = np.asarray(x)
    if x.size <= 4:
        rows = np.array2string(x, separator=", ", max_line_width=10_000).splitlines()
        return f"{type} {' '.join([row.strip() for row in rows])}"
    if x.dtype.kind not in "iub":
        x = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    parts = [f"{type}"]
    finite = x[np.isfinite(x)]
    if finite.size and x.dtype.kind == "c":
        parts.append(f"|x| up to {np.abs(finite).max():.6g}")
    elif finite.size:
        parts.append(f"in [{finite.min():.6g}, {finite.max():.6g}], mean {finite.mean():.6g}")
    for name, where in (("NaN", np.isnan(x)), ("infinite", np.isinf(x)), ("zero", x == 0)):
        if where.any():
            parts.append(f"{int(where.sum())} of {x.size} {name}")
    return ", ".join(parts)
