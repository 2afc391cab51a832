"""custom_vmap, rules in control flow and as programs, and their misuse, against JAX's."""

from __future__ import annotations

import re

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans.backends.xla import run_program
from functrans.primitives.calls.captured import closed
from functrans.transforms.jvp import jvp_program
from tests.matrix.custom_functions import OURS, THEIRS, WAYS, X, Y, both, composed, functions
from tests.support.matrices import spread

# --- custom_vmap ----------------------------------------------------------------------------------


def batched_twice(m, np_):
    @m.custom_batching.custom_vmap
    def f(x, y):
        return np_.sin(x) * y, x

    @f.def_vmap
    def _(axis_size, in_batched, x, y):
        xs, ys = in_batched
        out = 2.0 * np_.sin(x) * y
        return (out, x), (xs or ys, xs)

    return f


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
def test_custom_vmap(axes):
    for transform in (
        lambda m, f: m.vmap(f, axes),
        lambda m, f: m.jit(m.vmap(f, axes)),
        lambda m, f: m.vmap(m.jit(f), axes),
        lambda m, f: lambda *a: m.jvp(m.vmap(f, axes), a, a),
        lambda m, f: m.vmap(lambda *a: m.jvp(f, a, a), axes),
        lambda m, f: lambda *a: m.grad(lambda *b: m.vmap(f, axes)(*b)[0].sum())(*a),
        lambda m, f: f,
    ):
        args = [x if d == 0 else x[0] for x, d in zip((X, Y), axes, strict=True)]
        both(batched_twice, *args, transform=transform)


def test_a_primal_that_is_batched_with_a_tangent_that_is_not():
    """JAX gives an array of shape (3, 3) here."""
    f = batched_twice(ft, jnp)
    found = ft.vmap(lambda x, y: ft.jvp(lambda x: f(x, y)[0], (x,), (1.0,))[1])(X, Y)
    np.testing.assert_allclose(found, 2 * np.cos(X) * Y, rtol=1e-5)


def test_reverse_mode_of_custom_vmap_is_that_of_the_function():
    f = batched_twice(ft, jnp)
    found = ft.vmap(ft.grad(lambda x, y: f(x, y)[0]))(X, Y)
    np.testing.assert_allclose(found, np.cos(X) * Y, rtol=1e-5)


@pytest.mark.parametrize("inside", [False, True])
def test_a_rule_where_only_tangents_or_primals_are_batched(inside):
    """It sees operands that are not batched, as in JAX; of JAX's functions too."""

    def make(m, np_):
        f = m.custom_batching.custom_vmap(lambda x, y: (np_.sin(x) * y, y))
        f.def_vmap(lambda n, b, x, y: ((np_.cos(x) * y, 2 * y), (b[0] or b[1], b[1])))
        return f

    theirs = make(jax, jax_numpy)
    f = theirs if inside else make(ft, jnp)
    for m, jit in ((ft, lambda g: g), (jax, ft.jit))[: 1 + inside]:
        found, want = [[w.jacfwd(g, (0, 1))(X, Y)] for w, g in ((m, f), (jax, theirs))]
        found += [jit(m.jacfwd(f, (0, 1)))(X, Y)]
        want += want
        for axes, args in (((None, 0), (X[0], Y)), ((0, None), (X, Y[0]))):
            for w, g, outs in ((m, f, found), (jax, theirs, want)):
                outs.append(w.vmap(lambda x, t, w=w, g=g: w.jvp(g, (x, x), (t, t)), axes)(*args))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, want)


def test_sequential_vmap():
    def make(m, np_):
        return m.custom_batching.sequential_vmap(lambda x, y: (np_.sin(x) * y, x))

    for axes in ((0, 0), (0, None), (None, 0)):
        both(make, X, Y, transform=lambda m, f, axes=axes: m.vmap(f, axes))


def test_custom_vjp_of_a_custom_vmap():
    def make(m, np_):
        @m.custom_vjp
        @m.custom_batching.custom_vmap
        def f(x, y):
            return np_.sin(x) * y

        @f.def_vmap
        def _(axis_size, in_batched, xs, ys):
            return np_.cos(xs) * ys, True

        f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda r, ct: (5.0 * ct * r[1], ct))
        return f

    both(make, X, Y, transform=lambda m, f: m.vmap(f))
    both(make, X, Y, transform=lambda m, f: m.vmap(m.grad(f)))
    both(make, X, Y, transform=lambda m, f: lambda *a: m.grad(lambda *b: m.vmap(f)(*b).sum())(*a))


