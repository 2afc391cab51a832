"""Products that XLA:CPU rounds by themselves, in loops that decide what other loops decide too.

LLVM rounds `x * y + z` once, by a fused multiply-add, if nothing else reads the product. So the same step
gives other numbers in a loop where a derivative reads the product too (passes/repeated_decisions.py). Here
each product passes through a bitwise `and` with a word of ones, a mask that LLVM must take for any number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans.ir.program import Program
from functrans.ir.types import ArrayType
from functrans.mlir import hlo, ir
from functrans.primitives.elementwise.families import Function

PRODUCTS = ("stablehlo.multiply", "stablehlo.power")  # XLA writes powers out

# The words of each dtype that has such an instruction.
_WORDS = {np.dtype(np.float32): np.dtype(np.uint32), np.dtype(np.float64): np.dtype(np.uint64)}
_MASKS = tuple([ArrayType((), word) for word in _WORDS.values()])


def operands(program: Program) -> tuple[ArrayType, ...]:
    """Return the types of a kernel's operands, which the masks follow if it needs them."""
    return (*program.in_types, *(_MASKS if program.marks.uncontracted else ()))


def masks(ctx: Any, step: Sequence[Program]) -> Sequence[Any]:
    """Emit the masks for these programs, if they need any. XLA would insert constants where they are read."""
    if not ctx.on_this_cpu or not any([p.marks.uncontracted for p in step]):
        return ()
    made = [ctx.full(np.iinfo(t.dtype).max, t) for t in _MASKS]
    return list(ir.Operation.create("stablehlo.optimization_barrier", [x.type for x in made], made).results)


def is_of_several(primitive: Any) -> bool:
    """Return whether a primitive is lowered to several operations, of which the last may be a product."""
    return isinstance(primitive, Function) and not (primitive.op_name or "").startswith("stablehlo")


def rounded(ctx: Any, x: Any, t: ArrayType, masks: Sequence[Any]) -> Any:
    """Emit what rounds x, of type t."""
    if t.dtype not in _WORDS:
        return x
    word = t.update(dtype=_WORDS[t.dtype])
    mask = ctx.op("stablehlo.broadcast_in_dim", [masks[[*_WORDS].index(t.dtype)]], ctx.axes(()), word)
    bits = hlo.and_(ctx.op("stablehlo.bitcast_convert", [x], None, word), mask)
    return ctx.op("stablehlo.bitcast_convert", [bits], None, t)
