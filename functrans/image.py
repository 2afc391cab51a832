"""Images of another size: `jax.image`.

Every method but "nearest" is a product with one matrix [size, new size] for each axis that changes:
a column holds the weights, which sum to 1, of the old pixels in a new one.
"""

from __future__ import annotations

import enum
import math
import operator
import sys as _sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import functrans.numpy as jnp
from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.tracebacks import guard as _guard
from functrans.lax import Precision
from functrans.loading import hand_on as _hand_on
from functrans.numpy.promotion import array_of, axes_of, cast, invalid, promote_inexact
from functrans.primitives.call import composite
from functrans.trace import concrete_value, typeof

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]


class ResizeMethod(enum.Enum):
    """What the pixels of a new image are made of.

    Source: `jax.image.ResizeMethod`.
    """

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of a name."""
        if s not in _NAMES:
            raise invalid("resize", f"unknown method {s!r}", f"Methods are {', '.join(_NAMES)}.")
        return _NAMES[s]


_NAMES = {
    "nearest": ResizeMethod.NEAREST,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5,
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
    "area": ResizeMethod.AREA,
}


# --- kernels: the weight of a pixel at distance x >= 0 --------------------------------------------


def _triangle(x: Any) -> Any:
    return jnp.maximum(0, 1 - x)


def _lanczos(radius: float) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        near = x <= 1e-3
        below = jnp.where(near, 1, np.pi**2 * x**2)
        waves = radius * jnp.sin(np.pi * x) * jnp.sin(np.pi * x / radius)
        return jnp.where(x > radius, 0.0, jnp.where(near, 1, waves / below))

    return kernel


def _cubic(a: float) -> Callable[[Any], Any]:
    """Keys, Cubic convolution interpolation for digital image processing, IEEE ASSP 29(6), 1981."""

    def kernel(x: Any) -> Any:
        inner = ((a + 2) * x - (a + 3)) * x * x + 1.0
        outer = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return jnp.where(x >= 2.0, 0.0, jnp.where(x >= 1.0, outer, inner))

    return kernel


_KERNELS = {
    ResizeMethod.LINEAR: _triangle,
    ResizeMethod.LANCZOS3: _lanczos(3.0),
    ResizeMethod.LANCZOS5: _lanczos(5.0),
    ResizeMethod.CUBIC: _cubic(-0.5),
    ResizeMethod.CUBIC_PYTORCH: _cubic(-0.75),
}
_PYTORCH_RADIUS = 2


# --- weights --------------------------------------------------------------------------------------


def _weights(
    size: int, new: int, scale: Any, shift: Any, method: ResizeMethod, antialias: bool
) -> Any:
    """[size, new]; new pixel j is centred at (j + 1/2 - shift) / scale - 1/2 of the old ones."""
    dtype = jnp.result_type(scale, shift)
    inverse = 1.0 / scale
    centres = (jnp.arange(new, dtype=dtype) + 0.5) * inverse - shift * inverse - 0.5
    if method is ResizeMethod.AREA:
        weights = _overlaps(size, new, inverse, shift, dtype)
    elif method is ResizeMethod.CUBIC_PYTORCH:
        return _normal(_with_repeated_edges(size, centres, _KERNELS[method], dtype))
    else:
        # a kernel as wide as what a new pixel covers keeps out what is too fine for it
        width = jnp.maximum(inverse, 1.0) if antialias else 1.0
        places = jnp.arange(size, dtype=dtype)
        weights = _KERNELS[method](jnp.abs(centres[None, :] - places[:, None]) / width)
    inside = (centres >= -0.5) & (centres <= size - 0.5)
    return jnp.where(inside[None, :], _normal(weights), 0)


def _overlaps(size: int, new: int, inverse: Any, shift: Any, dtype: Any) -> Any:
    """How much of each old pixel [i, i + 1] lies in what a new one covers."""
    left = (jnp.arange(new, dtype=dtype) * inverse - shift * inverse)[None, :]
    place = jnp.arange(size, dtype=dtype)[:, None]
    return jnp.maximum(0.0, jnp.minimum(left + inverse, place + 1.0) - jnp.maximum(left, place))


def _with_repeated_edges(size: int, centres: Any, kernel: Callable[[Any], Any], dtype: Any) -> Any:
    """As if the pixels at the edges went on: what falls beyond is added to their weights."""
    k = _PYTORCH_RADIUS
    places = np.arange(-k, size + k)
    weights = kernel(jnp.abs(centres[None, :] - jnp.asarray(places, dtype)[:, None]))
    onto = np.clip(places, 0, size - 1)
    return jnp.zeros((size, typeof(centres).shape[0]), dtype).at[onto].add(weights)


def _normal(weights: Any) -> Any:
    total = jnp.sum(weights, axis=0, keepdims=True)
    enough = jnp.abs(total) > 1000.0 * float(np.finfo(np.float32).eps)
    return jnp.where(enough, weights / jnp.where(total != 0, total, 1), 0)


def _resampled(
    image: Any, shape: tuple[int, ...], axes: Sequence[int], scales: Sequence[Any],
    shifts: Sequence[Any], method: ResizeMethod, antialias: bool, precision: Any,
) -> Any:  # fmt: skip
    if method is ResizeMethod.CUBIC_PYTORCH and antialias:
        method = ResizeMethod.CUBIC
    t = typeof(image)
    ndim = t.ndim
    operands: list[Any] = [image, list(range(ndim))]
    out = list(range(ndim))
    for k, (d, scale, shift) in enumerate(zip(axes, scales, shifts, strict=True)):
        weights = _weights(t.shape[d], shape[d], scale, shift, method, antialias)
        operands += [cast(weights, t.dtype), [d, ndim + k]]
        out[d] = ndim + k
    return jnp.einsum(*operands, out, precision=precision) if axes else image


# --- the two functions ----------------------------------------------------------------------------


def scale_and_translate(
    image: Any, shape: Sequence[int], spatial_dims: Sequence[int], scale: Any, translation: Any,
    method: str | ResizeMethod, antialias: bool = True, precision: Any = Precision.HIGHEST,
) -> Any:  # fmt: skip
    """Stretch and shift an image: what was at x is then at x scale + translation.

    Pixel i covers [i, i + 1]. New pixels whose centre was outside of the image are 0.

    Arguments:
      image: array of numbers.
      shape: of the result, of all axes.
      spatial_dims: the K axes along which something changes.
      scale, translation: [K], differentiable, as the image is.
      method: a `ResizeMethod` or its name, not "nearest".
      antialias: widen the kernel where the image gets smaller.
      precision: of the products.

    Returns:
      An array of this shape, of the image's dtype or, of integers, float.

    Raises:
      InvalidArgument: a shape of another number of axes, an unknown method, or "nearest".

    Source: `jax.image.scale_and_translate`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> x = jnp.array([0.0, 1.0, 2.0, 3.0])
      >>> print(ft.image.scale_and_translate(
      ...     x, (4,), (0,), jnp.ones(1), jnp.array([1.0]), "linear"))
      [0. 0. 1. 2.]
    """
    name = "scale_and_translate"
    image = array_of(image, name)
    sizes, how = _checked(name, image, shape, method)
    if how is ResizeMethod.NEAREST:
        raise invalid(name, "method 'nearest' is not supported", "ft.image.resize has it.")
    scale, translation = promote_inexact((jnp.asarray(scale), jnp.asarray(translation)), name)
    scale, translation = array_of(scale, name), array_of(translation, name)
    axes = [axes_of(d, len(sizes), name)[0] for d in spatial_dims]
    for what, x in (("scale", scale), ("translation", translation)):
        if typeof(x).shape != (len(axes),):
            raise invalid(name, f"{what} must be of shape ({len(axes)},), got {typeof(x)}")
    return _transformed(image, scale, translation, sizes, tuple(axes), how, antialias, precision)


@composite
def _transformed(
    image: Any, scale: Any, translation: Any, shape: Any, axes: Any, method: Any, antialias: Any,
    precision: Any,
) -> Any:  # fmt: skip
    (image,) = promote_inexact((image,), "scale_and_translate")
    scales, shifts = ([x[k] for k in range(len(axes))] for x in (scale, translation))
    return _resampled(image, shape, axes, scales, shifts, method, antialias, precision)


def resize(
    image: Any, shape: Sequence[int], method: str | ResizeMethod, antialias: bool = True,
    precision: Any = Precision.HIGHEST,
) -> Any:  # fmt: skip
    """Make an image of another size.

    Arguments:
      image: array of numbers, of any number of axes; those whose size is not to change may be
        batches or channels.
      shape: of the result, of all axes.
      method: a `ResizeMethod` or its name: "nearest"; "linear", also "bilinear", "trilinear",
        "triangle"; "cubic", also "bicubic", "tricubic" (Keys, a = -1/2); "cubic-pytorch" or
        "bicubic-pytorch" (a = -3/4 and repeated edges, without antialias); "lanczos3", "lanczos5";
        "area" (means).
      antialias: widen the kernel where the image gets smaller.
      precision: of the products.

    Returns:
      An array of this shape, of the image's dtype or, but for "nearest", of integers float.

    Raises:
      InvalidArgument: a shape of another number of axes, an unknown method.

    Source: `jax.image.resize`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.image.resize(jnp.array([0.0, 4.0]), (4,), "linear"))
      [0. 1. 3. 4.]
    """
    image = array_of(image, "resize")
    sizes, how = _checked("resize", image, shape, method)
    return _resized(image, sizes, how, antialias, precision)


def _checked(
    name: str, image: Any, shape: Any, method: Any
) -> tuple[tuple[int, ...], ResizeMethod]:
    sizes = []
    for n in shape:
        value = concrete_value(n)
        if value is None:
            raise errors.AbstractIndexError(
                f"{name}: the new shape must be known, got the traced {n}, at\n"
                f"    {describe(user_source())}\nMake it a static argument of jit."
            )
        sizes.append(operator.index(value))
    if len(sizes) != typeof(image).ndim or min(sizes, default=0) < 0:
        raise invalid(name, f"shape {tuple(sizes)} is no new shape of {typeof(image)}")
    if isinstance(method, str):
        method = ResizeMethod.from_string(method)
    if not isinstance(method, ResizeMethod):
        raise invalid(name, f"method must be a ResizeMethod or its name, got {method!r:.60}")
    return tuple(sizes), method


@composite
def _resized(image: Any, shape: Any, method: Any, antialias: Any, precision: Any) -> Any:
    old = typeof(image).shape
    axes = [d for d, (m, n) in enumerate(zip(old, shape, strict=True)) if m != n]
    if method is ResizeMethod.NEAREST:
        return _nearest(image, shape, axes)
    (image,) = promote_inexact((image,), "resize")
    scales = [1.0 if shape[d] == 0 else shape[d] / old[d] if old[d] else math.inf for d in axes]
    return _resampled(
        array_of(image, "resize"), shape, axes, scales, [0.0] * len(axes), method, antialias,
        precision,
    )  # fmt: skip


def _nearest(image: Any, shape: tuple[int, ...], axes: list[int]) -> Any:
    for d in axes:
        m, n = typeof(image).shape[d], shape[d]
        places = (np.arange(n, dtype=np.float32) + np.float32(0.5)) * np.float32(m) / np.float32(n)
        image = jnp.take(image, np.floor(places).astype(np.int32), axis=d, mode="clip")
    return image


_guard(_sys.modules[__name__])

_hand_on(__name__)
