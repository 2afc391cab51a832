"""Gamma, and the distributions that are formulas of gamma samples."""

from __future__ import annotations

from typing import Any

from functrans import lax
from functrans import numpy as jnp
from functrans.lax.arguments import integer, placeable
from functrans.numpy.promotion import cast, expand, invalid
from functrans.primitives.elementwise import add, div, mul, sub
from functrans.primitives.transcendental import exp, sqrt
from functrans.random.approximate import FLOAT32, log_gamma
from functrans.random.arguments import (
    check_method,
    check_safe,
    dtype_of,
    fitting,
    shape_of,
    shape_with,
)
from functrans.random.continuous import exponential_of, real_normal
from functrans.random.staged import Source, sampler
from functrans.random.uniform import rademacher_of
from functrans.trace import typeof

__all__ = [
    "ball", "beta", "chisquare", "dirichlet", "f", "gamma", "generalized_normal", "loggamma", "t",
]  # fmt: skip


@placeable
def gamma(
    key: Any,
    a: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    method: str = "exact",
    out_sharding: Any = None,
) -> Any:
    """Draw from the density x^(a-1) e^-x / Gamma(a), x >= 0.

    Arguments:
      key: a key.
      a: a number or an array that broadcasts to `shape`; differentiable.
      shape: of the result; None: that of a.
      dtype: a float dtype.
      method: "exact", by rejection in a loop; or "approximate", by a formula, much faster, whose
        quantiles are off by about 0.05 %. The derivatives by a differ: each is that of its method.

    Source: `jax.random.gamma`, with `method` from JAX 0.11 on.

    Example:
      >>> import functrans as ft
      >>> ft.random.gamma(ft.random.key(0), 2.0, (3,)).shape
      (3,)
    """
    return _given("gamma", key, a, shape, dtype, method, log_space=False)


@placeable
def loggamma(
    key: Any,
    a: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    method: str = "exact",
    out_sharding: Any = None,
) -> Any:
    """Draw the logarithm of a `gamma` sample, precise where that is tiny (small a).

    Source: `jax.random.loggamma`, with `method` from JAX 0.11 on.

    Example:
      >>> import functrans as ft
      >>> ft.eval_shape(ft.random.loggamma, ft.random.key(0), 0.01).shape
      ()
    """
    return _given("loggamma", key, a, shape, dtype, method, log_space=True)


def _given(
    name: str, key: Any, a: Any, shape: Any, dtype: Any, method: str, log_space: bool
) -> Any:
    check_method(name, method)
    dtype = dtype_of(name, dtype)
    shape = shape_with("gamma", shape, a)
    return _gamma(key, a, shape=shape, dtype=dtype, log_space=log_space, method=method)


@sampler("gamma")
def _gamma(source: Source, a: Any, *, shape: Any, dtype: Any, log_space: bool, method: str) -> Any:
    return gamma_of(source, a, shape, dtype, log_space, method)


def gamma_of(
    source: Source, a: Any, shape: Any, dtype: Any, log_space: bool = True, method: str = "exact"
) -> Any:
    """A gamma sample for each parameter, or its logarithm."""
    if method == "exact":
        return source.gamma(expand(cast(a, dtype), shape), log_space)
    a = expand(cast(a, max(dtype, FLOAT32, key=lambda one: one.itemsize)), shape)
    x = log_gamma(source, a)
    return cast(x if log_space else exp(x), dtype)


@placeable
def beta(
    key: Any,
    a: Any,
    b: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    method: str = "exact",
    out_sharding: Any = None,
) -> Any:
    """Draw from the density ~ x^(a-1) (1-x)^(b-1), 0 <= x <= 1; `shape` None: that of a and b.
    `method`: as of `gamma`.

    Source: `jax.random.beta`, with `method` from JAX 0.11 on.

    Example:
      >>> import functrans as ft
      >>> ft.eval_shape(ft.random.beta, ft.random.key(0), 2.0, 3.0).shape
      ()
    """
    check_method("beta", method)
    dtype = dtype_of("beta", dtype)
    check_safe("beta", dtype, a, b)
    return _beta(key, a, b, shape=shape_with("beta", shape, a, b), dtype=dtype, method=method)


