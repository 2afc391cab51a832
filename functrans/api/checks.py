"""Checks of the arguments and results of the derivative functions, with errors for the user."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans import pytrees as tree
from functrans.api.flat import as_array, function_name
from functrans.ir.source import describe, user_source
from functrans.ir.types import ArrayType, dtype_class
from functrans.trace import typeof


def here() -> str:
    """Return "at" and the user's source line, to end an error message."""
    return f"at\n    {describe(user_source())}"


def counted(n: int, one: str, several: str = "") -> str:
    """Return e.g. "1 axis" or "2 axes"."""
    return f"{n} {one if n == 1 else several or one + 's'}"


def check_callable(fun: Any, name: str) -> None:
    """Raise an error unless `fun` is callable."""
    if not callable(fun):
        raise errors.NotAnArray(
            f"{name} takes a function, got {fun!r:.80} of type {type(fun).__qualname__}, {here()}\n"
            f"Write {name}(f)(x), not {name}(f(x))."
        )


def positions(argnums: Any) -> tuple[tuple[int, ...], bool]:
    """Return `argnums` as a tuple, and whether it was given as a sequence."""
    if isinstance(argnums, int):
        return (argnums,), False
    try:
        if not np.ndim(argnums):
            return (operator.index(argnums),), False
        return tuple([operator.index(i) for i in argnums]), True
    except TypeError:
        raise errors.NotAnArray(
            f"argnums must be an int or a sequence of ints, the positions of the arguments to "
            f"differentiate, got {argnums!r:.60}, {here()}"
        ) from None


def choose(fun: Any, args: Sequence[Any], numbers: Sequence[int]) -> tuple[Any, ...]:
    """Return the arguments to differentiate with respect to."""
    for i in numbers:
        if not -len(args) <= i < len(args):
            raise errors.MissingArgument(
                f"argnums={i} is out of range for {function_name(fun)}, which was called with "
                f"{counted(len(args), 'positional argument')}, {here()}\n"
                "Pass differentiated arguments by position."
            )
    if len(numbers) > 1 and len({i % len(args) for i in numbers}) < len(numbers):
        raise errors.InvalidArgument(
            f"argnums={tuple(numbers)} lists an argument of {function_name(fun)} twice, {here()}\n"
            "List it once, and use its gradient twice."
        )
    return tuple([args[i] for i in numbers])


def of_chosen(
    fun: Callable[..., Any], numbers: Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., Any]:
    """Return `fun` as a function of the differentiated arguments only, under the name of `fun`."""

    def inner(*given: Any) -> Any:
        full = list(args)
        for i, x in zip(numbers, given, strict=True):
            full[i] = x
        return fun(*full, **kwargs)

    inner.__qualname__ = function_name(fun)
    inner.__wrapped__ = fun  # type: ignore[attr-defined]
    return inner


def names_of(given: tuple[Any, ...], numbers: Sequence[int]) -> list[str]:
    """Return the path names of the leaves of the differentiated arguments."""
    pairs = zip(numbers, given, strict=True)
    return [name for i, x in pairs for name in tree.path_names(x, f"args[{i}]")]


def check_inputs(
    fun: Any,
    given: tuple[Any, ...],
    types: Sequence[ArrayType],
    numbers: Sequence[int],
    holomorphic: bool,
    allow_int: bool,
) -> None:
    """Raise an error unless every leaf of the chosen arguments has a differentiable dtype; `types`
    are the types of the leaves."""
    wanted = ("complex",) if holomorphic else ("float", "complex")
    if allow_int:
        wanted = (*wanted, "int", "uint", "bool")
    if all([dtype_class(t.dtype) in wanted for t in types]):
        return
    for number, argument in zip(numbers, given, strict=True):
        for i, x in enumerate(tree.leaves(argument)):
            if dtype_class(typeof(x).dtype) in wanted:
                continue
            advice = (
                "With holomorphic=True, arguments must be complex."
                if holomorphic
                else "Cast it with x.astype(float), choose other arguments with argnums, or pass "
                "allow_int=True."
            )
            raise errors.NonDifferentiable(
                f"cannot differentiate {function_name(fun)} with respect to "
                f"{tree.path_names(argument, f'args[{number}]')[i]} of type {typeof(x)}, {here()}\n"
                f"{advice}"
            )


def check_jacobian(fun: Any, given: tuple[Any, ...], numbers: Sequence[int], holomorphic: bool) -> None:
    """Check the arguments of `jacfwd`: as `check_inputs`, but complex needs `holomorphic`."""
    types = [typeof(x) for x in tree.leaves(given)]
    check_inputs(fun, given, types, numbers, holomorphic, False)
    for t in types:
        if dtype_class(t.dtype) == "complex" and not holomorphic:
            raise errors.NonDifferentiable(
                f"jacfwd of {function_name(fun)}: an argument has the complex type {t}, {here()}\n"
                "Pass holomorphic=True for complex-differentiable functions."
            )


