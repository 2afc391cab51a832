"""Single expressions beside JAX: value, dtype, weak type and derivatives.

What random calls of the whole namespace found, one line each.
"""

import functools
from typing import Any

import jax
import jax.numpy
import ml_dtypes
import numpy as np

import functrans as ft
import functrans.lax
import functrans.nn
import functrans.numpy
from tests.support.versions import QUICK
from tests.support.wide import each

WEAK = jax.numpy.full((3,), 2.0)
WEAK_INTEGERS = jax.numpy.full((3,), 2)
REALS = jax.numpy.array([3.0, -1.0, 2.0])
COMPLEX = jax.numpy.array([1 + 2j, -1 + 3j, -2 - 1j, 2 + 1j])
IMAGINARY = jax.numpy.array([3j, 0, 1])
WITH_NAN = jax.numpy.array([1.0, np.nan, 3.0, 4.0, 4.0])

NOT_SMOOTH = "leaky_relu relu relu6 elu selu hard_tanh hard_silu hard_sigmoid soft_sign sparse_plus"
EXPRESSIONS: dict[str, dict[str, Any]] = {
    # a constant is weak beside weak scalars alone
    "jnp.sinc(x)": {"x": WEAK},
    "jnp.logaddexp(x, y)": {"x": WEAK, "y": 1j},
    "jnp.power(x, y)": {"x": WEAK, "y": np.array(True)},
    "jnp.power(x, y) + 0": {"x": 2, "y": np.array(True)},
    **{f"nn.{name}(x)": {"x": COMPLEX} for name in NOT_SMOOTH.split()},
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
    "jnp.sum(x, promote_integers=False)": {"x": np.array([True, True, False])},
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
    # NumPy's arrays become JAX's also where nothing is done to them
    "jnp.sum(x, axis=())": {"x": np.ones((2, 3), np.float32)},
    "jnp.concatenate([x])": {"x": np.ones((2, 3), np.float32)},
    # sequences that are no lists, shifts that are no integers
    "jnp.array(range(3)) + x": {"x": REALS},
    "jnp.array([range(2), [x, 3]])": {"x": 1},
    "jnp.array(memoryview(np.ones(2))) + x": {"x": 1},
    "jnp.asarray(np.array([1, None, 2.5], object), 'float32') + x": {"x": REALS},
    "jnp.asarray(np.array(['1970-01-03'], 'datetime64[D]'), int) + x": {"x": 1},
    "x.at[:2].set(range(2))": {"x": REALS},
    "round(jnp.asarray(x))": {"x": REALS * 1.3},
    "round(jnp.asarray(x), 1)": {"x": REALS * 1.33},
    "jnp.var(x, dtype='bfloat16')": {"x": REALS.astype("float16")},
    "jnp.take(x, y > 0)": {"x": REALS, "y": REALS},
    # a number is true if it is not 0; that is weakly typed if all are weakly typed scalars
    "jnp.logical_not(x)": {"x": IMAGINARY},
    "jnp.where(x, 1, 2)": {"x": IMAGINARY},
    "jnp.astype(x, bool)": {"x": IMAGINARY},
    "lax.convert_element_type(x, bool)": {"x": IMAGINARY},
    "jnp.logical_not(x) == y": {"x": 2, "y": 1},
    "jnp.logical_and(x, y)": {"x": True, "y": 1},
    "jnp.logical_or(x, y)": {"x": WEAK, "y": 0.0},
    "jnp.real(nn.softplus(x))": {"x": 2 + 1j},
    "lax.fori_loop(0.0, x, lambda i, c: c + 2, 1.0)": {"x": 3.0},
    # an update with a NaN has no derivative
    "x.at[jnp.array([0, 0, 2])].min(y)": {"x": WITH_NAN, "y": REALS},
}


def _library(root: Any) -> dict[str, Any]:
    own = {name: getattr(root, name) for name in ("lax", "nn")}
    return {**own, "jnp": root.numpy}


OURS, THEIRS = _library(ft), _library(jax)


def _close(made: Any, wanted: Any) -> None:
    assert made.dtype == wanted.dtype
    assert made.weak_type == wanted.weak_type
    wide = np.complex128 if np.iscomplexobj(wanted) else np.float64
    made, wanted = np.asarray(made).astype(wide), np.asarray(wanted).astype(wide)
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)


def _function(text: str, names: Any, library: dict[str, Any]) -> Any:
    return eval(f"lambda {', '.join(names)}: {text}", {**library, "np": np, "ml": ml_dtypes, "jax": jax})


def _everything(jit: Any, library: dict[str, Any]) -> dict[str, Any]:
    functions = {row: _function(row, names, library) for row, names in EXPRESSIONS.items()}

    def run(operands: dict[str, Any]) -> dict[str, Any]:
        return {row: f(*operands[row].values()) for row, f in functions.items()}

    return jit(run)(EXPRESSIONS)


def test_values():
    """Un-jitted, and in one program."""
    wanted = _everything(functools.partial(jax.jit, compiler_options=QUICK), THEIRS)
    for jit in (lambda f: f, ft.jit):
        made = _everything(jit, OURS)
        each(EXPRESSIONS, lambda row, made=made: _close(made[row], wanted[row]))


def test_gradients():
    rows = [row for row in EXPRESSIONS if row.startswith(("nn.", "x.at"))]
    rows = [row for row in rows if EXPRESSIONS[row]["x"].dtype.kind in "fc"]
    places = {}
    for row in rows:
        x = places[row] = EXPRESSIONS[row]["x"]
        if row.startswith("x.at"):
            places[row] = x.at[1].set(0.5).at[4].set(np.nan)  # not among the places written to

    def total(functions: dict[str, Any], row: str, x: Any) -> Any:
        _, *rest = EXPRESSIONS[row].values()
        jnp, y = functions["jnp"], _function(row, EXPRESSIONS[row], functions)(x, *rest)
        return jnp.sum(jnp.real(y) * (1 + jnp.arange(y.size).reshape(y.shape)) - jnp.imag(y))

    def gradients(library: Any, functions: dict[str, Any]) -> dict[str, Any]:
        losses = {row: functools.partial(total, functions, row) for row in rows}

        def of(xs: dict[str, Any]) -> dict[str, Any]:
            return {row: library.grad(losses[row])(x) for row, x in xs.items()}

        return library.jit(of, compiler_options=QUICK)(places)

    made, wanted = gradients(ft, OURS), gradients(jax, THEIRS)
    each(rows, lambda row: np.testing.assert_allclose(made[row], wanted[row], 1e-4, 1e-4))
