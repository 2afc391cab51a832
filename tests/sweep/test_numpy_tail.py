"""The less common functions of functrans.numpy against jax.numpy: a table of expressions.

The rows run as those of tests/matrix/test_numpy.py do: under jit and at top level with values,
dtypes, weak types and shapes; under vmap; through grad.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as ft_numpy
from functrans import errors
from tests.matrix.test_numpy import (
    ARRAYS,
    arguments,
    check,
    compare,
    function_of,
    has_inexact,
    names_in,
    run_rows,
    scalar_loss,
)
from tests.sweep.numpy_tail import TABLE

GROUPS = list(TABLE)


@pytest.mark.parametrize("group", GROUPS)
def test_values(group):
    rows = TABLE[group]
    check(rows, run_rows(rows, ft_numpy, ft.jit, lambda f: f), jax_results(group))


@functools.cache
def jax_results(group: str) -> dict[str, Any]:
    return run_rows(TABLE[group], jax_numpy, jax.jit, lambda f: f)


@pytest.mark.parametrize("group", GROUPS)
def test_at_top_level(group):
    """Operation by operation on concrete arrays: the same code, so every fifth row."""
    rows = TABLE[group][::5]
    ours = {}
    for row in rows:
        ours[row] = function_of(row, ft_numpy)(*map(jax_numpy.asarray, arguments(row)))
    check(rows, ours, jax_results(group))


# Under vmap and grad every third row runs each time, all of them in the long run.
SOME_OR_ALL = [3, pytest.param(1, marks=pytest.mark.heavy)]


@pytest.mark.parametrize("step", SOME_OR_ALL)
@pytest.mark.parametrize("group", GROUPS)
def test_vmap(group, step):
    rows = [row for row in TABLE[group] if names_in(row)][::step]

    def mapped(vmap):
        return lambda f: lambda *args: vmap(f)(*args)

    ours = run_rows(rows, ft_numpy, ft.jit, mapped(ft.vmap), stacked=True)
    theirs = run_rows(rows, jax_numpy, jax.jit, mapped(jax.vmap), stacked=True)
    check(rows, ours, theirs, weak=False)


NO_DERIVATIVE = {"integers", "windows", "nothing left to divide by"}
# the last: JAX has none for updates of nothing
WITHOUT_GRADIENT = ("jnp.spacing", "nans", "inf", "g)", "put_along_axis(x[:, :0]")


@pytest.mark.parametrize("step", SOME_OR_ALL)
@pytest.mark.parametrize("group", [g for g in GROUPS if g not in NO_DERIVATIVE])
def test_gradient(group, step):
    rows = [
        row
        for row in TABLE[group]
        if names_in(row) and has_inexact(row) and not any(w in row for w in WITHOUT_GRADIENT)
    ][::step]

    def gradient(grad, xp):
        def of(f):
            def call(*args):
                real = tuple(k for k, x in enumerate(args) if xp.issubdtype(x.dtype, xp.inexact))
                return grad(scalar_loss(f, xp), real)(*args)

            return call

        return of

    ours = run_rows(rows, ft_numpy, ft.jit, gradient(ft.grad, ft_numpy))
    theirs = run_rows(rows, jax_numpy, jax.jit, gradient(jax.grad, jax_numpy))
    check(rows, ours, theirs, weak=False)


WITH_64_BITS = [
    "jnp.frexp(x)", "jnp.spacing(x)", "jnp.unravel_index(i, (3, 4))", "jnp.hamming(5)",
    "jnp.ravel_multi_index((i, j), (3, 4), mode='clip')", "jnp.argpartition(x, 2)",
    "jnp.r_[1:3, 2.5]", "jnp.angle(i)", "jnp.angle(x)", "jnp.nanstd(i, ddof=1.5)",
    "jnp.trapezoid(n8)", "jnp.median(n8.astype('uint16'))",
    "jnp.cumulative_prod(n8[0].astype('int8'))",
]  # fmt: skip


@pytest.mark.parametrize("row", WITH_64_BITS)
def test_with_64_bit_types(row):
    with jax.enable_x64(True):
        given = [
            a.astype(np.float64) if a.dtype == np.float32 else a.astype(np.int64)
            for a in arguments(row)
        ]
        given = [jax_numpy.asarray(a) for a in given]
        found = compare(
            row, function_of(row, ft_numpy)(*given), function_of(row, jax_numpy)(*given)
        )
    assert found is None


# --- what depends on values -----------------------------------------------------------------------

SIZED_BY_VALUES = {
    "union1d": lambda jnp, x: jnp.union1d(x, x),
    "intersect1d": lambda jnp, x: jnp.intersect1d(x, x),
    "setdiff1d": lambda jnp, x: jnp.setdiff1d(x, x),
    "setxor1d": lambda jnp, x: jnp.setxor1d(x, x),
    "unique": lambda jnp, x: jnp.unique_values(x),
    "trim_zeros": lambda jnp, x: jnp.trim_zeros(x),
    "ravel_multi_index": lambda jnp, x: jnp.ravel_multi_index((x.astype(int),), (3,)),
    "choose": lambda jnp, x: jnp.choose(x.astype(int), [x, x]),
}


@pytest.mark.parametrize("name", SIZED_BY_VALUES)
def test_what_depends_on_traced_values_says_so(name):
    function = SIZED_BY_VALUES[name]
    x = jax_numpy.array([1.0, 0.0, 1.0])
    with pytest.raises(errors.AbstractValueError, match="test_numpy_tail") as caught:
        ft.jit(lambda x: function(ft_numpy, x))(x)
    assert isinstance(caught.value, jax.errors.ConcretizationTypeError)
    ours, theirs = function(ft_numpy, x), function(jax_numpy, x)
    np.testing.assert_array_equal(ours, theirs)


# --- misuse ---------------------------------------------------------------------------------------

MISUSE = {
    "out": lambda jnp, x: jnp.add(x, x, out=x),
    "where": lambda jnp, x: jnp.logical_and(x, x, where=x > 0),
    "negative out": lambda jnp, x: jnp.negative(x, out=x),
    "at in place": lambda jnp, x: jnp.add.at(x, 0, 1.0),
    "reduce of one": lambda jnp, x: jnp.negative.reduce(x),
    "no identity": lambda jnp, x: jnp.subtract.reduce(x[:0]),
    "where without start": lambda jnp, x: jnp.maximum.reduce(x, where=x > 1),
    "packbits of floats": lambda jnp, x: jnp.packbits(x),
    "unpackbits of ints": lambda jnp, x: jnp.unpackbits(x.astype(int)),
    "gcd of floats": lambda jnp, x: jnp.gcd(x, 2),
    "place in place": lambda jnp, x: jnp.place(x, x > 0, 1.0),
    "fill_diagonal of a vector": lambda jnp, x: jnp.fill_diagonal(x, 1.0, inplace=False),
    "choose out of range": lambda jnp, x: jnp.choose(np.array([0, 2]), [x[:2], x[:2]]),
    "partition out of range": lambda jnp, x: jnp.partition(x, 7),
    "bad signature": lambda jnp, x: jnp.vectorize(lambda a: a, signature="(n")(x),
    "core axes": lambda jnp, x: jnp.vectorize(jnp.dot, signature="(n),(n)->()")(x, x[:2]),
    "result axes": lambda jnp, x: jnp.vectorize(jnp.sum, signature="(n)->(n)")(x),
    "piecewise": lambda jnp, x: jnp.piecewise(x, [x > 0], [1, 2, 3]),
    "polyfit": lambda jnp, x: jnp.polyfit(x, x, -1),
    "histogram2d": lambda jnp, x: jnp.histogram2d(x, x[:2]),
    "nothing to fill with": lambda jnp, x: jnp.unique(x[:0], size=3),
    "a mask of floats": lambda jnp, x: jnp.sum(x, where=x),
    "two numbers to start from": lambda jnp, x: jnp.sum(x, initial=x),
    "kind of sort": lambda jnp, x: jnp.sort(x, kind="stable"),
    "float exponents": lambda jnp, x: jnp.ldexp(x, x),
    "real dtype of complex": lambda jnp, x: jnp.var(x + 1j, dtype=float),
    "masks to insert at": lambda jnp, x: jnp.insert(x, x > 0, 1.0),
    "keyword of another mode": lambda jnp, x: jnp.pad(x, 1, "wrap", stat_length=2),
    "choices of two shapes": lambda jnp, x: jnp.choose(1, [x, x[:2]]),
    "no axis to accumulate": lambda jnp, x: jnp.maximum.accumulate(x, axis=None),
    "axes to reduce at": lambda jnp, x: jnp.add.reduceat(x, jnp.array([0]), axis=(0,)),
    "an axis that is not there": lambda jnp, x: jnp.argmax(x, axis=1),
    "a split that is not there": lambda jnp, x: jnp.split(x, 2, axis=-4),
    "the median of nothing": lambda jnp, x: jnp.median(x[:0]),
    "a mask of floats to reduce by": lambda jnp, x: jnp.logical_or.reduce(x > 0, where=x),
    "half an axis": lambda jnp, x: jnp.tensordot(x, x, 0.5),
    "half of the points": lambda jnp, x: jnp.fft.rfft(x[:0]),
    "nothing to fill a diagonal with": lambda jnp, x: jnp.fill_diagonal(
        jnp.ones((2, 2)), x[:0], inplace=False
    ),
    "int4 and uint8": lambda jnp, x: jnp.add(x.astype("int4"), x.astype("uint8")),
}


@pytest.mark.parametrize("case", MISUSE)
def test_misuse(case):
    x = jax_numpy.ones(3)
    classes = (TypeError, ValueError, NotImplementedError, IndexError, ZeroDivisionError)
    with pytest.raises(classes) as theirs:
        MISUSE[case](jax_numpy, x)
    with pytest.raises((TypeError, ValueError), match="test_numpy_tail") as ours:
        MISUSE[case](ft_numpy, x)
    assert theirs.type is not IndexError or isinstance(ours.value, IndexError)


# --- ufuncs ---------------------------------------------------------------------------------------


def test_functions_that_are_ufuncs_in_jax_are_here():
    for name in dir(jax_numpy):
        theirs, ours = getattr(jax_numpy, name), getattr(ft_numpy, name, None)
        if isinstance(theirs, jax_numpy.ufunc):
            assert isinstance(ours, ft_numpy.ufunc)
            for fact in ("nin", "nout", "nargs", "identity"):
                assert getattr(ours, fact) == getattr(theirs, fact), (name, fact)
    assert not isinstance(ft_numpy.sin, ft_numpy.ufunc)
    assert not isinstance([], ft_numpy.ufunc)


def test_a_call_of_a_ufunc_records_one_equation():
    def equations(f):
        return len(ft.make_ir(f)(*[ft.ShapeDtypeStruct((3,), "float32")] * 2).equations)

    assert equations(ft_numpy.add) == 1
    assert equations(lambda x, y: ft_numpy.maximum.reduce(x)) == 1


def test_vectorize_records_the_function_once():
    calls = []

    def f(a, b):
        calls.append(1)
        return a + b

    ft_numpy.vectorize(f)(jax_numpy.ones((2, 3, 4)), jax_numpy.ones((3, 1)))
    assert len(calls) == 1


# --- files and printing ---------------------------------------------------------------------------


def test_arrays_are_written_and_read(tmp_path):
    x = ft_numpy.arange(3.0)
    ft_numpy.save(tmp_path / "x.npy", x)
    assert isinstance(ft_numpy.load(tmp_path / "x.npy"), jax.Array)
    np.testing.assert_array_equal(ft_numpy.load(tmp_path / "x.npy"), x)
    ft_numpy.savez(tmp_path / "x.npz", x=x)
    np.testing.assert_array_equal(ft_numpy.load(tmp_path / "x.npz")["x"], x)
    np.testing.assert_array_equal(ft_numpy.frombuffer(b"\x01\x02", "uint8"), [1, 2])
    np.testing.assert_array_equal(ft_numpy.fromstring("1 2", sep=" "), [1, 2])
    np.testing.assert_array_equal(ft_numpy.from_dlpack(x), x)
    assert ft_numpy.array_str(x) == "[0. 1. 2.]"
    with ft_numpy.printoptions(precision=2):
        assert ft_numpy.get_printoptions()["precision"] == 2


def test_files_are_read_while_a_function_is_traced():
    doubled = ft.jit(lambda: ft_numpy.fromstring("1 2", sep=" ") * 2)()
    np.testing.assert_array_equal(doubled, [2, 4])


# --- numbers outside of what JAX defines ----------------------------------------------------------


def test_roots():
    for p in ([0.0, 1.0, -3.0, 2.0, 0.0], [0.0, 0.0], [3.0]):
        ours, theirs = ft_numpy.roots(np.float32(p)), jax_numpy.roots(np.float32(p))
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(np.sort(ours), np.sort(theirs), atol=1e-4)
    traced = ft.jit(lambda p: ft_numpy.roots(p, strip_zeros=False))(np.float32([1, -3, 2]))
    np.testing.assert_allclose(np.sort(traced), [1, 2], atol=1e-5)


def test_narrow_dtypes():
    for name in ("float8_e4m3fn", "float8_e5m2", "int4", "uint2"):
        made = getattr(ft_numpy, name)(1.0)
        assert made.dtype == getattr(jax_numpy, name).dtype
    assert ft_numpy.bool(3).dtype == bool
    assert ft.jit(lambda x: ft_numpy.float8_e5m2(x))(ARRAYS["x"]).dtype == jax_numpy.float8_e5m2


def test_places_to_delete():
    v = np.arange(4.0, dtype=np.float32)
    for place, problem in ((9, "9 is out of bounds"), (1.0, "must be integer or bool")):
        with pytest.raises(ValueError, match=problem):
            ft_numpy.delete(v, place)


def test_a_list_may_be_complex():
    for x in ([1j], [1, 2], (1.0, 3j)):
        assert ft_numpy.iscomplexobj(x) == jax_numpy.iscomplexobj(x)
        assert ft_numpy.isrealobj(x) == jax_numpy.isrealobj(x)


# --- what JAX has from 0.11 on, against NumPy -----------------------------------------------------


def test_log2_and_one_minus_square():
    x = np.array([0.0, 0.25, 1.0, 3.0], np.float32)
    np.testing.assert_allclose(ft.lax.log2(x), np.log2(np.maximum(x, 0)), rtol=1e-6)
    np.testing.assert_allclose(ft.lax.one_minus_square(x), 1 - x**2, atol=1e-6)
    near = ft.lax.one_minus_square(np.float32(1 - 2**-20))
    np.testing.assert_allclose(near, 2**-19 - 2**-40, rtol=1e-7)
    np.testing.assert_allclose(ft.grad(ft.lax.log2)(2.0), 1 / (2 * np.log(2)), rtol=1e-6)
    np.testing.assert_allclose(ft.grad(ft.lax.one_minus_square)(3.0), -6.0)


@pytest.mark.parametrize(
    "name", ["positive", "conjugate", "real", "absolute", "floor", "ceil", "trunc", "round"]
)
def test_what_a_function_leaves_as_it_is_becomes_an_array(name):
    x = np.arange(3, dtype=np.uint8)
    found = getattr(ft_numpy, name)(x)
    assert isinstance(found, jax.Array)
    assert found.dtype == x.dtype


def test_out_is_refused_as_jax_refuses_it():
    for jnp in (ft_numpy, jax_numpy):
        with pytest.raises(NotImplementedError):
            jnp.add(1.0, 2.0, out=jax_numpy.ones(()))


def test_interp_is_of_the_widest_dtype():
    x, at = np.array([0.5, 1.5], "float16"), np.arange(3, dtype="float32")
    for values in (at.astype("float16"), at):
        ours, theirs = [m.numpy.interp(x, at, values, left=-1.0) for m in (ft, jax)]
        assert (ours.dtype, ours.weak_type) == (theirs.dtype, theirs.weak_type)
        np.testing.assert_allclose(ours, theirs, rtol=1e-3)


@pytest.mark.parametrize("name", ["nanvar", "nanstd"])
def test_gradients_where_too_few_are_left(name):
    x = np.array([[1.0, 4.0, np.nan], [np.nan, 2.0, np.nan]], np.float32)
    ours, theirs = (
        transform.grad(lambda x, m=m: m.nansum(getattr(m, name)(x, axis=1, ddof=1)))(x)
        for transform, m in ((ft, ft_numpy), (jax, jax_numpy))
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert not np.asarray(ours)[1].any()
