"""`interop.from_jax`: signatures, static arguments, errors, programs, rules of the user's, calls of
Python, keys. The functions themselves: `matrix/test_libraries.py` and `parity/tables/jax_inside.txt`.
"""

from typing import Any

import jax
import jax.numpy as J
import numpy as np
import pytest
from jax import lax as L

import functrans as ft
from functrans.interop import from_jax
from functrans.interop.jaxprs import walk

pytestmark = pytest.mark.smoke

X = np.linspace(0.2, 1.7, 6, dtype=np.float32).reshape(2, 3)
Y = np.array([[0.5, -1.5, 2.5], [1.0, 0.25, -0.75]], np.float32)
V = np.array([0.3, -1.2, 2.0, 0.7], np.float32)
I = np.array([[3, -1, 4], [1, -5, 9]], np.int32)  # noqa: E741
K = np.array([2, 0, 1], np.int32)

# --- signatures -----------------------------------------------------------------------------------


def counting(function: Any) -> tuple[Any, list[int]]:
    """A function that counts its calls."""
    calls: list[int] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return function(*args, **kwargs)

    return counted, calls


def test_a_signature_is_traced_once():
    counted, calls = counting(lambda x, y: {"a": J.sin(x) * y, "b": (x, None)})
    f = from_jax(counted)
    for _ in range(3):
        f(X, Y)
        ft.make_ir(f)(X, Y)
        ft.jit(f)(X, Y)
        ft.grad(lambda x: f(x, Y)["a"].sum())(X)
        ft.jit(ft.vmap(f))(np.stack([X, X]), np.stack([Y, Y]))
    assert len(calls) == 1
    f(V, V)
    f(X, 2.0)  # a weak type is another signature
    f(X, np.float32(2.0))
    f(X, y=Y)
    assert len(calls) == 5
    f.clear_cache()
    f(X, Y)
    assert len(calls) == 6
    with jax.enable_x64(True):
        assert f(X.astype(np.float64), Y.astype(np.float64))["a"].dtype == np.float64
    assert len(calls) == 7


def test_options_and_numbers_whose_values_jax_needs_are_static_by_themselves():
    total, mean = from_jax(J.sum), from_jax(J.mean)
    for wrap in (lambda f: f, ft.jit, lambda f: ft.vmap(f, in_axes=None, axis_size=2)):
        found = wrap(lambda x: total(x, axis=-1, dtype="float16", keepdims=True))(X)
        assert found.dtype == np.float16
        assert found.shape[-1] == 1
        assert wrap(lambda x: mean(x, (0, 1)))(X).shape in ((), (2,))
    g = ft.jit(ft.grad(lambda x: total(from_jax(J.roll)(x, 1, axis=0)[0], axis=None)))
    np.testing.assert_array_equal(g(X), [[0, 0, 0], [1, 1, 1]])
    assert ft.jit(lambda x: x + from_jax(J.arange)(3))(X).shape == (2, 3)
    assert from_jax(J.zeros)((2, 3)).shape == (2, 3)


def test_numbers_stay_arguments_where_that_is_possible():
    counted, calls = counting(lambda x, y: x * y)
    f = from_jax(counted)
    assert [float(f(2.0, y)) for y in (1.0, 2.0, 3.0)] == [2.0, 4.0, 6.0]
    assert len(calls) == 1
    out, original = f(2, True), jax.jit(lambda x, y: x * y)(2, True)
    assert (out.dtype, out.weak_type) == (original.dtype, original.weak_type)


def test_what_depends_on_values_runs_un_jitted_and_says_so_elsewhere():
    f = from_jax(J.nonzero)
    np.testing.assert_array_equal(f(K)[0], [0, 2])
    with pytest.raises(ft.errors.AbstractValueError, match=r"nonzero.*(?s:.*)static_argnums"):
        ft.jit(f)(K)
    with pytest.raises(jax.errors.ConcretizationTypeError):
        ft.vmap(f)(I)
    np.testing.assert_array_equal(ft.jit(lambda x: f(x, size=3))(K)[0], [0, 2, 0])


def test_errors_of_the_function_are_its_own():
    f = from_jax(lambda x: x @ J.ones((7, 7)))
    for run in (f, ft.jit(f), ft.grad(f)):
        with pytest.raises(TypeError, match="contracting dimensions"):
            run(X)
    with pytest.raises(ft.errors.NotAnArray, match="from_jax takes a function"):
        from_jax(X)


