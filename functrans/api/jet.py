"""`jet`: Taylor-mode automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import factorial
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans import pytrees as tree
from functrans.api.arguments import as_array, check_callable, check_tuples, instantiate, results
from functrans.ir.source import brief, here
from functrans.ir.tracebacks import boundary
from functrans.ir.types import ArrayType, dtype_class, is_inexact
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.primitives.elementwise.families import div, mul
from functrans.pytrees.functions import FlatFunction
from functrans.trace import full, typeof
from functrans.transforms.jet import Terms, run_jet
from functrans.typing import PyTree


@boundary
def jet(
    fun: Callable[..., PyTree],
    primals: Sequence[PyTree],
    series: Sequence[PyTree],
    factorial_scaled: bool = True,
    **_: PyTree,
) -> tuple[PyTree, PyTree]:
    """Evaluate a function and its higher-order derivatives along a curve, by pushing a truncated
    Taylor series through it.

    Arguments:
      fun: function of pytrees of arrays.
      primals: tuple of arguments, the point x(0) of the curve x(t).
      series: tuple with one list (or tuple) of terms per argument, all of the same length: the
        derivatives x'(0), x''(0), ... A term is an array of the shape and dtype of the argument, a
        scalar that is broadcast, or None for zero. For an argument that is a pytree: a pytree of
        its structure with such a list for each leaf. None instead of a list: all terms are zero.
        Integer arguments take None.
      factorial_scaled: the terms are derivatives. If False they are Taylor coefficients: the
        derivatives divided by the factorial of their order.

    Returns:
      `(out, series_out)`: the result, and a pytree of its structure with the list of terms for each
      leaf. This is the format of `series`, so calls compose.

    Raises:
      InvalidArgument: series and primals differ in number or structure, or the lists in length.
      TypeMismatch: the dtype of a term does not match its argument (ShapeMismatch: its shape).
      NonDifferentiable: an integer argument has a term.

    Source: `jax.experimental.jet.jet`. Unlike JAX's, it supports operations that have no jet rule
    in JAX, and arguments that are pytrees; custom_jvp and custom_vjp rules are used.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.experimental.jet import jet
      >>> y, (dy, d2y, d3y) = jet(lambda x: x ** 3, (2.0,), ((1.0, None, None),))
      >>> print(y, dy, d2y, d3y)
      8.0 12.0 12.0 6.0
    """
    check_callable(fun, "jet")
    check_tuples("jet", "jet(f, (x,), ((dx, d2x),))", primals=primals, series=series)
    leaves, in_tree = tree.flatten((tuple(primals), {}))
    lists = _lists(tuple(primals), tuple(series))
    order = _order(lists)
    names = tree.path_names(tuple(primals), "primals")
    leaves = [as_array(x) for x in leaves]
    scales = [factorial(k) if factorial_scaled else 1 for k in range(1, order + 1)]
    rows = zip(leaves, lists, names, strict=True)
    terms = [_terms(typeof(x), given, scales, name) for x, given, name in rows]
    flat = FlatFunction(fun, in_tree)
    outs, found = run_jet(flat, leaves, terms, order)
    made = [
        [_derivative(c, scale, typeof(y)) for c, scale in zip(cs, scales, strict=True)]
        for y, cs in zip(outs, found, strict=True)
    ]
    return results(flat, outs)[0], tree.unflatten(flat.out_tree, made)


def _lists(primals: tuple[Any, ...], series: tuple[Any, ...]) -> list[Any]:
    """Return the list of terms for each leaf of the primals."""
    if len(primals) != len(series):
        raise errors.InvalidArgument(
            f"jet takes one series per argument, got {len(primals)} primals and {len(series)} "
            f"series, {here()}\nWrite jet(f, (x, y), ((dx, d2x), (dy, d2y)))."
        )
    found: list[Any] = []
    for i, (x, given) in enumerate(zip(primals, series, strict=True)):
        structure: Any = tree.structure(x)
        try:
            found += structure.flatten_up_to(given)
        except (ValueError, TypeError) as error:
            raise errors.InvalidArgument(
                f"jet: series[{i}] must have the structure of primals[{i}], {structure}, with a "
                f"list of terms for each array, got {tree.structure(given)}, {here()}\n{error}"
            ) from None
    return found


def _order(lists: Sequence[Any]) -> int:
    """Return the common length of the lists of terms."""
    for given in lists:
        if not (given is None or isinstance(given, (tuple, list)) or len(getattr(given, "shape", ())) > 0):
            raise errors.NotAnArray(
                f"jet: the terms of a series must be a tuple or list, got {brief(given)} of type "
                f"{type(given).__name__}, {here()}\n"
                "Write jet(f, (x,), ((dx,),)) for a series of one term."
            )
    lengths = {len(given) for given in lists if given is not None}
    if len(lengths) != 1:
        shown = ", ".join(["None" if g is None else str(len(g)) for g in lists]) or "none"
        raise errors.InvalidArgument(
            f"jet: all series must have equally many terms, got lengths {shown}, {here()}\n"
            "Use None for a zero term."
        )
    return lengths.pop()


def _terms(t: ArrayType, given: Any, scales: Sequence[int], name: str) -> Terms:
    """Return the Taylor coefficients of an argument of type t."""
    if given is None:
        return (None,) * len(scales)
    terms = [_term(c, t, k, name) for k, c in enumerate(given, 1)]
    pairs = zip(terms, scales, strict=True)
    return tuple([c if c is None or scale == 1 else div(c, scale) for c, scale in pairs])


def _term(c: Any, t: ArrayType, k: int, name: str) -> Any:
    """Convert a term of an argument of type t to this type; None if it is zero."""
    if c is None:
        return None
    number = isinstance(c, (bool, int, float, complex))
    if number and c == 0:
        return None
    if not is_inexact(t.dtype):
        if isinstance(c, np.ndarray) and (c.dtype == jax.dtypes.float0 or not c.any()):
            return None
        raise errors.NonDifferentiable(
            f"jet: {name} is of type {t} and has no derivatives, but term {k} of its series is "
            f"not zero, {here()}\nCast it with x.astype(float), or use None for that term."
        )
    if number and (not isinstance(c, complex) or dtype_class(t.dtype) == "complex"):
        return full(c, t)
    c = as_array(c)
    have = typeof(c)
    if have.shape == t.shape and dtype_class(have.dtype) in ("bool", "int", "uint"):
        return convert_element_type(c, dtype=t.dtype, weak_type=t.weak_type)
    if not have.same(t):
        kind = errors.TypeMismatch if have.shape == t.shape else errors.ShapeMismatch
        raise kind(f"jet: term {k} of the series of {name} must have its type {t}, got {have}, {here()}")
    return c


def _derivative(c: Any, scale: int, t: ArrayType) -> Any:
    """Convert a Taylor coefficient to a derivative."""
    return instantiate(c if c is None or scale == 1 else mul(c, scale), t)
