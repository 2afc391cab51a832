"""Our loops and branches as JAX's, for JAX's rules about control flow (checkify, key_reuse)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from functrans.ir.program import Equation, Program
from functrans.primitives.control_flow.cond import cond
from functrans.primitives.control_flow.loop_layout import LoopLayout, while_operands
from functrans.primitives.control_flow.scan import scan
from functrans.primitives.control_flow.while_loop import while_loop

LOOPS = (scan, while_loop, cond)


def by_jax(
    e: Equation, run: Callable[[Program, Sequence[Any]], Sequence[Any]], xs: Sequence[Any]
) -> Sequence[Any]:
    """Return the results of an equation of one of `LOOPS` on values of JAX's, or pytrees of them: its
    programs are computed by `run`."""
    p: Any = e.params
    if e.primitive is cond:
        branches = [lambda *given, program=b: run(program, given) for b in p["branches"]]
        return jax.lax.switch(xs[0], branches, *xs[1:])
    if e.primitive is while_loop:
        test, consts, start = while_operands(xs, p)
        return jax.lax.while_loop(
            lambda carry: run(p["cond"], [*test, *carry])[0],
            lambda carry: run(p["body"], [*consts, *carry]),
            start,
        )
    layout = LoopLayout.of(p)
    consts, start, arrays = layout.operands(xs)

    def step(carry: Any, x: Any) -> tuple[list[Any], list[Any]]:
        return layout.results(run(p["program"], [*consts, *carry, *x]))

    how = {k: p[k] for k in ("length", "reverse", "unroll") if k in p}
    carry, ys = jax.lax.scan(step, start, arrays, **how)
    return [*carry, *ys]
