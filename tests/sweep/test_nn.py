"""functrans.nn beside jax.nn where formulas change: values in three precisions, two derivatives."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from tests.support.versions import QUICK
from tests.support.wide import each

# points where formulas change, ties, large arguments
POINTS = np.array(
    [-120.0, -30.0, -6.0, -3.0, -1.5, -1.0, -0.3, 0.0, 0.3, 1.0, 2.5, 3.0, 6.0, 20.0, 120.0], "float32"
)
MATRIX = np.random.default_rng(0).normal(size=(4, 6)).astype("float32") * 3
MASK = MATRIX > -1.0

ACTIVATIONS = [
    "celu",
    "elu",
    "gelu",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "identity",
    "leaky_relu",
    "log_sigmoid",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_sign",
    "softplus",
    "sparse_plus",
    "sparse_sigmoid",
    "squareplus",
    "swish",
    "tanh",
]
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
            {},
            {"axis": 0},
            {"axis": (0, 1)},
            {"axis": None},
            {"axis": -2},
            {"where": MASK},
            {"axis": 0, "where": MASK[:, :1]},
        )
    ],
    *[
        (name, options)
        for name in ("logsumexp", "logmeanexp")
        for options in (
            {},
            {"axis": 0},
            {"axis": (0, 1), "keepdims": True},
            {"axis": -1, "keepdims": True},
            {"axis": 1, "where": MASK},
            {"axis": ()},
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
    ("standardize", {"mean": 0.5, "variance": 2.0}),
]
FUNCTIONS = {
    f"{name} {i}": (name, options, x)
    for x, rows in ((POINTS, ELEMENTWISE), (MATRIX, NORMALIZING))
    for i, (name, options) in enumerate(rows)
}


def assert_same(ours: Any, theirs: Any, ulps: float, coarsest: Any) -> None:
    """`coarsest`: the dtype of the operand, whose rounding shows in results of a finer one."""
    assert (ours.dtype, ours.shape, ours.weak_type) == (theirs.dtype, theirs.shape, theirs.weak_type)
    tolerance = ulps * float(jnp.finfo(coarsest).eps)
    np.testing.assert_allclose(
        np.asarray(ours, "float64"), np.asarray(theirs, "float64"), tolerance, tolerance
    )


def results(library: Any, dtype: str, transform: Any = lambda library, f: f) -> dict[str, Any]:
    """What all functions give, of one program."""

    def all_of_them() -> dict[str, Any]:
        found = {}
        for row, (name, options, x) in FUNCTIONS.items():
            f = functools.partial(getattr(library.nn, name), **options)
            found[row] = transform(library, f)(jnp.asarray(x, dtype))
        return found

    return library.jit(all_of_them, compiler_options=QUICK)()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_values(dtype: str):
    ours, theirs = results(ft, dtype), results(jax, dtype)
    each(FUNCTIONS, lambda row: assert_same(ours[row], theirs[row], 8, dtype))


def test_derivatives():
    """Gradient and second derivative along a direction, in float64."""

    def transform(library: Any, f: Any) -> Any:
        def gradient(x: Any) -> Any:
            def loss(x: Any) -> Any:
                y = f(x)
                return (y * np.cos(np.arange(y.size)).reshape(y.shape)).sum()

            return library.grad(loss)(x)

        return lambda x: library.jvp(gradient, (x,), (jnp.ones_like(x),))

    with jax.enable_x64(True):
        ours, theirs = (results(library, "float64", transform) for library in (ft, jax))

        def check(row: str) -> None:
            # JAX's exp(x - softplus(x)) and ours round apart by a few units
            for made, wanted, ulps in zip(ours[row], theirs[row], (64, 1024), strict=True):
                assert_same(made, wanted, ulps, "float64")

        each(FUNCTIONS, check)


def test_infinities():
    x = jnp.array([[0.0, -jnp.inf, 2.0], [-jnp.inf, -jnp.inf, 1.0], [jnp.inf, 1.0, 0.0]])
    for name in ("softmax", "log_softmax", "logsumexp"):
        for axis in (-1, 0):
            ours, theirs = (getattr(library.nn, name)(x, axis) for library in (ft, jax))
            assert_same(ours, theirs, 8, "float32")


def test_of_integers_and_of_complex_numbers():
    for name in ("softmax", "log_softmax"):  # JAX gives NaN, -inf: it casts -inf to int
        ours, theirs = getattr(ft.nn, name)(np.arange(3)), getattr(jax.nn, name)(np.arange(3.0))
        assert_same(ours, theirs, 8, "float32")
    z = jnp.asarray(MATRIX[:2] + 1j * MATRIX[2:])
    np.testing.assert_allclose(ft.nn.logsumexp(z, 1), jax.nn.logsumexp(z, 1), rtol=1e-5)
