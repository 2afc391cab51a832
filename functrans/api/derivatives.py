"""`jvp`, `vjp`, `grad` and their relatives: flatten, differentiate, unflatten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, overload

import jax
import numpy as np
from jax.tree_util import Partial, register_pytree_node_class

from functrans import errors, runtime
from functrans import pytrees as tree
from functrans.api.arguments import (
    Chosen,
    Taken,
    as_arrays,
    check_callable,
    check_loss,
    check_tuples,
    instantiate,
    results,
)
from functrans.ir.program import Program, hoist_constants
from functrans.ir.source import here
from functrans.ir.tracebacks import boundary
from functrans.ir.types import ArrayType, is_inexact
from functrans.lax.staging import or_by_jax
from functrans.primitives.dependence import restricted, spread
from functrans.pytrees.functions import FlatFunction, argument_names, function_name, named_after
from functrans.records import NamedTuple
from functrans.trace import evaluate, literal, stage, typeof
from functrans.tracer import type_like
from functrans.transforms.jvp import run_dual, run_linearize
from functrans.transforms.transpose import Linear, backward
from functrans.typing import PyTree

_P = ParamSpec("_P")
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_Aux = TypeVar("_Aux")
_jax: Any = jax  # whose overloads take no `has_aux: bool`, and whose `ad` has no types

_TYPE, _SHAPE, _VALUE = errors.TypeMismatch, errors.ShapeMismatch, errors.InvalidArgument
_OF_JVP = Taken("jvp", "tangent", "primal", _TYPE, _SHAPE, _TYPE)
_OF_LINEARIZED = Taken("the function from linearize", "tangent", "primal", _TYPE, _SHAPE, _VALUE)
_OF_PULLBACK = Taken("a vjp function", "cotangent", "result", _VALUE, _VALUE, _VALUE)
_OF_TRANSPOSED = Taken("a transposed function", "cotangent", "result", _TYPE, _TYPE, _TYPE)


@overload
def jvp(
    fun: Callable[..., _R],
    primals: Sequence[PyTree],
    tangents: Sequence[PyTree],
    has_aux: Literal[False] = False,
) -> tuple[_R, _R]: ...
@overload
def jvp(
    fun: Callable[..., tuple[_R, _Aux]],
    primals: Sequence[PyTree],
    tangents: Sequence[PyTree],
    has_aux: Literal[True],
) -> tuple[_R, _R, _Aux]: ...
@overload
def jvp(
    fun: Callable[..., PyTree], primals: Sequence[PyTree], tangents: Sequence[PyTree], has_aux: bool
) -> tuple[PyTree, ...]: ...
@boundary
@or_by_jax(
    lambda fun, primals, tangents, has_aux=False: jax.jvp(fun, tuple(primals), tuple(tangents), has_aux)
)
def jvp(
    fun: Callable[..., PyTree], primals: Sequence[PyTree], tangents: Sequence[PyTree], has_aux: bool = False
) -> tuple[PyTree, ...]:
    """Evaluate a function and its directional derivative, in forward mode.

    Arguments:
      fun: function of pytrees of arrays.
      primals: tuple of the arguments at which to differentiate.
      tangents: tuple with the structure, shapes and dtypes of `primals` (float0 for integers).
      has_aux: `fun` returns `(out, aux)`; aux is not differentiated.

    Returns:
      `(out, tangent_out)`, or `(out, tangent_out, aux)` if `has_aux`.

    Raises:
      TypeMismatch: a tangent does not match its primal.

    Source: `jax.jvp`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> y, dy = ft.jvp(lambda x: x * x, (3.0,), (1.0,))
      >>> print(y, dy)
      9.0 6.0
    """
    check_callable(fun, "jvp")
    check_tuples("jvp", "jvp(f, (x,), (dx,))", primals=primals, tangents=tangents)
    leaves, in_tree = tree.flatten((tuple(primals), {}))
    leaves = as_arrays(leaves, lambda: tree.path_names(tuple(primals), "primals"))
    types = [typeof(x) for x in leaves]
    moving = _OF_JVP.flatten(tuple(tangents), in_tree.children()[0], types)
    flat = FlatFunction(fun, in_tree, has_aux=has_aux)
    outs, out_tangents = run_dual(flat, leaves, moving)
    out, aux = results(flat, outs)
    moved = [instantiate(t, typeof(y)) for t, y in zip(out_tangents, outs, strict=False)]
    dout = tree.unflatten(flat.out_tree, moved[: flat.out_tree.num_leaves])
    return (out, dout, aux) if has_aux else (out, dout)


class LinearFunction(Protocol[_R_co]):
    """The linearization at a point: a function of tangents, with its Program as an attribute."""

    program: Program

    def __call__(self, *tangents: PyTree) -> _R_co: ...


@overload
def linearize(
    fun: Callable[..., _R], *primals: PyTree, has_aux: Literal[False] = False
) -> tuple[_R, LinearFunction[_R]]: ...
@overload
def linearize(
    fun: Callable[..., tuple[_R, _Aux]], *primals: PyTree, has_aux: Literal[True]
) -> tuple[_R, LinearFunction[_R], _Aux]: ...
@overload
def linearize(fun: Callable[..., PyTree], *primals: PyTree, has_aux: bool) -> tuple[PyTree, ...]: ...
@boundary
@or_by_jax(lambda *primals, **how: _jax.linearize(*primals, **how))
def linearize(fun: Callable[..., PyTree], *primals: PyTree, has_aux: bool = False) -> tuple[PyTree, ...]:
    """Evaluate a function, and return its linearization at that point.

    Arguments:
      fun: function of pytrees of arrays.
      *primals: arguments at which to linearize.
      has_aux: `fun` returns `(out, aux)`.

    Returns:
      `(out, f_jvp)`, or `(out, f_jvp, aux)` if `has_aux`. `f_jvp(*tangents)` may be called many
      times; `f_jvp.program` is the linear Program, whose constants are the residuals. `f_jvp` is a
      `jax.tree_util.Partial`, a pytree whose leaves are the residuals.

    Source: `jax.linearize`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> y, f_jvp = ft.linearize(lambda x: x * x, 3.0)
      >>> print(f_jvp(1.0))
      6.0
    """
    check_callable(fun, "linearize")
    out, aux, linear, signature = _linearized(fun, primals, has_aux)
    types, active, in_tree, out_tree = signature
    program = linear.program()
    run, residuals = hoist_constants(program)

    @boundary
    def linearized(residuals: Sequence[Any], *tangents: Any) -> Any:
        given = _OF_LINEARIZED.flatten(tangents, in_tree.children()[0], types)
        moving = zip(compress(given, active), linear.inputs, strict=True)
        found = evaluate(run, [*residuals, *[literal(0, v.type) if t is None else t for t, v in moving]])
        pairs = zip(found, linear.out_types[: out_tree.num_leaves], strict=False)
        moved = [instantiate(t if is_inexact(y.dtype) else None, y) for t, y in pairs]
        return tree.unflatten(out_tree, moved)

    f_jvp: Any = Partial(linearized, residuals)
    f_jvp.program = program
    return (out, f_jvp, aux) if has_aux else (out, f_jvp)


@overload
def vjp(fun: Callable[..., _R], *primals: PyTree, has_aux: Literal[False] = False) -> tuple[_R, Pullback]: ...
@overload
def vjp(
    fun: Callable[..., tuple[_R, _Aux]], *primals: PyTree, has_aux: Literal[True]
) -> tuple[_R, Pullback, _Aux]: ...
@overload
def vjp(fun: Callable[..., PyTree], *primals: PyTree, has_aux: bool) -> tuple[PyTree, ...]: ...
@boundary
@or_by_jax(lambda *primals, **how: _jax.vjp(*primals, **how))
def vjp(fun: Callable[..., PyTree], *primals: PyTree, has_aux: bool = False) -> tuple[PyTree, ...]:
    """Evaluate a function, and return its pullback (vector-Jacobian product) at that point.

    Arguments:
      fun: function of pytrees of arrays.
      *primals: arguments at which to differentiate.
      has_aux: `fun` returns `(out, aux)`.

    Returns:
      `(out, pullback)`, or `(out, pullback, aux)` if `has_aux`. `pullback(ct)` takes a cotangent
      with the structure and types of `out`, and returns a tuple of cotangents, one per primal. It
      may be called many times. It is a pytree whose leaves are the residuals, so it can be an
      argument or result of a jitted function.

    Raises:
      TypeMismatch: (from the pullback) the cotangent does not match the output.

    Source: `jax.vjp`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> y, pullback = ft.vjp(lambda a, b: a * b, 2.0, 5.0)
      >>> a_bar, b_bar = pullback(1.0)
      >>> print(a_bar, b_bar)
      5.0 2.0
    """
    check_callable(fun, "vjp")
    out, aux, linear, signature = _linearized(fun, primals, has_aux)
    pullback = Pullback(linear.pruned(), signature)  # prune: it may be long-lived
    return (out, pullback, aux) if has_aux else (out, pullback)


@boundary
def grad(
    fun: Callable[_P, PyTree],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[_P, PyTree]:
    """Return a function that computes the gradient of `fun`, in reverse mode.

    Arguments:
      fun: function of pytrees of arrays that returns a real scalar, of shape `()`.
      argnums: position or positions of the arguments to differentiate with respect to.
      has_aux: `fun` returns `(loss, aux)`, and the gradient function returns `(gradient, aux)`.
      holomorphic: `fun` is holomorphic: its arguments and its result are complex.
      allow_int: return a float0 gradient for integer arguments instead of raising an error.

    Returns:
      A function of the same arguments that returns the gradient, with the structure of the argument
      (a tuple of gradients if `argnums` is a sequence).

    Raises:
      NonScalarLoss: the result is not a scalar.
      NonDifferentiable: an argument or the result has an integer or boolean dtype.

    Source: `jax.grad`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.grad(lambda w: jnp.sum(w ** 2))(jnp.array([1.0, 2.0])))
      [2. 4.]
    """
    check_callable(fun, "grad")
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)

    @named_after(fun)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, g = both(*args, **kwargs)
        return (g, value[1]) if has_aux else g

    return gradient


@boundary
def value_and_grad(
    fun: Callable[_P, _R],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[_P, tuple[_R, PyTree]]:
    """Return a function that computes both the value and the gradient of `fun`.

    Arguments, errors: as in `grad`.

    Returns:
      A function that returns `(value, gradient)`; `((value, aux), gradient)` if `has_aux`.

    Source: `jax.value_and_grad`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> value, g = ft.value_and_grad(lambda x: x * x)(3.0)
      >>> print(value, g)
      9.0 6.0
    """
    argument = Chosen("value_and_grad", fun, argnums)

    @named_after(fun)
    @or_by_jax(
        lambda *xs, **how: jax.value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)(*xs, **how)
    )
    def both(*args: Any, **kwargs: Any) -> Any:
        inner, given = argument.split(args, kwargs)
        found = _linearized(inner, given, has_aux, argument, holomorphic=holomorphic, allow_int=allow_int)
        value, aux, linear, signature = found
        check_loss(fun, value, holomorphic)
        grads = argument.by_argument(signature.cotangents(linear, [literal(1, linear.out_types[0])]))
        return ((value, aux) if has_aux else value), grads

    return both


@boundary
@or_by_jax(lambda *primals: jax.linear_transpose(*primals))
def linear_transpose(fun: Callable[..., PyTree], *primals: PyTree) -> Callable[[PyTree], tuple[PyTree, ...]]:
    """Return the transpose of a linear function.

    Arguments:
      fun: linear function of pytrees of arrays.
      *primals: example arguments; only their shapes and dtypes are read, so `ShapeDtypeStruct`s
        will do.

    Returns:
      A function from a cotangent of the output to a tuple of cotangents, one per argument: a
      `jax.tree_util.Partial`, whose leaves are the arrays that `fun` closes over.

    Raises:
      NotLinear: the function is not linear.
      TypeMismatch: the cotangent does not match the output.

    Source: `jax.linear_transpose`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> f_t = ft.linear_transpose(lambda x: 2.0 * x, 1.0)
      >>> print(f_t(3.0)[0])
      6.0
    """
    leaves, in_tree = tree.flatten((primals, {}))
    types = [type_like(x) for x in leaves]
    if types and all([np.issubdtype(t.dtype, np.integer) for t in types]):
        return jax.linear_transpose(fun, *primals)
    for t in types:
        if not is_inexact(t.dtype):
            raise errors.NonDifferentiable(
                f"linear_transpose takes floating point arguments, or integers only, not {t}, {here()}"
            )
    flat = FlatFunction(fun, in_tree)
    program, captured = hoist_constants(stage(flat, types, function_name(fun)))
    program = restricted(program, [True] * len(program.inputs), [True] * len(program.outputs))
    out_tree, linear = flat.out_tree, (False,) * len(captured) + (True,) * len(types)

    @boundary
    def transposed(captured: Sequence[Any], ct: Any) -> Any:
        cts = _OF_TRANSPOSED.flatten(ct, out_tree, program.out_types)
        back = runtime.transpose_program(program, linear, tuple([c is not None for c in cts]))
        found = evaluate(back, [*captured, *[c for c in cts if c is not None]])
        return tree.unflatten(in_tree, [instantiate(c, t) for c, t in zip(found, types, strict=True)])[0]

    return Partial(transposed, captured)


# --- the pullback that `vjp` returns --------------------------------------------------------------


class Signature(NamedTuple):
    """Types and treedefs of the arguments and results of a pullback. The results of its linear map
    may be more: those of aux follow."""

    types: Sequence[ArrayType]  # of the primals
    active: Sequence[bool]
    in_tree: Any
    out_tree: Any

    def cotangents(self, linear: Linear, cts: Sequence[Any]) -> tuple[Any, ...]:
        """Return the cotangents of the primals, given those of the results."""
        padded = [*cts, *[None] * (len(linear.outputs) - len(cts))]
        found = spread(backward(linear.equations, linear.inputs, linear.outputs, padded), self.active)
        return tree.unflatten(self.in_tree, map(instantiate, found, self.types))[0]


def _linearized(
    fun: Any, primals: tuple[Any, ...], has_aux: bool, chosen: Chosen | None = None, **how: bool
) -> tuple[Any, Any, Linear, Signature]:
    """Call a function; return its result and aux, the linear map, and the signature of its pullback.
    `chosen`: the arguments that the user chose, checked with the options `how`."""
    leaves, in_tree = tree.flatten((primals, {}))
    leaves = as_arrays(
        leaves, lambda: chosen.names(primals) if chosen else argument_names(fun, enumerate(primals))
    )
    types = [typeof(x) for x in leaves]
    if chosen is not None:
        chosen.check(primals, types, **how)
    flat = FlatFunction(fun, in_tree, has_aux=has_aux)
    active = [is_inexact(t.dtype) for t in types]
    outs, linear = run_linearize(flat, leaves, types, active)
    return *results(flat, outs), linear, Signature(types, active, in_tree, flat.out_tree)


def _put(place: Any, ct: Any) -> Any:
    """Put a cotangent where `with_refs` says; return what JAX returns in its place."""
    if isinstance(place, jax.Ref):
        jax.ref.addupdate(place, ..., ct)
        return _jax.ad.GradRef()
    return _jax.ad.DidntWant() if isinstance(place, _jax.ad.DontWant) else ct


@dataclass(eq=False)
class _Skeleton:
    """A pullback without its residuals, compared by identity, like a program."""

    linear: Linear
    names: Sequence[Any]  # the variables of the residuals in its equations
    signature: Signature


@register_pytree_node_class
class Pullback:
    """Map the cotangent of a result to those of the primals, one per argument.

    It is also a pytree of its residuals, so that it can be passed through `jit`, `vmap` and `scan`, as
    in JAX. The residuals are stored in its equations and extracted when it is flattened.
    """

    __slots__ = ("__weakref__", "_apart", "_linear", "_signature")

    @property
    def __name__(self) -> str:
        return "pullback"

    def __init__(self, linear: Linear, signature: Signature):
        self._linear = linear
        self._signature = signature
        self._apart: tuple[Sequence[Any], _Skeleton] | None = None

    @boundary
    def __call__(self, *given: PyTree) -> tuple[PyTree, ...]:
        out_tree, linear = self._signature.out_tree, self._linear
        if len(given) != 1:
            raise errors.NotAnArray(
                f"a vjp function takes one argument, the cotangent of a result, got {len(given)}, {here()}\n"
                "Pass the cotangents of several results in the structure of the result: pullback((a, b))."
            )
        cts = _OF_PULLBACK.flatten(given[0], out_tree, linear.out_types[: out_tree.num_leaves])
        return self._signature.cotangents(linear, cts)

    @boundary
    def with_refs(self, *places: PyTree) -> Callable[..., tuple[PyTree, ...]]:
        """Return the pullback that adds cotangents to references (`jax.new_ref`), as JAX's does.

        Arguments:
          places: one per argument, a tree like it. Where a leaf is a reference, the cotangent is added
            to it; where it is `jax.ad.DontWant()`, it is left out; where `jax.ad.GradValue()`, returned.
        """
        leaves, structure = tree.flatten(places)
        wanted = self._signature.in_tree.children()[0]
        if structure != wanted:
            raise errors.InvalidArgument(
                f"with_refs: the arguments must have the structure of the primals, "
                f"{tree.spelled(wanted)}, got {tree.spelled(structure)}, {here()}\n"
                "Pass a reference, jax.ad.GradValue() or jax.ad.DontWant() for each array."
            )

        @boundary
        def adding(*given: PyTree) -> tuple[PyTree, ...]:
            return tree.unflatten(wanted, map(_put, leaves, tree.leaves(self(*given))))

        return adding

    def tree_flatten(self) -> tuple[Sequence[Any], _Skeleton]:
        if self._apart is None:
            linear, names, residuals = self._linear.apart()
            self._apart = residuals, _Skeleton(linear, names, self._signature)
        return self._apart

    @classmethod
    def tree_unflatten(cls, skeleton: _Skeleton, residuals: Sequence[Any]) -> Pullback:
        made = cls(skeleton.linear.filled(skeleton.names, residuals), skeleton.signature)
        made._apart = residuals, skeleton
        return made
