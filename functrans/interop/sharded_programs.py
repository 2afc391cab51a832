"""Our programs inside `jax.shard_map`, where mesh axes have names.

In: a program with collectives over such axes, and JAX values. Out: its results, computed by JAX's
collectives and, between them, equations that hold the rest of the program. So JAX knows over which
axes each value varies, and its derivatives, which depend on that, are correct.

A collective inside a loop, a branch or a function with a custom rule stays in the program, and is
lowered to JAX's (primitives/distributed/collective.py). JAX then assumes that the results vary over
the axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from functrans import runtime
from functrans.backends import xla
from functrans.backends.xla import Preparation
from functrans.caching import memo
from functrans.ir.program import Equation, Program, Var, program_of
from functrans.passes.inlining import inlined
from functrans.primitives.base import axes_inside
from functrans.trace import materialize


class Part(NamedTuple):
    """A program of some equations, with the outer variables that it reads and defines."""

    program: Program
    reads: tuple[Var, ...]
    gives: tuple[Var, ...]


@runtime.answers("run_sharded")
def run(program: Program, operands: Sequence[Any], preparation: Preparation) -> list[Any]:
    """Bind the parts of a program (without constants) in JAX's current trace."""

    def by_jax(e: Equation, values: Sequence[Any]) -> list[Any]:
        params = {k: v for k, v in e.params.items() if k != "sizes"}
        return [e.primitive.by_jax(*values, **params)]

    parts, outputs = memo(program, _parts)
    return run_parts(parts, outputs, dict(zip(program.inputs, operands, strict=True)), by_jax, preparation)


def run_parts(
    parts: Sequence[Any],
    outputs: Sequence[Any],
    env: dict[Any, Any],
    run_alone: Callable[[Equation, Sequence[Any]], Sequence[Any]],
    preparation: Preparation,
) -> list[Any]:
    """Run what `divided` returned, given the values of the inputs in `env`; return the outputs.
    `run_alone` runs the equations that stand alone."""

    def read(v: Any) -> Any:
        return env[v] if v.__class__ is Var else materialize(v)

    for part in parts:
        if part.__class__ is Part:
            outs = xla.bind(part.program, [env[v] for v in part.reads], preparation)
            env.update(zip(part.gives, outs, strict=True))
        else:
            env.update(zip(part.outputs, run_alone(part, [read(v) for v in part.inputs]), strict=True))
    return [read(v) for v in outputs]


def _parts(program: Program) -> tuple[list[Any], Sequence[Any]]:
    """Return a program's collectives, also those in the programs that it calls, and the `Part`s
    between them, in order; and its outputs."""
    whole = inlined(program, lambda called, calls: bool(axes_inside(called)))
    return divided(whole.equations, whole.outputs, lambda e: hasattr(e.primitive, "by_jax")), whole.outputs


def divided(
    equations: Sequence[Equation], outputs: Sequence[Any], stands_alone: Callable[[Equation], bool]
) -> list[Any]:
    """Group the runs of equations between those that stand alone into `Part`s."""
    parts: list[Any] = []
    between: list[Equation] = []
    read_later = set(outputs)
    for e in reversed(equations):
        if stands_alone(e):
            parts += [*_part(between, read_later), e]
            read_later.update(e.inputs)
            between = []
        else:
            between.append(e)
    parts += _part(between, read_later)
    parts.reverse()
    return parts


def _part(backwards: list[Equation], read_later: set[Any]) -> list[Part]:
    """Return the part of these equations, if any; add what it reads to `read_later`."""
    if not backwards:
        return []
    equations = backwards[::-1]
    gives = tuple([v for e in equations for v in e.outputs if v in read_later])
    program = program_of(equations, gives)
    read_later.update(program.inputs)
    return [Part(program, program.inputs, gives)]
