"""`interop.from_jax`: operations of JAX that few of its functions record, beside JAX's values."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import random as extended_random
from jax.extend.core import primitives as operations

import functrans as ft
from functrans.interop import from_jax
from tests.support.closeness import assert_close
from tests.support.wide import each

X = np.array([[2, -0.0, np.nan, 1], [-3, 0.0, np.inf, 1]], np.float32)
Y = np.array([[-2, 0.0, np.nan, 1], [4, -0.0, np.inf, -np.nan]], np.float32)
I = np.array([[3, -1, 4, 1]], np.int32)  # noqa: E741
M = np.array([[2.0, 0.3, 0.1], [0.2, 1.5, -0.4], [-0.3, 0.6, 1.8]], np.float32)
KEY = jax.random.key(3)
WORDS = np.arange(2, dtype=np.uint32)


def same(x: Any) -> Any:
    dtype = np.dtype("float32")
    how = {"new_dtype": dtype, "weak_type": False, "sharding": None}
    return operations.convert_element_type_p.bind(x, **how)


def in_order(name: str) -> Any:
    return lambda x, y: getattr(operations, name).bind(x, y)


ROWS: dict[str, tuple[Any, ...]] = {
    **{
        f"{name}, {x.dtype}": (in_order(name), x, y)
        for name in ("eq_to_p", "lt_to_p", "le_to_p")
        for x, y in ((X, Y), (I, I[:, ::-1].copy()))
    },
    "a dtype that is there": (same, X),
    "tile": (lambda x: jax.lax.tile(x, (2, 3)), M),
    "singular values alone": (lambda x: jax.lax.linalg.svd(x, compute_uv=False), M),
    "svd": (lambda x: [abs(y) for y in jax.lax.linalg.svd(x)], M),
    "eigh": (lambda x: [abs(y) for y in jax.lax.linalg.eigh(x + x.T)], M),
    "eig": (lambda x: abs(jax.lax.linalg.eig(x)[0]), M @ M.T),
    "qr": (lambda x: [abs(y) for y in jax.lax.linalg.qr(x, full_matrices=False)], M[:, :2]),
    "schur": (lambda x: abs(jax.lax.linalg.schur(x)[0]), M @ M.T),
    "symmetric_product": (
        lambda x: jax.lax.linalg.symmetric_product(x, x, alpha=2.0, beta=0.5, symmetrize_output=True),
        M + M.T,
    ),
    "threefry2x32": (lambda k: extended_random.threefry_2x32(k, jnp.arange(8, dtype="uint32")), WORDS),
    "gamma": (lambda a: jax.random.gamma(KEY, a), np.float32([0.5, 3])),
    "loggamma": (lambda a: jax.random.loggamma(KEY, a), np.float32([0.5, 3])),
    "clone": (lambda a: a + jax.random.uniform(jax.random.clone(KEY)), np.float32(1)),
    "largest, not merged": (lambda x: jax.lax.approx_max_k(x, 2, aggregate_to_topk=False), M),
    "smallest": (lambda x: jax.lax.approx_min_k(x, 2), M),
}


def test_values():
    def check(name: str) -> None:
        function, *args = ROWS[name]
        ours = ft.interpret(ft.make_ir(from_jax(function))(*args), *args)
        assert_close(ours, jax.tree.leaves(function(*map(jnp.asarray, args))), 2e-5, name)

    each(ROWS, check)


def test_memory_to_be_written_to_holds_zeros():
    np.testing.assert_array_equal(from_jax(lambda: jax.lax.empty((2,), "float32"))(), [0, 0])


@pytest.mark.parametrize("n", [3, 9, 100])
def test_a_polynomial_of_many_coefficients_is_a_loop(n: int):
    p, x = np.linspace(-1, 1, n).astype(np.float32), np.float32([0.5, -0.9, 1])

    def f(p: Any, x: Any) -> Any:
        return jnp.polyval(p, x)

    slopes = ft.jit(jax.grad(lambda p, x: f(p, x).sum(), (0, 1)))
    by_p, by_x = slopes(p, x)
    np.testing.assert_allclose(ft.jit(f)(p, x), np.polyval(p, x), 1e-5)
    np.testing.assert_allclose(by_p, np.vander(x, n).sum(0), 1e-5, 1e-6)
    np.testing.assert_allclose(by_x, np.polyval(np.polyder(p), x), 1e-5)
    names = [e.primitive.name for e in slopes.program(p, x).equations]
    assert ("scan" in names) >= (n == 100)
    assert names.count("mul") < 70
