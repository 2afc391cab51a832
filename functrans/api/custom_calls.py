"""One call of a function with a custom rule: converts between pytrees and flat lists.

Call         the treedefs, types and static arguments of one call
JvpCall      `function` and rule of a custom_jvp call, for primitives/custom/tracing.py
VjpCall      `function` and rule of a custom_vjp call
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero

from functrans import errors
from functrans import pytrees as tree
from functrans.api.arguments import OF_PYTHON, Apart, as_array, instantiate
from functrans.api.static_arguments import joined
from functrans.ir.source import Source, brief, brief_with_type, describe, user_source
from functrans.ir.types import ArrayType, dtype_class, is_inexact
from functrans.lax.elementwise import stop_gradient
from functrans.primitives.custom.calls import custom_jvp_call, custom_vjp_call
from functrans.primitives.custom.tracing import JvpRule, Pullback, VjpRule, closed_over
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.pytrees.functions import check_result, function_name, refused, where_defined
from functrans.trace import AnyTracer, bind, materialize, state, typeof
from functrans.tracer import is_active


def unflatten(structure: Any, leaves: Sequence[Any]) -> Any:
    """Unflatten leaves, with literals materialized as arrays."""
    return tree.unflatten(structure, [materialize(x) for x in leaves])


class Call:
    """One call: its static arguments by position, the leaves of its dynamic ones as a flat list."""

    primitive: Any
    rule: Any  # JvpRule, VjpRule: of the method `run`
    run: Callable[..., Any]
    leaves: list[Any]
    in_tree: Any

    def __init__(self, fun: Callable[..., Any], symbolic: bool, args: tuple[Any, ...], static: Sequence[int]):
        self.fun = fun
        self.symbolic = symbolic
        self.name: str = function_name(fun)
        self.source: Source | None = user_source()
        self.static: list[tuple[int, Any]] = [(i, args[i]) for i in static]
        # a rule may outlive the call, so keep no arrays here
        dynamic = tuple([x for i, x in enumerate(args) if i not in static])
        self.leaves, self.in_tree = tree.flatten(dynamic)
        self.types: tuple[ArrayType, ...] = tuple([typeof(x) for x in self.leaves])
        self.out_tree: Any = None

    def statics(self) -> list[Any]:
        return [x for _, x in self.static]

    def zero(self, t: ArrayType) -> Any:
        """Return the zero tangent or cotangent of a type as the rule takes it."""
        if not self.symbolic:
            return instantiate(None, t)
        t = t.tangent()
        return SymbolicZero(jax.core.ShapedArray(t.shape, t.dtype, weak_type=t.weak_type))

    def full(self, leaves: Sequence[Any]) -> list[Any]:
        """Return all arguments, with the dynamic ones made of these leaves."""
        return joined(self.static, unflatten(self.in_tree, leaves))

    def function(self, *leaves: Any) -> list[Any]:
        """Call the user's function on flat values."""
        return self.results(self.fun(*self.full(leaves)), self.fun)

    def results(self, out: Any, fun: Any) -> list[Any]:
        """Flatten and check the output of the function, or of a rule that replaces it."""
        outs, structure = tree.flatten(out)
        for i, y in enumerate(outs):
            check_result(fun, y, out, i)
        if self.out_tree is None:
            self.out_tree = structure
        elif structure != self.out_tree:
            raise self.mismatch(
                fun,
                f"returned an output with the structure {tree.spelled(structure)}, but "
                f"{self.name} returned {tree.spelled(self.out_tree)}",
            )
        return [as_array(y) for y in outs]

    def mismatch(self, rule: Any, what: str, error: type[Exception] = errors.RuleMismatch) -> Exception:
        """Return the error for a wrong result of a rule; it shows the lines of rule and call."""
        return error(
            f"{function_name(rule)}, a custom rule of {self.name}, {what}.\n"
            f"The rule is defined at {where_defined(rule)}\nand {self.name} was called at\n"
            f"    {describe(self.source)}"
        )

    def asked(self, rule: Any, how: str, *args: Any) -> Any:
        """Call a rule; raise a `mismatch` error if it does not accept these arguments."""
        try:
            return rule(*args)
        except TypeError as error:
            if not refused(error, rule):
                raise
            takes = str(error).partition("() ")[2]
            raise self.mismatch(rule, f"is called with {how}, but it {takes}") from None

    def pair(self, rule: Any, out: Any, of: str) -> Any:
        """Check that a rule returned a pair, and return it."""
        if not isinstance(out, (tuple, list)) or len(out) != 2:
            raise self.mismatch(rule, f"must return a pair {of}, got {brief(out)}")
        return out

    def operands(self) -> list[Any]:
        return self.leaves

    def bind(self) -> Any:
        """Bind the custom-call primitive with the function and its rule."""
        around, operands = state.trace, self.operands()
        del self.leaves
        try:
            outs = bind(
                self.primitive, operands, {"program": self.function, "rule": self.rule(self.run, self.name)}
            )
        except errors.LeakedTracer as error:
            if not is_active(error.owner, around, state.below):
                raise
            raise closed_over(self.name) from None
        return tree.unflatten(self.out_tree, outs)