def test_a_function_closes_over_traced_values():
    for f in (lambda x, y: J.sin(x) + y, lambda x, y: y + x, lambda x, y: x * y):
        inner: list = []

        def imported(x, f=f, inner=inner):
            held = [x]
            inner.append(from_jax(lambda y: f(held[0], y)))
            first = inner[-1](x)
            held[0] = 2 * x
            return first + inner[-1](x)

        np.testing.assert_allclose(ft.jit(imported)(V), f(V, V) + f(2 * V, V), rtol=1e-6)
        np.testing.assert_allclose(
            ft.grad(lambda x, g=imported: g(x).sum())(V),
            jax.grad(lambda x, f=f: (f(x, x) + f(2 * x, x)).sum())(V),
            rtol=1e-6,
        )


# --- programs -------------------------------------------------------------------------------------


INLINED = {False: False, True: True}
if hasattr(jax, "Inline"):
    INLINED |= {kind: "JAX" in kind.name for kind in jax.Inline}


@pytest.mark.parametrize("inline", INLINED)
@pytest.mark.parametrize("jitted", [jax.jit, ft.jit])
def test_calls_are_inlined_where_the_user_says_so(jitted, inline):
    """Others stay calls: a jitted function is traced once, and runs as one under `ft.grad` without `jit`."""
    f = jitted(lambda x: 2.0 * J.sin(x) * J.cos(x) * J.tanh(x) * J.exp(x) * J.square(x), inline=inline)
    program = ft.make_ir(lambda x: f(x) + f(-x))(V)
    calls = [e.params["program"] for e in program.equations if e.primitive.name == "jit"]
    assert len(calls) == (0 if INLINED[inline] else 2)
    assert len({id(p) for p in calls}) <= 1
    np.testing.assert_allclose(ft.vmap(f)(V), jax.jit(f)(V), rtol=1e-5)


@jax.custom_jvp
def cube(x):
    return x**3


cube.defjvp(lambda x, dx: (cube(*x), 3 * x[0] ** 2 * dx[0]))
JITTED = {
    "operations": jax.jit(lambda x: 2.0 * J.sin(x) + 1.0),
    "a rule": jax.jit(cube),
    "a rule, inlined": jax.jit(lambda x: 2.0 * cube(x) + 1.0, inline=True),
}


@pytest.mark.parametrize("f", JITTED.values(), ids=JITTED)
def test_a_short_jitted_function_is_one_operation_without_jit(monkeypatch, f):
    """Its equations are not run one by one, nor is a rule among them traced at each call."""
    translate, translated = counting(walk.apply)
    monkeypatch.setattr(walk, "apply", translate)
    for once in (ft.vmap(f), ft.grad(lambda x: f(x).sum())):
        once(V)
        before = len(translated)
        np.testing.assert_allclose(once(2 * V), once(2 * V), rtol=1e-6)
        assert len(translated) == before > 0


def test_equations_know_the_line_of_the_function():
    def f(x):
        y = J.sin(x)
        return J.cos(y)  # here

    (call,) = ft.make_ir(from_jax(f))(V).equations
    lines = [ft.ir.source.text_of(e.source) for e in call.params["program"].equations]
    assert lines == ["y = J.sin(x)", "return J.cos(y)  # here"]


# --- rules of the user's --------------------------------------------------------------------------


@jax.custom_vjp
def thrice(x, y):
    return J.sin(x) * y


thrice.defvjp(lambda x, y: (J.sin(x) * y, (x, y)), lambda r, g: (3 * g * J.cos(r[0]) * r[1], None))


def test_forward_mode_through_custom_vjp_inside_the_function():
    push = lambda x, t: jax.jvp(lambda x: thrice(x, 2.0), (x,), (t,))[1]  # noqa: E731
    f = from_jax(push)
    np.testing.assert_allclose(ft.jit(f)(V, V), 6 * np.cos(V) * V, rtol=1e-6)
    np.testing.assert_allclose(ft.grad(lambda t: f(V, t).sum())(V), 6 * np.cos(V), rtol=1e-6)


@pytest.mark.parametrize(("inside", "length"), [(False, 0), (False, 1), (True, 0), (True, 3)])
def test_rules_are_kept_however_short_the_function_is(inside, length):
    """Of its operand itself, or of a result; the rules are told by factors of 5, 7 and 100."""

    def body(x):
        for _ in range(length):
            x = J.sin(x)
        return x

    by_jvp, by_vjp = jax.custom_jvp(body), jax.custom_vjp(body)
    by_jvp.defjvp(lambda primals, tangents: (body(*primals), 5 * tangents[0]))
    by_vjp.defvjp(lambda x: (body(x), None), lambda _, ct: (7 * ct,))
    by_vmap = jax.custom_batching.custom_vmap(body)
    by_vmap.def_vmap(lambda n, batched, x: (body(x) + 100, True))
    for f, transform in ((by_jvp, "grad"), (by_vjp, "grad"), (by_vmap, "vmap")):
        whole = (lambda x, f=f: f(x * x) * 2) if inside else f
        ours, theirs = [getattr(lib, transform)(g) for lib, g in ((ft, from_jax(whole)), (jax, whole))]
        x = V if transform == "vmap" else V[0]
        [found] = ft.interpret(ft.make_ir(ours)(x), x)
        np.testing.assert_allclose(found, theirs(x), rtol=1e-6)


