"""Operations that compute each element of the result from one element of each operand.

Families: `Unary`, `Binary`, `Comparison`. The strict IR gives them operands of equal shape and dtype;
broadcasting and promotion are the user libraries' work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.extend.mlir.dialects import stablehlo as hlo

from functrans.ir.program import Literal
from functrans.ir.types import ArrayType, dtype_class
from functrans.primitives.base import Cost, LinearInput, Primitive, bytes_of, sum_of
from functrans.trace import bind, literal, typeof

FLOATS = ("float", "complex")
NUMBERS = ("int", "uint", "float", "complex")
ANY = ("bool", *NUMBERS)
BITS = ("bool", "int", "uint")
ORDERED = ("bool", "int", "uint", "float")

_SCALARS = (int, float, complex, bool)


class Elementwise(Primitive):
    """Shared by the families: batching by lining up the batch axes, cost by counting elements."""

    takes: tuple[str, ...] = ANY
    flops = 1  # per element

    def check_dtype(self, types: Sequence[ArrayType]) -> None:
        if dtype_class(types[0].dtype) not in self.takes:
            raise self.mismatch(
                types,
                f"takes operands of dtype {', '.join(self.takes)}, not {types[0].dtype}",
                "Cast with x.astype(...) first.",
            )

    def batch(self, t: Any, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        to = next(d for d in dims if d is not None)
        if any(d != to for d in dims):
            args = [t.at(x, d, to) for x, d in zip(args, dims, strict=True)]
        return bind(self, args, params), to

    def cost(self, in_types: Any, out_types: Any, **params: Any) -> Cost:
        return Cost(self.flops * out_types[0].size, bytes_of(*in_types, *out_types))


class Unary(Elementwise):
    """One function applied to every element. `deriv(x, y)` is dy/dx given y = f(x).

    `numpy` is its NumPy twin, `op` its StableHLO twin; both are found by name where they can be.
    """

    def __init__(
        self,
        name: str,
        takes: tuple[str, ...],
        deriv: Callable[[Any, Any], Any] | None = None,
        *,
        numpy: Callable[..., Any] | None = None,
        op: Callable[..., Any] | None = None,
        linear: bool = False,
        result: Callable[[Any], Any] | None = None,
        flops: int = 1,
    ):
        self.takes = takes
        self.deriv = deriv
        self.numpy = numpy or getattr(np, name)
        self.op = op or getattr(hlo, name)
        self.linear_in = (0,) if linear else ()
        self.result = result  # dtype -> dtype of the result, where it differs
        self.flops = flops
        super().__init__(name)

    def __call__(self, x: Any) -> Any:
        return bind(self, (x,), {})

    def type(self, x: ArrayType) -> ArrayType:
        self.check_dtype((x,))
        return x if self.result is None else ArrayType(x.shape, self.result(x.dtype))

    def reference(self, x: Any) -> Any:
        out = np.asarray(self.numpy(x))
        return out.astype(x.dtype, copy=False) if self.result is None else out

    def lower(self, ctx: Any, x: Any) -> Any:
        return self.op(x)

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        if self.linear_in:
            return self(tangents[0])
        if self.deriv is None:
            return None  # piecewise constant
        return mul(tangents[0], self.deriv(primals[0], out))

    def transpose(self, ct: Any, x: Any) -> Any:
        return (self(ct),)  # the linear ones that use this default (neg, copy) are symmetric


class Binary(Elementwise):
    """Two operands of equal shape and dtype. `partials` are d/dx and d/dy, each of (x, y, out);
    None: piecewise constant."""

    def __init__(
        self,
        name: str,
        takes: tuple[str, ...],
        partials: tuple[Callable[..., Any], Callable[..., Any]] | None = None,
        *,
        numpy: Callable[..., Any] | None = None,
        op: Callable[..., Any] | None = None,
        flops: int = 1,
    ):
        self.takes = takes
        self.partials = partials
        self.numpy = numpy or getattr(np, name)
        self.op = op or getattr(hlo, name)
        self.flops = flops
        super().__init__(name)

    def __call__(self, x: Any, y: Any) -> Any:
        """Python scalars become literals of the other operand's type."""
        if y.__class__ in _SCALARS:
            y = literal(y, typeof(x).strong())
        elif x.__class__ in _SCALARS:
            x = literal(x, typeof(y).strong())
        return bind(self, (x, y), {})

    def check_operands(self, x: ArrayType, y: ArrayType) -> None:
        if x.shape != y.shape:
            raise self.mismatch(
                (x, y),
                f"operands must have equal shapes, got {x.shape} and {y.shape}",
                "Broadcast first (the functions of functrans.numpy do), or reshape one of them.",
            )
        if x.dtype != y.dtype:
            raise self.mismatch(
                (x, y),
                f"operands must have equal dtypes, got {x.dtype} and {y.dtype}",
                "Cast one with x.astype(...) (the functions of functrans.numpy promote).",
            )
        self.check_dtype((x, y))

    def type(self, x: ArrayType, y: ArrayType) -> ArrayType:
        self.check_operands(x, y)
        return x if not x.weak_type else y

    def reference(self, x: Any, y: Any) -> Any:
        return np.asarray(self.numpy(x, y)).astype(x.dtype, copy=False)

    def lower(self, ctx: Any, x: Any, y: Any) -> Any:
        return self.op(x, y)

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        if self.partials is None:
            return None
        total = None
        for dx, partial in zip(tangents, self.partials, strict=True):
            if dx is not None:
                total = sum_of(total, mul(dx, partial(*primals, out)))
        return total


