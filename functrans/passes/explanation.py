"""Report what the passes do to a function.

In: a function and arguments. Out: a `Report`: for each pass the number of equations, floating point
operations and bytes moved, before and after, and the user's lines that each rewrite merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax

from functrans import errors
from functrans import pytrees as tree
from functrans.ir.program import Equation, Program
from functrans.ir.source import brief_with_type, here, near, text_of
from functrans.ir.tracebacks import boundary
from functrans.passes import kernels, vector_code
from functrans.passes.compiler_options import Wanted, wanted
from functrans.passes.launches import unrolled
from functrans.passes.pipeline import DEFAULT, Choice, Pass, chosen
from functrans.passes.repeated_decisions import rounded_alike
from functrans.passes.rewrite import Rewrite, children_first
from functrans.primitives.calls.jax_call import jax_call
from functrans.primitives.calls.jit import jit
from functrans.pytrees.functions import FlatFunction, function_name
from functrans.records import NamedTuple
from functrans.trace import stage, typeof


class Size(NamedTuple):
    """Equations, including nested ones, FLOPs, and bytes read and written; all steps of a scan count."""

    equations: int
    flops: int
    bytes: int


class Step(NamedTuple):
    """The effect of one pass."""

    name: str
    before: Size
    after: Size
    rewrites: Sequence[Rewrite]


class Report:
    """The effect of each pass; printed as a table.

    steps  : a Step per pass, in order
    before : the program as traced;  after : as lowered
    loops  : for each loop the reason why it is not one kernel on a CPU, or None if it is one. Loops in
             a kernel are not listed (passes/kernels.py)
    vectors: the functions of large arrays that are vector code on a CPU (passes/vector_code.py)
    turns  : if JAX's default device is a GPU: the loops that run several steps in a turn there, and
             how many (passes/launches.py)
    parts  : for each program that a `shard_map` runs on each device: the call of the map, a Report
    options: the XLA options selected on a CPU, or on a GPU if that is JAX's default device
             (passes/compiler_options.py); None: JAX's default
    """

    def __init__(
        self, steps: Sequence[Step], before: Program, after: Program, parts: Sequence[tuple[Equation, Report]]
    ):
        self.steps = steps
        self.parts = parts
        self.before = before
        self.after = after
        self.loops: list[kernels.Loop] = list(kernels.choices(rounded_alike(after)))
        self.vectors: list[Equation] = vector_code.chosen(after)
        self.platform = "gpu" if jax.default_backend() == "gpu" else "cpu"
        self.turns: list[tuple[Equation, int]] = list(unrolled(after)) if self.platform == "gpu" else []
        self.options: Wanted | None = None if kernels.is_kept(after) else wanted(after, self.platform)

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("pass", "equations", "FLOPs", "bytes")]
        rows += [(step.name, *changes(step.before, step.after)) for step in self.steps]
        rows.append(("together", *changes(measured(self.before), measured(self.after))))
        widths = [max([len(row[i]) for row in rows]) for i in range(4)]
        lines = ["  ".join([c.ljust(n) for c, n in zip(row, widths, strict=True)]) for row in rows]
        text = [lines[0], *lines[-1:]]
        for step, line in zip(self.steps, lines[1:], strict=False):
            text[-1:-1] = [line, *_described(step.rewrites)]
        if self.platform == "cpu":
            text += ["loops on a CPU"] if self.loops else []
            for loop, obstacle, is_by_blocks in self.loops:
                is_one = "one kernel" if obstacle is None else "not one kernel"
                is_one += ", block by block" if is_by_blocks else ""
                if any([p.marks.uncontracted for p in loop.programs]):
                    is_one += ", decides as another one: products are rounded by themselves"
                text.append(f"    {is_one}: {_place(loop)}")
                text += [] if obstacle is None else [f"        {obstacle}"]
            text += ["vector code on a CPU"] if self.vectors else []
            text += [f"    {e.primitive.name}: {_place(e)}" for e in self.vectors]
        text += ["loops on a GPU"] if self.turns else []
        text += [f"    {n} steps in a turn: {_place(loop)}" for loop, n in self.turns]
        if self.options is not None:
            text.append(f"compiler options on a {self.platform.upper()}\n    {self.options}")
        for call, part in self.parts:
            text += [f"on each device: {_place(call)}", *[f"    {line}" for line in str(part).splitlines()]]
        return "\n".join([line.rstrip() for line in text])

    __repr__ = __str__


@boundary
def explain(fun: Callable[..., Any], passes: Choice = DEFAULT) -> Callable[..., Report]:
    """Make a function that reports what the passes do to `fun`, instead of running it.

    Arguments:
      fun: function of pytrees of arrays; may be jitted.
      passes: as in `ft.jit`.

    Returns:
      A function of arrays, scalars, pytrees or `ft.ShapeDtypeStruct`s that returns a `Report`:
      print it, or read its `steps`, `before` and `after`. A `while` counts as one step.

    Raises:
      InvalidArgument: a name in `passes` is not a pass.
      NotAnArray: `fun` is not a function.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> report = ft.passes.explain(lambda x: jnp.sum(-(-x) * 1.0))(jnp.ones(3))
      >>> print(report.after)
      program (a: f32[3]) {
        b: f32[] = reduce_sum[axes=(0,)] a
        return b
      }
      >>> [(step.name, step.after.equations) for step in report.steps if step.rewrites]
      [('simplify', 1)]
    """
    if not callable(fun):
        raise errors.NotAnArray(
            f"explain takes a function, got {brief_with_type(fun)}, {here()}\n"
            "Write explain(f)(x), not explain(f(x))."
        )
    run, plain = chosen(passes), kernels.is_plain(fun)

    @boundary
    def explained(*args: Any, **kwargs: Any) -> Report:
        leaves, in_tree = tree.flatten((args, kwargs))
        flat = FlatFunction(fun, in_tree)
        program = stage(flat, [typeof(x) for x in leaves], function_name(fun))
        return reported(program, run, plain)

    return explained


def reported(program: Program, passes: Sequence[Pass], plain: bool = False) -> Report:
    """Return the report for a program. `plain`: its loops are not made kernels."""
    first, steps = program, []
    for one in passes:
        made = one.run(program)
        steps.append(Step(one.name, measured(program), measured(made), _new(program, made)))
        program = made
    calls = [e for p in children_first(program) for e in p.equations if e.primitive is jax_call]
    parts = [(e, reported(p, passes, plain)) for e in calls for p in e.params["body"].parts()]
    return Report(steps, first, kernels.plain(program) if plain else program, parts)


def measured(program: Program) -> Size:
    """Return the size of a program by its primitives' cost estimates."""
    order = children_first(program)
    for p in order:
        cost = jit.cost(p.in_types, p.out_types, program=p)  # cached for the enclosing programs
    return Size(sum([len(p.equations) for p in order]), cost.flops, cost.bytes)