def test_checkpoints_and_shardings_are_kept():
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    where = jax.NamedSharding(mesh, jax.P("d"))

    def f(x):
        x = L.with_sharding_constraint(x * 2, where)
        x = jax.device_put(jax.jit(J.sin, out_shardings=where)(x), where)
        return J.sin(J.cos(x) @ J.outer(x, J.sin(x))).sum()

    wanted = jax.jit(jax.grad(f))(V)
    for policy in (jax.checkpoint_policies.nothing_saveable, jax.checkpoint_policies.dots_saveable):
        kept = jax.checkpoint(f, policy=policy)
        for g in (ft.grad(from_jax(kept)), from_jax(jax.grad(kept))):
            np.testing.assert_allclose(ft.jit(g)(V), wanted, rtol=1e-5, atol=1e-6)


# --- beyond one program ---------------------------------------------------------------------------


def test_constants_of_programs_that_jax_made_with_wide_types():
    """JAX finds its program of a matrix product again, whose constants are float64 then."""
    x = jax.ShapeDtypeStruct((3, 4), np.float32)
    ft.clear_caches()
    try:
        with jax.enable_x64(True):
            assert ft.eval_shape(from_jax(jax.scipy.special.owens_t), x, x).dtype == np.float64
        assert ft.eval_shape(from_jax(jax.scipy.special.owens_t), x, x).dtype == np.float32
    finally:
        ft.clear_caches()  # JAX would not run it now


def test_that_a_value_is_needed_is_said_alike_imported_or_not():
    def f(x: Any) -> Any:
        return J.zeros(int(x[0, 0]))  # the value

    with pytest.raises(ft.errors.AbstractValueError) as own:
        ft.jit(lambda x: jax.jit(f)(x))(X)
    with pytest.raises(ft.errors.AbstractValueError) as imported:
        ft.jit(from_jax(f))(X)
    for error in (own, imported):
        told = str(error.value)
        assert "value of an array, but only its type is known, at" in told
        assert "JAX says: " in told
        assert "Mark the argument that it comes from as static (static_argnums" in told
    assert "# the value" in str(own.value)
    assert str(imported.value).startswith("f, imported by from_jax, needs the concrete value")
    assert "static_argnums of from_jax" in str(imported.value)


def test_the_gradient_of_a_loop_is_compiled_once(caplog):
    """Un-jitted too: what a scan makes of its body for tangents is kept with the body."""
    value = from_jax(J.polyval)
    slope = ft.grad(lambda x: value(x[0], x).sum())
    slope(X)
    with jax.log_compiles():
        slope(X)
    assert not [r for r in caplog.records if "ompil" in r.getMessage()]


def test_in_a_while_loop_that_jax_mapped_each_example_stops_by_itself():
    mapped = jax.vmap(lambda x: jax.lax.while_loop(lambda v: v < 9, lambda v: v * 2, x))
    x = np.float32([1, 2.5, 20])
    np.testing.assert_array_equal(from_jax(mapped)(x), [16, 10, 20])


def test_steps_after_an_examples_last_one_give_no_infinite_derivatives():
    def logs(x, n):
        return L.while_loop(lambda c: c[1] > 0, lambda c: (J.log(c[0]), c[1] - 1), (x, n))[0]

    x, n = np.float32([1, 20]), np.int32([1, 2])  # a second step of the first would be log(0)
    gradient = ft.grad(lambda x: from_jax(jax.vmap(logs))(x, n).sum())(x)
    np.testing.assert_allclose(gradient, [1, 1 / (20 * np.log(20))], rtol=1e-6)


def test_jaxs_print(capfd):
    f = from_jax(lambda x: (jax.debug.print("x = {x}, {}", 2, x=x[0]), x)[1])
    f(V), ft.jit(f)(V)
    ft.effects_barrier()
    assert capfd.readouterr().out.count("x = 0.3") == 2


def test_a_collective_that_jax_does_not_batch():
    """JAX has no vmap of it; ours is compared with JAX's on devices in test_shard_map.py."""
    rows, step, once = np.arange(16.0).reshape(4, 4), np.arange(4, dtype=np.int32), np.ones(4, np.int32)
    each = from_jax(
        lambda x, i: L.ragged_all_to_all(x, J.zeros(4), step, once, J.full(4, i), once, axis_name="i")
    )
    np.testing.assert_array_equal(ft.vmap(each, axis_name="i")(rows.astype("f4"), step), rows.T)
