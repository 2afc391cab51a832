"""Functions in vector code and sorts of bits on a CPU: accuracy, exceptional numbers, which are chosen."""

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.passes.vector_code import FUNCTIONS
from functrans.primitives.elementwise.transcendental import atan

pytestmark = pytest.mark.smoke

SIZE = 2**16
# The largest error allowed, in units in the last place.
ACCURACY = {"sin": 1.6, "cos": 1.6, "tan": 3.5, "arcsin": 2.4, "arccos": 2.4, "arctan": 2.8, "arctan2": 2.8}
if atan not in FUNCTIONS:  # it is XLA's
    del ACCURACY["arctan"]
SCALES = {
    "sin": (0.1, 3, 1e3, 1e6),
    "cos": (0.1, 3, 1e3, 1e6),
    "tan": (0.1, 3, 1e3, 1e6),
    "arctan": (0.1, 3, 1e9),
}
EXCEPTIONAL = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 3e38, -2e38, 1e-37, -1e-37, 1e10, 2.0
]  # fmt: skip


def numbers(name, scale, dtype, seed=0):
    x = np.random.default_rng(seed).uniform(-scale, scale, SIZE).astype(dtype)
    return [x, x[::-1].copy() * 3] if name == "arctan2" else [x]


def off_by(result, expected):
    """Return the largest error in units in the last place."""
    unit = np.spacing(np.abs(expected).astype(result.dtype)).astype(expected.dtype)
    return float(np.max(np.abs(result.astype(expected.dtype) - expected) / unit))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ACCURACY)
def test_accuracy(name, dtype):
    with jax.enable_x64(True):
        f = ft.jit(getattr(jnp, name))
        for scale in SCALES.get(name, (1,)):
            xs = numbers(name, scale, dtype)
            expected = getattr(np, name)(*[x.astype(np.longdouble) for x in xs])
            assert off_by(np.asarray(f(*xs)), expected) <= ACCURACY[name]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", ACCURACY)
