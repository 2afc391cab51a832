"""The base class of primitives.

A primitive is the only instance of a class that defines everything about one operation::

    abstract_eval  types of operands -> types of results, or the error for the user (mandatory)
    reference      the result on NumPy arrays, in the same dtypes                   (mandatory)
    lower          StableHLO                                                        (mandatory)
    jvp            tangents of operands -> tangents of results  (derived for linear operations)
    transpose      cotangents of results -> cotangents of the linear operands
    batch          the operation on operands with a batch axis
    cost           floating point operations and bytes moved
    numpy_source   the operation as NumPy source code                (derived from `reference`)

Conventions:

- `out`, `tangent`, `ct` are single values, or lists if `multiple_results` is set.
- A tangent or cotangent known to be zero is `None`; linear operands of `transpose` are `LinearInput(type)`.
- Rules are traced code that calls primitives: `mul(dx, cos(x))`. Scalars passed to elementwise
  primitives become literals of the other operand's type.
- Parameters are hashable, and their text can be parsed back.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import reduce
from operator import attrgetter
from typing import Any

from functrans import errors
from functrans.caching import memoized
from functrans.ir.program import PRIMITIVES, Equation, Literal, Program, programs_among
from functrans.ir.source import here
from functrans.ir.types import OF_FLOAT0, ArrayType, dtype_class, float0, same_types
from functrans.jax_trace import Bridge, current
from functrans.records import NamedTuple
from functrans.trace import bind, literal, state, typeof

Values = Sequence[Any]  # operands or results, or their tangents or cotangents
Params = dict[str, Any]


class LinearInput:
    """Stands for a linear operand in a transpose rule. It has a type, but no value."""

    __slots__ = ("type",)

    def __init__(self, type: ArrayType):
        self.type: ArrayType = type

    shape: Any = property(attrgetter("type.shape"))
    dtype: Any = property(attrgetter("type.dtype"))
    ndim: Any = property(attrgetter("type.ndim"))


class Cost(NamedTuple):
    """Floating point operations, and bytes read and written."""

    flops: int
    bytes: int


def own_cost(e: Any) -> Cost:
    """Return the cost of an equation, as its primitive estimates it."""
    return e.primitive.cost([v.type for v in e.inputs], [v.type for v in e.outputs], **e.params)


def owed(rule: Any) -> Any:
    """Mark a method of a base class as a rule that each primitive must define."""
    rule.owed = True
    return rule


class Primitive:
    """Base class of all primitives. See the module docstring for the rules and their conventions."""

    name: str = ""
    multiple_results = False  # it has a list of results
    mandatory: tuple[str, ...] = ("abstract_eval", "reference", "lower")
    holds_programs = False  # a HigherOrderPrimitive
    # higher-order only: eager calls use `run_eagerly` instead of compiling
    runs_eagerly = False
    holds_functions = False  # `program` is a Python function until a trace records the equation
    in_kernel = False  # it may be part of a loop that is one kernel (passes/kernels.py)
    counted = True  # its cost is known
    # the classes of dtypes of its operands; () for all. Of several operands its `abstract_eval` checks them
    takes: tuple[str, ...] = ()
    # floating point operations per element of its (first) result, or of its operand if it drops axes
    flops: float = 0
    mergeable = True  # equal equations may become one, and an invariant one may leave a loop
    at_own_dtype = False  # its results in float64 would be unrelated: it draws bits of its dtype
    locally_constant = False  # its derivative is zero
    linear_in: tuple[int, ...] = ()  # its linear operands; the others have no derivative
    linear_from: int | None = None  # it is linear in all operands from this one on
    symmetric = False  # linear in its one operand, and its own transpose
    multilinear = False  # linear in each of `linear_in` separately (a product), not jointly (a sum)
    # parameters that are axes of all operands and results, distinct and in range; () if a leading axis
    # does not matter
    axis_params: tuple[str, ...] | None = None
    # parameters with an entry per axis -> the entry of an axis that is taken whole; None: its size
    per_axis: dict[str, Any] = {}
    drops_axes = False  # the results do not have these axes

    def __init__(self, name: str | None = None):
        self.name = name or self.name
        for rule in self.mandatory:
            if hasattr(getattr(type(self), rule), "owed"):
                raise TypeError(f"primitive {self.name} does not define the required rule `{rule}`")
        if self.name in PRIMITIVES:
            raise ValueError(f"two primitives are named {self.name!r}")
        PRIMITIVES[self.name] = self

    def __call__(self, *args: Any, **params: Any) -> Any:
        trace = state.innermost
        if trace is not None and current.value.__class__ is Bridge:  # no trace of JAX is above
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

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], out: Any, /, **params: Any) -> Any:
        """Return the tangent. The default, for a linear operation, applies the operation to the
        tangents; for a locally constant one it is zero.

        Example:
          >>> from functrans.ir import PRIMITIVES
          >>> float(PRIMITIVES["neg"].jvp([1.0], [2.0], None))  # the tangent of -x
          -2.0
        """
        linear = self.linear_positions(len(primals))
        if not (linear or self.locally_constant):
            raise self.missing("jvp")
        if self.multilinear:
            moving = [i for i in self.linear_in if tangents[i] is not None]
            terms = [bind(self, [*primals[:i], tangents[i], *primals[i + 1 :]], params) for i in moving]
            return reduce(sum_of, terms, None)
        args = list(primals)
        if all(tangents[i] is None for i in linear):
            return [None] * len(out) if self.multiple_results else None
        for i in linear:
            args[i] = tangents[i] if tangents[i] is not None else literal(0, typeof(args[i]))
        return bind(self, args, params)

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Sequence[Any]:
        if not self.symmetric:
            raise self.missing("transpose")
        return (self(ct, **params),)

    def batch(self, t: Any, args: Sequence[Any], dims: Sequence[int | None], /, **params: Any) -> Any:
        """Return (result, its batch axis). `t.size` is the batch size. `t.at(x, dim, to)` moves the
        batch axis of x to `to`, or broadcasts x along a new one if `dim` is None.
        The default needs `axis_params` or `per_axis`.

        Example:
          >>> import functrans as ft, functrans.numpy as jnp
          >>> ft.vmap(jnp.dot)(jnp.ones((2, 3)), jnp.ones((2, 3)))  # by the rule of dot_general
          Array([3., 3.], dtype=float32)
        """
        if self.axis_params is None and not self.per_axis:
            raise self.missing("batch")
        to = 0 if self.axis_params == () else next(d for d in dims if d is not None)
        lined_up = [t.at(x, d, to) for x, d in zip(args, dims, strict=True)]
        moved = past_batch_axis(self, to, params, t.size)
        outs = self(*lined_up, **moved)
        if self.drops_axes:
            to -= sum([a < to for name in self.axis_params or () for a in moved[name]])
        return outs, [to] * len(outs) if self.multiple_results else to

    def cost(self, in_types: Sequence[ArrayType], out_types: Sequence[ArrayType], **params: Any) -> Cost:
        counted = (in_types if self.drops_axes else out_types)[0].size if self.flops else 0
        return Cost(int(self.flops * counted), bytes_of(*in_types, *out_types))

    def numpy_source(self, w: Any, *xs: Any, **params: Any) -> Any:
        """Return the operation as Python code for `ft.to_python`: an expression of the operands'
        names `xs`. inspect/python_source/writer.py documents `w` and the other results allowed.
        Define it where it reads better than the default, a call of a copy of the reference.

        Example:
          >>> import functrans as ft, functrans.numpy as jnp
          >>> ft.to_python(ft.make_ir(lambda x: 2 * jnp.sin(x))(1.0)).splitlines()[-3:-1]
          ['    a = np.sin(x)', '    b = 2.0 * a']
        """
        return w.reference(self, xs, params)

    # --- overridden by higher-order primitives ----------------------------------------------------

    def differentiate(self, t: Any, primals: Values, tangents: Values, params: Params) -> tuple[Any, Any]:
        """Return (result, its tangent). `t` is the running jvp or linearize.

        Example:
          >>> import functrans as ft, functrans.numpy as jnp
          >>> power = lambda x: ft.lax.fori_loop(0, 3, lambda i, c: c * x, 1.0)
          >>> ft.jvp(power, (2.0,), (1.0,))[1]  # by the rule of while, which has programs to differentiate
          Array(12., dtype=float32, weak_type=True)
        """
        out = t.bind_primal(self, primals, params)
        return out, self.jvp(primals, tangents, out, **params)

    def transpose_with(self, t: Any, ct: Any, args: Values, params: Params) -> Sequence[Any]:
        """Transpose, given the running transposition.

        Example:
          >>> import functrans as ft, functrans.numpy as jnp
          >>> ft.grad(lambda x: ft.lax.map(jnp.square, x).sum())(jnp.arange(3.0))  # by that of scan
          Array([0., 2., 4.], dtype=float32)
        """
        return self.transpose(ct, *args, **params)

    def has_effects(self, params: dict[str, Any]) -> bool:
        """Return whether it must run even if its results are unused.

        Example:
          >>> from functrans.ir import PRIMITIVES
          >>> [PRIMITIVES[name].has_effects({}) for name in ("sin", "debug_callback")]
          [False, True]
        """
        return False

    def transposes_zeros(self, params: dict[str, Any]) -> bool:
        """Return whether it is transposed even if all its cotangents are zero.

        Example:
          >>> from functrans.ir import PRIMITIVES
          >>> [PRIMITIVES[name].transposes_zeros({}) for name in ("sin", "custom_lin")]
          [False, True]
        """
        return False

    def calls(self, params: dict[str, Any]) -> Any:
        """Return how it calls Python, a `Calls` (callback.py); None if it does not.

        Example:
          >>> import numpy as np
          >>> import functrans as ft, functrans.numpy as jnp
          >>> f = lambda x: ft.pure_callback(np.sin, x, x)
          >>> equation = ft.make_ir(f)(jnp.ones(())).equations[0]
          >>> equation.primitive.calls(equation.params)
          Calls(any=True, effects=frozenset(), ordered=False)
        """
        return None

    def called(self, params: dict[str, Any]) -> str:
        """Return the name, for messages, of the Python function that it calls, if `calls` reports
        one.

        Example:
          >>> import numpy as np, functrans as ft, functrans.numpy as jnp
          >>> call = ft.make_ir(lambda x: ft.pure_callback(np.sin, x, x))(jnp.ones(())).equations[0]
          >>> call.primitive.called(call.params)
          'pure_callback of sin'
        """
        return self.name

    def listing(self, params: dict[str, Any]) -> Sequence[str]:
        """Return lines that show its body, if that is not one of our programs.

        Example:
          >>> from functrans.ir import PRIMITIVES
          >>> PRIMITIVES["sin"].listing({})
          ()
        """
        return ()

    def named_axes(self, params: dict[str, Any]) -> Container[Any]:
        """Return the mapped axes that it uses by name. A vmap over one of these must handle the
        equation even if no operand is batched.

        Example:
          >>> from functrans.ir import PRIMITIVES
          >>> PRIMITIVES["psum"].named_axes({"axes": ("rows",)})
          ('rows',)
        """
        return ()

    def reached(self, params: dict[str, Any], moving: Sequence[bool]) -> Sequence[bool]:
        """Return which results depend on the `moving` operands, for an operation with several
        results. If not all do, `part` is called.

        Example:
          >>> import functrans as ft, functrans.numpy as jnp
          >>> def step(total, x):
          ...     return total + x, x
          >>> loop = ft.make_ir(lambda x: ft.lax.scan(step, 0.0, x))(jnp.ones(3)).equations[0]
          >>> loop.primitive.reached(loop.params, [True, False])
          [True, False]
        """
        return [True]

    def part(self, equation: Equation, wanted: Sequence[bool]) -> Equation:
        """Return the equation for some of its results, if they may need fewer operands; else the whole
        equation. A primitive that overrides `reached` overrides this too.

        Example:
          >>> import functrans as ft, functrans.numpy as jnp
          >>> def step(total, x):
          ...     return total + x, x
          >>> loop = ft.make_ir(lambda x: ft.lax.scan(step, 0.0, x))(jnp.ones(3)).equations[0]
          >>> loop.primitive.part(loop, [True, False])
          <f32[] = scan ~f32[] f32[3]>
        """
        return equation

    def short_params(self, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return short text for some parameters ("" for none), and the other parameters by name.

        Example:
          >>> import functrans as ft, functrans.numpy as jnp
          >>> product = ft.make_ir(jnp.matmul)(jnp.ones((2, 3)), jnp.ones((3, 4))).equations[0]
          >>> product.primitive.short_params(product.params)
          ('ik,kj->ij', {})
        """
        return "", params

    def read_params(self, short: str) -> dict[str, Any]:
        """Parse the text of `short_params`; raise ValueError if it is invalid.

        Example:
          >>> from functrans.ir import PRIMITIVES
          >>> PRIMITIVES["dot_general"].read_params("ik,kj->ij")
          {'lhs': (0, 2), 'rhs': (2, 1), 'out': (0, 1)}
        """
        raise ValueError(f"{self.name} takes its parameters by name")

    # --- helpers ----------------------------------------------------------------------------------

    def linear_positions(self, n_args: int) -> Sequence[int]:
        """Return the positions of the linear operands among `n_args`.

        Example:
          >>> from functrans.ir import PRIMITIVES
          >>> [list(PRIMITIVES[name].linear_positions(3)) for name in ("mul", "concatenate")]
          [[0, 1], [0, 1, 2]]
        """
        return self.linear_in if self.linear_from is None else range(self.linear_from, n_args)

    def result_types(self, types: Sequence[ArrayType], params: dict[str, Any]) -> tuple[Any, ...]:
        if self.takes and len(types) == 1:
            self.check_dtype(types)
        for name in self.axis_params or ():
            axes, ndim = params.get(name, ()), types[0].ndim if types else 0
            each = axes if axes.__class__ is tuple else (axes,)
            if len(set(each)) < len(each) or not all([0 <= a < ndim for a in each]):
                where = f"must {'be distinct and ' * (each is axes)}lie in 0..{ndim - 1}"
                problem = f"{name} {axes} {where if ndim else 'of a scalar, which has no axes'}"
                raise self.mismatch(types, problem, error=errors.InvalidArgument)
        out = self.abstract_eval(*types, **params)
        return tuple(out) if self.multiple_results else (out,)

    def mismatch(
        self,
        types: Sequence[ArrayType],
        problem: str,
        fix: str = "",
        error: Callable[[str], Exception] = errors.TypeMismatch,
    ) -> Exception:
        """Return the error for invalid operands: operation, types, the user's line, a fix.

        Example:
          >>> import numpy as np
          >>> from functrans.ir import PRIMITIVES, ArrayType
          >>> vector = ArrayType((3,), np.dtype("float32"))
          >>> print(PRIMITIVES["cholesky"].mismatch([vector], "takes matrices"))
          cholesky(f32[3]): takes matrices, at...
        """
        shown = ", ".join(map(str, types))
        return error(f"{self.name}({shown}): {problem}, {here()}" + (f"\n{fix}" if fix else ""))

    def check_dtype(self, types: Sequence[ArrayType]) -> None:
        for d in [t.dtype for t in types]:
            if dtype_class(d) not in self.takes:
                name, fix = ("float0", OF_FLOAT0) if d == float0 else (d, "Cast with x.astype(...) first.")
                problem = f"takes operands of dtype {', '.join(self.takes)}, not {name}"
                raise self.mismatch(types, problem, fix)

    def check_one_dtype(self, types: Sequence[ArrayType], what: str = "operands") -> None:
        dtypes = dict.fromkeys([t.dtype for t in types])
        if len(dtypes) > 1:
            problem = f"{what} must have equal dtypes, got {' and '.join(map(str, dtypes))}"
            fix = "Cast one with x.astype(...) (the functions of functrans.numpy promote)."
            raise self.mismatch(types, problem, fix)

    def missing(self, rule: str) -> Exception:
        where = f"{type(self).__module__.replace('.', '/')}.py"
        advice = {
            "jvp": "Define `jvp` in its class, or declare `linear_in` if it is linear.",
            "transpose": "Define `transpose` in its class; only operations that are linear in an "
            "operand need it.",
            "batch": "Define `batch` in its class.",
        }
        return errors.MissingRule(
            f"the primitive {self.name} has no rule `{rule}`, {here()}\n"
            f"{advice.get(rule, 'It is mandatory.')} Its class is in {where}."
        )


