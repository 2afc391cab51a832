"""Primitives whose lowering is wrong, which `compare` must name."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jax.extend.mlir.dialects import stablehlo as hlo

from functrans.ir.program import PRIMITIVES
from functrans.primitives.elementwise.families import Unary

NUMBERS = ("int", "uint", "float", "complex")


class WrongSin(Unary):
    """sin, whose lowering is wrong for operands above 1.5."""

    def lower(self, ctx: Any, x: Any, **params: Any) -> Any:
        t = ctx.in_types[0]
        return hlo.sine(hlo.minimum(x, ctx.full(1.5, t)))


class OffByOne(Unary):
    """An operation whose lowering adds one."""

    def lower(self, ctx: Any, x: Any, **params: Any) -> Any:
        return hlo.add(self.op(x), ctx.full(1, ctx.in_types[0]))


@contextmanager
def planted(
    kind: type[Unary], name: str, numpy: Any, op: Any, deriv: Callable[..., Any] | None = None
) -> Iterator[Unary]:
    """A primitive that is in the table for a while."""
    try:
        yield kind(name, NUMBERS, deriv=deriv, numpy=numpy, op=op)
    finally:
        del PRIMITIVES[name]
