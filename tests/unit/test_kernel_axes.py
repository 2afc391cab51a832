"""Another axis for short rows in kernels: where it is, and that results stay."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import errors, lax
from functrans.passes import kernel_axes
from tests.support.closeness import assert_close
from tests.unit.test_kernels import repeated

N = kernel_axes.SHORT
ROW = np.linspace(-1, 1, N, dtype="float32")
MATRIX = np.sin(np.arange(3 * N, dtype="float32")).reshape(3, N)


def kernel(f: Callable[..., Any], *args: Any) -> str:
    """The text of the kernels of a function."""
    return str(ft.passes.kernels.kernels(ft.passes.explain(f)(*args).after))


def axes(f: Callable[..., Any], *args: Any) -> set[str]:
    """The types with another axis."""
    return set(re.findall(rf"\w+\[(?:\d+,)*{N},1\]", kernel(f, *args)))


def test_rows_have_another_axis():
    assert axes(repeated(lambda i, x: jnp.sin(x) * 2), ROW) == {f"f32[{N},1]"}
    assert axes(repeated(lambda i, x: jnp.sin(x) * 2), MATRIX) == {f"f32[3,{N},1]"}
    assert not axes(repeated(lambda i, x: jnp.sin(x) * 2), ROW[1:])
    assert not axes(repeated(lambda i, x: jnp.sin(x) * 2), np.ones(kernel_axes.LONG + 1, "float32"))


def test_joined_rows_have_none():
    """Those of vectors have it if there is more to compute than the conditions that joins become."""
    assert not axes(repeated(lambda i, x: jnp.roll(x, 1) * 2), ROW)
    assert f"f32[{N},1]" in axes(repeated(lambda i, x: jnp.roll(jnp.tanh(jnp.sin(jnp.exp(x))), 1)), ROW)
    assert not axes(repeated(lambda i, x: jnp.roll(x, 1, 1) * 2), MATRIX)
    assert f"f32[3,{N},1]" in axes(repeated(lambda i, x: jnp.roll(x, 1, 0) * 2), MATRIX)


WORK: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "elements": (repeated(lambda i, x: jnp.where(x > 0, jnp.tanh(x), x * x) + i), MATRIX),
    "rows and columns": (repeated(lambda i, x: x - x.mean(1, keepdims=True) * x.max(0)), MATRIX),
    "places": (repeated(lambda i, x: x.at[1, i].set(x[0, i + 1]).at[:, i].add(x[:, 0])), MATRIX),
    "gathers": (repeated(lambda i, x: x[:, jnp.argsort(x[0])] + x[jnp.argmax(x[:, i])]), MATRIX),
    "transposed": (repeated(lambda i, x: (x.T * np.arange(3.0)).reshape(-1, N)[:3] * 0.5), MATRIX),
    "rows in a scan": (lambda x: lax.scan(lambda c, v: (c + v, (c * v, v[0])), x[0], x), MATRIX),
    "numbers in a scan": (lambda x: lax.scan(lambda c, v: (c + v, c * v), x[0], x), ROW),
    "a condition": (
        lambda x: lax.while_loop(lambda s: jnp.sum(s) < 50, lambda s: jnp.abs(s) * 1.5 + 0.1, x),
        ROW,
    ),
    "branches": (
        repeated(lambda i, x: lax.cond(x[0, 0] > 0, lambda x: x * 0.5, lambda x: x + ROW, x)),
        MATRIX,
    ),
    "loops in loops": (
        repeated(lambda i, x: lax.map(lambda v: lax.fori_loop(0, 3, lambda j, v: jnp.sin(v) + j, v), x)),
        MATRIX,
    ),
    "solutions": (repeated(lambda i, x: 9 * jnp.linalg.solve(x @ x.T + 9 * jnp.eye(3), x), 99), MATRIX),
    "a factor": (
        lambda x: lax.map(lambda s: jnp.linalg.cholesky(x.T @ x + s * jnp.eye(N)), jnp.arange(1.0, 300.0)),
        MATRIX,
    ),
    "keys": (
        lambda x: lax.map(lambda k: ft.random.normal(k, (N,)), ft.random.split(ft.random.key(0), 4)),
        ROW,
    ),
    "gradient": (ft.grad(lambda x: jnp.sum(repeated(lambda i, x: jnp.sin(x) * x.sum(0))(x))), MATRIX),
}


@pytest.mark.parametrize("name", WORK)
def test_results_stay(name: str, monkeypatch: pytest.MonkeyPatch):
    f, x = WORK[name]
    found, text = ft.jit(f)(x), kernel(f, x)
    monkeypatch.setattr(kernel_axes, "SHORT", kernel_axes.LONG + 1)
    ft.clear_caches()
    without = ft.jit(f)(x)
    assert text != kernel(f, x)
    for a, b in zip(ft.tree.leaves(found), ft.tree.leaves(without), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert_close(a, b, 1e-5)


def test_lines_of_the_user_stay():
    with jax.debug_nans(True), pytest.raises(errors.NotFinite, match=r"test_kernel_axes\.py"):
        ft.jit(repeated(lambda i, x: jnp.log(x) * 2))(ROW)