def sum_of(x: Any, y: Any) -> Any:
    """Return x + y for tangents or cotangents; None is zero."""
    if x is None:
        return y
    return x if y is None else bind(PRIMITIVES["add"], (x, y), {})


def is_zero(x: Any) -> bool:
    """Return whether a value is a literal of zeros."""
    return x.__class__ is Literal and x.value == 0


def type_of(x: Any) -> ArrayType:
    return x.type if isinstance(x, LinearInput) else typeof(x)


def bytes_of(*types: ArrayType) -> int:
    return sum([t.size * getattr(t.dtype, "itemsize", 4) for t in types])


def past_batch_axis(primitive: Primitive, d: int, params: Params, size: int = 0) -> Params:
    """Return the parameters for operands with one more axis of a size, at d: their `axis_params` are
    moved, `per_axis` has an entry for it."""
    moved = dict(params)
    for name, whole in primitive.per_axis.items():
        entries = params[name]
        moved[name] = (*entries[:d], size if whole is None else whole, *entries[d:])
    for name in primitive.axis_params or ():
        axes = params[name]
        moved[name] = axes + (axes >= d) if isinstance(axes, int) else tuple([a + (a >= d) for a in axes])
    return moved


# --- what is inside of programs -------------------------------------------------------------------


@memoized
def axes_inside(program: Program) -> set[Any]:
    """Return the mapped axes used by name in a program."""
    return set().union(*[e.primitive.named_axes(e.params) for e in program.equations])


