"""Select XLA's options on a CPU from the operations of a program. The options themselves are in
backends/compiler_options.py."""

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

# A transformer's step: at least MANY matrix products, with a median of at least LARGE FLOPs.
MANY, LARGE = 40, 16_000_000


class Wanted(NamedTuple):
    """The name of a set of options, the equation that decided, and the reason."""

    name: str
    equation: Equation
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}, at {location(self.equation.source)}"


def wanted(program: Program) -> Wanted | None:
    """Return the options that are certainly faster than JAX's defaults, or None."""
    return memo(program, _wanted)


def _wanted(program: Program) -> Wanted | None:
    equations = [e for p in with_nested(program) for e in p.equations]
    convolutions = [e for e in equations if e.primitive is conv_general_dilated]
    products = [e for e in equations if e.primitive is dot_general]
    if convolutions:  # grouped convolutions take 1.5 times as long with either set
        rank = convolutions[0].outputs[0].type.ndim
        sums = [e for e in equations if _is_statistic(e, rank)]
        if any(map(_has_groups, convolutions)) or len(sums) <= len(convolutions):
            return None
        return Wanted("all but convolutions", convolutions[0], "normalised convolutions")
    if len(products) >= MANY and np.median([flops_of(e) for e in products]) >= LARGE:
        return Wanted("products and sums", products[0], "many large products")
    return None


def _is_statistic(e: Equation, rank: int) -> bool:
    """Return whether an equation reduces images to fewer numbers."""
    if not isinstance(e.primitive, Reduction):
        return False
    t = e.inputs[0].type
    return bool(t.ndim >= rank and e.outputs[0].type.size < t.size)


def _has_groups(e: Equation) -> bool:
    return any(is_group(e.params, name) for name in e.params["lhs"])


def flops_of(e: Equation) -> int:
    """Return the floating point operations of an equation by its primitive's estimate."""
    types = ([v.type for v in values] for values in (e.inputs, e.outputs))
    return e.primitive.cost(*types, **e.params).flops
