"""Another axis for short rows in kernels: where it is, and that results stay."""

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import errors, lax  # noqa: F401  (read by the table)
from functrans.passes import kernel_axes
from tests.support.closeness import assert_close
from tests.support.tables import functions
from tests.unit.test_kernels import LOOPS, repeated

N = kernel_axes.SHORT
ROW = np.linspace(-1, 1, N, dtype="float32")
MATRIX = np.sin(np.arange(3 * N, dtype="float32")).reshape(3, N)


def kernel(f: Callable[..., Any], *args: Any) -> str:
    """The text of the kernels of a function."""
    return str(ft.passes.kernels.kernels(ft.passes.explain(f)(*args).after))


def axes(f: Callable[..., Any], x: Any) -> set[str]:
    """The types of rows as long as those of x with another axis."""
    return set(re.findall(rf"\w+\[(?:\d+,)*{x.shape[-1]},1\]", kernel(f, x)))


@pytest.mark.parametrize(
    ("shape", "has"),
    [
        ((kernel_axes.SHORT,), True),
        ((kernel_axes.SHORT - 1,), False),
        ((kernel_axes.LONG_VECTOR,), True),
        ((kernel_axes.LONG_VECTOR + 1,), False),
        ((3, kernel_axes.LONG), True),
        ((3, kernel_axes.LONG + 1), False),
    ],
)
def test_rows_have_another_axis(shape: tuple[int, ...], has: bool):
    found = axes(repeated(lambda i, x: jnp.sin(x) * 2), np.ones(shape, "float32"))
    assert found == ({f"f32[{','.join(map(str, shape))},1]"} if has else set())


WORK = functions(LOOPS, "rows with another axis", "", globals())


@pytest.mark.parametrize("name", WORK)
def test_results_stay(name: str, monkeypatch: pytest.MonkeyPatch):
    f, x = WORK[name]()
    found, text = ft.jit(f)(x), kernel(f, x)
    monkeypatch.setattr(kernel_axes, "SHORT", kernel_axes.LONG_VECTOR + 1)
    ft.clear_caches()
    without = ft.jit(f)(x)
    assert text != kernel(f, x)
    for a, b in zip(ft.tree.leaves(found), ft.tree.leaves(without), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert_close(a, b, 1e-5)


def test_lines_of_the_user_stay():
    with jax.debug_nans(True), pytest.raises(errors.NotFinite, match=r"test_kernel_axes\.py"):
        ft.jit(repeated(lambda i, x: jnp.log(x) * 2))(ROW)
