"""Families of elementwise primitives, `Unary`, `Binary`, `Comparison`, and the basic arithmetic
that all rules use.

In the strict IR their operands have equal shapes and dtypes; broadcasting and promotion happen in
the user-facing libraries.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from functrans.caching import cached
from functrans.ir.program import Literal
from functrans.ir.types import ArrayType, dtype_class
from functrans.mlir import chlo, hlo
from functrans.primitives.base import LinearInput, Primitive, sum_of
from functrans.trace import bind, literal, typeof

FLOATS = ("float", "complex")
REAL = ("int", "uint", "float")
NUMBERS = (*REAL, "complex")
ANY = ("bool", *NUMBERS)
INTS = ("int", "uint")
BITS = ("bool", *INTS)
ORDERED = ("bool", *REAL)

_SCALARS = frozenset((int, float, complex, bool))


def splat(value: Any, type: ArrayType) -> Literal:
    """Return the literal of a Python number, cached per number and type."""
    if value == 0 and value.__class__ is not int:  # -0.0 == 0.0, but their literals differ
        return literal(value, type)
    return _splat(value, value.__class__, type)


@cached("numbers of rules", 4096)
def _splat(value: Any, kind: type, type: ArrayType) -> Literal:
    return literal(value, type)


def full_like(x: Any, value: Any) -> Any:
    """Return a literal of the type of x."""
    return splat(value, typeof(x))


class Elementwise(Primitive):
    """Base class of the families: batching by aligning the batch axes."""

    in_kernel = True
    takes: tuple[str, ...] = ANY
    flops: float = 1

    def check_equal(self, types: Sequence[ArrayType], what: str = "operands") -> None:
        """Raise unless all types have the shape and dtype of the first."""
        shapes = [t.shape for t in types]
        if shapes.count(shapes[0]) != len(shapes):
            raise self.mismatch(
                types,
                f"{what} must have equal shapes, got {' and '.join(map(str, shapes))}",
                "Broadcast first (the functions of functrans.numpy do), or reshape one of them.",
            )
        self.check_one_dtype(types, what)

    def batch(self, t: Any, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        to = next(d for d in dims if d is not None)
        lined_up = [x if d == to else t.at(x, d, to) for x, d in zip(args, dims, strict=True)]
        return bind(self, lined_up, params), to


def operation_named(name: str) -> Callable[..., Any]:
    """Return the function that builds the operation of a name, of StableHLO or else of CHLO."""
    return getattr(hlo, name, None) or getattr(chlo, name)


def operation_name(op: Callable[..., Any]) -> str | None:
    """Return the operation that a function of a dialect's module builds; None for others."""
    dialect = {"_stablehlo_ops_gen": "stablehlo", "_chlo_ops_gen": "chlo"}.get(
        op.__module__.rpartition(".")[2]
    )
    return f"{dialect}.{op.__name__.rstrip('_')}" if dialect else None


class Function(Elementwise):
    """A function applied to every element, or to the elements of operands of equal shape and dtype.

    deriv   : (x, y) -> dy/dx, given y = f(x); of two operands d/dx and d/dy, functions of (x, y, out),
              or None if zero, as both are by default
    tangent : (dx, x, y) -> dy, linear in dx, if that is shorter than dx * deriv
    numpy, op : the NumPy function and the StableHLO or CHLO operation, found by name if possible
    via     : the JAX function by which operands of a class of dtypes are lowered
    result  : dtype -> dtype of the result, if it differs
    """

    def __init__(
        self,
        name: str,
        takes: tuple[str, ...],
        deriv: Callable[[Any, Any], Any] | Sequence[Callable[..., Any] | None] | None = None,
        *,
        tangent: Callable[[Any, Any, Any], Any] | None = None,
        numpy: Callable[..., Any] | None = None,
        op: Callable[..., Any] | None = None,
        via: dict[str, Callable[..., Any]] | None = None,
        linear: bool = False,
        result: Callable[[Any], Any] | None = None,
        flops: int = 1,
    ):
        self.takes = takes
        self.deriv: Any = deriv
        self.tangent = tangent
        self.numpy: Any = numpy or getattr(np, name)
        self.op: Any = op or operation_named(name)
        self.op_name: str | None = operation_name(self.op)
        self.via: dict[str, Callable[..., Any]] = via or {}
        self.linear_in: tuple[int, ...] = (0,) if linear else self.linear_in
        self.result = result
        self.flops: float = flops
        super().__init__(name)

    def lower(self, ctx: Any, *xs: Any) -> Any:
        if self.via and (via := self.via.get(dtype_class(ctx.in_types[0].dtype))):
            return ctx.via_jax(via, *xs)[0]
        return ctx.op(self.op_name, xs) if self.op_name else self.op(*xs)

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        total = None
        for dx, partial in zip(tangents, self.deriv or (None, None), strict=True):
            if dx is not None and partial is not None:
                total = sum_of(total, mul(dx, partial(*primals, out)))
        return total