# --- control flow ---------------------------------------------------------------------------------


def in_control_flow(f, lax, np_):
    """Functions of two arrays that call `f` inside a body."""

    def scan(x, y):
        def body(c, row):
            out = f(c, y)
            return np_.tanh(out), f(out, c) * row

        c, outs = lax.scan(body, x, np_.arange(3.0))
        return c + outs.sum(0)

    def cond(x, y):
        return lax.cond(np_.sum(x) > 0, lambda a: f(a, y), lambda a: a * 2, x)

    def fori(x, y):
        return lax.fori_loop(0, 3, lambda i, c: np_.tanh(f(c, y)), x)

    def mapped(x, y):
        return lax.map(lambda a: f(*a), (x, y))

    return {"scan": scan, "cond": cond, "fori": fori, "map": mapped}


def in_python(f, np_):
    """The same without control flow. JAX's scan forgets the rules of functions that rules call, so
    its second derivatives differ from those of a Python loop."""

    def scan(x, y):
        total = 0.0
        for row in range(3):
            out = f(x, y)
            x, total = np_.tanh(out), total + f(out, x) * row
        return x + total

    def fori(x, y):
        for _ in range(3):
            x = np_.tanh(f(x, y))
        return x

    return {"scan": scan, "cond": f, "fori": fori, "map": f}


BY = (
    "grad",
    "jvp",
    "jit.grad",
    "grad.jit",
    "vmap.grad",
    "jvp.grad",
    "grad.grad",
    "grad.jvp",
    "jit.linearize",
)


@pytest.mark.parametrize(("body", "names"), spread(("scan", "cond", "fori", "map"), BY))
@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
def test_bodies(kind, body, names):
    names = tuple(names.split("."))
    if body in ("scan", "cond", "fori") and "vmap" in names:
        pairs = (np.stack([X, Y]), np.stack([Y, X]))
    else:
        pairs = (X, Y)
    if body == "map" and "vmap" in names:
        pairs = (X[:, None], Y[:, None])
    ours = in_control_flow(functions(ft, jnp)[kind], ft.lax, jnp)[body]
    theirs = in_python(functions(jax, jax_numpy)["custom_jvp"], jax_numpy)[body]
    np.testing.assert_allclose(
        composed(ours, names, OURS)(*pairs),
        jax.jit(composed(theirs, names, THEIRS))(*pairs),
        rtol=5e-5,
        atol=1e-5,
    )


def test_a_rule_that_differentiates_control_flow():
    def make(m, np_):
        def step(x):
            c = m.lax.scan(lambda c, _: (np_.tanh(c) * x, None), x, None, length=3)[0]
            return m.lax.cond(x > 0, lambda a: np_.sin(a), lambda a: a * 2, c)

        @m.custom_jvp
        def f(x):
            return step(x)

        @f.defjvp
        def _(primals, tangents):
            y, dy = m.jvp(step, primals, tangents)
            return y, 2.0 * dy + y * tangents[0]

        return f

    for how in ("grad", "jit of grad", "grad of jit", "jvp"):
        both(make, np.float32(0.7), transform=WAYS[how])


# --- programs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
def test_programs_are_well_formed(kind):
    f = functions(ft, jnp)[kind]
    for one in (f, ft.vmap(f), ft.vmap(ft.vmap(f)), ft.grad(lambda *a: ft.jit(f)(*a).sum())):
        args = [np.ones((2, 2, 3), np.float32)] * 2
        if one is ft.grad:
            args = [X, Y]
        program = ft.make_ir(one)(*args)
        assert ft.ir.check(program) is program
        np.testing.assert_allclose(ft.interpret(program, *args)[0], ft.jit(one)(*args), rtol=1e-5, atol=1e-6)


def test_a_custom_function_that_nobody_needs_is_dead_code():
    f = functions(ft, jnp)["custom_vjp"]
    program = ft.jit(lambda x, y: (f(x, y), x)[1]).program(X, Y)
    assert not program.equations


