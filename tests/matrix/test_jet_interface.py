"""Taylor mode with custom rules, under the other transformations, and its misuse."""

from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import functrans as ft
import functrans.lax
import functrans.nn
import functrans.numpy as jnp
from functrans import errors
from functrans.experimental.jet import jet
from tests.matrix.taylor import OURS, function, nested
from tests.support.closeness import assert_close

pytestmark = pytest.mark.smoke


@function
def looped(m):
    def f(x):
        def body(state):
            return state[0] + 1, m.np.sin(state[1]) * x

        return m.lax.while_loop(lambda state: state[0] < 4, body, (0, x * 2.0))[1]

    return f


@pytest.mark.parametrize("how", [lambda f: f, ft.jit])
def test_custom_vjp_is_obeyed(how: Any):
    """JAX has no forward mode through custom_vjp; the rule is twice the derivative."""

    @ft.custom_vjp
    def double(x):
        return jnp.sin(x)

    double.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (2 * jnp.cos(x) * ct,))
    with jax.enable_x64(True):
        x, terms = np.float64(0.7), [np.float64(c) for c in (1.0, 0.5, -0.3)]
        y, ts = how(lambda x: jet(lambda x: double(x * x), (x,), (terms,)))(x)
        wanted = nested(lambda x: jax.numpy.sin(x * x), [x], [terms])
        assert_close([y, *ts], [wanted[0], *[2 * w for w in wanted[1:]]], 1e-10)


def test_pytrees_in_and_out_compose():
    """What jet returns is what it takes."""
    x = {"a": np.float32(0.5), "b": (np.ones(3, np.float32), 2)}
    series = {"a": [1.0, 2.0], "b": ([np.arange(3, dtype=np.float32), None], None)}

    def f(x):
        return {"sum": x["a"] * jnp.sum(x["b"][0] ** x["b"][1]), "same": x["a"], "n": x["b"][1]}

    def g(y):
        return jnp.sin(y["sum"]) * y["same"]

    middle, terms = jet(f, (x,), (series,))
    assert jax.tree.structure(middle) == jax.tree.structure(dict.fromkeys(middle, 0))
    assert terms["n"][0].dtype == jax.dtypes.float0
    assert_close(terms["same"], [np.float32(1), np.float32(2)])
    out, (first, second) = jet(g, (middle,), (terms,))

    def flat(a, b):
        y = a * jax.numpy.sum(b**2)
        return jax.numpy.sin(y) * a

    given = [[np.float32(1), np.float32(2)], [np.arange(3, dtype=np.float32), np.zeros(3, "f4")]]
    wanted = nested(flat, [x["a"], x["b"][0]], given)
    assert_close([out, first, second], wanted, 2e-5)


def test_order_zero_and_functions_of_nothing_that_moves():
    assert jet(jnp.square, (3.0,), ((),)) == (9.0, [])
    y, terms = jet(lambda x: jnp.ones(2), (3.0,), ((1.0, 2.0),))
    assert_close([y, *terms], [np.ones(2, "f4"), np.zeros(2, "f4"), np.zeros(2, "f4")])


def test_reverse_mode_through_the_series_of_a_while_loop():
    """Which JAX cannot do: against the central difference."""
    with jax.enable_x64(True):

        def third(x):
            return jet(looped(OURS), (x,), ((1.0, 0.5, -0.3),))[1][2]

        h = 1e-5
        slope = (third(0.7 + h) - third(0.7 - h)) / (2 * h)
        assert_close(ft.grad(third)(0.7), slope, 1e-8)
        assert_close(ft.jit(ft.grad(third))(0.7), slope, 1e-8)


def test_effects_happen_once(capsys):
    def f(x):
        ft.debug.print("saw {}", x * 2)
        return jnp.sin(x)

    for g in (f, ft.jit(f)):
        jet(g, (1.5,), ((1.0, None, None),))
        jax.effects_barrier()
        assert capsys.readouterr().out == "saw 3.0\n"


def test_a_value_that_outlives_its_jet():
    kept = []
    jet(lambda x: kept.append(x * 2), (1.0,), ((1.0,),))
    with pytest.raises(errors.LeakedTracer, match="had ended"):
        jnp.sin(kept[0])


def test_a_custom_vmap_rule_is_obeyed_behind_the_series_and_values_are_seen():
    f = ft.custom_batching.custom_vmap(jnp.sin)
    f.def_vmap(lambda size, batched, x: (10 * jnp.sin(x), batched[0]))
    x = np.full(2, 0.7, np.float32)
    _, terms = ft.vmap(lambda x: jet(f, (x,), ((1.0, None),)))(x)
    assert_close(terms, [10 * np.cos(x), -10 * np.sin(x)])
    assert jet(lambda x: x * x if float(x) > 0 else x, (2.0,), ((1.0, None),)) == (4.0, [4.0, 2.0])