class Unary(Function):
    """A function of one operand."""

    symmetric = True  # if it is linear: neg, copy

    def __call__(self, x: Any, **params: Any) -> Any:
        return bind(self, (x,), params)

    def abstract_eval(self, x: ArrayType, **params: Any) -> ArrayType:
        return x if self.result is None else x.update(dtype=self.result(x.dtype))

    def reference(self, x: Any, **params: Any) -> Any:
        dtype = x.dtype if self.result is None else self.result(x.dtype)
        return np.asarray(self.numpy(x)).astype(dtype, copy=False)

    def numpy_source(self, w: Any, x: Any, **params: Any) -> Any:
        twin = w.twin(self.numpy)
        if twin is None:
            return w.reference(self, (x,), params)
        text = f"-{x.full}" if self.numpy is np.negative else f"{twin}({x.full})"
        return w.cast(text, self.numpy)

    def jvp(self, primals: Any, tangents: Any, out: Any, **params: Any) -> Any:
        if self.deriv is not None:
            return bind(mul, (tangents[0], self.deriv(primals[0], out)), {})
        if self.tangent is not None:
            return self.tangent(tangents[0], primals[0], out)
        return self(tangents[0]) if self.linear_in else None  # else piecewise constant

    def batch(self, t: Any, args: Any, dims: Any, **params: Any) -> Any:
        return bind(self, args, params), dims[0]


class Binary(Function):
    """A function of two operands."""

    def __call__(self, x: Any, y: Any) -> Any:
        """Convert Python scalars to literals of the other operand's type."""
        if y.__class__ in _SCALARS:
            y = splat(y, typeof(x))
        elif x.__class__ in _SCALARS:
            x = splat(x, typeof(y))
        return bind(self, (x, y), {})

    def abstract_eval(self, x: ArrayType, y: ArrayType) -> ArrayType:
        if x is not y:
            self.check_equal((x, y))
        self.check_dtype((x,))
        return y if x.weak_type else x

    def reference(self, x: Any, y: Any) -> Any:
        return np.asarray(self.numpy(x, y)).astype(x.dtype, copy=False)

    def numpy_source(self, w: Any, x: Any, y: Any) -> Any:
        twin = w.twin(self.numpy)
        if twin is None:
            return w.reference(self, (x, y), {})
        if x.literal and y.literal:
            x = x.full
        symbol = _SYMBOLS.get(twin)
        return w.cast(f"{x} {symbol} {y}" if symbol else f"{twin}({x}, {y})", self.numpy)

    def batch(self, t: Any, args: Any, dims: Any, **params: Any) -> Any:
        (x, y), (dx, dy) = args, dims
        if dx is None:
            return bind(self, (t.at(x, None, dy), y), params), dy
        return bind(self, args if dx == dy else (x, t.at(y, dy, dx)), params), dx


# NumPy function -> Python operator.
_SYMBOLS = {
    "np.add": "+",
    "np.subtract": "-",
    "np.multiply": "*",
    "np.divide": "/",
    "np.equal": "==",
    "np.not_equal": "!=",
    "np.less": "<",
    "np.less_equal": "<=",
    "np.greater": ">",
    "np.greater_equal": ">=",
    "np.bitwise_and": "&",
    "np.bitwise_or": "|",
    "np.bitwise_xor": "^",
}


class Comparison(Binary):
    """A comparison: two operands, a boolean result. NaN is unequal to everything."""

    def __init__(self, name: str, direction: str, numpy: Callable[..., Any], takes: Any = ORDERED):
        self.direction = direction
        self.operator: Callable[..., Any] = getattr(operator, name)  # which typed keys have too
        super().__init__(name, takes, numpy=numpy, op=hlo.compare)

    def abstract_eval(self, x: ArrayType, y: ArrayType) -> ArrayType:
        self.check_equal((x, y))
        self.check_dtype((x,))
        return ArrayType(x.shape, np.dtype(bool), x.weak_type and y.weak_type)

    def reference(self, x: Any, y: Any) -> Any:
        return np.asarray(self.operator(x, y))

    def numpy_source(self, w: Any, x: Any, y: Any) -> Any:
        text = super().numpy_source(w, x, y)
        if dtype_class(w.equation.inputs[0].type.dtype) != "key":
            return text
        return f"({text}).{'all' if self.direction == 'EQ' else 'any'}(-1)"

    def lower(self, ctx: Any, x: Any, y: Any) -> Any:
        kind = dtype_class(ctx.in_types[0].dtype)
        if kind == "key":
            return ctx.via_jax(self.operator, x, y)[0]
        return ctx.op("stablehlo.compare", [x, y], comparison(self.direction, kind))


def compare(x: Any, y: Any, direction: str, kind: str) -> Any:
    """Return the StableHLO comparison of a dtype class."""
    how = comparison(direction, kind)
    return hlo.compare(x, y, how["comparison_direction"], compare_type=how["compare_type"])


