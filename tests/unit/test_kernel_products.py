"""Products in kernels: which are sums, and which XLA's own code computes."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.ir.text import with_nested
from functrans.primitives.calls.jit import one_kernel
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.control_flow.scan import scan
from tests.support.closeness import assert_close


def looped(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: lax.fori_loop(0, 5, lambda i, x: step(x), x)


def in_kernel(f: Callable[..., Any], x: Any, primitive: Any) -> list[Any]:
    """The equations of a primitive in the kernel of a function."""
    (call,) = ft.passes.kernels.kernels(ft.passes.explain(f)(x).after).equations
    assert call.primitive is one_kernel
    return [e for p in with_nested(call.params["program"]) for e in p.equations if e.primitive is primitive]


def sums_in_products(f: Callable[..., Any], x: Any) -> bool:
    """Whether a product in the kernel of a function sums: it is XLA's."""
    return any(not {*e.params["lhs"]} <= {*e.params["out"]} for e in in_kernel(f, x, dot_general))


TAKEN = {  # rows, columns, dtype -> whether XLA's own code computes x @ M and M @ x
    (32, 32, "float32"): (True, True),
    (16, 40, "float32"): (False, True),  # rows of 160 bytes are not whole lines
    (40, 12, "float32"): (False, False),  # many short rows
    (8, 9, "float64"): (False, True),
    (16, 24, "float64"): (True, True),
    (16, 16, "int32"): (False, False),
    (16, 32, "complex64"): (False, False),
}


@pytest.mark.parametrize("case", TAKEN, ids=str)
@pytest.mark.parametrize("side", [0, 1], ids=["vector and matrix", "matrix and vector"])
def test_products_of_a_vector_by_xla(case: Any, side: int):
    n, m, dtype = case
    with jax.enable_x64(dtype == "float64"):
        M, N = ((5 * np.random.default_rng(i).normal(size=(n, m)) / m).astype(dtype) for i in range(2))
        if side == 0:
            f, x = looped(lambda x: (x @ M)[:1] * N[:, 0]), M[:, 0]
        else:
            f, x = looped(lambda x: (M @ x)[:1] * N[0]), M[0]
        assert sums_in_products(f, x) == TAKEN[case][side]
        assert_close(ft.jit(f)(x), ft.jit(f, cpu="plain")(x), 1e-4)


@pytest.mark.parametrize("rows", [(), (2,), (3, 4), (32,), (33,)], ids=str)
@pytest.mark.parametrize("size", [63, 64, 100])
def test_few_long_sums_along_rows_are_sums_of_vectors(rows: Any, size: int):
    x = np.random.default_rng(0).normal(size=(*rows, size)).astype("float32")
    f = looped(lambda x: x / (1 + jnp.vecdot(x, x)[..., None]))
    loops = in_kernel(f, x, scan)
    vectors = [v for e in loops for v in e.outputs if v.type.shape[: len(rows) + 1] == (*rows, 32)]
    assert bool(vectors) == (size >= 64 and x.size <= 32 * size)
    assert_close(ft.jit(f)(x), ft.jit(f, cpu="plain")(x), 1e-4)
