"""Single expressions beside JAX: value, dtype, weak type and derivatives.

What random calls of the whole namespace found, one line each.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy
import ml_dtypes
import numpy as np
import pytest

import functrans as ft
import functrans.lax
import functrans.nn
import functrans.numpy
import functrans.ops
import functrans.random
from tests.support.versions import NEWER

WEAK = jax.numpy.full((3,), 2.0)
WEAK_SCALAR = jax.numpy.add(2.0, 1.0)
WEAK_INTEGERS = jax.numpy.full((3,), 2)
REALS = jax.numpy.array([3.0, -1.0, 2.0])
COMPLEX = jax.numpy.array([1 + 2j, -1 + 3j, -2 - 1j, 2 + 1j])
SORTED = jax.numpy.array([1 + 2j, 1 + 3j, 2 + 0j, 2 + 1j])
SOUGHT = jax.numpy.array([1 + 2.5j, 2, 0, 3j, np.nan])
WITH_NAN = jax.numpy.array([1.0, np.nan, 3.0, 4.0, 4.0])

EXPRESSIONS: dict[str, dict[str, Any]] = {
    # a constant is weak beside weak scalars alone
    "jnp.radians(x)": {"x": WEAK},
    "jnp.degrees(x)": {"x": WEAK_SCALAR},
    "jnp.sinc(x)": {"x": WEAK},
    "jnp.vander(x)": {"x": WEAK_INTEGERS},
    "jnp.hypot(x, y)": {"x": WEAK, "y": WEAK_SCALAR},
    "jnp.heaviside(x, y)": {"x": WEAK, "y": WEAK_SCALAR},
    "jnp.heaviside(y, x)": {"x": WEAK, "y": WEAK_SCALAR},
    "jnp.copysign(y, x)": {"x": REALS, "y": WEAK_SCALAR},
    "jnp.logaddexp(x, y)": {"x": WEAK, "y": 1j},
    "jnp.power(x, y)": {"x": WEAK, "y": np.array(True)},
    "jnp.power(x, y) + 0": {"x": 2, "y": np.array(True)},
    "jnp.gcd(x, y)": {"x": WEAK_INTEGERS, "y": 4},
    # complex numbers have an order
    "jnp.searchsorted(x, y)": {"x": SORTED, "y": SOUGHT},
    "jnp.searchsorted(x, y, side='right')": {"x": SORTED, "y": SOUGHT},
    "jnp.digitize(x, y)": {"x": SOUGHT, "y": SORTED},
    "jnp.digitize(x, y[::-1], right=True)": {"x": SOUGHT, "y": SORTED},
    **{
        f"nn.{name}(x)": {"x": COMPLEX}
        for name in ("leaky_relu", "relu", "relu6", "elu", "selu", "hard_tanh", "hard_silu",
                     "hard_sigmoid", "soft_sign", "sparse_plus")
    },
    "nn.leaky_relu(x, 0.5j)": {"x": COMPLEX},
    "nn.softplus(x)": {"x": COMPLEX * 100},
    "nn.mish(x)": {"x": WEAK + 1j},
    "nn.log1mexp(x)": {"x": COMPLEX},
    "nn.standardize(x, algorithm='stable')": {"x": COMPLEX},
    "lax.random_gamma_grad(x, y)": {"x": np.float16(1.5), "y": np.float32(2)},
    "nn.leaky_relu(x, 2)": {"x": WEAK_INTEGERS},
    "nn.squareplus(x, 0.5)": {"x": WEAK_INTEGERS},
    "nn.squareplus(x + x, 0.5)": {"x": jax.numpy.array([1, -2])},
    # numbers that fill are no operands; places may be traced
    "jnp.take(x, jnp.array([0, 9]), fill_value=7.5)": {"x": REALS},
    "jnp.take_along_axis(x, jnp.array([0, 9]), 0, 'fill', 7.5)": {"x": REALS},
    "jnp.insert(x, y, 9.0)": {"x": REALS, "y": np.array([2, 0, -1])},
    "jnp.insert(x, y, jnp.arange(3.0))": {"x": REALS, "y": np.array(1)},
    "jnp.insert(x, 1, y)": {"x": WEAK, "y": 5.0},
    # what a method of a ufunc or an update makes is not weak; its operands have one dtype
    "jnp.minimum.accumulate(x)": {"x": WEAK},
    "jnp.minimum.accumulate(x > 0)": {"x": REALS},
    "jnp.subtract.reduce(x)": {"x": WEAK},
    "jnp.bitwise_and.accumulate(x)": {"x": WEAK_INTEGERS},
    "jnp.maximum.at(x, 0, y, inplace=False)": {"x": WEAK_INTEGERS, "y": 2.5},
    "jnp.logaddexp.at(x, 0, y, inplace=False)": {"x": WEAK_INTEGERS, "y": 0.5},
    "jnp.logical_xor.at(x, 1, y, inplace=False)": {"x": np.arange(3), "y": 0.5},
    "lax.dynamic_update_slice(x, y, (0,))": {"x": WEAK, "y": REALS[:1]},
    "lax.associative_scan(lax.add, x)": {"x": WEAK},
    "lax.reduce_xor(x, (0,))": {"x": WEAK_INTEGERS},
    "lax.reduce_window(x, -jnp.inf, lax.max, (2,), (1,), 'SAME')": {"x": WEAK_INTEGERS},
    "lax.reduce_window(x > 0, -jnp.inf, lax.max, (2,), (1,), 'SAME')": {"x": REALS},
    "lax.reduce_window(x, 0.0, lax.add, (2,), (1,), 'SAME')": {"x": WEAK + 1j},
    "jnp.diagonal(x.reshape(3, 1) + x)": {"x": WEAK},
    "jnp.einsum('ii->i', x.reshape(3, 1) + x)": {"x": WEAK},
    "jnp.argpartition(x, 1)": {"x": WEAK},
    "jnp.sum(x, promote_integers=False)": {"x": np.array([True, True, False])},
    "jnp.polyval(x, x)": {"x": np.array([True, False])},
    "jnp.ediff1d(x)": {"x": WEAK},
    "jnp.gradient(x)": {"x": WEAK + 1j},
    "jnp.log10(x)": {"x": WEAK + 1j},
    "jnp.logaddexp2(x, y)": {"x": WEAK, "y": 0.5},
    "jnp.round(x, 1)": {"x": WEAK},
    "jnp.round(x, 1) + 0": {"x": 2.55},
    # booleans are joined by and, or
    "jnp.outer(x, x)": {"x": np.array([True, False])},
    "jnp.einsum('ij->i', x)": {"x": np.array([[True, False], [False, False]])},
    "jnp.einsum('ij,ij->ij', x, x)": {"x": np.array([[True, False], [False, False]])},
    "x.view('int8')": {"x": COMPLEX},
    "x.view('complex64')": {"x": REALS[:2]},
    "jnp.asarray(x).view('bool')": {"x": np.arange(3)},
    "jnp.asarray(x).view('int16')": {"x": np.array([[True, False]])},
    "jnp.vander(x, 40)": {"x": np.array([1.1, 0.9], ml_dtypes.bfloat16)},
    "jnp.fmax(x, y)": {"x": COMPLEX, "y": COMPLEX[::-1]},
    "jnp.diff(x, 2, prepend=0)": {"x": np.array([True, False, True])},
    "jnp.geomspace(x, 8.0, 3)": {"x": np.array([0.0, 2.0, -2.0], np.float32)},
    # NumPy's arrays become JAX's also where nothing is done to them
    "jnp.sum(x, axis=())": {"x": np.ones((2, 3), np.float32)},
    "jnp.concatenate([x])": {"x": np.ones((2, 3), np.float32)},
    "jnp.nanmax(x)": {"x": np.array([np.nan, -2.0], ml_dtypes.float8_e4m3fn)},
    # sequences that are no lists, shifts that are no integers
    "jnp.array(range(3)) + x": {"x": REALS},
    "jnp.array([range(2), [x, 3]])": {"x": 1},
    "jnp.array(memoryview(np.ones(2))) + x": {"x": 1},
    "jnp.roll(x, y)": {"x": REALS, "y": -1.5},
    "jnp.roll(x, y, 0)": {"x": REALS, "y": 2.9},
    "round(jnp.asarray(x))": {"x": REALS * 1.3},
    "round(jnp.asarray(x), 1)": {"x": REALS * 1.33},
    "jnp.var(x, dtype='bfloat16')": {"x": REALS.astype("float16")},
    "jnp.setdiff1d(x, jnp.array([1]), size=2)": {"x": np.array([1, 2, 3], np.int8)},
    "jnp.gradient(x, 0.5)": {"x": jax.numpy.array([1, 4, 9])},
    "jnp.take(x, y > 0)": {"x": REALS, "y": REALS},
    # of a histogram the weights' dtype and the elements'
    "jnp.histogram(x, bins=2)[0]": {"x": np.array([1, 2, 4], np.float16)},
    "jnp.histogram(x, weights=y, bins=2)[0]": {"x": REALS, "y": np.array([1, 2, 3], np.int8)},
    "jnp.histogram(x, weights=y, bins=2)[0] + 0": {"x": np.array([1, 2]), "y": np.array([1, 2])},
    # a segment with a NaN has no derivative
    "ops.segment_min(x, jnp.array([0, 0, 1, 1, 1]), 3)": {"x": WITH_NAN},
    "ops.segment_max(x, jnp.array([0, 0, 1, 1, 1]), 3)": {"x": WITH_NAN},
    "x.at[jnp.array([0, 0, 2])].min(y)": {"x": WITH_NAN, "y": REALS},
    # correlations do not exceed 1
    "jnp.corrcoef(x)": {"x": np.outer([1, -2, 3], [0.1, 0.7, 0.4]).astype(np.float32)},
    "jnp.corrcoef(x) + 0": {"x": np.ones((2, 0), np.float16)},
    "jnp.cov(x)": {"x": np.ones((0, 3), np.float16)},
    # matrices: what is made of one of two operands is weak only if both are; booleans
    "jnp.linalg.lstsq(x, y)[3]": {"x": jax.numpy.full((3, 2), 2.0), "y": np.eye(3)},
    "jnp.linalg.outer(x, x)": {"x": np.array([True, False])},
    "jnp.linalg.vector_norm(x, ord=None)": {"x": np.array([3, 4, 7], np.int8)},
    "lax.linalg.cholesky(x)": {"x": np.eye(2, dtype=bool)},
    "lax.linalg.eigh(x)[1]": {"x": jax.numpy.full((1, 1), 2)},
    "lax.linalg.symmetric_product(x, y)": {
        "x": jax.numpy.full((3, 2), 2.0), "y": np.eye(3, dtype=np.float32),
    },
    **{
        f"lax.linalg.triangular_solve(x, x.T) + {i}": {
            "x": np.array([[2, 1], [9, 4]], dtype)
        } for i, dtype in enumerate((np.float16, ml_dtypes.bfloat16))
    },
    "lax.linalg.qdwh(x)[1]": {"x": jax.numpy.full((1, 1), 2.0)},
    "lax.linalg.qdwh(x)[2] * 0": {"x": jax.numpy.full((1, 1), 2.0)},  # not as many steps
    "jnp.matmul(x, x, preferred_element_type=float)": {"x": jax.numpy.full((2, 2), 2.0)},
    # (JAX 0.11 refuses halves here)
    "lax.linalg.cholesky_update(x, x[0])": {"x": np.eye(2, dtype="f4" if NEWER else "f2")},
    "ops.segment_sum(x, jnp.array([0, 1, 1]), 2, bucket_size=2)": {"x": np.ones(3, np.int8)},
    # of a sample the parameters' dtype too; of two signs both are true
    "random.weibull_min(jax.random.key(1), x, 2, dtype='float16')": {"x": REALS},
    "random.weibull_min(jax.random.key(1), x, 2)": {"x": COMPLEX},
    "random.permutation(jax.random.key(1), np.int8(5)) + x": {"x": np.zeros(1, np.int8)},
    "random.double_sided_maxwell(jax.random.key(1), x, x, (2,), 'float16')": {"x": REALS},
    "random.double_sided_maxwell(jax.random.key(1), x, 2)": {"x": COMPLEX},
    "random.rademacher(jax.random.key(1), (9,), x.dtype)": {"x": np.array([True])},
}  # fmt: skip
OPERANDS = [(text, operands) for text, operands in EXPRESSIONS.items()]


def _library(root: Any) -> dict[str, Any]:
    own = {name: getattr(root, name) for name in ("lax", "nn", "ops", "random", "image")}
    return {**own, "jnp": root.numpy}


OURS, THEIRS = _library(ft), _library(jax)


def _close(made: Any, wanted: Any) -> None:
    assert made.dtype == wanted.dtype
    assert made.weak_type == wanted.weak_type
    wide = np.complex128 if np.iscomplexobj(wanted) else np.float64
    made, wanted = np.asarray(made).astype(wide), np.asarray(wanted).astype(wide)
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)


def _function(text: str, names: Any, library: dict[str, Any]) -> Any:
    return eval(
        f"lambda {', '.join(names)}: {text}", {**library, "np": np, "ml": ml_dtypes, "jax": jax}
    )


@pytest.mark.parametrize(("text", "operands"), OPERANDS, ids=EXPRESSIONS)
def test_value(text: str, operands: dict[str, Any]):
    ours, theirs = (_function(text, operands, library) for library in (OURS, THEIRS))
    wanted = theirs(*operands.values())
    _close(ours(*operands.values()), wanted)
    _close(ft.jit(ours)(*operands.values()), jax.jit(theirs)(*operands.values()))


@pytest.mark.parametrize(
    ("text", "operands"),
    [
        (text, operands)
        for text, operands in OPERANDS
        if text.startswith(("nn.", "ops.", "x.at", "jnp.corr", "jnp.fmax"))
        and operands["x"].dtype.kind in "fc"
    ],
)
def test_gradient(text: str, operands: dict[str, Any]):
    x, *rest = operands.values()
    if text.startswith("x.at"):
        x = x.at[1].set(0.5).at[4].set(np.nan)  # not among the places written to

    def loss(f: Any, jnp: Any) -> Any:
        def of(x: Any) -> Any:
            y = f(x, *rest)
            return jnp.sum(jnp.real(y) * (1 + jnp.arange(y.size).reshape(y.shape)) - jnp.imag(y))

        return of

    ours, theirs = (_function(text, operands, library) for library in (OURS, THEIRS))
    made = ft.grad(loss(ours, ft.numpy))(x)
    np.testing.assert_allclose(made, jax.grad(loss(theirs, jax.numpy))(x), rtol=1e-4, atol=1e-4)


def test_with_64_bit_types():
    with jax.enable_x64(True):
        x = np.array([1, 2, 3], np.int32)
        _close(ft.numpy.rint(x), jax.numpy.rint(x))
        for name in ("leaky_relu", "elu", "selu", "relu6", "sparse_plus", "hard_sigmoid"):
            _close(getattr(ft.nn, name)(x), getattr(jax.nn, name)(x))
        _close(ft.nn.softplus(x > 1), jax.nn.softplus(x > 1))
        for name in ("linspace", "logspace", "geomspace"):
            _close(getattr(ft.numpy, name)(x, 4, 3), getattr(jax.numpy, name)(x, 4, 3))
            _close(getattr(ft.numpy, name)(1, 4, 3), getattr(jax.numpy, name)(1, 4, 3))
        m, weights = np.ones((2, 3), np.float16), np.arange(3.0)
        _close(ft.numpy.cov(m, aweights=weights), jax.numpy.cov(m, aweights=weights))
        _close(ft.numpy.cov(m, None, True, False, None, x, weights),
               jax.numpy.cov(m, None, True, False, None, x, weights))  # fmt: skip
        _close(ft.numpy.histogramdd(m, 2, density=True)[0],
               jax.numpy.histogramdd(m, 2, density=True)[0])  # fmt: skip
        y, q = np.arange(7.0), np.float32(0.3)
        for a, b in ((y, q), (y.astype(np.float32), 0.3), (x, 0.3)):
            np.testing.assert_array_equal(ft.numpy.quantile(a, b), jax.numpy.quantile(a, b))
        for name in ("softmax", "log_softmax", "logsumexp"):
            for y in (x, x > 1):
                made = getattr(ft.nn, name)(y, where=x > 1)
                _close(made, getattr(jax.nn, name)(y, where=x > 1))
        if not NEWER:  # JAX 0.11's has the default dtype, 0.10's is float32
            _close(ft.numpy.tri(3), jax.numpy.tri(3))
        edges = jax.numpy.linspace(0, 1, 3)
        _close(ft.numpy.linalg.vector_norm(x), jax.numpy.linalg.vector_norm(x))
        wide = x.astype(np.int64)[:, None], np.ones(3, np.float32)
        _close(ft.numpy.linalg.lstsq(*wide)[0], jax.numpy.linalg.lstsq(*wide)[0])
        truth = np.eye(2, dtype=bool)
        _close(ft.lax.linalg.cholesky(truth), jax.lax.linalg.cholesky(truth))
        made = ft.numpy.histogram_bin_edges(x.astype(np.float32), edges)
        _close(made, jax.numpy.histogram_bin_edges(x.astype(np.float32), edges))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_bits_of_lengths_of_normal_vectors(dtype: str):
    key = jax.random.key(7)
    for name in ("maxwell", "double_sided_maxwell"):
        options = () if name == "maxwell" else (1.0, 2.0)
        made = getattr(ft.random, name)(key, *options, shape=(100,), dtype=dtype)
        wanted = getattr(jax.random, name)(key, *options, shape=(100,), dtype=dtype)
        assert np.array_equal(made, wanted)


def test_an_identity_of_negative_size():
    with pytest.raises(ft.errors.InvalidArgument, match="eye"):
        ft.numpy.eye(-1)


def test_the_factors_of_a_matrix_come_as_a_list():
    x = jax.numpy.eye(2)
    structure = jax.tree_util.tree_structure
    for name in ("lu", "hessenberg", "tridiagonal"):
        made = getattr(ft.lax.linalg, name)(x)
        assert structure(made) == structure(getattr(jax.lax.linalg, name)(x))