def comparison(direction: str, kind: str) -> dict[str, Any]:
    """Return the attributes of a comparison of operands of a dtype class."""
    as_ = {"float": "FLOAT", "complex": "FLOAT", "int": "SIGNED"}.get(kind, "UNSIGNED")
    return {
        "comparison_direction": hlo.ComparisonDirectionAttr.get(direction),
        "compare_type": hlo.ComparisonTypeAttr.get(as_),
    }


class Add(Binary):
    """x + y."""

    linear_in: tuple[int, ...] = (0, 1)

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        return sum_of(*tangents)

    def transpose(self, ct: Any, x: Any, y: Any) -> Any:
        return ct, ct


class Sub(Binary):
    """x - y."""

    linear_in: tuple[int, ...] = (0, 1)

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        dx, dy = tangents
        if dy is None:
            return dx
        return neg(dy) if dx is None else bind(self, tangents, {})

    def transpose(self, ct: Any, x: Any, y: Any) -> Any:
        return ct, neg(ct) if isinstance(y, LinearInput) else None


class Mul(Binary):
    """x * y."""

    linear_in: tuple[int, ...] = (0, 1)
    multilinear = True

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        if dy is None:
            return bind(self, (dx, y), {})
        by_y = bind(self, (x, dy), {})
        return by_y if dx is None else sum_of(bind(self, (dx, y), {}), by_y)

    def transpose(self, ct: Any, x: Any, y: Any) -> Any:
        if isinstance(x, LinearInput):
            return bind(self, (ct, y), {}), None
        return None, bind(self, (x, ct), {})


class Div(Binary):
    """x / y. Integer division truncates; by zero it gives all ones, as in XLA."""

    linear_in: tuple[int, ...] = (0,)

    def reference(self, x: Any, y: Any) -> Any:
        if dtype_class(x.dtype) in FLOATS:
            return np.asarray(np.divide(x, y)).astype(x.dtype, copy=False)
        safe = np.where(y == 0, 1, y).astype(x.dtype)
        down = x // safe
        out = down + ((down < 0) & (x % safe != 0)).astype(x.dtype)
        return np.where(y == 0, np.array(-1).astype(x.dtype), out).astype(x.dtype)

    def numpy_source(self, w: Any, x: Any, y: Any) -> Any:
        if dtype_class(w.out_types[0].dtype) in FLOATS:
            return super().numpy_source(w, x, y)
        return w.reference(self, (x, y), {})

    def lower(self, ctx: Any, x: Any, y: Any) -> Any:
        return ctx.quotient(self, x, y)

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        total = None if dx is None else bind(self, (dx, y), {})
        if dy is not None:
            # -x / y**2 as a product with a function of y, which has few distinct values if y is
            # broadcast, as row norms are. (XLA rewrites x / y / y to x / (y * y).)
            part = self(1.0, y)
            total = sum_of(total, mul(dy, mul(x, mul(neg(part), part))))
        return total

    def transpose(self, ct: Any, x: Any, y: Any) -> Any:
        return bind(self, (ct, y), {}), None


class OneMinusSquare(Unary):
    """1 - x^2, computed as (1 + x)(1 - x): precise for x near 1, and so is its derivative for x near 0."""

    def lower(self, ctx: Any, x: Any) -> Any:
        one = ctx.full(1, ctx.in_types[0])
        return hlo.multiply(hlo.add(one, x), hlo.subtract(one, x))

    def numpy_source(self, w: Any, x: Any) -> Any:
        return f"(1 + {x.full}) * (1 - {x.full})"


neg: Unary = Unary("neg", NUMBERS, numpy=np.negative, op=hlo.negate, linear=True)
add: Add = Add("add", NUMBERS)
sub: Sub = Sub("sub", NUMBERS, numpy=np.subtract, op=hlo.subtract)
mul: Mul = Mul("mul", NUMBERS, numpy=np.multiply, op=hlo.multiply)
div: Div = Div("div", NUMBERS, numpy=np.divide, op=hlo.divide)
square: Unary = Unary(
    "square",
    NUMBERS,
    lambda x, y: mul(x, 2),
    op=lambda x: hlo.multiply(x, x),
    via={"complex": jax.lax.square},
)

one_minus_square: OneMinusSquare = OneMinusSquare(
    "one_minus_square",
    NUMBERS,
    lambda x, y: mul(x, -2),
    numpy=lambda x: (1 + x) * (1 - x),
    op=hlo.multiply,
    flops=3,
)

eq: Comparison = Comparison("eq", "EQ", np.equal, (*ANY, "key"))
ne: Comparison = Comparison("ne", "NE", np.not_equal, (*ANY, "key"))
lt: Comparison = Comparison("lt", "LT", np.less)
le: Comparison = Comparison("le", "LE", np.less_equal)
gt: Comparison = Comparison("gt", "GT", np.greater)
ge: Comparison = Comparison("ge", "GE", np.greater_equal)
