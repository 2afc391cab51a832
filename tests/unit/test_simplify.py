"""Passes that simplify: the values of what they make. The programs before and after: rewrites.txt."""

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp

pytestmark = pytest.mark.smoke

POWERS = (-3.0, -2.5, -2.0, -1.5, -0.5, 0.5, 1.5, 2.5, 4.0)  # whose loops are short


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_of_short_powers(dtype):
    """Of what may be negative, and of what is not."""
    with jax.enable_x64(True), np.errstate(all="ignore"):
        info = np.finfo(dtype)
        sizes = np.random.default_rng(0).uniform(np.log10(info.tiny), np.log10(info.max), 2000)
        ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, info.max]
        x = np.concatenate([10**sizes, -(10.0 ** sizes[:99]), ends]).astype(dtype)
        one = np.ones((), dtype)

        def powers(x):
            squares = jnp.sum(jnp.stack([x, x / 2]) ** 2, 0)
            return [(base, [base**y for y in POWERS]) for base in (x, jnp.abs(x), x + one, squares)]

        for base, rows in ft.jit(powers)(x):
            base = np.asarray(base)
            for y, found in zip(POWERS, map(np.asarray, rows), strict=True):
                exact = np.power(base.astype(np.longdouble), np.longdouble(y)).astype(dtype)
                normal = np.isfinite(exact) & (abs(exact) >= info.tiny)
                np.testing.assert_allclose(found[normal], exact[normal], rtol=4 * info.eps)
                large = np.isinf(exact) | np.isnan(exact)
                np.testing.assert_array_equal(found[large], exact[large])
                assert (abs(found[~normal & ~large]) <= info.tiny).all()


def test_factors_stay_where_numbers_are_in_range():
    halves = np.full((4, 64), 64, np.float16), np.full((64, 3), 64, np.float16)
    f = ft.jit(lambda q, k: (q * np.float16(0.125)) @ k)
    np.testing.assert_array_equal(f(*halves), np.full((4, 3), 32768, np.float16))
    large = np.full((8, 64), 1e20, np.float32), np.full((64, 4), 1e20, np.float32)
    f = ft.jit(lambda q, k: (q * np.float32(2.0**-40)) @ k)
    np.testing.assert_allclose(f(*large), np.full((8, 4), 64e40 * 2.0**-40), rtol=1e-5)


@pytest.mark.parametrize("kind", [np.int8, np.int32])
def test_what_is_not_finite_times_a_mask_of_integers(kind):
    x, mask = np.array([np.inf, 1, np.nan], np.float32), np.array([False, True, False])
    f = ft.jit(lambda x, mask: x * mask.astype(kind).astype(np.float32))
    np.testing.assert_array_equal(f(x, mask), np.array([np.nan, 1, np.nan], np.float32))
