"""functrans.nn against jax.nn: values, dtypes, weak types, derivatives, batching."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans import nn

# points where formulas change, ties, large arguments
POINTS = np.array(
    [-120.0, -30.0, -6.0, -3.0, -1.5, -1.0, -0.3, 0.0, 0.3, 1.0, 2.5, 3.0, 6.0, 20.0, 120.0],
    "float32",
)
MATRIX = np.random.default_rng(0).normal(size=(4, 6)).astype("float32") * 3
MASK = MATRIX > -1.0

ACTIVATIONS = [
    "celu", "elu", "gelu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "identity",
    "leaky_relu", "log_sigmoid", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "soft_sign",
    "softplus", "sparse_plus", "sparse_sigmoid", "squareplus", "swish", "tanh",
]  # fmt: skip
WITH_PARAMETERS: list[tuple[str, dict[str, Any]]] = [
    ("gelu", {"approximate": False}),
    ("elu", {"alpha": 0.3}),
    ("elu", {"alpha": np.float32([0.5])}),
    ("celu", {"alpha": 2.0}),
    ("celu", {"alpha": np.float32([0.5])}),
    ("leaky_relu", {"negative_slope": 0.3}),
    ("leaky_relu", {"negative_slope": np.float32([0.5])}),
    ("squareplus", {"b": 1.0}),
    ("squareplus", {"b": np.float32([1.0])}),
]
ELEMENTWISE = [*[(name, {}) for name in ACTIVATIONS], *WITH_PARAMETERS]
NORMALIZING: list[tuple[str, dict[str, Any]]] = [
    *[
        (name, options)
        for name in ("softmax", "log_softmax")
        for options in (
            {}, {"axis": 0}, {"axis": (0, 1)}, {"axis": None}, {"axis": -2}, {"where": MASK},
            {"axis": 0, "where": MASK[:, :1]},
        )
    ],
    *[
        (name, options)
        for name in ("logsumexp", "logmeanexp")
        for options in (
            {}, {"axis": 0}, {"axis": (0, 1), "keepdims": True}, {"axis": -1, "keepdims": True},
            {"axis": 1, "where": MASK}, {"axis": ()},
        )
    ],
    ("logsumexp", {"b": MATRIX}),
    ("logsumexp", {"axis": 1, "b": np.abs(MATRIX)}),
    ("logsumexp", {"axis": 1, "b": np.float32([[2.0], [0.0], [1.0], [3.0]])}),
    ("glu", {}),
    ("glu", {"axis": 0}),
    ("standardize", {}),
    ("standardize", {"axis": 0, "algorithm": "stable", "epsilon": 0.1}),
    ("standardize", {"axis": (0, 1), "where": MASK}),
    ("standardize", {"mean": 0.5, "variance": np.float32(2.0)}),
]  # fmt: skip
FUNCTIONS = [
    *[pytest.param(n, o, POINTS, id=f"{n}-{sorted(o)}") for n, o in ELEMENTWISE],
    *[pytest.param(n, o, MATRIX, id=f"{n}-{i}") for i, (n, o) in enumerate(NORMALIZING)],
]


def pair(name: str, options: dict[str, Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return (
        lambda x: getattr(nn, name)(x, **options),
        lambda x: getattr(jax.nn, name)(x, **options),
    )


def assert_same(ours: Any, theirs: Any, ulps: float = 8, coarsest: Any = None) -> None:
    """`coarsest`: the dtype of the operand, whose rounding shows in results of a finer one."""
    assert (ours.dtype, ours.shape, ours.weak_type) == (
        theirs.dtype,
        theirs.shape,
        theirs.weak_type,
    )
    if jnp.issubdtype(theirs.dtype, jnp.inexact):
        tolerance = ulps * float(jnp.finfo(coarsest or theirs.dtype).eps)
        np.testing.assert_allclose(
            np.asarray(ours, "float64"), np.asarray(theirs, "float64"), tolerance, tolerance
        )
    else:
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize(("name", "options", "x"), FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_value(name: str, options: dict[str, Any], x: Any, dtype: str):
    ours, theirs = pair(name, options)
    x = jnp.asarray(x, dtype)
    assert_same(ours(x), theirs(x), coarsest=dtype)


@pytest.mark.parametrize(("name", "options", "x"), FUNCTIONS)
def test_inside_jit_and_vmap(name: str, options: dict[str, Any], x: Any):
    ours, theirs = pair(name, options)
    xs = jnp.stack([jnp.asarray(x), jnp.asarray(x) * 0.5])
    assert_same(ft.jit(ft.vmap(ours))(xs), jax.jit(jax.vmap(theirs))(xs))


@pytest.mark.parametrize(("name", "options", "x"), FUNCTIONS)
def test_derivatives(name: str, options: dict[str, Any], x: Any):
    """Gradient and second derivative along a direction, in float64 and eager."""
    ours, theirs = pair(name, options)
    with jax.enable_x64(True):
        x = jnp.asarray(x, "float64")
        weights = jnp.asarray(np.random.default_rng(1).normal(size=theirs(x).shape))

        def gradient(library: Any, f: Any) -> Any:
            return library.grad(lambda x: (f(x) * weights).sum())

        # JAX's exp(x - softplus(x)) and ours round apart by a few units
        assert_same(gradient(ft, ours)(x), gradient(jax, theirs)(x), 64)
        one = jnp.ones_like(x)
        second = ft.jvp(gradient(ft, ours), (x,), (one,))[1]
        assert_same(second, jax.jvp(gradient(jax, theirs), (x,), (one,))[1], 1024)


@pytest.mark.parametrize(
    "name", [*ACTIVATIONS, "softmax", "log_softmax", "standardize", "logsumexp"]
)
def test_dtypes_of_other_operands(name: str):
    """Integers, booleans, Python scalars and weak arrays give JAX's dtypes, or its errors."""
    options = {} if name in ACTIVATIONS else {"axis": None}
    ours, theirs = pair(name, options)
    weak = jnp.asarray(1.0) * jnp.asarray(2.0)
    integers = jnp.arange(3)
    if name in ("softmax", "log_softmax"):  # of integers JAX gives NaN, -inf: it casts -inf to int
        assert_same(ours(integers), theirs(integers.astype(float)))
        integers = jnp.ones(3)
    for x in (integers, 1.5, 2.5 if name in ("softmax", "log_softmax") else 2, weak):
        try:
            wanted = theirs(x)
        except TypeError:
            with pytest.raises(TypeError):
                ours(x)
        else:
            assert_same(ours(x), wanted)


