"""Are two results the same? Dtypes and shapes exactly, numbers up to a tolerance."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.matrix.cases.case import TOLERANCES


def leaves(x: Any) -> list[Any]:
    """Arrays of a pytree; typed keys as their key data."""
    return [plain(y) for y in jax.tree_util.tree_leaves(x)]


def plain(x: Any) -> np.ndarray:
    """A value as a NumPy array; Python numbers at JAX's dtypes."""
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    return np.asarray(jnp.asarray(x) if isinstance(x, (int, float, complex)) else x)


def assert_close(actual: Any, expected: Any, tolerance: float | None = None, what: str = "") -> None:
    """Equal leaf by leaf: dtype, shape, and numbers up to `tolerance` (None: that of the dtype)."""
    left, right = leaves(actual), leaves(expected)
    assert len(left) == len(right), f"{what}: {len(left)} results, expected {len(right)}"
    for i, (x, y) in enumerate(zip(left, right, strict=True)):
        where = f"{what} result {i}"
        assert x.dtype == y.dtype, f"{where}: dtype {x.dtype}, expected {y.dtype}"
        assert x.shape == y.shape, f"{where}: shape {x.shape}, expected {y.shape}"
        if x.dtype == jax.dtypes.float0:
            continue
        limit = TOLERANCES.get(str(x.dtype), 0.0) if tolerance is None else tolerance
        _assert_numbers(x, y, limit, where)


def _assert_numbers(x: np.ndarray, y: np.ndarray, tolerance: float, where: str) -> None:
    if x.tobytes() == y.tobytes():  # most are, and NumPy's checks take longer than what they check
        return
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        np.testing.assert_array_equal(x, y, err_msg=where)
        return
    wide = np.complex128 if jnp.issubdtype(x.dtype, jnp.complexfloating) else np.float64
    x, y = x.astype(wide), y.astype(wide)
    nans = np.isnan(y)
    np.testing.assert_array_equal(np.isnan(x), nans, err_msg=f"{where}: NaNs differ")
    x, y = x[~nans], y[~nans]
    finite = np.isfinite(y)
    np.testing.assert_array_equal(x[~finite], y[~finite], err_msg=f"{where}: infinities differ")
    np.testing.assert_allclose(x[finite], y[finite], rtol=tolerance, atol=tolerance, err_msg=where)
