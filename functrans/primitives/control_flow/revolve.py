"""Reverse mode through a loop whose number of steps is known only at run time.

In: a step, its transpose, the number of steps. Out: cotangents. The carry before each step is
needed in reverse order. It is recomputed from at most `CHECKPOINTS` stored ones (revolve, Griewank
and Walther 2000): memory does not grow with the number of steps, and each step is run again at most
3 times for 6,500 steps, 5 times for 400,000.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans.ir.program import PRIMITIVES, Program, hoist_constants
from functrans.ir.types import ArrayType
from functrans.primitives.base import sum_of
from functrans.primitives.calls.captured import zeros
from functrans.primitives.elementwise.arithmetic import max_
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.elementwise.families import add, eq, gt, lt, sub
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.indexing.dynamic_slice import element_of, with_element
from functrans.primitives.reductions.folds import reduce_sum
from functrans.primitives.shape.moving import broadcast_in_dim
from functrans.trace import evaluate, literal, stage, typeof

CHECKPOINTS = 32
COUNT = ArrayType((), np.dtype(np.int32))


def loop(
    test: Callable[..., Any], body: Callable[..., Sequence[Any]], init: Sequence[Any], name: str = ""
) -> list[Any]:
    """Bind `while test(*carry): carry = body(*carry)` for flat functions, by the types of `init`."""
    types = [typeof(x) for x in init]
    cond, first = hoist_constants(stage(lambda *xs: [test(*xs)], types, name))
    step, fixed = hoist_constants(stage(body, types, name))
    return PRIMITIVES["while"](
        *first, *fixed, *init, cond=cond, body=step, cond_consts=len(first), body_consts=len(fixed)
    )


def _schedule() -> np.ndarray:
    """Return table [s, r]: the steps that s checkpoints reverse if each is run r times again."""
    most = 2**30
    return np.array(
        [[min(math.comb(s + r, s), most) for r in range(17)] for s in range(CHECKPOINTS + 1)], np.int32
    )


def revolve(
    body: Program,
    pull: Program,
    count: Any,
    consts: Sequence[Any],
    carry: Sequence[Any],
    cts: Sequence[Any],
    k: int,
) -> list[Any]:
    """Return the cotangents before the first of `count` steps, of the k active consts and the
    carry.

    A stack of checkpoints holds the carry at some steps, with the initial carry at the bottom. Each
    iteration runs forward from the top of the stack to the last step not yet reversed, storing new
    checkpoints where the schedule says, and then reverses that step.
    """
    table = _schedule()
    n, c = len(carry), len(cts)
    rows = [typeof(x) for x in carry]

    def goal(p: Any, last: Any, top: Any) -> Any:
        """Return the step, between p and `last`, at which to store the next checkpoint."""
        steps = add(sub(last, p), 1)
        free = sub(CHECKPOINTS, top)
        enough = element_of(table, 0, add(free, 1))  # counting the checkpoint at p
        fewer = lt(enough, broadcast_in_dim(steps, shape=typeof(enough).shape, dimensions=()))
        again = reduce_sum(convert_element_type(fewer, dtype=COUNT.dtype), axes=(0,))
        behind = element_of(element_of(table, 0, free), 0, again)
        onward = add(p, max_(sub(steps, behind), literal(1, COUNT)))
        return select_n(gt(free, 0), add(last, 1), onward)

    def advance(last: Any, state: Sequence[Any]) -> list[Any]:
        def step(p: Any, top: Any, aim: Any, places: Any, *rest: Any) -> list[Any]:
            now, stacks = rest[:n], rest[n:]
            here = eq(p, aim)
            places = with_element(places, 0, top, p)
            kept = [with_element(s, 0, top, x) for s, x in zip(stacks, now, strict=True)]
            top = add(top, convert_element_type(here, dtype=COUNT.dtype))
            aim = select_n(here, aim, goal(p, last, top))
            return [add(p, 1), top, aim, places, *evaluate(body, [*consts, *now]), *kept]

        return loop(lambda p, *_: lt(p, last), step, state)

    def back(last: Any, *state: Any) -> list[Any]:
        ahead, totals = state[4 + 2 * n : 4 + 2 * n + c], state[4 + 2 * n + c :]
        _, top, _, places, *rest = advance(last, state[: 4 + 2 * n])
        now, stacks = rest[:n], rest[n:]
        found = evaluate(pull, [*consts, *now, *ahead])
        last = sub(last, 1)
        held = element_of(places, 0, sub(top, 1))
        top = sub(top, convert_element_type(gt(held, last), dtype=COUNT.dtype))
        p = element_of(places, 0, sub(top, 1))
        now = [element_of(s, 0, sub(top, 1)) for s in stacks]
        sums = [sum_of(x, y) for x, y in zip(totals, found[:k], strict=True)]
        return [last, p, top, goal(p, last, top), places, *now, *stacks, *found[k:], *sums]

    zero, one, last = literal(0, COUNT), literal(1, COUNT), sub(count, 1)
    size = CHECKPOINTS + 1  # the slot above the top is written, but not read
    places = literal(0, ArrayType((size,), COUNT.dtype))
    stacks = [
        with_element(zeros(t.update(shape=(size, *t.shape))), 0, zero, x)
        for x, t in zip(carry, rows, strict=True)
    ]
    totals = [literal(0, t) for t in pull.out_types[:k]]
    state = [last, zero, one, goal(zero, last, one), places, *carry, *stacks, *cts, *totals]
    done = loop(lambda last, *_: lt(-1, last), back, state)
    return [*done[len(done) - k :], *done[len(done) - k - c : len(done) - k]]
