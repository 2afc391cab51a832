"""What a new user met: small programs beside JAX, and what misuse is told."""

import copy
import pickle
import pydoc
import warnings
from functools import partial

import jax
import jax.custom_batching
import jax.export
import numpy as np
import pytest
from jax.experimental.jet import jet as jax_jet

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from tests.support.tables import TABLES, functions

pytestmark = pytest.mark.smoke


def with_text(x):
    """A function whose aux holds what is no array."""
    return (x**2).sum(), {"name": "loss", "x": x, "steps": 3, "call": len, "array": np.arange(2)}


# --- aux ------------------------------------------------------------------------------------------


def test_aux_may_hold_anything_where_nothing_is_compiled():
    x = np.float32(2.0)
    for library in (ft, jax):
        found = [
            library.grad(with_text, has_aux=True)(x)[1],
            library.value_and_grad(with_text, has_aux=True)(x)[0][1],
            library.jvp(with_text, (x,), (x,), has_aux=True)[2],
            library.vjp(with_text, x, has_aux=True)[2],
            library.linearize(with_text, x, has_aux=True)[2],
            library.jacrev(with_text, has_aux=True)(x)[1],
        ]
        for aux in found:
            assert (aux["name"], aux["steps"], aux["call"], float(aux["x"])) == ("loss", 3, len, 2.0)
            assert isinstance(aux["array"], np.ndarray)


def test_aux_of_text_inside_jit_vmap_and_grad():
    def f(x):
        g, aux = ft.grad(with_text, has_aux=True)(x)
        assert aux["name"] == "loss"
        return g * aux["x"]

    assert ft.jit(f)(2.0) == 8.0
    assert ft.grad(f)(2.0) == 8.0
    np.testing.assert_array_equal(ft.vmap(f)(jnp.arange(3.0)), [0.0, 2.0, 8.0])


def test_a_result_that_is_no_array_is_told_with_the_users_function():
    inside = [lambda f, of=of: ft.jit(of(f)) for of in (jax.grad, jax.jacrev)]
    for transform in (ft.jacfwd, ft.jacrev, ft.hessian, ft.grad, *inside):
        with pytest.raises(TypeError, match=r"<lambda> returned 'text'(.|\n)*test_user_trials\.py"):
            transform(lambda x: "text")(2.0)
    with pytest.raises(TypeError, match=r"<lambda> returned 'text' of type str at result\['name'\]"):
        ft.jit(jax.vmap(lambda x: {"name": "text", "x": x}))(jnp.ones(3))
    with pytest.raises(TypeError, match=r"has_aux=True, .*<lambda> must return a pair \(out, aux\), got f32"):
        ft.jit(jax.grad(lambda x: x, has_aux=True))(jnp.float32(2))


# --- arguments of transformations -----------------------------------------------------------------


def test_attributes_of_a_function_stay():
    def f(x):
        return x

    f.note = "mine"
    derivatives = ft.grad, ft.value_and_grad, ft.jacfwd, ft.jacrev, ft.hessian
    for transform in (*derivatives, ft.vmap, ft.jit, ft.checkpoint):
        assert transform(f).note == "mine", transform
        assert ft.hessian is transform or transform(f).__wrapped__ is f
        assert transform(partial(f)).__name__ == "f"


def test_argnums():
    def f(x, y):
        return x * y * y

    for library in (ft, jax):
        assert library.grad(f, np.int64(1))(3.0, 2.0) == 12.0
        assert [float(g) for g in library.grad(f, np.array([1, 0]))(3.0, 2.0)] == [12.0, 4.0]
    assert ft.jit(lambda x, y: x * y, static_argnums=np.int64(1))(3.0, 2) == 6.0
    for wrong in (1.0, "x", None):
        for transform in (ft.grad, ft.jacfwd, ft.jacrev):
            with pytest.raises(TypeError, match="argnums must be an int"):
                transform(f, wrong)
    for twice in ((0, 0), (1, -1)):
        for transform in (ft.grad, ft.jacfwd, ft.jacrev):
            with pytest.raises(ValueError, match=r"twice(.|\n)*test_user_trials\.py"):
                transform(f, twice)(1.0, 2.0)


def test_a_pullback_takes_one_cotangent():
    pullback = ft.vjp(lambda x: (x, x), 1.0)[1]
    for given in ((), (1.0, 2.0)):
        with pytest.raises(TypeError, match=r"takes one argument(.|\n)*pullback\(\(a, b\)\)"):
            pullback(*given)
    assert pullback((1.0, 2.0))[0] == 3.0


