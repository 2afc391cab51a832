"""Vectors of correlated normal numbers, and random orthogonal matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans import numpy as jnp
from functrans.ir.types import dtype_class
from functrans.lax.arguments import placeable
from functrans.numpy.promotion import (
    broadcast_shape,
    invalid,
    promote_inexact,
    user_dtype,
)
from functrans.random.arguments import dtype_of, fitting, shape_of
from functrans.random.continuous import any_normal, real_normal
from functrans.random.staged import Source, sampler
from functrans.trace import typeof

__all__ = ["multivariate_normal", "orthogonal"]


@placeable
def multivariate_normal(
    key: Any,
    mean: Any,
    cov: Any,
    shape: Any = None,
    dtype: Any = None,
    method: str = "cholesky",
    *,
    out_sharding: Any = None,
) -> Any:
    """Draw vectors of normal numbers with a mean and a covariance.

    Arguments:
      key: a key.
      mean: an array [..., n]; differentiable, as is cov.
      cov: an array [..., n, n] of positive definite matrices.
      shape: of the result without its last axis; None: that of mean and cov.
      dtype: a float dtype; None: that of the promoted mean and cov.
      method: "cholesky", "eigh" or "svd": by which root of cov; the latter two take semidefinite
        ones.

    Returns:
      An array [*shape, n].

    Raises:
      InvalidArgument: the shapes do not fit together, or the method is another.

    Source: `jax.random.multivariate_normal`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> ft.random.multivariate_normal(ft.random.key(0), jnp.zeros(2), jnp.eye(2), (3,)).shape
      (3, 2)
    """
    name = "multivariate_normal"
    mean, cov = promote_inexact([mean, cov], name)
    if method not in _ROOTS:
        raise invalid(name, f"method must be one of {', '.join(_ROOTS)}, got {method!r}")
    m, c = typeof(mean), typeof(cov)
    dtype = m.dtype if dtype is None else user_dtype(dtype)
    if dtype_class(dtype) != "float":
        raise invalid(name, f"dtype must be float, got {dtype}")
    if not m.ndim:
        raise invalid(name, "requires mean.ndim >= 1, but was given a scalar")
    n = m.shape[-1]
    if c.shape[-2:] != (n, n):
        raise invalid(
            name, f"requires cov.shape == (..., n, n) for n={n}, the size of mean, but was given "
            f"cov.shape == {c.shape}",
        )  # fmt: skip
    batches = [m.shape[:-1], c.shape[:-2]]
    if shape is None:
        shape = broadcast_shape(batches, name)
    else:
        shape = fitting(name, shape_of(name, shape), batches)
    return _multivariate_normal(key, mean, cov, shape=(*shape, n), dtype=dtype, method=method)


def _by_svd(cov: Any) -> Any:
    u, s, _ = jnp.linalg.svd(cov)
    return u * jnp.sqrt(s[..., None, :])


def _by_eigh(cov: Any) -> Any:
    w, v = jnp.linalg.eigh(cov)
    return v * jnp.sqrt(w[..., None, :])


_ROOTS: dict[str, Callable[[Any], Any]] = {
    "svd": _by_svd,
    "eigh": _by_eigh,
    "cholesky": jnp.linalg.cholesky,
}


@sampler("multivariate_normal")
def _multivariate_normal(
    source: Source, mean: Any, cov: Any, *, shape: Any, dtype: Any, method: str
) -> Any:
    """mean + root(cov) z."""
    root = _ROOTS[method](cov)
    z = real_normal(source, shape, dtype)
    mean = jnp.expand_dims(mean, tuple(range(len(shape) - typeof(mean).ndim)))
    return jnp.add(mean, jnp.einsum("...ij,...j->...i", root, z))


@placeable
def orthogonal(
    key: Any,
    n: int,
    shape: Any = (),
    dtype: Any = None,
    m: int | None = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Draw evenly from the orthogonal matrices; of a complex dtype from the unitary ones.

    Arguments:
      key: a key.
      n: how many rows.
      shape: of the result without its last two axes.
      dtype: a float or complex dtype.
      m: how many columns; None: n. The rows or columns, whichever are fewer, are orthonormal.

    Returns:
      An array [*shape, n, m].

    Source: `jax.random.orthogonal`; Mezzadri, How to generate random matrices from the classical
    compact groups (2007).

    Example:
      >>> import functrans as ft
      >>> ft.eval_shape(lambda key: ft.random.orthogonal(key, 3, m=2), ft.random.key(0)).shape
      (3, 2)
    """
    dtype = dtype_of("orthogonal", dtype, float, ("float", "complex"))
    rows, columns = shape_of("orthogonal", (n, n if m is None else m))
    shape = shape_of("orthogonal", shape)
    return _orthogonal(key, n=rows, m=columns, shape=shape, dtype=dtype)


@sampler("orthogonal")
def _orthogonal(source: Source, *, n: int, m: int, shape: Any, dtype: Any) -> Any:
    """The q of a matrix of normal numbers, each column with the sign of r's diagonal."""
    z = any_normal(source, (*shape, max(n, m), min(n, m)), dtype)
    q, r = jnp.linalg.qr(z)
    q = q * jnp.expand_dims(jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1)), -2)
    return jnp.matrix_transpose(q) if n < m else q
