"""Which of XLA's options a program wants on a CPU, seen from its operations. The options themselves
stand in backends/compiler_options.py."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from functrans.caching import memo
from functrans.ir.program import Equation, Program
from functrans.ir.source import location
from functrans.ir.text import with_nested
from functrans.primitives.contractions.convolution import conv_general_dilated, is_group
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.reductions.folds import Reduction

# A transformer's step: so many products, half of them of so many floating point operations.
MANY, LARGE = 40, 16_000_000


class Wanted(NamedTuple):
    """A set of options by its name, the equation that decided, and why."""

    name: str
    equation: Equation
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}, at {location(self.equation.source)}"


def wanted(program: Program) -> Wanted | None:
    """The options that are surely faster than JAX's default, if there are some."""
    return memo(program, _wanted)


def _wanted(program: Program) -> Wanted | None:
    equations = [e for p in with_nested(program) for e in p.equations]
    convolutions = [e for e in equations if e.primitive is conv_general_dilated]
    products = [e for e in equations if e.primitive is dot_general]
    if convolutions:  # with groups each set takes half as long again
        rank = convolutions[0].outputs[0].type.ndim
        sums = [e for e in equations if _is_statistic(e, rank)]
        if any(map(_has_groups, convolutions)) or len(sums) <= len(convolutions):
            return None
        return Wanted("all but convolutions", convolutions[0], "normalised convolutions")
    if len(products) >= MANY and np.median([flops_of(e) for e in products]) >= LARGE:
        return Wanted("products and sums", products[0], "many large products")
    return None


def _is_statistic(e: Equation, rank: int) -> bool:
    """Is it a reduction of images to fewer numbers?"""
    if not isinstance(e.primitive, Reduction):
        return False
    t = e.inputs[0].type
    return bool(t.ndim >= rank and e.outputs[0].type.size < t.size)


def _has_groups(e: Equation) -> bool:
    return any(is_group(e.params, name) for name in e.params["lhs"])


def flops_of(e: Equation) -> int:
    """Floating point operations by the operation's own estimate."""
    types = ([v.type for v in values] for values in (e.inputs, e.outputs))
    return e.primitive.cost(*types, **e.params).flops
