"""`interop.from_jax`: JAX functions as ours, compared with the originals.

Each row of `ROWS` is a JAX function with arguments; what `matrix/test_libraries.py` imports is not among
them. One compiled program of ours and one of JAX's give its value, its gradient and what vmap makes of it;
dtypes, weak types and shapes are equal, values too up to rounding."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as J
import numpy as np
import pytest
from jax import lax as L
from jax import random as R

import functrans as ft
from functrans.interop import from_jax

X = np.linspace(0.2, 1.7, 6, dtype=np.float32).reshape(2, 3)
Y = np.array([[0.5, -1.5, 2.5], [1.0, 0.25, -0.75]], np.float32)
V = np.array([0.3, -1.2, 2.0, 0.7], np.float32)
M = np.array([[2.0, 0.3, 0.1], [0.2, 1.5, -0.4], [-0.3, 0.6, 1.8]], np.float32)
S = (M @ M.T).astype(np.float32)
I = np.array([[3, -1, 4], [1, -5, 9]], np.int32)  # noqa: E741
K = np.array([2, 0, 1], np.int32)
B = np.array([[True, False, True], [False, False, True]])


class Row(NamedTuple):
    """A JAX function and its arguments; `grad`: is the gradient compared, by the float ones among
    them; `vmap`: what vmap makes of it."""

    name: str
    function: Any
    args: tuple
    grad: bool = True
    vmap: bool = True


def rows(namespace: Any, args: tuple, names: str, grad: bool = True, vmap: bool = False) -> list:
    return [Row(n, getattr(namespace, n), args, grad, vmap) for n in names.split()]


def row(name: str, function: Any, *args: Any, grad: bool = True, vmap: bool = True) -> Row:
    return Row(name, function, args, grad, vmap)


KEY = R.PRNGKey(7)

ROWS = [
    # choosing, ordering, indexing
    row("where", J.where, B, X, Y),
    row("piecewise", lambda x: J.piecewise(x, [x < 0], [lambda v: -v, lambda v: v * v]), Y),
    row("at.apply", lambda x, i: x.at[i].apply(J.sin), V, K, grad=False),
    row("dynamic_update_slice", lambda x, i: L.dynamic_update_slice(x, x[:1] * 2, (i[0], 0)), X, K),
    # matrices, windows, transforms
    *rows(J.linalg, (S,), "inv det cholesky eigvalsh"),
    *rows(J.linalg, (M,), "svd pinv slogdet", grad=False),
    row("preferred", lambda x: L.dot(x, x.T, preferred_element_type=J.float32), I, grad=False),
    row("rfft", lambda x: J.fft.rfft(x), V),
    row("avg_pool", lambda x: L.reduce_window(x, 0.0, L.add, (2, 2), (1, 2), "VALID"), M),
    # random numbers
    row("uniform", lambda k: R.uniform(k, (3,)), KEY, vmap=False),
    row("normal", lambda k: R.normal(k, (3,)), KEY, vmap=False),
    row("split", lambda k: R.key_data(R.split(R.wrap_key_data(k), 3)), KEY, vmap=False),
    row("seed", lambda i: R.key_data(R.key(i[0])), K),
    # control flow
    row("cond", lambda x: L.cond(x[0] > 0, J.sin, J.cos, x), V),
    row("switch", lambda i, x: L.switch(i[0], [J.sin, J.cos, J.exp], x), K, X, vmap=False),
    row("scan, reverse", lambda x: L.scan(lambda c, a: (c * a + 1, c), 1.0, x, reverse=True), V),
    row("fori_loop", lambda x: L.fori_loop(0, 3, lambda i, v: v * 1.5 + i, x), V),
    row("associative_scan", lambda x: L.associative_scan(J.multiply, x), V),
    row("checkpoint", jax.checkpoint(lambda x: J.sin(J.sin(x))), V),
    row("barrier", lambda x: L.optimization_barrier(J.sin(x)), V),
    row("platform", lambda x: L.platform_dependent(x, cpu=J.sin, default=J.cos), V),
    row("while", lambda x: L.while_loop(lambda v: v[0] < 9, lambda v: v * 2, x), V, grad=False),
    row("reduce", lambda x: L.reduce(x, 1.0, lambda a, b: a * b, (0,)), V, grad=False),
]


def is_float(x: Any) -> bool:
    return jax.dtypes.issubdtype(x.dtype, np.floating)


def floats(tree: Any) -> Any:
    """The sum of the float results: something to differentiate."""
    leaves = [y for y in jax.tree.leaves(tree) if is_float(y)]
    return sum([(y.astype("float32") * (i + 1.5)).sum() for i, y in enumerate(leaves)])


def everything(how: Any, lib: Any) -> Any:
    """Value, gradient and vmap of all functions by one of the two libraries, compiled together."""

    def run(given: dict[str, Any]) -> Any:
        made: dict[str, Any] = {}
        for one in ROWS:
            args, function = given[one.name], how(one.function)
            numbers = tuple([i for i, x in enumerate(args) if is_float(x)])
            out = made[f"{one.name}: value"] = function(*args)
            if one.grad and numbers and any(map(is_float, jax.tree.leaves(out))):
                loss = lambda *xs, function=function: floats(function(*xs))  # noqa: E731
                made[f"{one.name}: gradient"] = lib.grad(loss, numbers)(*args)
            if one.vmap:
                doubled = [lib.numpy.stack([x, x[::-1]]) for x in args]
                made[f"{one.name}: vmap"] = lib.vmap(function)(*doubled)
        return made

    return lib.jit(run)({one.name: one.args for one in ROWS})


def assert_alike(ours: Any, theirs: Any) -> None:
    mine, structure = jax.tree.flatten_with_path(ours)
    other, wanted = jax.tree.flatten(theirs)
    assert structure == wanted
    for (path, x), y in zip(mine, other, strict=True):
        name = jax.tree_util.keystr(path)
        assert (x.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type), name
        if jax.dtypes.issubdtype(x.dtype, np.inexact):
            # bfloat16 and float16 have 8 and 11 bits, and are rounded where each library casts
            rtol = 2**-6 if x.dtype.itemsize == 2 or "bfloat16" in name else 4e-4
            a, b = (np.asarray(v).astype(np.complex128) for v in (x, y))
            np.testing.assert_allclose(a, b, rtol=rtol, atol=2e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(np.asarray(x), np.asarray(y), err_msg=name)


@pytest.mark.parametrize(
    "how", [lambda f: f, pytest.param(from_jax, marks=pytest.mark.sweep)], ids=["called", "imported"]
)
def test_functions_are_the_originals(how):
    """As they are, inside ours; and as `from_jax` makes one program of each."""
    assert_alike(everything(how, ft), everything(lambda f: f, jax))
