"""Cosine transforms under the names of `jax.scipy.fft`.

    y_k = 2 sum_j x_j cos(pi k (2 j + 1) / (2 n))             type 2

x and its mirror image have 2 n points, whose Fourier transform is exp(i pi k / (2 n)) y_k.
"""

from __future__ import annotations

import operator
import sys as _sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.tracebacks import guard as _guard
from functrans.ir.types import dtype_class
from functrans.loading import hand_on as _hand_on
from functrans.numpy import fft, joining, prims
from functrans.numpy.padding import pad
from functrans.numpy.promotion import array_of, axes_of, captured, cast, invalid, to_inexact
from functrans.primitives.call import composite
from functrans.primitives.complex_numbers import complex_dtype
from functrans.primitives.shape import broadcast_in_dim, rev, slice_axis
from functrans.trace import typeof

__all__ = ["dct", "dctn", "idct", "idctn"]


@composite
def dct(
    x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Any:
    """The discrete cosine transform of type 2 along an axis.

    Arguments:
      x: array of numbers; of complex ones both parts are transformed.
      type: must be 2.
      n: cut the axis to n elements, or fill it up with zeros.
      norm: "backward", or "ortho", which makes the transform orthogonal.

    Raises:
      InvalidArgument: an unknown norm.
      MissingRule: another type.

    Source: `jax.scipy.fft.dct`.

    Example:
      >>> import functrans.numpy as jnp
      >>> from functrans.scipy import fft
      >>> print(fft.dct(jnp.ones(3)).round(1))
      [6. 0. 0.]
    """
    return _along_axes("dct", x, type, None if n is None else (n,), (axis,), norm)


@composite
def idct(
    x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Any:
    """The inverse of `dct`.

    Source: `jax.scipy.fft.idct`.
    """
    return _along_axes("idct", x, type, None if n is None else (n,), (axis,), norm)


@composite
def dctn(
    x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Any:  # fmt: skip
    """`dct` along several axes, all by default, or the last `len(s)`.

    Source: `jax.scipy.fft.dctn`.
    """
    return _along_axes("dctn", x, type, s, axes, norm)


@composite
def idctn(
    x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Any:  # fmt: skip
    """The inverse of `dctn`.

    Source: `jax.scipy.fft.idctn`.
    """
    return _along_axes("idctn", x, type, s, axes, norm)


def _along_axes(name: str, x: Any, type: int, s: Any, axes: Any, norm: str | None) -> Any:
    if type != 2:
        raise errors.MissingRule(
            f"{name}: only type 2 is implemented, got {type}, at\n    {describe(user_source())}"
        )
    if norm not in (None, "backward", "ortho"):
        raise invalid(name, f"norm must be 'backward' or 'ortho', got {norm!r}")
    x = to_inexact(array_of(x, name))
    x = cast(x, np.promote_types(typeof(x).dtype, np.float32))
    n = typeof(x).ndim
    sizes = s if s is None or np.ndim(s) else (operator.index(s),)
    if sizes is not None and len(sizes) > n:
        raise invalid(name, f"s must have at most {n} elements, got {len(sizes)}")
    if axes is None:
        chosen = tuple(range(n - (n if sizes is None else len(sizes)), n))
    else:
        chosen = axes_of(axes if isinstance(axes, int) else tuple(axes), n, name)
    one = _inverse if name.startswith("i") else _forward
    for k, axis in enumerate(chosen):
        if sizes is not None:
            x = _resized(x, axis, operator.index(sizes[k]))
        if dtype_class(typeof(x).dtype) == "complex":
            parts = [one(part(x), axis, norm) for part in (prims.real, prims.imag)]
            x = prims.complex_(*parts)
        else:
            x = one(x, axis, norm)
    return x


def _resized(x: Any, axis: int, n: int) -> Any:
    have = typeof(x).shape[axis]
    x = slice_axis(x, axis, 0, min(n, have))
    widths = [(0, 0)] * typeof(x).ndim
    widths[axis] = (0, max(n - have, 0))
    return pad(x, widths) if n > have else x


def _forward(x: Any, axis: int, norm: str | None) -> Any:
    n = typeof(x).shape[axis]
    whole = joining.concatenate([x, rev(x, dimensions=(axis,))], axis)
    y = slice_axis(fft.rfft(whole, axis=axis), axis, 0, n)
    y = prims.real(prims.mul(y, _along(np.exp(-0.5j * np.pi * np.arange(n) / n), y, axis)))
    if norm != "ortho":
        return y
    return prims.mul(y, _along(1 / _lengths(n), y, axis))


def _inverse(y: Any, axis: int, norm: str | None) -> Any:
    n = typeof(y).shape[axis]
    if norm == "ortho":
        y = prims.mul(y, _along(_lengths(n), y, axis))
    y = cast(y, complex_dtype(typeof(y).dtype))
    y = prims.mul(y, _along(np.exp(0.5j * np.pi * np.arange(n) / n), y, axis))
    whole = fft.irfft(_resized(y, axis, n + 1), 2 * n, axis)
    return slice_axis(whole, axis, 0, n)


def _lengths(n: int) -> np.ndarray:
    """The lengths of the rows of the transform's matrix."""
    return np.sqrt(np.where(np.arange(n) == 0, 4.0, 2.0) * n)


def _along(values: np.ndarray, like: Any, axis: int) -> Any:
    """Numbers along one axis, as an array of another's type."""
    t = typeof(like)
    line = captured(values.astype(t.dtype))
    return broadcast_in_dim(line, shape=t.shape, dimensions=(axis,))


_guard(_sys.modules[__name__])

_hand_on(__name__)