def test_jax_asks_our_jitted_functions_for_types_with_their_static_arguments():
    f = ft.jit(lambda x, n, mode: x * n if mode == "times" else x[:n], static_argnames=("n", "mode"))
    for library in (ft, jax):
        assert library.eval_shape(f, np.ones(3), n=2, mode="slice").shape == (2,)
        assert library.eval_shape(f, x=np.ones(3), n=2, mode="times").shape == (3,)
    assert f._cache_size() == 0
    f(np.ones(3), n=2, mode="times")
    assert f._cache_size() == 1


def doubled(x, n):
    return 2 * x[:n]


@ft.jit
def decorated(x):
    return x


def test_help_shows_the_jitted_function():
    def step(x, rate=0.1):
        return x * rate

    assert "step(x, rate=0.1)" in pydoc.render_doc(ft.jit(step), renderer=pydoc.plaintext)


def test_numbers_whose_gradient_is_stopped_stay_numbers():
    assert lax.stop_gradient(True) is True
    assert ft.jit(lambda: jnp.ones(lax.stop_gradient(3)))().shape == (3,)


def test_wrong_operators_of_arrays_show_the_users_line_alone(monkeypatch):
    monkeypatch.delenv("FUNCTRANS_TRACEBACK", raising=False)
    x = ft.jit(lambda: jnp.ones((3, 4)))()
    for call in (lambda: x + x[0, :3], lambda: x[1, 2, 3]):
        with pytest.raises((ValueError, IndexError)) as caught:
            call()
        assert {str(entry.path) for entry in caught.traceback} == {__file__}


def test_a_jitted_function_is_copied_and_pickled():
    f = ft.jit(doubled, static_argnums=1)
    copies = [copy.copy(f), copy.deepcopy({"step": f})["step"], pickle.loads(pickle.dumps(f))]
    for made in copies:
        np.testing.assert_array_equal(made(np.ones(3, "float32"), 2), [2, 2])
    assert pickle.loads(pickle.dumps(decorated)) is decorated


def mean_square(x):
    return jax.numpy.mean(jax.numpy.tanh(x) ** 2)


def with_rule(kind):
    f = kind(lambda x: jax.numpy.sin(x))
    if kind in (ft.custom_vjp, jax.custom_vjp):
        f.defvjp(lambda x: (f(x), x), lambda x, g: (g * 2 * jax.numpy.cos(x),))
    else:
        f.defjvp(lambda x, dx: (f(*x), 2 * dx[0] * jax.numpy.cos(x[0])))
    return lambda x: f(x).sum()


SYMBOLIC = functions(TABLES / "transformations.txt", "symbolic sizes", "m", globals())


def test_transformations_of_symbolic_sizes():
    (n,) = jax.export.symbolic_shape("n")
    like, x = jax.ShapeDtypeStruct((n, 2), "float32"), np.arange(1, 7, dtype="float32").reshape(3, 2) / 7

    def every(jit, m):
        f = jit(lambda x: {name: make(m)(x) for name, make in SYMBOLIC.items()})
        return jax.export.export(f)(like)

    want = every(jax.jit, jax).call(x)
    for jit in (jax.jit, ft.jit):
        exported = every(jit, ft)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), exported.call(x), want)
        assert "(2*n,)" in {str(y.shape) for y in exported.out_avals}


@pytest.mark.parametrize("own", [ft.jit, lambda f: jax.jit(ft.jit(f)), lambda f: lambda *xs: ft.jit(f)(*xs)])
def test_taylor_mode_of_jax(own):
    def f(x, w):
        return jax.numpy.tanh(x @ w).sum(), x * 2

    x = np.linspace(0.1, 0.9, 3, dtype="float32")
    series = [[x, x * 0.5, x * 0], [np.ones((3, 2), "float32") * c for c in (1, 0, 0.2)]]
    at = x, np.ones((3, 2), "float32")
    for scaled in (True, False):
        got, want = (jax_jet(g, at, series, factorial_scaled=scaled) for g in (own(f), f))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), got, want)
    largest, moves = jax_jet(own(lambda x: jax.numpy.argmax(x)), (x,), [[x, x]])
    assert largest == 2
    assert not np.any(moves)