@pytest.mark.parametrize("axis", [-1, 0])
def test_softmax_and_infinities(axis: int):
    x = jnp.array([[0.0, -jnp.inf, 2.0], [-jnp.inf, -jnp.inf, 1.0]])
    finite = ~jnp.isinf(x)
    for name in ("softmax", "log_softmax", "logsumexp"):
        ours, theirs = pair(name, {"axis": axis})
        assert_same(ours(x), theirs(x))

        def total(f: Any) -> Any:
            return lambda x: jnp.where(jnp.isfinite(f(x)), f(x), 0.0).sum()

        ours_grad = ft.grad(lambda x, f=ours: _sum_of_finite(f(x)))(x)
        theirs_grad = jax.grad(total(theirs))(x)
        keep = finite & jnp.isfinite(theirs_grad)
        np.testing.assert_allclose(
            jnp.where(keep, ours_grad, 0), jnp.where(keep, theirs_grad, 0), atol=1e-6
        )


def _sum_of_finite(y: Any) -> Any:
    finite = jnp.isfinite(y.concrete()) if hasattr(y, "concrete") else jnp.isfinite(y)
    return (fnp.where(finite, y, 0.0)).sum()


def test_logsumexp_with_sign_and_of_complex_numbers():
    for options in ({"return_sign": True}, {"return_sign": True, "b": MATRIX, "axis": 1}):
        ours, theirs = pair("logsumexp", options)
        for a, b in zip(ours(jnp.asarray(MATRIX)), theirs(jnp.asarray(MATRIX)), strict=True):
            assert_same(a, b)
    z = jnp.asarray(MATRIX[:2] + 1j * MATRIX[2:])
    np.testing.assert_allclose(nn.logsumexp(z, 1), jax.nn.logsumexp(z, 1), rtol=1e-5)


def test_log1mexp():
    x = np.float32([1e-3, 0.1, 0.69, 0.7, 3.0, 40.0])
    assert_same(nn.log1mexp(x), jax.nn.log1mexp(x))
    ours = ft.grad(lambda x: nn.log1mexp(x).sum())(jnp.asarray(x))
    theirs = jax.grad(lambda x: jax.nn.log1mexp(x).sum())(jnp.asarray(x))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("dtype", [None, "int8", "bfloat16", bool])
def test_one_hot(axis: int, dtype: Any):
    x = jnp.array([[0, 2, 5], [-1, 1, 3]])
    assert_same(
        nn.one_hot(x, 4, dtype=dtype, axis=axis), jax.nn.one_hot(x, 4, dtype=dtype, axis=axis)
    )
    assert_same(nn.one_hot(3, 4, dtype=dtype), jax.nn.one_hot(3, 4, dtype=dtype))


def test_errors_name_the_function_and_the_fix():
    with pytest.raises(ValueError, match=r"glu: axis 0 of .* must have an even size"):
        nn.glu(jnp.ones(3))
    with pytest.raises(TypeError, match="sigmoid: takes floats, not i32"):
        nn.sigmoid(jnp.arange(3))
    with pytest.raises(ValueError, match="'fast' or 'stable'"):
        nn.standardize(jnp.ones(3), algorithm="slow")
