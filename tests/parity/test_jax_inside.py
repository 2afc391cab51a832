"""JAX's functions and transformations inside of ours: each row beside JAX alone.

A row is a function of one matrix, written with `J` (jax.numpy) and JAX's transformations; where it
says `ft`, JAX alone has its own of the same name.
"""

import functools
from collections.abc import Hashable

import jax
import jax.numpy as J
import numpy as np
import opt_einsum
import pytest
from jax import lax as L

import functrans as ft
from tests.support.closeness import assert_close
from tests.support.tables import TABLES, functions

pytestmark = pytest.mark.smoke

X = J.arange(1.0, 7.0).reshape(2, 3) / 4


@jax.custom_jvp
def tripled(x):
    return J.sin(x)


tripled.defjvp(lambda primals, tangents: (J.sin(primals[0]), 3.0 * tangents[0]))


@jax.custom_vjp
def fivefold(x, y):
    return J.sin(x) * y


fivefold.defvjp(lambda x, y: (fivefold(x, y), (x, y)), lambda kept, ct: (5.0 * ct * kept[0], ct * kept[1]))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def applied(f, x):
    return f(x)


@applied.defjvp
def _(f, primals, tangents):
    return f(primals[0]), 2.0 * tangents[0]


@jax.custom_batching.custom_vmap
def mapped_differently(x):
    return J.sin(x)


@mapped_differently.def_vmap
def _(size, batched, x):
    return 3.0 * J.sin(x), True


class Weight:
    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return self.value


ROWS = functions(TABLES / "jax_inside.txt", "functions of JAX", "x", globals())
FORWARD = {name for name in ROWS if "custom_vjp" not in name}  # what JAX has forward mode of


class _OfJax:
    """What stands for `ft` in JAX's version of a row."""

    numpy, lax = J, L
    grad, vmap, jit, checkpoint = jax.grad, jax.vmap, jax.jit, jax.checkpoint


OF_JAX = functions(TABLES / "jax_inside.txt", "functions of JAX", "x", {**globals(), "ft": _OfJax})


def weighted(f):
    """A scalar that depends on every element of the result."""

    def loss(x):
        leaves = jax.tree.leaves(f(x))
        return sum(J.sum(y * J.arange(1.0, 1 + y.size).reshape(y.shape)) for y in leaves)

    return loss


def transformed(library, f, forward):
    """The function and its transformations by one library, as one function."""
    loss = weighted(f)
    made = {
        "value": f,
        "grad": library.grad(loss),
        "jax.grad": jax.grad(loss),
        "vmap": lambda x: library.vmap(f)(J.stack([x, x + 0.1])),
        "vmap(grad)": lambda x: library.vmap(library.grad(loss))(J.stack([x, x + 0.1])),
    }
    if forward:
        made["jvp"] = lambda x: library.jvp(f, (x,), (x + 1,))
        made["hessian"] = library.hessian(loss)
    return lambda x: {name: g(x) for name, g in made.items()}


@pytest.mark.long
@pytest.mark.parametrize("name", ROWS)
def test_inside_of_ours(name):
    f, forward = ROWS[name], name in FORWARD
    expected = jax.jit(transformed(jax, OF_JAX[name], forward))(X)
    assert_close(ft.jit(transformed(ft, f, forward))(X), expected, 2e-4)
    if name in ("a NumPy array that JAX casts", "two equations", "two axes"):
        assert_close(ft.grad(weighted(f))(X), expected["grad"], 2e-4)


# --- values ---------------------------------------------------------------------------------------


def test_traced_values_are_arrays_and_tracers_of_jax():
    def look(x):
        assert isinstance(x, jax.Array)
        assert isinstance(x, jax.core.Tracer)
        assert jax.typeof(x).shape == x.shape
        assert jax.typeof(x).sharding is not None
        assert (J.shape(x), J.ndim(x), J.size(x)) == ((2, 3), 2, 6)
        assert J.result_type(x, 1.0) == np.float32
        assert not J.iscomplexobj(x)
        assert jax.eval_shape(lambda v: v @ v.T, x).shape == (2, 2)
        assert not hasattr(x, "sharding")
        assert not hasattr(x, "__jax_array__")
        assert jax.tree.leaves({"a": x})[0] is x
        return x * 2

    for transform in (ft.jit, ft.vmap, lambda f: ft.grad(lambda x: f(x).sum()), ft.make_ir):
        value = X[None] if transform is ft.vmap else X
        transform(look)(value)


def test_what_is_made_while_a_program_is_recorded_is_traced():
    """Libraries make an array to ask whether they run inside of `jit` (pennylane)."""

    def look(x):
        made = [J.array([0]), J.array(0), J.asarray(np.ones(2)), J.array([0.5], dtype="float32")]
        return jax.device_put([x, *made, np.ones(2), *made])

    def traced(transformed):
        found = []
        transformed(lambda x: found.extend([isinstance(y, jax.core.Tracer) for y in look(x)]) or x)(X)
        return found

    for ours, theirs in ((ft.jit, jax.jit), (ft.vmap, jax.vmap), (lambda f: ft.jit(ft.vmap(f)), jax.jit)):
        assert traced(ours) == traced(theirs)
    assert_close(ft.jit(look)(X), jax.jit(look)(X))


