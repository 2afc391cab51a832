"""The pass pipeline, run once on the outermost program before it is lowered.

A pass is a function `Program -> Program` that returns the same object if it changed nothing. To add
one, add a line to `TABLE`: its name, the function, and the variant that keeps every rounding (None:
the pass is skipped in exact mode).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from functrans import errors
from functrans.ir.program import Program
from functrans.ir.source import brief, here
from functrans.passes.algebraic_simplification import simplify
from functrans.passes.constant_folding import fold
from functrans.passes.contractions import contract
from functrans.passes.factoring import factor
from functrans.passes.inlining import inline, inline_calls, resolve
from functrans.passes.loop_simplification import loops
from functrans.passes.loop_sums import written_sums
from functrans.passes.redundancy import common_subexpressions, dead_code
from functrans.passes.rewrite import program_pass
from functrans.passes.weighted_reductions import weighted_sums
from functrans.records import NamedTuple

Run = Callable[[Program], Program]


class Pass(NamedTuple):
    """A row of the table."""

    name: str
    run: Run
    exact: Run | None  # the variant that does not reorder sums and products


Choice = Iterable[str | Run | Pass]


TABLE = (
    Pass("resolve", resolve, resolve),
    Pass("inline_calls", inline_calls, inline_calls),
    Pass("fold", fold, fold),
    Pass("simplify", simplify, partial(simplify, exact=True)),
    Pass("common_subexpressions", common_subexpressions, common_subexpressions),
    Pass("loops", loops, loops),
    Pass("written_sums", written_sums, None),
    Pass("factor", factor, None),
    Pass("contract", contract, None),
    Pass("weighted_sums", weighted_sums, None),
    Pass("dead_code", dead_code, dead_code),
)

FAST = {"simplify": partial(simplify, fast_math=True)}  # assumes no NaN and no -0.0

BY_NAME = {p.name: p.run for p in TABLE}
GROUPS: dict[str, tuple[Pass, ...]] = {
    "default": TABLE,
    "fast_math": tuple([Pass(p.name, FAST.get(p.name, p.run), None) for p in TABLE]),
    "exact": tuple([Pass(p.name, p.exact, p.exact) for p in TABLE if p.exact is not None]),
}
DEFAULT = ("default",)


@program_pass
def optimize(program: Program, passes: Choice = DEFAULT) -> Program:
    """Run passes on a program, so that it is ready to be lowered.

    Arguments:
      program: the outermost program.
      passes: names of passes or groups, or functions `Program -> Program`; see `chosen`.

    Returns:
      A Program with the same inputs, outputs and effects.

    Raises:
      InvalidArgument: a name that is not a pass or group.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> program = ft.make_ir(lambda x: jnp.sin(x) + jnp.sin(x))(2.0)
      >>> print(ft.passes.optimize(program, ("common_subexpressions",)))
      program (a: ~f32[]) {
        b: ~f32[] = sin a
        c: ~f32[] = add b b
        return c
      }
    """
    for one in chosen(passes):
        program = one.run(program)
    return inline(program)


def chosen(passes: Choice) -> Sequence[Pass]:
    """Return the passes selected by names and functions, in order.

    Arguments:
      passes: names of passes (`"simplify"`), of groups (`"default"`: all; `"exact"`: those that
        keep every rounding; `"fast_math"`: all, assuming no NaN, infinities and negative zeros), or
        functions `Program -> Program`. A single name need not be in a tuple.
    """
    found: list[Pass] = []
    alone = isinstance(passes, str) or not isinstance(passes, Iterable)
    for one in (passes,) if alone else passes:
        if isinstance(one, Pass):
            found.append(one)
        elif callable(one):
            found.append(Pass(getattr(one, "__name__", repr(one)), one, None))
        elif isinstance(one, str) and one in GROUPS:
            found += GROUPS[one]
        elif isinstance(one, str) and one in BY_NAME:
            found.append(Pass(one, BY_NAME[one], None))
        else:
            raise errors.InvalidArgument(
                f"passes takes names and functions Program -> Program, got {brief(one)}, {here()}\n"
                f"The passes are {', '.join(BY_NAME)}; the groups are {', '.join(GROUPS)}."
            )
    return found