@sampler("beta")
def _beta(source: Source, a: Any, b: Any, *, shape: Any, dtype: Any, method: str) -> Any:
    """x / (x + y) of gamma samples, both divided by the larger."""
    x, y = [
        gamma_of(one, cast(v, dtype), shape, dtype, method=method)
        for one, v in zip(source.split(), (a, b), strict=True)
    ]
    larger = lax.max(x, y)
    x, y = exp(sub(x, larger)), exp(sub(y, larger))
    return div(x, add(x, y))


@placeable
def dirichlet(
    key: Any, alpha: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Draw n probabilities from the density ~ the product of x_i^(alpha_i - 1).

    Arguments:
      key: a key.
      alpha: an array [..., n].
      shape: of the result without its last axis; None: that of alpha.
      dtype: a float dtype.

    Returns:
      An array [*shape, n] that sums to one along its last axis.

    Source: `jax.random.dirichlet`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> ft.eval_shape(ft.random.dirichlet, ft.random.key(0), jnp.ones(4)).shape
      (4,)
    """
    dtype = dtype_of("dirichlet", dtype)
    given = typeof(alpha).shape
    if not given:
        raise invalid("dirichlet", "requires alpha.ndim >= 1, but was given a scalar")
    batch = given[:-1]
    if shape is not None:
        batch = fitting("dirichlet", shape_of("dirichlet", shape), [batch])
    return _dirichlet(key, alpha, shape=(*batch, given[-1]), dtype=dtype)


@sampler("dirichlet")
def _dirichlet(source: Source, alpha: Any, *, shape: Any, dtype: Any) -> Any:
    """Gamma samples over their sum, all divided by the largest."""
    x = source.gamma(expand(cast(alpha, dtype), shape), log_space=True)
    x = exp(x - lax.stop_gradient(jnp.max(x, -1, keepdims=True)))
    return x / jnp.sum(x, -1, keepdims=True)


@placeable
def chisquare(
    key: Any,
    df: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    method: str = "exact",
    out_sharding: Any = None,
) -> Any:
    """Draw from the chi-squared distribution with df degrees of freedom; `shape` None: that of df.
    `method`: as of `gamma`.

    Source: `jax.random.chisquare`, with `method` from JAX 0.11 on.

    Example:
      >>> import functrans as ft
      >>> ft.eval_shape(ft.random.chisquare, ft.random.key(0), 3.0).shape
      ()
    """
    check_method("chisquare", method)
    dtype = dtype_of("chisquare", dtype)
    check_safe("chisquare", dtype, df)
    return _chisquare(
        key, df, shape=shape_with("chisquare", shape, df), dtype=dtype, method=method
    )  # fmt: skip


@sampler("chisquare")
def _chisquare(source: Source, df: Any, *, shape: Any, dtype: Any, method: str) -> Any:
    return chisquare_of(source, cast(df, dtype), shape, method)


def chisquare_of(source: Source, df: Any, shape: tuple[int, ...], method: str = "exact") -> Any:
    """Twice a gamma sample of df / 2."""
    half = div(df, _like(df, 2.0))
    return mul(exp(gamma_of(source, half, shape, typeof(df).dtype, method=method)), 2.0)


@placeable
def f(
    key: Any,
    dfnum: Any,
    dfden: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Draw from the F distribution with dfnum and dfden degrees of freedom.

    Source: `jax.random.f`.

    Example:
      >>> import functrans as ft
      >>> ft.eval_shape(ft.random.f, ft.random.key(0), 3.0, 4.0).shape
      ()
    """
    dtype = dtype_of("f", dtype)
    check_safe("f", dtype, dfnum, dfden)
    return _f(key, dfnum, dfden, shape=shape_with("f", shape, dfnum, dfden), dtype=dtype)


@sampler("f")
def _f(source: Source, dfnum: Any, dfden: Any, *, shape: Any, dtype: Any) -> Any:
    """The ratio of two chi-squared samples, each over its degrees of freedom."""
    below, above = source.split()
    dfnum, dfden = cast(dfnum, dtype), cast(dfden, dtype)
    x, y = chisquare_of(above, dfnum, shape), chisquare_of(below, dfden, shape)
    return div(div(x, expand(dfnum, shape)), div(y, expand(dfden, shape)))


@placeable
def t(key: Any, df: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Draw from Student's t distribution with df degrees of freedom.

    Source: `jax.random.t`.

    Example:
      >>> import functrans as ft
      >>> ft.eval_shape(ft.random.t, ft.random.key(0), 3.0).shape
      ()
    """
    dtype = dtype_of("t", dtype)
    check_safe("t", dtype, df)
    return _t(key, df, shape=shape_with("t", shape, df), dtype=dtype)


@sampler("t")
def _t(source: Source, df: Any, *, shape: Any, dtype: Any) -> Any:
    """A normal sample over the root of a chi-squared one."""
    first, second = source.split()
    n = real_normal(first, shape, dtype)
    half = cast(df, dtype)
    half = expand(div(half, _like(half, 2.0)), shape)
    return mul(n, sqrt(div(half, second.gamma(half))))


@placeable
def generalized_normal(
    key: Any, p: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Draw from the density ~ e^(-|x|^p).

    Source: `jax.random.generalized_normal`.

    Example:
      >>> import functrans as ft
      >>> ft.eval_shape(ft.random.generalized_normal, ft.random.key(0), 1.5).shape
      ()
    """
    dtype = dtype_of("generalized_normal", dtype)
    shape = shape_of("generalized_normal", shape)
    fitting("gamma", shape, [typeof(p).shape])
    return _generalized_normal(key, p, shape=shape, dtype=dtype)


@sampler("generalized_normal")
def _generalized_normal(source: Source, p: Any, *, shape: Any, dtype: Any) -> Any:
    return generalized_normal_of(source, p, shape, dtype)


def generalized_normal_of(source: Source, p: Any, shape: Any, dtype: Any) -> Any:
    """A root of a gamma sample with either sign."""
    first, second = source.split()
    g = first.gamma(expand(cast(1 / p, dtype), shape))
    return rademacher_of(second, shape, dtype) * g ** (1 / p)


@placeable
def ball(
    key: Any,
    d: int,
    p: Any = 2,
    shape: Any = (),
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Draw evenly from the unit ball of the Lp norm in d dimensions.

    Arguments:
      key: a key.
      d: how many dimensions.
      p: of the norm.
      shape: of the result without its last axis.
      dtype: a float dtype.

    Returns:
      An array [*shape, d].

    Source: `jax.random.ball`; Barthe, Guedon, Mendelson, Naor (2005).

    Example:
      >>> import functrans as ft
      >>> ft.eval_shape(lambda key: ft.random.ball(key, 3, shape=(9,)), ft.random.key(0)).shape
      (9, 3)
    """
    dtype, shape = dtype_of("ball", dtype), shape_of("ball", shape)
    [d] = shape_of("ball", integer(d, "ball", "d"))
    return _ball(key, p, d=d, shape=shape, dtype=dtype)


@sampler("ball")
def _ball(source: Source, p: Any, *, d: int, shape: Any, dtype: Any) -> Any:
    first, second = source.split()
    g = generalized_normal_of(first, p, (*shape, d), dtype)
    e = exponential_of(second, shape, dtype)
    return g / ((jnp.sum(jnp.abs(g) ** p, -1) + e) ** (1 / p))[..., None]


def _like(x: Any, value: float) -> Any:
    return lax.full_like(x, value)