def test_the_module_of_a_traced_value_says_that_it_is_of_jax():
    """Libraries for several kinds of arrays go by the class's module (opt_einsum, autoray)."""

    def chained(x, y):
        assert type(x).__module__.partition(".")[0] == "jax"
        return opt_einsum.contract("ij,jk->k", x, y)

    x, y = J.ones((2, 3)), J.ones((3, 4))
    assert_close(ft.jit(chained)(x, y), x.sum(0) @ y)
    assert_close(ft.grad(lambda x: chained(x, y).sum())(x), 4 * x)


def test_a_traced_value_says_that_it_is_not_hashable():
    """Libraries that cache by their arguments take the id of those that are not (funsor)."""

    def kept(x):
        assert not isinstance(x, Hashable)
        with pytest.raises(TypeError, match="unhashable"):
            hash(x)
        return x

    ft.jit(ft.vmap(ft.grad(lambda x: kept(x).sum())))(X)
    ft.jvp(kept, (X,), (X,))
    ft.experimental.jet.jet(kept, (X,), ([X],))


def test_what_is_filled_is_no_constant():
    program = ft.make_ir(lambda x: x + J.zeros((1000, 1000)).sum())(1.0)
    assert not any(np.size(v) > 1 for p in ft.ir.text.with_nested(program) for v in p.values)


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda x: J.arange(x[0, 0]), "concrete value"),
        (lambda x: J.nonzero(x)[0], "size"),
        (lambda x: J.zeros(3) if J.sum(x) > 0 else x, "jnp.where"),
        (lambda x: np.sin(J.sin(x)), "numpy"),
        (lambda x: x[x > 1], "mask"),
    ],
)
def test_what_needs_a_value_is_said_at_the_users_line(wrong, words):
    with pytest.raises(ft.errors.FunctransError, match=words) as raised:
        ft.jit(wrong)(X)
    assert "test_jax_inside.py" in str(raised.value)
    assert_close(J.sin(X), np.sin(X))
    assert_close(ft.jit(J.sin)(X), np.sin(X))


REFUSED = {
    "a size": lambda x: L.top_k(x, 9),
    "an axis": lambda x: L.cumsum(x, 4),
    "a kind of number": lambda x: L.approx_max_k(x.astype(int), 1),
    "no axis": lambda x: L.approx_max_k(x[0, 0], 1),
    "shapes, in one of JAX's operations that is several of ours": lambda x: J.stack([x, x[0]]),
    "types": lambda x: L.concatenate([x, x[0]], 0),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_an_error_about_an_operation_is_of_the_class_of_jax_s_own(wrong):
    with pytest.raises(Exception, match=r".") as of_jax:
        jax.jit(REFUSED[wrong])(J.ones((3, 4)))
    with pytest.raises(of_jax.type, match=r"at\n .*test_jax_inside.py:") as ours:
        ft.jit(REFUSED[wrong])(J.ones((3, 4)))
    assert isinstance(ours.value, ft.errors.FunctransError)


def test_a_value_of_ours_kept_by_jax_code_is_a_leak():
    kept = []
    ft.jit(lambda x: kept.append(J.sin(x)) or x)(X)
    for use in (lambda: J.sin(kept[0]), lambda: kept[0] + 1, lambda: ft.jit(lambda x: x + kept[0])(X)):
        with pytest.raises(jax.errors.UnexpectedTracerError, match=r"created at .*test_jax_inside"):
            use()


def test_a_value_of_jax_kept_by_ours_is_a_leak():
    kept = []
    jax.jit(lambda x: kept.append(J.sin(x)) or x)(X)
    with pytest.raises(jax.errors.UnexpectedTracerError):
        ft.numpy.sin(kept[0])
    with pytest.raises(ft.errors.LeakedTracer) as caught:
        ft.jit(lambda x: x + kept[0])(X)
    used, _, made = str(caught.value).partition("JAX says:")
    assert "lambda x: x + kept[0]" in used
    assert "created on line" in made
    inner = []
    ft.jit(lambda x: jax.vmap(lambda v: inner.append(v) or v)(x))(X)
    with pytest.raises(jax.errors.UnexpectedTracerError):
        ft.jit(lambda x: x[0] + inner[0])(X)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize(
    "run",
    [
        lambda stop: ft.jit(lambda x: jax.vmap(lambda v: stop(v))(x))(X),
        lambda stop: ft.grad(lambda x: L.scan(lambda c, y: (stop(c), y), x[0], x)[0].sum())(X),
        lambda stop: jax.jit(lambda x: ft.vmap(lambda v: jax.jit(stop)(v))(x))(X),
        lambda stop: jax.grad(lambda x: ft.jit(lambda v: stop(v).sum())(x))(X),
    ],
)
def test_an_exception_leaves_both_worlds_as_they_were(run, error):
    def stop(x):
        J.sin(x)
        raise error

    with pytest.raises(error):
        run(stop)
    assert_close(J.sin(X) + ft.numpy.sin(X), 2 * np.sin(X))
    assert_close(jax.jit(lambda x: J.sin(x))(X), np.sin(X))
    assert_close(ft.grad(lambda x: J.sin(x).sum())(X), np.cos(X))
