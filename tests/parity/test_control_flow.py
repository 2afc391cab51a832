"""cond, switch, while_loop, fori_loop, scan, map, associative_scan against JAX's."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as ft_numpy
from functrans import lax
from tests.support.tables import TABLES, rows
from tests.support.versions import NEWER  # noqa: F401  (read by the table)

_rng = np.random.default_rng(0)
W = jax_numpy.asarray(_rng.normal(size=(3, 3)) * 0.5, "float32")
X = jax_numpy.asarray(_rng.normal(size=(4, 3)), "float32")


class Pair(NamedTuple):
    carry: object
    y: object


ROWS = rows(TABLES / "transformations.txt", "loops and branches")


def not_(c):
    return c ^ True


def of_each(lax, np_):
    return [row.function("lax, np_", globals())(lax, np_) for row in ROWS]


@pytest.mark.smoke
@pytest.mark.parametrize("jitted", [False, True])
def test_values_and_types(jitted):
    mine, theirs = functools.partial(of_each, lax, ft_numpy), functools.partial(of_each, jax.lax, jax_numpy)
    found = (ft.jit(mine) if jitted else mine)()
    want = (jax.jit(theirs) if jitted else theirs)()
    for row, ours, its in zip(ROWS, found, want, strict=True):
        assert jax.tree.structure(ours) == jax.tree.structure(its), row
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(its), strict=True):
            b = jax_numpy.asarray(b)
            assert (a.dtype, a.weak_type) == (b.dtype, b.weak_type), row
            np.testing.assert_array_equal(a, b)


def test_python_sees_the_functions_in_the_order_of_jax():
    def seen(lax):
        said = []

        def saying(what, out):
            return lambda x: (said.append(what), out(x))[1]

        lax.cond(True, saying("true", abs), saying("false", abs), 1.0)
        lax.switch(1, [saying("0", abs), saying("1", abs)], 1.0)
        lax.while_loop(saying("condition", lambda x: x < 9.0), saying("body", lambda x: x + 1.0), 1.0)
        return said

    assert seen(ft.lax) == seen(jax.lax) == ["true", "false", "0", "1", "condition", "body"]
