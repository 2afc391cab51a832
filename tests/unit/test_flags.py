"""JAX's configuration flags mean here what they mean there: NaNs that stop a program, promotion
that is forbidden. What they say is ours."""

import contextvars
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import errors, lax
from tests.support.versions import NEWEST

pytestmark = pytest.mark.smoke

NEGATIVE = -np.ones(3, np.float32)


def logarithms(c: Any, _: Any) -> Any:
    return jnp.log(c) - 1.0, None


def roots(w: Any) -> Any:
    return jnp.sum(jnp.sqrt(w))


# what -> (program, words of the message)
NANS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "one operation": (lambda: jnp.log(NEGATIVE), ["log", "-1.", "jnp.log(NEGATIVE)"]),
    "jit": (
        lambda: ft.jit(lambda x: jnp.sum(jnp.log(x) * 2))(NEGATIVE),
        ["(log)", "operand 0  x: f32[3] [-1., -1., -1.]", "jnp.log(x)"],
    ),
    "no arguments": (lambda: ft.jit(lambda: jnp.log(-1.0))(), ["(log)", "jnp.log(-1.0)"]),
    "un-jitted gradient": (lambda: ft.grad(roots)(NEGATIVE), ["(sqrt)", "jnp.sqrt(w)"]),
    "jitted gradient": (lambda: ft.jit(ft.grad(roots))(NEGATIVE), ["(sqrt)", "jnp.sqrt(w)"]),
    "the way back": (lambda: ft.jit(ft.grad(lambda w: jnp.sqrt(w) * 0.0))(0.0), ["derivative of sqrt"]),
    "a step of a loop": (
        lambda: ft.jit(lambda x: lax.scan(logarithms, x, None, length=5)[0])(5.0),
        ["step 2 (counted from 0)", "(log)", "jnp.log(c) - 1.0"],
    ),
    "an un-jitted loop": (lambda: lax.scan(logarithms, jnp.array(5.0), None, length=5), ["step 2"]),
    "vmap": (lambda: ft.vmap(jnp.log)(NEGATIVE), ["(log)", "ft.vmap(jnp.log)(NEGATIVE)"]),
    "a called layer": (lambda: ft.jit(lambda x: ft.jit(jnp.arccosh)(x) + 1)(NEGATIVE), ["arccosh"]),
    "an argument": (lambda: ft.jit(lambda x: x * 2)(jax_numpy.asarray(NEGATIVE) * 0 + np.nan), []),
    "a constant": (lambda: ft.jit(lambda x: x + jnp.nan)(1.0), []),
}


@pytest.mark.parametrize("what", NANS)
def test_nans_stop_a_program(what: str, capfd: Any):
    program, words = NANS[what]
    program()  # compiled before the flag is set
    with jax.debug_nans(True):
        for _ in range(2):
            with pytest.raises(FloatingPointError) as caught:
                program()
    for word in words:
        assert word in str(caught.value)
    if words:
        assert isinstance(caught.value, errors.NotFinite)
        assert "test_flags.py" in str(caught.value)
        assert "jax_debug_nans" in str(caught.value)
    program()
    capfd.readouterr()  # JAX announces that it looks for them


@pytest.mark.parametrize("call", [ft.jit(jnp.log), jnp.log, lambda x: ft.jit(jnp.log)(x) * 2])
@pytest.mark.parametrize("nans", [False, True])
@pytest.mark.parametrize("infs", [False, True])
def test_each_flag_stops_what_it_is_for(call, nans, infs):
    """Alone, with the other, and neither."""
    with jax.debug_nans(nans), jax.debug_infs(infs):
        for x, stops, word in ((-1.0, nans, "NaN"), (0.0, infs, "infinity")):
            if stops:
                with pytest.raises(errors.NotFinite, match=rf"(?s){word}.*test_flags.py"):
                    call(np.float32(x))
            else:
                call(np.float32(x))