def check_outputs(fun: Any, leaves: Sequence[Any], holomorphic: bool) -> None:
    """Raise an error unless the results of `jacrev` are real, or complex with `holomorphic`."""
    wanted = ("complex",) if holomorphic else ("float",)
    for y in leaves:
        if dtype_class(typeof(y).dtype) not in wanted:
            raise errors.NonDifferentiable(
                f"jacrev of {function_name(fun)}: a result is {typeof(y)}, but it must be "
                f"{'complex with' if holomorphic else 'real without'} holomorphic=True, {here()}\n"
                "For complex results use vjp, or return real and imaginary parts."
            )


def check_loss(fun: Any, value: Any, holomorphic: bool) -> None:
    """Raise an error unless the loss is one real (with `holomorphic`, complex) scalar."""
    leaves = tree.leaves(value)
    if len(leaves) != 1 or leaves[0] is not value:
        shown = ", ".join([str(typeof(y)) for y in leaves])
        what = "None" if value is None else f"a {type(value).__name__} of ({shown})"
        raise errors.NonScalarLoss(
            f"grad needs a function that returns one scalar, but {function_name(fun)} returned "
            f"{what}, {here()}\n"
            "Return only the loss, or (loss, aux) with has_aux=True."
        )
    t = typeof(value)
    if t.shape != ():
        raise errors.NonScalarLoss(
            f"grad needs a function that returns a scalar, but {function_name(fun)} returned {t}, "
            f"{here()}\nReduce it (jnp.sum, jnp.mean), use jacrev, or use vmap(grad(f)) for one "
            "gradient per example."
        )
    if dtype_class(t.dtype) != ("complex" if holomorphic else "float"):
        advice = (
            "With holomorphic=True, it must return a complex number."
            if holomorphic
            else "Cast with x.astype(float); for a complex-differentiable function, pass holomorphic=True."
        )
        wanted = "complex" if holomorphic else "real floating point"
        raise errors.NonDifferentiable(
            f"grad needs a {wanted} result, but {function_name(fun)} returned {t}, {here()}\n{advice}"
        )


def _tangent_advice(want: ArrayType) -> str:
    if want.dtype == jax.dtypes.float0:
        return f"The tangent of an integer array is np.zeros({want.shape}, ft.dtypes.float0)."
    return "It must have the shape and dtype of the primal, like jnp.ones_like(x)."


def fitting(
    tangents: tuple[Any, ...], in_tree: Any, leaves: Sequence[Any], name: str, differ: type[Exception]
) -> list[Any]:
    """Return the tangents as a flat list, with None for integer primals. `differ` is the error
    class for a dtype mismatch."""
    given, structure = tree.flatten((tangents, {}))
    if structure != in_tree:
        wanted, got = (s.children()[0] for s in (in_tree, structure))
        raise errors.TypeMismatch(
            f"{name}: the tangents must have the structure of the primals, {tree.spelled(wanted)}, "
            f"got {tree.spelled(got)}, {here()}\nWrite jvp(f, (x, y), (dx, dy))."
        )
    found = []
    for x, t in zip(leaves, given, strict=True):
        want = typeof(x).tangent()
        if isinstance(t, np.ndarray) and t.dtype == jax.dtypes.float0:
            have = ArrayType(t.shape, jax.dtypes.float0)
        else:
            t = as_array(t)
            have = typeof(t)
        if not have.same(want):
            kind = differ if have.shape == want.shape else errors.ShapeMismatch
            raise kind(
                f"{name}: the tangent of a primal {typeof(x)} must be {want}, got {have}, "
                f"{here()}\n{_tangent_advice(want)}"
            )
        found.append(None if want.dtype == jax.dtypes.float0 else t)
    return found


def only_cotangent(given: tuple[Any, ...]) -> Any:
    """Return the single argument of a pullback."""
    if len(given) != 1:
        raise errors.NotAnArray(
            f"a vjp function takes one argument, the cotangent of the result, got {len(given)}, "
            f"{here()}\nPass the cotangents of several results in the structure of the result: "
            "pullback((a, b))."
        )
    return given[0]


def cotangents(
    ct: Any,
    out_tree: Any,
    types: Sequence[ArrayType],
    to: str = "a vjp function",
    error: type[Exception] = errors.InvalidArgument,
) -> list[Any]:
    """Return the cotangents as a flat list, with None for integers; raise `error` on mismatch."""
    given, structure = tree.flatten(ct)
    if structure != out_tree:
        raise error(
            f"the cotangent passed to {to} has the structure {tree.spelled(structure)}, "
            f"but the result of the function has {tree.spelled(out_tree)}, {here()}\n"
            "Pass one cotangent (zeros if there is none) for each array of the result."
        )
    cts: list[Any] = []
    for c, t in zip(given, types, strict=True):
        want = t.tangent()
        if want.dtype == jax.dtypes.float0:
            cts.append(None)
            continue
        c = as_array(c)
        if not typeof(c).same(want):
            raise error(
                f"the cotangent passed to {to} has type {typeof(c)}, but the result of "
                f"the function has {want}, {here()}\n"
                "It must have the shape and dtype of the result, like jnp.ones_like(result)."
            )
        cts.append(c)
    return cts