class Comparison(Binary):
    """Two operands in, booleans out."""

    def __init__(self, name: str, direction: str, numpy: Callable[..., Any], takes: Any = ORDERED):
        self.direction = direction
        super().__init__(name, takes, numpy=numpy, op=hlo.compare)

    def type(self, x: ArrayType, y: ArrayType) -> ArrayType:
        self.check_operands(x, y)
        return ArrayType(x.shape, np.dtype(bool))

    def reference(self, x: Any, y: Any) -> Any:
        return np.asarray(self.numpy(x, y))

    def lower(self, ctx: Any, x: Any, y: Any) -> Any:
        kind = {"float": "FLOAT", "complex": "FLOAT", "int": "SIGNED"}.get(
            dtype_class(ctx.in_types[0].dtype), "UNSIGNED"
        )
        return hlo.compare(
            x, y, hlo.ComparisonDirectionAttr.get(self.direction),
            compare_type=hlo.ComparisonTypeAttr.get(kind),
        )  # fmt: skip


class Add(Binary):
    """x + y."""

    linear_in = (0, 1)

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        return sum_of(*tangents)

    def transpose(self, ct: Any, x: Any, y: Any) -> Any:
        return ct, ct


class Sub(Binary):
    """x - y."""

    linear_in = (0, 1)

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        dx, dy = tangents
        if dy is None:
            return dx
        return neg(dy) if dx is None else self(dx, dy)

    def transpose(self, ct: Any, x: Any, y: Any) -> Any:
        return ct, neg(ct) if isinstance(y, LinearInput) else None


class Mul(Binary):
    """x * y."""

    linear_in = (0, 1)
    multilinear = True

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        return self._product_rule(primals, tangents, {})

    def transpose(self, ct: Any, x: Any, y: Any) -> Any:
        if isinstance(x, LinearInput):
            return self(ct, y), None
        return None, self(x, ct)


class Div(Binary):
    """x / y; integers round towards zero."""

    linear_in = (0,)

    def reference(self, x: Any, y: Any) -> Any:
        if dtype_class(x.dtype) in FLOATS:
            return np.divide(x, y).astype(x.dtype, copy=False)
        safe = np.where(y == 0, 1, y).astype(x.dtype)
        # XLA's integer division by zero gives all ones
        out = np.where((x < 0) != (safe < 0), -(np.abs(x) // np.abs(safe)), np.abs(x) // np.abs(safe))
        return np.where(y == 0, np.array(-1).astype(x.dtype), out).astype(x.dtype)

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        _, y = primals
        dx, dy = tangents
        total = None if dx is None else self(dx, y)
        if dy is not None:
            total = sum_of(total, mul(dy, neg(self(out, y))))
        return total

    def transpose(self, ct: Any, x: Any, y: Any) -> Any:
        return self(ct, y), None


def full_like(x: Any, value: Any) -> Literal:
    """A literal of x's shape and dtype."""
    return literal(value, typeof(x).strong())


neg = Unary("neg", NUMBERS, numpy=np.negative, op=hlo.negate, linear=True)
add = Add("add", NUMBERS)
sub = Sub("sub", NUMBERS, numpy=np.subtract, op=hlo.subtract)
mul = Mul("mul", NUMBERS, numpy=np.multiply, op=hlo.multiply)
div = Div("div", NUMBERS, numpy=np.divide, op=hlo.divide)

sin = Unary("sin", FLOATS, lambda x, y: cos(x), op=hlo.sine, flops=10)
cos = Unary("cos", FLOATS, lambda x, y: neg(sin(x)), op=hlo.cosine, flops=10)
exp = Unary("exp", FLOATS, lambda x, y: y, op=hlo.exponential, flops=10)
log = Unary("log", FLOATS, lambda x, y: div(1.0, x), flops=10)
tanh = Unary("tanh", FLOATS, lambda x, y: sub(1.0, mul(y, y)), flops=10)

lt = Comparison("lt", "LT", np.less)
gt = Comparison("gt", "GT", np.greater)