@memoized
def effects_inside(program: Program) -> bool:
    """Return whether an equation of a program must run even if its results are unused."""
    return any(e.primitive.has_effects(e.params) for e in program.equations)


# --- higher-order primitives: loops, branches, calls, callbacks to JAX and Python -----------------
#
# They define `interpret` instead of `reference`, `differentiate` instead of `jvp`, and
# `transpose_with` instead of `transpose`. Their rules receive the running transformation `t`, which
# transforms their bodies, so this layer need not import the transformations.


class HigherOrderPrimitive(Primitive):
    """Base class of primitives whose parameters hold programs. They have a list of results."""

    multiple_results = holds_programs = True
    mandatory: tuple[str, ...] = ("abstract_eval", "interpret", "lower")
    push: Any = None  # forward mode and Taylor mode; see control_flow/loop_layout.py

    def check_takes(self, types: Sequence[Any], given: Sequence[Any], name: str, program: Program) -> None:
        """Raise unless a program takes operands of the types `given`, among those of the equation."""
        if not same_types(given, program.in_types):
            raise self.mismatch(types, f"{name} takes ({', '.join(map(str, program.in_types))})")

    @owed
    def interpret(self, run: Any, values: Values, params: Params) -> Sequence[Any]:
        """Return the results on NumPy arrays. `run(program, values)` runs a program, `run(program,
        values, i)` runs it as step i of a loop."""
        raise self.missing("interpret")

    def run_eagerly(self, values: Values, params: Params) -> Any:
        """Return the results on concrete arrays, if `runs_eagerly` is set."""
        raise self.missing("run_eagerly")

    def record(self, trace: Any, own: bool, args: Values, params: Params) -> Any:
        """Trace the function to a Program and bind with it, if `holds_functions` is set. `own`: an
        operand is a tracer of the recording trace."""
        raise self.missing("record")

    def named_axes(self, params: dict[str, Any]) -> Container[Any]:
        return set().union(*map(axes_inside, programs_among(params)))

    def has_effects(self, params: dict[str, Any]) -> bool:
        return any(map(effects_inside, programs_among(params)))
