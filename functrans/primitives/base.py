"""What a primitive owes.

A primitive is one instance of one class that holds everything known about an operation:

    abstract_eval  types of operands -> types of results, or the error the user reads   (mandatory)
    reference  the result on NumPy arrays, at the same dtypes                       (mandatory)
    lower      StableHLO                                                            (mandatory)
    jvp        tangents of operands -> tangents of results          (derived for linear operations)
    transpose  cotangents of results -> cotangents of the linear operands
    batch      the operation on operands with one more axis
    cost       floating point operations and bytes moved
    numpy_source  the operation as a line of NumPy          (derived: the reference, specialised)

Conventions
- `out`, `tangent`, `ct` stand for one value, or for a list of them where `multiple_results` is set.
- A tangent or cotangent known to be zero is `None`.
- In `transpose` the operands in which the operation is linear stand as `LinearInput(type)`.
- Rules are ordinary traced code over primitives: `mul(dx, cos(x))`. Scalars given to elementwise
  primitives become literals of the other operand's type.
- Parameters are hashable, and print as they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

from functrans import errors
from functrans.caching import memo
from functrans.ir.program import PRIMITIVES, Equation, Literal, Program
from functrans.ir.source import describe, user_source
from functrans.ir.types import ArrayType
from functrans.jax_trace import Bridge, current
from functrans.trace import bind, literal, state, typeof


class LinearInput:
    """Stands for a linear operand, whose value there is none of, in a transpose rule."""

    __slots__ = ("type",)

    def __init__(self, type: ArrayType):
        self.type: ArrayType = type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> Any:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return self.type.ndim


class Cost(NamedTuple):
    """Floating point operations, and bytes read and written."""

    flops: int
    bytes: int


_OWED: list[Any] = []  # what stands for a mandatory rule in a base class


def owed(rule: Any) -> Any:
    """Mark a method of a base class as one that each operation must define."""
    _OWED.append(rule)
    return rule


class Primitive:
    """Base of all operations. See the module's text for the rules and their conventions."""

    name: str = ""
    multiple_results = False  # more than one result: lists instead of values
    mandatory: tuple[str, ...] = ("abstract_eval", "reference", "lower")
    holds_programs = False  # a HigherOrderPrimitive
    # of those that hold programs: outside of programs `run_now` gives the results, nothing compiled
    runs_eagerly = False
    holds_functions = False  # `program` is a Python function until a trace records the equation
    in_kernel = False  # may be a part of a loop that is one kernel (passes/kernels.py)
    counted = True  # is its cost known?
    at_own_dtype = False  # in float64 its results would be other ones: it draws bits of its dtype
    linear_in: tuple[int, ...] = ()  # operands in which it is linear; the rest have no derivative
    multilinear = (
        False  # linear in each of `linear_in` alone (a product), not in all at once (a sum)
    )

    def __init__(self, name: str | None = None):
        self.name = name or self.name
        for rule in self.mandatory:
            if getattr(type(self), rule) in _OWED:
                raise TypeError(f"primitive {self.name} lacks its mandatory rule `{rule}`")
        if self.name in PRIMITIVES:
            raise ValueError(f"two primitives are named {self.name!r}")
        PRIMITIVES[self.name] = self

    def __call__(self, *args: Any, **params: Any) -> Any:
        trace = state.innermost
        if trace is not None and current.value.__class__ is Bridge:  # nothing of JAX's is above
            return trace.bind(self, args, params)
        return bind(self, args, params)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return PRIMITIVES.__getitem__, (self.name,)

    # --- the rules --------------------------------------------------------------------------------

    @owed
    def abstract_eval(self, *types: ArrayType, **params: Any) -> Any:
        raise self.missing("abstract_eval")

    @owed
    def reference(self, *arrays: Any, **params: Any) -> Any:
        raise self.missing("reference")

    @owed
    def lower(self, ctx: Any, *operands: Any, **params: Any) -> Any:
        raise self.missing("lower")

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], out: Any, /, **params: Any
    ) -> Any:
        """Derived for a linear operation: the operation itself, on tangents."""
        if not self.linear_in:
            raise self.missing("jvp")
        if self.multilinear:
            return self._product_rule(primals, tangents, params)
        args = list(primals)
        if all(tangents[i] is None for i in self.linear_positions(len(args))):
            return [None] * len(out) if self.multiple_results else None
        for i in self.linear_positions(len(args)):
            args[i] = tangents[i] if tangents[i] is not None else zero(args[i])
        return bind(self, args, params)

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Sequence[Any]:
        raise self.missing("transpose")

    def batch(
        self, t: Any, args: Sequence[Any], dims: Sequence[int | None], /, **params: Any
    ) -> Any:
        """-> (result, its batch axis). `t.size`, `t.at(x, dim, to)`: x with its batch axis at `to`,
        repeated along a new one if it has none."""
        raise self.missing("batch")

    def cost(
        self, in_types: Sequence[ArrayType], out_types: Sequence[ArrayType], **params: Any
    ) -> Cost:
        return Cost(0, bytes_of(*in_types, *out_types))

    def numpy_source(self, w: Any, *xs: Any, **params: Any) -> Any:
        """The operation as Python code for `ft.to_python`: an expression of the operands' names
        `xs`; inspect/python_source/writer.py says what `w` offers and what else may be returned.
        Given where it reads better than the reference specialised, which is what the rest get."""
        return w.reference(self, xs, params)

    # --- what operations that hold programs override (higher_order.py) ----------------------------

    def differentiate(
        self, t: Any, primals: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
    ) -> tuple[Any, Any]:
        """-> (result, its tangent). `t` is the running jvp or linearize."""
        out = t.bind_primal(self, primals, params)
        return out, self.jvp(primals, tangents, out, **params)

    def transpose_with(
        self, t: Any, ct: Any, args: Sequence[Any], params: dict[str, Any]
    ) -> Sequence[Any]:
        """`transpose`, given the running transposition."""
        return self.transpose(ct, *args, **params)

    def has_effects(self, params: dict[str, Any]) -> bool:
        """Must it run even if nobody uses its results?"""
        return False

    def mesh(self, params: dict[str, Any]) -> Any:
        """The mesh of devices that it lays its operands out on, or None."""
        return getattr(params.get("sharding"), "mesh", None)

    def calls(self, params: dict[str, Any]) -> Any:
        """What it has to do with Python, a `Calls` (callback.py); None for nothing."""
        return None

    def called(self, params: dict[str, Any]) -> str:
        """What messages call the function that it calls, where `calls` tells of one."""
        return self.name

    def listing(self, params: dict[str, Any]) -> Sequence[str]:
        """Lines that show what it holds, where that is no program of ours."""
        return ()

    def named_axes(self, params: dict[str, Any]) -> Container[Any]:
        """The names of mapped axes that it speaks of: a vmap with one of these must see it, even
        where no operand is batched."""
        return ()

    def reached(self, params: dict[str, Any], moving: Sequence[bool]) -> Sequence[bool]:
        """Which results depend on the `moving` operands, of an operation with several. Where it is
        not all of them, `part` is asked for."""
        return [True]

    def part(self, equation: Equation, wanted: Sequence[bool]) -> Equation:
        """The equation for some of its results alone, for an operation that overrides `reached`."""
        raise self.missing("part")

    def short_params(self, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """-> how some parameters are written in short ("" for none), and the rest, by name."""
        return "", params

    def read_params(self, short: str) -> dict[str, Any]:
        """The parameters that `short_params` wrote; ValueError if it is not such a text."""
        raise ValueError(f"{self.name} takes its parameters by name")

    # --- helpers ----------------------------------------------------------------------------------

    def linear_positions(self, n_args: int) -> Sequence[int]:
        """Positions of the linear operands among `n_args`; override where their number varies."""
        return self.linear_in

    def result_types(self, types: Sequence[ArrayType], params: dict[str, Any]) -> tuple[Any, ...]:
        out = self.abstract_eval(*types, **params)
        return tuple(out) if self.multiple_results else (out,)

    def _product_rule(
        self, primals: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
    ) -> Any:
        total = None
        for i in self.linear_in:
            if tangents[i] is not None:
                args = list(primals)
                args[i] = tangents[i]
                total = sum_of(total, bind(self, args, params))
        return total

    def mismatch(
        self, types: Sequence[ArrayType], problem: str, fix: str = "",
        error: Callable[[str], Exception] = errors.TypeMismatch,
    ) -> Exception:  # fmt: skip
        """The error for operands that do not fit: operation, types, the user's line, a fix."""
        shown = ", ".join(map(str, types))
        return error(
            f"{self.name}({shown}): {problem}, at\n    {describe(user_source())}"
            + (f"\n{fix}" if fix else "")
        )

    def missing(self, rule: str) -> Exception:
        where = f"{type(self).__module__.replace('.', '/')}.py"
        advice = {
            "jvp": "Give its class `jvp`, or declare `linear_in` if it is linear.",
            "transpose": "Give its class `transpose`; it is asked only of operations that are "
            "linear in an operand.",
            "batch": "Give its class `batch`.",
        }
        return errors.MissingRule(
            f"the primitive {self.name} has no rule `{rule}`, at\n    {describe(user_source())}\n"
            f"{advice.get(rule, 'It is mandatory.')} Its class stands in {where}."
        )


def axes_inside(value: Any) -> set[Any]:
    """The names of mapped axes in a program, or in those among the elements of a tuple."""
    if isinstance(value, tuple):
        return set().union(*[axes_inside(v) for v in value])
    if not isinstance(value, Program):
        return set()
    return memo(value, _axes_inside)


def _axes_inside(program: Program) -> set[Any]:
    return set().union(*[e.primitive.named_axes(e.params) for e in program.equations])


def sum_of(x: Any, y: Any) -> Any:
    """x + y for tangents and cotangents, where None is zero."""
    if x is None:
        return y
    return x if y is None else bind(PRIMITIVES["add"], (x, y), {})


def zero(x: Any) -> Any:
    """The zero of a value's tangent space, as a literal."""
    t = type_of(x)
    return literal(0, t)


def is_zero(x: Any) -> bool:
    """Is it a literal filled with zeros?"""
    return x.__class__ is Literal and x.value == 0


def type_of(x: Any) -> ArrayType:
    return x.type if isinstance(x, LinearInput) else typeof(x)


def bytes_of(*types: ArrayType) -> int:
    return sum([t.size * getattr(t.dtype, "itemsize", 4) for t in types])
