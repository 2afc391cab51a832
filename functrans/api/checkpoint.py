"""`checkpoint` (`remat`), and lists of the residuals that reverse mode saves."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict, Unpack, overload

import jax

from functrans import errors
from functrans import pytrees as tree
from functrans.api.arguments import check_callable
from functrans.api.static_arguments import StaticArguments
from functrans.caching import exactly
from functrans.ir.program import Program, Var
from functrans.ir.source import brief, here, location
from functrans.ir.tracebacks import boundary
from functrans.ir.types import ArrayType, is_inexact
from functrans.lax.staging import array_leaves, or_by_jax, staged
from functrans.primitives.calls.checkpoint import checkpoint as _checkpoint
from functrans.pytrees.functions import FlatFunction, argument_names, function_name, named_after
from functrans.runtime import F
from functrans.trace import stage, typeof
from functrans.transforms.jvp import split
from functrans.typing import PyTree

Policy = Callable[..., Any]  # (JAX primitive, *operand types, **parameters) -> save the result?


class _Options(TypedDict, total=False):
    prevent_cse: bool
    policy: Policy | None
    static_argnums: int | Sequence[int] | None
    static_argnames: str | Iterable[str] | None


@overload
def checkpoint(fun: F, **options: Unpack[_Options]) -> F: ...
@overload
def checkpoint(fun: None = None, **options: Unpack[_Options]) -> Callable[[F], F]: ...
@boundary
def checkpoint(
    fun: Callable[..., PyTree] | None = None,
    *,
    prevent_cse: bool = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
) -> Any:
    """Make reverse mode recompute the intermediate values of `fun` instead of saving them.

    Arguments:
      fun: function of pytrees of arrays. Left out: return a decorator.
      prevent_cse: keep XLA's common-subexpression elimination from undoing the recomputation (not
        needed inside `scan`, where False is faster).
      policy: which intermediate values are saved all the same: one of `checkpoint_policies`, or a
        function (JAX primitive, *operand types, **parameters) -> bool. None: save none.
      static_argnums, static_argnames: static arguments; they need not be hashable.

    Returns:
      A function with the same results and derivatives.

    Source: `jax.checkpoint` (Griewank and Walther, 2000).

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> f = ft.checkpoint(lambda x: jnp.sin(jnp.sin(x)))
      >>> print(ft.grad(f)(0.0))
      1.0
    """
    if fun is None:
        return functools.partial(checkpoint, **{k: v for k, v in locals().items() if k != "fun"})
    check_callable(fun, "checkpoint")
    statics = StaticArguments(fun, static_argnums, static_argnames)
    if policy is not None and not callable(policy):
        raise errors.NotAnArray(
            "checkpoint: policy must be a function such as those in checkpoint_policies, got "
            f"{brief(policy)}, {here()}\nWrite policy=ft.checkpoint_policies.dots_saveable."
        )
    how: Any = {"policy": policy, "prevent_cse": bool(prevent_cse)}
    bound: dict[Any, Callable[..., Any]] = {}  # static arguments -> function of the dynamic ones

    def of_dynamic(static: Any) -> Callable[..., Any]:
        made = statics.bound(static)
        try:
            return bound.setdefault(exactly(static), made)
        except TypeError:  # unhashable static arguments are traced every time
            return made

    def call(*args: Any, **kwargs: Any) -> Any:
        static, dynamic = statics.split(args, kwargs)
        leaves, in_tree = array_leaves(dynamic, "(args, kwargs)")
        made = staged(of_dynamic(static), in_tree, [typeof(x) for x in leaves], "checkpoint")
        outs = _checkpoint(*made.captured, *leaves, program=made.program, **how)
        return tree.unflatten(made.out_tree, outs)

    def by_jax(*args: Any, **kwargs: Any) -> Any:
        static, (dynamic, named) = statics.split(args, kwargs)
        return jax.checkpoint(of_dynamic(static), prevent_cse=prevent_cse)(*dynamic, **named)

    return named_after(fun)(call if policy is not None else or_by_jax(by_jax)(call))


remat = checkpoint


# --- residuals ------------------------------------------------------------------------------------


@boundary
def saved_residuals(
    fun: Callable[..., PyTree], *args: PyTree, **kwargs: PyTree
) -> list[tuple[ArrayType, str]]:
    """List the residuals that reverse mode saves of a call: the type and origin of each.

    Source: `jax.ad_checkpoint.saved_residuals`.
    """
    leaves, in_tree = tree.flatten((args, kwargs))
    types = [typeof(x) for x in leaves]
    paths = argument_names(fun, enumerate(args), kwargs)
    program = stage(FlatFunction(fun, in_tree), types, function_name(fun))
    names: dict[Any, str] = {v: f"the argument {p}" for v, p in zip(program.inputs, paths, strict=True)}
    names.update({v: "a constant" for v in program.constants})
    closed = program.replace(inputs=(*program.constants, *program.inputs), constants=(), values=())
    active = tuple([is_inexact(v.type.dtype) and v in program.inputs for v in closed.inputs])
    part = split(closed, active, ())
    inside = {v: names[x] for v, x in zip(part.forward.inputs, closed.inputs, strict=True)}
    return [(v.type, _origin(part.forward, v, inside)) for v in part.residuals]


def _origin(program: Program, v: Any, names: dict[Any, str]) -> str:
    """Describe the user's operation that computed a value, looking inside nested programs."""
    made = {out: (e, i) for e in program.equations for i, out in enumerate(e.outputs)}
    if v not in made:
        return names.get(v, "an argument of a nested function")
    e, i = made[v]
    inner = e.params.get("program")
    if inner is not None and inner.outputs[i].__class__ is Var and inner.outputs[i] not in inner.inputs:
        return _origin(inner, inner.outputs[i], {})
    if e.primitive.name == "name":
        return f"the value named {e.params['name']!r} at {location(e.source)}"
    return f"{e.primitive.name} at {location(e.source)}"


def print_saved_residuals(fun: Callable[..., PyTree], *args: PyTree, **kwargs: PyTree) -> None:
    """Print the residuals that reverse mode saves of a call, one per line.

    Arguments:
      fun: function of pytrees of arrays.
      *args, **kwargs: its arguments, or `ShapeDtypeStruct`s.

    Source: `jax.ad_checkpoint.print_saved_residuals`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> ft.ad_checkpoint.print_saved_residuals(lambda x: x * x, 3.0)
      ~f32[] from the argument x
    """
    kept = saved_residuals(fun, *args, **kwargs)
    sys.stdout.write("".join([f"{t} from {where}\n" for t, where in kept]))