@pytest.mark.parametrize(
    "array",
    [
        np.array([[1.0, -0.0], [2.5, np.float32(1) / 3]], np.float32),
        np.array([True, False]),
        np.array(2 + 3j, np.complex64),
        np.arange(100, dtype=np.int32),
        jnp.asarray(1.0),
    ],
    ids=str,
)
def test_arrays_written_in_programs(array):
    array = jnp.asarray(array)
    held = ft.make_ir(lambda: array + array)()
    program = closed(held)
    assert not program.constants
    ft.ir.check(program)
    assert program.out_types == held.out_types
    for run in (program, closed(jvp_program(program, ())[0])):
        np.testing.assert_array_equal(ft.interpret(run)[0], array + array)
        compiled = jax.jit(lambda run=run: run_program(run, []))
        np.testing.assert_array_equal(compiled()[0], array + array)
    if array.size < 64:
        assert ft.ir.equal(ft.ir.parse(str(program)), program)


def test_text_names_the_rule():
    f = functions(ft, jnp)["custom_jvp"]
    assert "custom_jvp_call[rule=<jvp rule of" in str(ft.make_ir(f)(X, Y))


# --- misuse ---------------------------------------------------------------------------------------


def jvp_rule(rule):
    f = ft.custom_jvp(lambda x: (x, x))
    f.defjvp(rule)
    return f


def vjp_rule(fwd, bwd):
    f = ft.custom_vjp(lambda x, y: x["a"] * y)
    f.defvjp(fwd, bwd)
    return lambda x: f({"a": x}, 2.0)


def good_fwd(x, y):
    return x["a"] * y, (x, y)


MISUSE = {
    "no pair": (lambda: jvp_rule(lambda p, t: p[0]), "must return a pair"),
    "trees of a jvp rule differ": (
        lambda: jvp_rule(lambda p, t: ((p[0], p[0]), t[0])),
        "structure of its primal output",
    ),
    "tangent of another dtype": (
        lambda: jvp_rule(lambda p, t: ((p[0], p[0]), (t[0].astype("float16"), t[0]))),
        r"tangent output of type f32\[\], got f16\[\]",
    ),
    "tangent of another shape": (
        lambda: jvp_rule(lambda p, t: ((p[0], p[0]), (t[0], jnp.stack([t[0]] * 2)))),
        r"tangent output of type f32\[\], got f32\[2\]",
    ),
    "primal output depends on tangents": (
        lambda: jvp_rule(lambda p, t: (t * 2, t * 2)),
        "depends on the tangents",
    ),
    "jvp rule not linear": (
        lambda: jvp_rule(lambda p, t: (p * 2, (t[0] * t[0], t[0]))),
        "not linear in the tangents",
    ),
    "fwd returns no pair": (lambda: vjp_rule(lambda x, y: x["a"], good_fwd), "must return a pair"),
    "residuals are no arrays": (
        lambda: vjp_rule(lambda x, y: (y, {"r": "word"}), lambda r, ct: ()),
        r"returned 'word' of type str at residuals\['r'\]",
    ),
    "bwd returns no tuple": (
        lambda: vjp_rule(good_fwd, lambda r, ct: ct),
        "must return a tuple with one cotangent",
    ),
    "bwd returns too few": (
        lambda: vjp_rule(good_fwd, lambda r, ct: (ct,)),
        "must return a tuple with one cotangent",
    ),
    "bwd returns another tree": (
        lambda: vjp_rule(good_fwd, lambda r, ct: ({"b": ct}, ct)),
        "must return a tuple with",
    ),
    "cotangent of another shape": (
        lambda: vjp_rule(good_fwd, lambda r, ct: ({"a": jnp.stack([ct, ct])}, ct)),
        r"returned a cotangent of type f32\[2\] for args\[0\]\['a'\] of type f32\[\]",
    ),
}


@pytest.mark.parametrize("wrap", [lambda f: f, ft.jit], ids=["dynamic", "jit"])
@pytest.mark.parametrize("name", MISUSE)
def test_misuse(name, wrap):
    make, message = MISUSE[name]
    f = make()

    def loss(x):
        out = f(x)
        return out[0] + out[1] if isinstance(out, tuple) else out

    with pytest.raises(TypeError if "linear" not in name else NotImplementedError) as caught:
        ft.grad(wrap(loss))(jnp.float32(1.0))
    assert isinstance(caught.value, ft.errors.FunctransError)
    text = str(caught.value)
    assert re.search(message, text), text
    assert "test_custom_vmap.py" in text