# --- control flow ---------------------------------------------------------------------------------


def test_jit_disabled():
    def branch(x):
        return x * 2 if x > 0 else x

    def loops(m):
        return lambda x: m.lax.scan(lambda c, _: (branch(c), None), x, None, 3)[0]

    with jax.disable_jit():
        assert ft.grad(ft.jit(branch))(1.0) == 2
        assert ft.grad(loops(jax))(1.0) == ft.grad(loops(ft))(1.0) == ft.jit(loops(jax))(1.0) == 8
        assert ft.grad(lambda x: jax.lax.cond(x > 0, branch, branch, x))(1.0) == 2


def test_custom_vmap_of_numbers_gives_arrays():
    for library in (ft, jax):
        f = library.custom_batching.custom_vmap(lambda x, y: {"product": x * y})
        f.def_vmap(lambda size, batched, x, y: (x + y, True))
        for y in f(2.0, 3.0).values():
            assert isinstance(y, jax.Array)
            assert y.weak_type


# --- values that Python asks for ------------------------------------------------------------------


def test_numpy_functions_of_what_is_differentiated_are_refused():
    for library in (ft, jax):
        for differentiate in (
            lambda f, library=library: library.grad(f)(1.0),
            lambda f, library=library: library.jvp(f, (1.0,), (1.0,)),
            lambda f, library=library: library.linearize(f, 1.0),
        ):
            with pytest.raises(jax.errors.TracerArrayConversionError):
                differentiate(np.sin)
    with pytest.raises(TypeError, match=r"no derivative(.|\n)*stop_gradient"):
        ft.grad(lambda x: np.dot(np.ones(3), x))(jnp.ones(3))
    seen = []
    ft.grad(lambda x: (seen.append(np.asarray(lax.stop_gradient(x))), x * x)[1])(3.0)
    assert seen == [3.0]
    assert ft.grad(lambda x: (np.arange(3.0) * x).sum())(2.0) == 3.0


def test_without_jit_functions_have_the_values_that_they_need():
    assert jnp.mean(jnp.ones((2, 3)), jnp.array(1)).shape == (2,)
    np.testing.assert_array_equal(jnp.where(np.array([True, False, True]))[0], [0, 2])


def test_python_ints_that_do_not_fit():
    for library in (ft, jax):
        for make in (library.numpy.asarray, library.numpy.array):
            for value in (2**40, [2**40, 1], [[1], [-(2**31) - 1]]):
                with pytest.raises(OverflowError):
                    make(value)
        np.testing.assert_array_equal(library.numpy.array([2**31 - 1, True, -1]), [2**31 - 1, 1, -1])
        np.testing.assert_array_equal(library.numpy.array([1.7, 2.0], "int32"), [1, 2])
        assert library.numpy.asarray(2**40, "float32") == 2.0**40  # not by way of an int32
        assert library.numpy.array([jnp.float32(1), 10**30])[1] == np.float32(1e30)
    with jax.enable_x64(True):
        assert jnp.asarray(2**40) == 2**40
    assert not ft.make_ir(lambda x: x * jnp.asarray(2, "float32"))(1.0).constants  # but a literal


# --- devices --------------------------------------------------------------------------------------


def test_none_among_the_arguments_and_results_of_shard_map():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    x = {"a": np.arange(4.0, dtype="f"), "b": None, "c": np.float32(2)}
    for library in (ft, jax):
        f = library.shard_map(
            lambda d, library=library: {"s": library.lax.pmean(d["a"], "i") * d["c"], "n": None},
            mesh=mesh,
            in_specs=({"a": ft.P("i"), "b": None, "c": ft.P()},),
            out_specs={"s": ft.P(), "n": None},
        )
        found = f(x)
        assert found["n"] is None
        np.testing.assert_array_equal(found["s"], [0.0, 2.0, 4.0, 6.0])
        with pytest.raises(ValueError, match="mesh"):
            library.shard_map(lambda x: x, in_specs=ft.P(), out_specs=ft.P())(x["a"])


def test_device_put_takes_what_jax_s_takes():
    device = jax.devices()[0]
    for library in (ft, jax):
        y = library.device_put(np.ones(2), device, src=device, may_alias=False)
        assert y.devices() == {device}
    assert ft.grad(lambda x: ft.device_put([x, 2.0], may_alias=False)[0] ** 2)(3.0) == 6.0


