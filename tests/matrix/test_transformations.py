"""Transformations against `jax.*` on the same functions: values, dtypes, weak types, structure."""

import jax
import jax.numpy as jnp
import numpy as onp
import pytest

import functrans as ft
import functrans.numpy as fnp
from tests.matrix import same_functions
from tests.matrix.same_functions import ROWS, TABLE, X, assert_same, check
from tests.support.matrices import spread
from tests.support.tables import functions

FUNCTIONS = functions(TABLE, "functions", "L, np", vars(same_functions))
SHALLOW = functions(TABLE, "one", "L, np, f", vars(same_functions))
DEEP = functions(TABLE, "several", "L, np, f", vars(same_functions))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("transformation", SHALLOW)
def test_one_transformation(transformation: str, function: str):
    check(lambda L, np: SHALLOW[transformation](L, np, FUNCTIONS[function](L, np)), X)


@pytest.mark.parametrize(("transformation", "function"), spread(DEEP, list(FUNCTIONS), every=3))
def test_composition(transformation: str, function: str):
    check(
        lambda L, np: DEEP[transformation](L, np, FUNCTIONS[function](L, np)), X, eager=False, tolerance=5e-5
    )


@pytest.mark.parametrize("name", ROWS)
def test_api(name: str):
    build, args = ROWS[name]
    check(build, *args)


@pytest.mark.parametrize("name", [n for n in ROWS if "holomorphic" in n or n.startswith("weak")])
def test_api_in_double_precision(name: str):
    build, args = ROWS[name]
    with jax.enable_x64(True):
        wide = [
            x.astype(x.dtype.str[:2] + str(2 * x.itemsize)) if isinstance(x, onp.ndarray) else x for x in args
        ]
        check(build, *wide, eager=False, tolerance=1e-12)


# float0 and results that jax.jit does not take

UNJITTED = functions(TABLE, "not jitted", "L, np", vars(same_functions))


@pytest.mark.smoke
@pytest.mark.parametrize("name", UNJITTED)
def test_results_that_jit_does_not_take(name: str):
    assert_same(UNJITTED[name](ft, fnp), UNJITTED[name](jax, jnp), 1e-5)
