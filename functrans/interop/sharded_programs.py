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
from typing import Any

from functrans import runtime
from functrans.backends import xla
from functrans.backends.xla import Preparation
from functrans.caching import memo
from functrans.ir.program import Equation, Program, Var, program_of
from functrans.passes.inlining import inlined
from functrans.primitives.base import axes_inside
from functrans.trace import materialize

# Programs of some equations of another one, whose variables they read and define; and equations of it.
Parts = Sequence[Program | Equation]


@runtime.answers("run_sharded")
def run(program: Program, operands: Sequence[Any], preparation: Preparation) -> list[Any]:
    """Bind the parts of a program (without constants) in JAX's current trace."""

    def by_jax(e: Equation, values: Sequence[Any]) -> list[Any]:
        params = {k: v for k, v in e.params.items() if k != "sizes"}
        return [e.primitive.by_jax(*values, **params)]

    return run_parts(*memo(program, _parts), operands, by_jax, preparation)


def run_parts(
    program: Program,
    parts: Parts,
    operands: Sequence[Any],
    run_alone: Callable[[Equation, Sequence[Any]], Sequence[Any]],
    preparation: Preparation,
) -> list[Any]:
    """Run a program by the parts that `divided` returned. `run_alone` runs the equations that stand alone."""
    env: dict[Any, Any] = dict(zip(program.inputs, operands, strict=True))

    def read(v: Any) -> Any:
        return env[v] if v.__class__ is Var else materialize(v)

    for part in parts:
        values = [read(v) for v in part.inputs]
        outs = xla.bind(part, values, preparation) if isinstance(part, Program) else run_alone(part, values)
        env.update(zip(part.outputs, outs, strict=True))
    return [read(v) for v in program.outputs]


def _parts(program: Program) -> tuple[Program, Parts]:
    """Return the program with its collectives, also those in the programs that it calls; and these
    collectives and the programs between them, in order."""
    whole = inlined(program, lambda called, calls: bool(axes_inside(called)))
    return whole, divided(whole, lambda e: hasattr(e.primitive, "by_jax"))


def divided(program: Program, stands_alone: Callable[[Equation], bool]) -> Parts:
    """Return the equations that stand alone, and programs of those between them, in order."""
    parts: list[Program | Equation] = []
    between: list[Equation] = []
    read_later = set(program.outputs)
    for e in reversed(program.equations):
        if stands_alone(e):
            parts += [*_part(between, read_later), e]
            read_later.update(e.inputs)
            between = []
        else:
            between.append(e)
    parts += _part(between, read_later)
    parts.reverse()
    return parts


def _part(backwards: list[Equation], read_later: set[Any]) -> list[Program]:
    """Return the program of these equations, if any; add what it reads to `read_later`."""
    if not backwards:
        return []
    equations = backwards[::-1]
    gives = tuple([v for e in equations for v in e.outputs if v in read_later])
    program = program_of(equations, gives)
    read_later.update(program.inputs)
    return [program]