def _new(before: Program, after: Program) -> list[Rewrite]:
    """Return the rewrites recorded in the programs that a pass made."""
    old = set(children_first(before))
    return [r for p in children_first(after) if p not in old for r in p.marks.rewrites]


# --- text -----------------------------------------------------------------------------------------


def changes(before: Size, after: Size) -> list[str]:
    """Return `12 -> 7`, or `12` if both are equal, for the equations, the FLOPs and the bytes."""
    shown = [(str(size.equations), short(size.flops), short(size.bytes)) for size in (before, after)]
    return [a if a == b else f"{a} -> {b}" for a, b in zip(*shown, strict=True)]


def short(n: int) -> str:
    """Return 1234567 as `1.23 M`."""
    for unit, letter in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if n >= unit:
            return f"{n / unit:.3g} {letter}"
    return str(n)


def _described(rewrites: Sequence[Rewrite]) -> list[str]:
    """Return a line per kind of rewrite and place: count, primitive, the user's lines."""
    places = Counter([(what, tuple(dict.fromkeys(map(_place, joined)))) for what, joined in rewrites])
    lines = []
    for (what, where), n in places.items():
        times = f"{n} x " if n > 1 else ""
        lines.append(f"    {times}{what}: {where[0]}")
        lines += [f"        and {place}" for place in where[1:]]
    return lines


def _place(e: Equation) -> str:
    return f"{near(e.source)}  {text_of(e.source)}".rstrip()