def test_64_bit_arrays_outlive_their_flag():
    with jax.enable_x64(True):
        x = jnp.arange(3.0)
    assert x.dtype == np.float64
    np.testing.assert_allclose(ft.grad(lambda v: (v**2).sum())(x), 2 * np.arange(3.0))
    np.testing.assert_allclose(ft.vmap(lambda v: jnp.sin(v) * 2)(x), 2 * np.sin(np.arange(3.0)))


CONSTANTS = {  # a function of x, by a numpy n, with constants; an argument
    "that a rule of JAX's closes over": (lambda n, m: n.linalg.pinv(m, rtol=0.1).sum(), jnp.eye(2) * 2),
    "of JAX's, too": (lambda n, m: n.linalg.pinv(m, rtol=jnp.float32(0.1)).sum(), jnp.eye(2) * 2),
    "of a convolution": (lambda n, x: (n.poly(x) * np.arange(4.0)).sum(), jnp.arange(1.0, 4.0)),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_gradients_with_constants_inside_of_rules_of_jaxs(name):
    f, x = CONSTANTS[name]
    ours, theirs = partial(f, jnp), partial(f, jax.numpy)
    want = jax.grad(theirs)(x)
    for found in (ft.grad(ours)(x), ft.jit(ft.grad(ours))(x), ft.jit(ft.grad(theirs))(x), ft.grad(theirs)(x)):
        np.testing.assert_allclose(found, want, rtol=1e-5)


@pytest.mark.parametrize("library", [ft, jax], ids=["functrans", "jax"])
def test_residuals_that_are_no_arrays_stay_as_they_are(library):
    @library.custom_vjp
    def f(x):
        return x.sum()

    def bwd(residuals, ct):
        shape, doubled, steps, factor, rows = residuals
        y = jnp.broadcast_to(ct, shape)  # a static shape
        for _ in range(steps):
            y = y * factor
        return ((2 * y if doubled else y) + rows[-1],)

    f.defvjp(lambda x: (x.sum(), (x.shape, True, 2, 1.5, np.arange(3.0))), bwd)
    x = jnp.ones(3)
    for gradient in (ft.grad, jax.grad):
        g = gradient(f)
        looped = gradient(lambda x: lax.scan(lambda c, _: (c + f(x), None), 0.0, length=2)[0])
        stacked = gradient(ft.checkpoint(f))
        for found in (g(x), jax.jit(g)(x), ft.jit(g)(x), jax.vmap(g)(x[None])[0], ft.vmap(g)(x[None])[0]):
            np.testing.assert_allclose(found, 6.5)
        np.testing.assert_allclose(looped(x), 13.0)
        np.testing.assert_allclose(stacked(x), 6.5)


def test_gradients_of_states_that_hold_keys():
    """With allow_int, as JAX: `flax.nnx` keeps its keys among the parameters."""

    def loss(state):
        return state["w"] * jax.random.normal(state["key"])

    state = {"w": 2.0, "key": jax.random.key(0)}
    want = jax.grad(loss, allow_int=True)(state)
    for g in (ft.grad(loss, allow_int=True), ft.jit(ft.grad(loss, allow_int=True))):
        found = g(state)
        np.testing.assert_allclose(found["w"], want["w"])
        assert found["key"].dtype == jax.dtypes.float0
    with pytest.raises(TypeError):
        ft.grad(loss)(state)


def test_arrays_like_random_keys():
    keys = jax.random.split(jax.random.key(0), 2)

    def made(numpy):
        return lambda k: [numpy.zeros_like(k), numpy.ones_like(k, shape=3), numpy.zeros(2, k.dtype)]

    want = made(jax.numpy)(keys)
    for found in (made(jnp)(keys), ft.jit(made(jnp))(keys), jax.jit(made(jnp))(keys)):
        for x, y in zip(found, want, strict=True):
            assert x.dtype == keys.dtype
            np.testing.assert_array_equal(jax.random.key_data(x), jax.random.key_data(y))


def test_casts_of_complex_numbers_to_real_ones_warn():
    z = jnp.array([1 + 2j])
    for lib in (jax, ft):
        with pytest.warns(DeprecationWarning, match="ValueError"):
            np.testing.assert_array_equal(lib.jit(lambda x: x.astype("float32"))(z), [1.0])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            lib.jit(lambda x: (x.astype(bool), x.real, x.astype("complex64")))(z)
