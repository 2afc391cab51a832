"""Flatten a pytree of arrays into one vector and back: `jax.flatten_util` for our arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from functrans import errors
from functrans import numpy as jnp
from functrans import pytrees as tree
from functrans.ir.source import here as _here
from functrans.loading import hand_on as _hand_on
from functrans.typing import Array, ArrayLike, PyTree


def ravel_pytree(pytree: PyTree) -> tuple[Array, Callable[[ArrayLike], PyTree]]:
    """Concatenate all elements of a pytree's arrays.

    Arguments:
      pytree: a pytree of arrays and numbers, of any shapes and dtypes.

    Returns:
      A vector of the dtype to which all leaves promote (an empty float32 vector if there are none),
      and a function from a vector of that shape and dtype to a pytree like the original, each leaf
      with its original shape and dtype.

    Raises:
      InvalidArgument: the returned function gets a vector of another shape or dtype.

    Source:
      jax.flatten_util.ravel_pytree

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.flatten_util import ravel_pytree
      >>> vector, unravel = ravel_pytree({"w": jnp.ones((2, 2)), "b": jnp.zeros(1)})
      >>> print(vector)
      [0. 1. 1. 1. 1.]
      >>> print(unravel(2 * vector)["w"])
      [[2. 2.]
       [2. 2.]]
    """
    leaves, structure = tree.flatten(pytree)
    leaves = [jnp.asarray(x) for x in leaves]
    shapes, dtypes = [x.shape for x in leaves], [x.dtype for x in leaves]
    common = jnp.result_type(*dtypes) if dtypes else jnp.dtype("float32")
    ends = [0, *itertools.accumulate([x.size for x in leaves])]
    rows = [jnp.ravel(x).astype(common) for x in leaves]

    def unravel(vector: Any) -> Any:
        given = jnp.asarray(vector)
        if given.shape != (ends[-1],) or given.dtype != common:
            raise errors.InvalidArgument(
                f"the function that ravel_pytree returned takes {common}[{ends[-1]}], got "
                f"{given.dtype}{list(given.shape)}, {_here()}\n"
                "Give it a vector of the shape and dtype that ravel_pytree returned with it."
            )
        parts = zip(itertools.pairwise(ends), shapes, dtypes, strict=True)
        return tree.unflatten(structure, [given[a:b].reshape(s).astype(d) for (a, b), s, d in parts])

    return jnp.concatenate(rows) if rows else jnp.zeros(0, common), unravel


_hand_on(__name__)