def test_exceptional_numbers(name, dtype):
    """Signs of zeros, infinities and NaN are those of JAX."""
    with jax.enable_x64(True), np.errstate(over="ignore", invalid="ignore"):
        many = np.array(EXCEPTIONAL * (SIZE // len(EXCEPTIONAL) + 1)).astype(jnp.dtype(dtype))
        both = np.meshgrid(np.array(EXCEPTIONAL), np.resize(many, 4096)) if name == "arctan2" else [many]
        xs = [np.ravel(x).astype(jnp.dtype(dtype)) for x in both]
        for keep in (lambda x: x, lambda x: np.where(np.abs(x) < 3, x, 1).astype(x.dtype)):
            xs = [*map(keep, xs)]
            ours, theirs = (
                np.asarray(jit(f)(*xs))
                for jit, f in ((ft.jit, getattr(jnp, name)), (jax.jit, getattr(jax.numpy, name)))
            )
            assert ours.dtype == theirs.dtype
            ours, theirs = ours.astype("float64"), theirs.astype("float64")
            np.testing.assert_allclose(ours, theirs, 5 * float(jnp.finfo(dtype).eps))
            some = ~np.isnan(theirs)
            assert (np.signbit(ours) == np.signbit(theirs))[some].all()


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_one_large_number(name):
    """The C library computes an array with a number above the limit."""
    (x,) = numbers(name, 1000, "float32")
    f = getattr(jnp, name)
    here, plain = ft.jit(f), ft.jit(f, cpu="plain")
    assert (np.asarray(here(x)) != np.asarray(plain(x))).any()
    for others in ([1e30], [1e30, np.nan]):
        x[-len(others) :] = others
        np.testing.assert_array_equal(here(x), plain(x))


REMAINDERS = {  # operands of which the quotients are
    "small": lambda x, y: (x, y),
    "large": lambda x, y: (x * 1e5, y),
    "nearly integers": lambda x, y: (np.round(x) * np.float32(1.3), 0 * y + np.float32(1.3)),
    "too large in one place": lambda x, y: (np.where(np.arange(SIZE) == 5, x * 2.0**70, x), y),
    "exceptional": lambda x, y: [np.resize(v, SIZE) for v in np.meshgrid(EXCEPTIONAL, EXCEPTIONAL)],
    "exceptional, and few": lambda x, y: [
        np.resize(v, SIZE)
        for v in np.meshgrid([2.5, -2.5, np.nan, 0.0, -0.0], [1.0, -0.7, np.inf, -np.inf, np.nan])
    ],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", REMAINDERS)
def test_remainders_are_exact(case, dtype):
    with jax.enable_x64(True), np.errstate(over="ignore"):
        rng = np.random.default_rng(0)
        drawn = 100 * rng.normal(size=SIZE), rng.normal(size=SIZE)
        x, y = (np.asarray(v).astype(dtype) for v in REMAINDERS[case](*drawn))
        ours, theirs = np.asarray(ft.jit(lax.rem)(x, y)), np.asarray(jax.jit(jax.lax.rem)(x, y))
        np.testing.assert_array_equal(ours, theirs)
        some = ~np.isnan(theirs)
        assert (np.signbit(ours) == np.signbit(theirs))[some].all()
        np.testing.assert_allclose(ft.jit(jnp.mod)(x[:9], y[:9]), jax.jit(jax.numpy.mod)(x[:9], y[:9]))


def test_plain_is_jaxs():
    (x,) = numbers("sin", 10, "float32")
    plain = ft.jit(jnp.cos, cpu="plain")
    np.testing.assert_array_equal(plain(x), jax.jit(jax.numpy.cos)(x))
    assert not ft.passes.explain(plain)(x).vectors


def names(f, *args):
    return [e.primitive.name for e in ft.passes.explain(f)(*args).vectors]


def test_what_is_chosen():
    large, small, some = (np.ones(n, "float32") for n in (SIZE, 64, 2**14))
    assert names(lambda x: jnp.sin(x) * jnp.cos(x), large) == ["sin", "cos"]
    assert names(lambda x: jnp.sin(x) + jnp.arccos(x), some) == ["acos"]
    assert names(lambda x: jnp.sin(x) + jnp.arccos(x), small) == []
    assert names(jnp.sin, large.astype("complex64")) == []
    assert names(lambda x: lax.sin(x, accuracy=lax.AccuracyMode.HIGHEST), large) == []
    assert names(lambda x: lax.map(jnp.sin, x), np.ones((3, SIZE), "float32")) == ["sin"]
    summed = names(lambda x: jnp.sum(jnp.sin(x) * 2), large)
    assert summed == ([] if jax.__version_info__ >= (0, 11) else ["sin"])
    assert names(lambda x: (jnp.sum(jnp.sin(x)), jnp.sin(x)), large) == ["sin"]
    report = str(ft.passes.explain(jnp.tan)(large))
    assert "vector code on a CPU\n    tan: " in report


def test_unjitted():
    x = np.linspace(-1, 1, SIZE, dtype="float32")
    np.testing.assert_array_equal(lax.sin(x), ft.jit(lax.sin)(x))
    assert (np.asarray(lax.sin(x)) != np.asarray(jax.lax.sin(x))).any()


def test_of_one_angle():
    """The angle is reduced once for its sine and cosine."""
    x = np.ones(SIZE, "float32")
    text = ft.jit(lambda x: (jnp.sin(x), jnp.cos(x), jnp.sin(2 * x))).lower(x).as_text()
    assert text.count("stablehlo.round_nearest_even") == 2


SPECIAL = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.5, 1.5, -1.5, 1e-30]
SORTS = {  # name -> a function of JAX, the dtype, whether integers are sorted
    "floats": (jax.numpy.sort, "float32", True),
    "wide": (jax.numpy.sort, "float64", True),
    "halves": (jax.numpy.sort, "float16", True),
    "bfloat16": (jax.numpy.sort, "bfloat16", True),
    "rows": (lambda x: jax.numpy.sort(x.reshape(40, 50), 1), "float32", True),
    "columns": (lambda x: jax.numpy.sort(x.reshape(40, 50), 0), "float32", True),
    "positions": (jax.numpy.argsort, "float32", True),
    "positions of halves": (jax.numpy.argsort, "float16", True),
    "positions in rows": (lambda x: jax.numpy.argsort(x.reshape(40, 50), 1), "float32", True),
    "with others": (lambda x: jax.lax.sort([x, x > 0, -x], num_keys=1), "float32", True),
    "by random bits": (lambda x: jax.lax.sort_key_val(x * 12_345_678, x), "uint32", True),
    "median": (jax.numpy.median, "float32", True),
    "gradient": (jax.grad(lambda x: jax.numpy.sum(jax.numpy.sort(x) * x[0])), "float32", True),
    "positions of wide": (jax.numpy.argsort, "float64", False),
    "positions in columns": (lambda x: jax.numpy.argsort(x.reshape(40, 50), 0), "float32", False),
    "by two keys": (lambda x: jax.lax.sort([x, -x], num_keys=2), "float32", False),
    "few": (lambda x: jax.numpy.sort(x[:1000]), "float32", False),
}


@pytest.mark.parametrize("name", SORTS)
def test_floats_are_sorted_as_integers(name):
    f, dtype, by_bits = SORTS[name]
    with jax.enable_x64(True), np.errstate(invalid="ignore"):
        x = np.random.default_rng(0).normal(size=2000) * 100
        x = np.where(np.arange(2000) % 3, np.resize(SPECIAL, 2000), x) if dtype != "uint32" else np.abs(x)
        x = x[::-1].astype(jnp.dtype(dtype))
        assert ("xor" in ft.jit(f).lower(x).as_text()) == by_bits
        ours, theirs = (jax.tree.map(lambda v: v.astype(float), g(x)) for g in (ft.jit(f), jax.jit(f)))
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)


POSITIONS = {  # name -> the shape, the axis, whether it takes two steps
    "vector": ((20_000,), 0, True),
    "rows": ((40, 500), 1, True),
    "columns": ((500, 40), 0, True),
    "middle": ((20, 50, 20), 1, True),
    "short rows": ((2000, 10), 1, False),
    "few": ((100, 40), 1, False),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("case", POSITIONS)
def test_positions_of_extrema(case, name, dtype):
    shape, axis, in_two = POSITIONS[case]
    with jax.enable_x64(True), np.errstate(invalid="ignore"):
        x = np.random.default_rng(0).integers(-9, 9, shape) * 1.0
        x.flat[::7] = -0.0
        x.flat[-5 * shape[-1] :] = np.nan  # in some rows
        x.flat[-1], x.flat[3] = -np.inf, np.inf
        x = x.astype(jnp.dtype(dtype))
        ours = ft.jit(lambda x: getattr(jnp, name)(x, axis))
        assert ("xor" in ours.lower(x).as_text()) == in_two
        theirs = getattr(jax.numpy, name)(x, axis)
        np.testing.assert_array_equal(ours(x), theirs)
        assert ours(x).dtype == theirs.dtype