class JvpCall(Call):
    """A call of a custom_jvp function. Tracers among its static arguments become operands with zero
    tangents; they come first."""

    primitive, rule = custom_jvp_call, JvpRule

    def __init__(self, fun: Any, jvp: Any, symbolic: bool, args: tuple[Any, ...], static: Sequence[int]):
        super().__init__(fun, symbolic, args, static)
        self.jvp = jvp
        self.static_tree: Any
        leaves, self.static_tree = tree.flatten(self.statics())
        self.apart: Apart = Apart(leaves, lambda x: not isinstance(x, AnyTracer))
        self.traced: list[Any] = self.apart.arrays(leaves)

    def operands(self) -> list[Any]:
        return [*map(stop_gradient, self.traced), *self.leaves]

    def _split(self, values: Sequence[Any]) -> tuple[list[Any], Sequence[Any]]:
        """Split operands into (static arguments, leaves of the dynamic arguments)."""
        n = len(self.traced)
        if n == 0:
            return self.statics(), values
        return unflatten(self.static_tree, self.apart(values[:n])), values[n:]

    def function(self, *values: Any) -> list[Any]:
        statics, leaves = self._split(values)
        static = [(i, x) for (i, _), x in zip(self.static, statics, strict=True)]
        return self.results(self.fun(*joined(static, unflatten(self.in_tree, leaves))), self.fun)

    def run(self, values: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        statics, primals = self._split(values)
        pairs = zip(primals, tangents[len(self.traced) :], strict=True)
        given = [self.zero(typeof(x)) if dx is None else dx for x, dx in pairs]
        moving = unflatten(self.in_tree, primals), unflatten(self.in_tree, given)
        out = self.asked(self.jvp, "(*nondiff, primals, tangents)", *statics, *moving)
        y, dy = self.pair(self.jvp, out, "(primal output, tangent output)")
        outs = self.results(y, self.jvp)
        moved, structure = tree.flatten(dy)
        if structure != self.out_tree:
            raise self.mismatch(
                self.jvp,
                f"must return a tangent output with the structure of its primal output, "
                f"{tree.spelled(self.out_tree)}, got {tree.spelled(structure)}",
            )
        return outs, [self._checked(a, b) for a, b in zip(outs, moved, strict=True)]

    def _checked(self, y: Any, dy: Any) -> Any:
        wanted = typeof(y).tangent()
        zero = isinstance(dy, SymbolicZero) or getattr(dy, "dtype", None) == jax.dtypes.float0
        dy = dy if zero else as_array(dy)
        have = ArrayType(dy.shape, dy.dtype) if zero else typeof(dy)
        if not have.same(wanted):
            raise self.mismatch(
                self.jvp,
                f"returned a primal output {typeof(y)}, so it must return a tangent "
                f"output of type {wanted}, got {have}",
            )
        return None if zero else dy


class VjpCall(Call):
    primitive, rule = custom_vjp_call, VjpRule

    def __init__(
        self, fun: Any, fwd: Any, bwd: Any, symbolic: bool, args: tuple[Any, ...], static: Sequence[int]
    ):
        super().__init__(fun, symbolic, args, static)
        self.fwd = fwd
        self.bwd = bwd
        for x in tree.leaves(self.statics()):
            if isinstance(x, AnyTracer):
                raise errors.ClosedOverTracer(
                    f"{self.name} was given a traced {typeof(x)} as an argument in "
                    f"nondiff_argnums={tuple(static)}, at\n    {describe(self.source)}\n"
                    "nondiff_argnums is for functions and options. Make it an ordinary argument; "
                    "if it has no derivative, bwd returns None for it."
                )

    def run(self, primals: Sequence[Any], active: tuple[bool, ...]) -> tuple[list[Any], list[Any], Pullback]:
        given = primals
        if self.symbolic:
            given = [CustomVJPPrimal(materialize(x), a) for x, a in zip(primals, active, strict=True)]
        out = self.asked(self.fwd, "(*args)", *self.full(given))
        y, res = self.pair(self.fwd, out, "(output, residuals)")
        outs = self.results(y, self.fwd)
        residuals, res_tree = tree.flatten(res)
        for i, x in enumerate(residuals):
            try:
                typeof(x)
            except errors.NotAnArray:
                path = tree.path_names(res, "residuals")[i]
                what = f"returned {brief_with_type(x)} at {path}; residuals must be pytrees of arrays"
                raise self.mismatch(self.fwd, f"{what}. Pass options with nondiff_argnums") from None
        kept = Apart(residuals, lambda x: isinstance(x, OF_PYTHON))  # which bwd gets as they are
        arrays = [as_array(x) for x in kept.arrays(residuals)]
        out_types = tuple([typeof(x) for x in outs])

        def backward(values: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
            given = [self.zero(t) if c is None else c for c, t in zip(cts, out_types, strict=True)]
            moving = unflatten(res_tree, kept(values)), unflatten(self.out_tree, given)
            found = self.asked(self.bwd, "(*nondiff, residuals, ct)", *self.statics(), *moving)
            pairs = zip(self._cotangent_leaves(found), self.types, strict=True)
            return [self._checked(c, t, i) for i, (c, t) in enumerate(pairs)]

        types = tuple([typeof(x) for x in primals])
        return outs, arrays, Pullback(backward, self.name, types, out_types)

    def _cotangent_leaves(self, found: Any) -> list[Any]:
        """Return one cotangent per leaf of the arguments. None means zero for a whole subtree."""
        if isinstance(found, list) and len(found) == len(self.in_tree.children()):
            found = tuple(found)
        slots = tree.unflatten(self.in_tree, [object()] * len(self.types))
        try:
            if not isinstance(found, tuple):
                raise ValueError
            return tree.spread(found, slots, lambda c: c is None)
        except ValueError:
            raise self.mismatch(
                self.bwd,
                "must return a tuple with one cotangent per argument, with the "
                f"structure {tree.spelled(self.in_tree)}, got {tree.spelled(tree.structure(found))}",
            ) from None

    def _checked(self, ct: Any, t: ArrayType, i: int) -> Any:
        if ct is None or not is_inexact(t.dtype):
            return None
        symbolic = isinstance(ct, SymbolicZero)
        have = ArrayType(ct.shape, ct.dtype) if symbolic else typeof(ct)
        loses = dtype_class(have.dtype) == "complex" and dtype_class(t.dtype) != "complex"
        if have.shape != t.shape or loses or dtype_class(have.dtype) in ("float0", "key"):
            name = tree.path_names(tree.unflatten(self.in_tree, self.types), "args")[i]
            what = f"returned a cotangent of type {have} for {name} of type {t}; "
            what += "the shapes and dtypes must match"
            raise self.mismatch(self.bwd, what, errors.CotangentMismatch)
        if symbolic:
            return None
        ct = as_array(ct)
        return ct if have.dtype == t.dtype else convert_element_type(ct, dtype=t.dtype)