def test_a_rule_whose_output_differs_from_the_function():
    f = jvp_rule(lambda p, t: ((p[0], jnp.stack([p[0]] * 2)), (t[0], jnp.stack([t[0]] * 2))))
    with pytest.raises(ft.errors.RuleMismatch, match=r"returned \(f32\[\], f32\[2\]\), but"):
        ft.grad(ft.jit(lambda x: f(x)[0]))(jnp.float32(1.0))
    f = jvp_rule(lambda p, t: ([p[0], p[0]], [t[0], t[0]]))
    with pytest.raises(ft.errors.RuleMismatch, match="returned an output with the structure"):
        ft.grad(ft.jit(lambda x: f(x)[0]))(jnp.float32(1.0))


def test_no_rule_defined():
    for make in (ft.custom_jvp, ft.custom_vjp, ft.custom_batching.custom_vmap):
        with pytest.raises(AttributeError, match="before its rule was defined"):
            make(lambda x: x)(1.0)


def test_keyword_only_arguments():
    f = ft.custom_jvp(lambda x, *, n: x)
    f.defjvp(lambda p, t: (p[0], t[0]))
    with pytest.raises(TypeError, match="cannot be passed by position"):
        ft.grad(f)(1.0, n=2)


def test_defjvps_with_nondiff_arguments():
    with pytest.raises(TypeError, match="Use defjvp"):
        ft.custom_jvp(lambda n, x: x, nondiff_argnums=(0,)).defjvps(None)


def test_traced_nondiff_arguments_of_custom_vjp():
    f = ft.custom_vjp(lambda n, x: n * x, nondiff_argnums=(0,))
    f.defvjp(lambda n, x: (f(n, x), None), lambda n, _, ct: (ct,))
    with pytest.raises(jax.errors.UnexpectedTracerError, match="nondiff_argnums"):
        ft.grad(lambda x: f(x, x))(1.0)


def test_forward_mode_with_a_bwd_rule_that_is_not_linear():
    f = ft.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda _, ct: (jnp.clip(ct, -1.0, 1.0),))
    with pytest.raises(ft.errors.NotLinear, match="forward mode through the custom_vjp function"):
        ft.jvp(f, (1.0,), (1.0,))


def test_a_vmap_rule_that_does_not_fit():
    f = ft.custom_batching.custom_vmap(lambda x: x)
    for rule, message in (
        (lambda n, b, x: x, "must return a pair"),
        (lambda n, b, x: ((x, x), (True, True)), "with the structure of the function's output"),
        (lambda n, b, x: (x, (True,)), "out_batched with the structure"),
        (lambda n, b, x: (x[:1], True), r"must return f32\[3\]"),
    ):
        f.def_vmap(rule)
        with pytest.raises(ValueError, match=message):
            ft.vmap(f)(X)


def test_rules_of_what_is_inside():
    f = ft.custom_vjp(jax.custom_batching.custom_vmap(lambda x: jnp.sin(x)))
    f.def_vmap(lambda n, b, x: (x + 1, b[0]))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (3 * ct,))
    assert ft.vmap(f)(X).tolist() == (X + 1).tolist()
    assert float(ft.grad(f)(1.0)) == 3.0
    assert not hasattr(f, "defjvp")


def test_leaked_tangents_of_a_rule():
    kept = []
    f = ft.custom_jvp(lambda x: x)
    f.defjvp(lambda p, t: (kept.append(t[0]) or p[0], t[0]))
    ft.grad(f)(1.0)
    with pytest.raises(ft.errors.LeakedTracer):
        kept[0] + 1.0


def test_a_rule_whose_loop_looks_at_the_tangents_has_no_reverse_mode():
    @ft.custom_jvp
    def doubled(x):
        return 2.0 * x

    @doubled.defjvp
    def _(primals, tangents):
        (t,) = tangents
        y = ft.lax.while_loop(lambda c: abs(c / 2 - t) > 1e-6, lambda c: c + (t - c / 2), 0.0 * t)
        return doubled(*primals), y

    assert ft.jvp(doubled, (1.0,), (1.0,))[1] == pytest.approx(2.0, abs=1e-5)
    for g in (ft.grad(doubled), ft.jit(ft.grad(doubled))):
        with pytest.raises(ft.errors.NotLinear, match="condition of a while loop depends"):
            g(1.0)