def test_the_search_runs_an_operation_while_jax_still_calls_it():
    """It was not compiled before: while JAX calls it, it refuses another call with the same types."""
    with jax.debug_nans(True), pytest.raises(errors.NotFinite, match=r"log.*\n"):
        jnp.log(np.full(1234, -1.0, "float32"))


def test_what_looks_for_nans_is_not_stopped():
    f = ft.jit(lambda x: jnp.log(x))
    with jax.debug_nans(True):
        assert ft.find_nan(f)(NEGATIVE).first.primitive == "log"
        assert ft.compare(f)(NEGATIVE).ok
        assert np.isnan(ft.debug.step(f, commands=["continue"])(NEGATIVE)).all()
        assert float(f(np.float32(1))) == 0.0


A, B = np.ones((2, 3), np.float32), np.ones(3, np.float32)


@pytest.mark.parametrize("f", [jnp.add, lambda x, y: x * y])
def test_promotion_of_ranks_may_be_forbidden(f: Callable[[Any, Any], Any]):
    run = ft.make_ir(f)
    run(A, B)
    with jax.numpy_rank_promotion("raise"):
        with pytest.raises(errors.ImplicitPromotion, match=r"(?s)f32\[3\].*raise.*x\[None, :\]"):
            run(A, B)
        run(A, A)
        run(A, np.float32(2))  # scalars may grow, as in JAX
    with jax.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="have different ranks"):
        run(A, B)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(A, B)


def test_the_body_of_a_loop_is_traced_for_each_setting():
    def body(c, _):
        return c + jax.random.uniform(jax.random.key(0), (3,)), None

    def run(x):
        return ft.lax.scan(body, x, None, length=2)[0]

    for partitionable in (True, False):
        with jax.threefry_partitionable(partitionable):
            expected = 2 * np.float32(jax.random.uniform(jax.random.key(0), (3,)))
            np.testing.assert_allclose(ft.jit(lambda x: run(x))(np.zeros(3, np.float32)), expected, rtol=1e-6)


def test_deeply_nested_functions_see_the_settings_and_contexts_of_their_thread():
    chosen = contextvars.ContextVar("chosen", default=0)
    seen = []

    def innermost(x):
        seen.append((jax.config.jax_default_prng_impl, jax.config.jax_debug_infs, chosen.get()))
        return x + jax.lax.axis_size("rows")

    def nested(f, n):
        return f if n == 0 else ft.jit(lambda x: nested(f, n - 1)(x) * 1)

    chosen.set(5)
    with jax.default_prng_impl("rbg"), jax.debug_infs(True):
        out = ft.jit(ft.vmap(nested(innermost, 60), axis_name="rows"))(np.zeros(4, np.int32))
    assert seen == [("rbg", True, 5)]
    np.testing.assert_array_equal(out, [4, 4, 4, 4])
    assert jax.config.jax_default_prng_impl == "threefry2x32"


@pytest.mark.skipif(not NEWEST, reason="JAX has the flag since 0.12")
def test_the_accurate_inverse_of_erf():
    x = np.linspace(0.9, 1, 1001, dtype=np.float32)
    run, found = ft.jit(lambda x: (lax.erf_inv(x), ft.vmap(ft.grad(lax.erf_inv))(x))), []
    for accurate in (False, True):
        jax.config.update("jax_accurate_erf_inv", accurate)
        try:
            np.testing.assert_array_equal(run(x)[0], jax.jit(jax.lax.erf_inv)(x))
            found.append(run(x)[0])
        finally:
            jax.config.update("jax_accurate_erf_inv", False)
    assert np.any(found[0] != found[1])


def test_a_constant_of_a_jitted_function_is_no_transfer():
    def noisy(x: Any) -> Any:
        return x + jax_numpy.asarray(np.ones(3)) + jax.random.normal(jax.random.key(0), (3,))

    x = jnp.ones(3)
    with jax.transfer_guard("disallow"):
        assert ft.jit(noisy)(x).shape == x.shape
        with pytest.raises(RuntimeError, match="transfer"):
            ft.jit(noisy)(np.ones(3, np.float32))
