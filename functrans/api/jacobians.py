"""What is built on `jvp` and `vjp`: `jacfwd`, `jacrev` and `hessian`, by `vmap` over unit vectors, and
`fwd_and_bwd`, `vjp` as two jitted functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import jax
import numpy as np

from functrans import errors
from functrans import pytrees as tree
from functrans.api.arguments import Chosen, as_array, check_outputs
from functrans.api.derivatives import Pullback, jvp, vjp
from functrans.api.jit import jit
from functrans.api.vmap import vmap
from functrans.ir.source import brief, here
from functrans.ir.tracebacks import boundary
from functrans.ir.types import dtype_class, float0
from functrans.lax.staging import or_by_jax
from functrans.primitives.shape.moving import reshape, slice_axis
from functrans.pytrees.functions import named_after
from functrans.trace import typeof
from functrans.typing import PyTree

_P = ParamSpec("_P")


@boundary
def jacfwd(
    fun: Callable[_P, PyTree],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[_P, PyTree]:
    """Return a function that computes the Jacobian of `fun`, column by column in forward mode.

    Arguments:
      fun: function of pytrees of arrays.
      argnums, has_aux, holomorphic: as in `grad`.

    Returns:
      A function of the same arguments. For each leaf of the output and each leaf of the argument,
      its result has an array of shape `(*output shape, *argument shape)`.

    Source: `jax.jacfwd`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.jacfwd(lambda x: x ** 2)(jnp.array([1.0, 2.0])))
      [[2. 0.]
       [0. 4.]]
    """
    argument = Chosen("jacfwd", fun, argnums)

    @named_after(fun)
    @or_by_jax(lambda *xs, **kw: jax.jacfwd(fun, argnums, has_aux, holomorphic)(*xs, **kw))
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        inner, given = argument.split(args, kwargs)
        chosen = tree.map(as_array, given)
        argument.check(chosen, [typeof(x) for x in tree.leaves(chosen)], holomorphic)

        @named_after(fun)
        def push(tangents: Any) -> Any:
            return jvp(inner, chosen, tangents, has_aux)

        columns = vmap(push, out_axes=(None, -1, None) if has_aux else (None, -1))(_basis(chosen))
        if holomorphic:
            check_outputs("jacfwd", fun, tree.leaves(columns[0]), holomorphic)

        inputs = argument.by_argument(chosen)
        jac = tree.map(lambda y, dy: _split_axis(_number(dy, y), inputs, -1), columns[0], columns[1])
        return (jac, columns[2]) if has_aux else jac

    return jacobian


@boundary
def jacrev(
    fun: Callable[_P, PyTree],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[_P, PyTree]:
    """Return a function that computes the Jacobian of `fun`, row by row in reverse mode.

    Arguments, returns: as in `jacfwd`; `allow_int` as in `grad`.

    Source: `jax.jacrev`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.jacrev(lambda x: x ** 2)(jnp.array([1.0, 2.0])))
      [[2. 0.]
       [0. 4.]]
    """
    argument = Chosen("jacrev", fun, argnums)

    @named_after(fun)
    @or_by_jax(lambda *xs, **kw: jax.jacrev(fun, argnums, has_aux, holomorphic, allow_int)(*xs, **kw))
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        inner, given = argument.split(args, kwargs)
        chosen = tree.map(as_array, given)
        argument.check(chosen, [typeof(x) for x in tree.leaves(chosen)], holomorphic, allow_int)
        out, pullback, *aux = vjp(inner, *chosen, has_aux=has_aux)
        check_outputs("jacrev", fun, tree.leaves(out), holomorphic)
        rows = argument.by_argument(vmap(pullback)(_basis(out)))
        # rows: for each leaf of the argument, an array with one row per element of the output
        inputs = argument.by_argument(chosen)
        by_input = tree.map(lambda x, dx: _split_axis(_number(dx, x), out, 0), inputs, rows)
        jac = tree.transpose(tree.structure(inputs), tree.structure(out), by_input)
        return (jac, *aux) if has_aux else jac

    return jacobian


@boundary
def hessian(
    fun: Callable[_P, PyTree],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[_P, PyTree]:
    """Return a function that computes the Hessian of `fun`, forward over reverse.

    Arguments, returns: as in `jacfwd`, applied to `jacrev(fun)`.

    Source: `jax.hessian`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.hessian(lambda x: jnp.sum(x ** 3))(jnp.array([1.0, 2.0])))
      [[ 6.  0.]
       [ 0. 12.]]
    """
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)


# --- shared ---------------------------------------------------------------------------------------


def _basis(given: Any) -> Any:
    """Return the standard basis of a pytree: each leaf gets a new leading axis over the basis."""
    leaves, structure = tree.flatten(given)
    types = [typeof(x) for x in leaves]
    total = sum(t.size for t in types)
    rows, start = [], 0
    for t in types:
        rows.append(jax.numpy.asarray(np.eye(total, t.size, -start, t.dtype).reshape(total, *t.shape)))
        start += t.size
    return tree.unflatten(structure, rows)


def _number(dy: Any, y: Any) -> Any:
    """Return derivatives of or by integers, which are float0, as zeros of the dtype of the integers `y`."""
    dtype = typeof(y).dtype
    if typeof(dy).dtype == float0 and dtype_class(dtype) != "key":
        return as_array(np.zeros(dy.shape, dtype))
    return dy


def _split_axis(y: Any, like: Any, axis: int) -> Any:
    """Split an axis over all elements of the pytree `like` into one array per leaf of it."""
    leaves, structure = tree.flatten(like)
    shape = typeof(y).shape
    axis %= len(shape)
    parts, start = [], 0
    for t in map(typeof, leaves):
        part = slice_axis(y, axis, start, start + t.size)
        parts.append(reshape(part, shape=(*shape[:axis], *t.shape, *shape[axis + 1 :])))
        start += t.size
    return tree.unflatten(structure, parts)


@boundary
def fwd_and_bwd(
    fun: Callable[_P, PyTree], argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
) -> tuple[Callable[_P, tuple[PyTree, ...]], Callable[[Pullback, PyTree], PyTree]]:
    """Split a function's VJP into separate forward and backward functions.

    Arguments:
      fun: function of pytrees of arrays.
      argnums: position or positions of the arguments to differentiate with respect to.
      has_aux: `fun` returns `(out, aux)`.
      jitted: jit both functions; each is traced once per signature.

    Returns:
      `fwd(*args) -> (out, residuals)`, or `(out, residuals, aux)` if `has_aux`; and
      `bwd(residuals, ct) -> cotangent`, where `ct` has the structure and types of `out`, and the
      result is the cotangent of the argument (a tuple of cotangents if `argnums` is a sequence).
      The residuals are a pytree.

    Raises:
      MissingArgument: (from fwd) an argument to differentiate was not given.
      InvalidArgument: (from bwd) the cotangent does not match the output.
      NotAnArray: (from bwd) the residuals are not those that fwd returned.

    Source: `jax.fwd_and_bwd`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> fwd, bwd = ft.fwd_and_bwd(jnp.dot, argnums=(0, 1))
      >>> out, residuals = fwd(jnp.ones(2), jnp.array([2.0, 3.0]))
      >>> print(out, *bwd(residuals, 1.0))
      5.0 [2. 3.] [1. 1.]
    """
    argument = Chosen("fwd_and_bwd", fun, argnums)

    @named_after(fun)
    def fwd(*args: Any, **kwargs: Any) -> Any:
        inner, given = argument.split(args, kwargs)
        return vjp(inner, *given, has_aux=has_aux)

    def bwd(residuals: Any, ct: Any) -> Any:
        if not isinstance(residuals, Pullback):
            raise errors.NotAnArray(
                f"the first argument of bwd must be the residuals that fwd returned, got {brief(residuals)}, "
                f"{here()}\nWrite out, residuals = fwd(x), then bwd(residuals, ct)."
            )
        return argument.by_argument(residuals(ct))

    # `__wrapped__` tells `explain_cache` which function this belongs to; the signature is bwd's own
    bwd.__signature__ = inspect.signature(bwd)  # type: ignore[attr-defined]
    bwd.__wrapped__ = fun  # type: ignore[attr-defined]
    return (jit(fwd), jit(bwd)) if jitted else (fwd, bwd)
