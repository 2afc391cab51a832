"""Discrete Fourier transforms under the names of `jax.numpy.fft`.

Integers and real numbers go in; complex numbers come out, of `irfft*` and `hfft` real ones. Along
an axis that is given another length x is cut, or zeros are put behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt
from typing import Any

import numpy as np

from functrans import lax
from functrans.lax.arguments import axis_index, integers, placed
from functrans.numpy import prims, shaping
from functrans.numpy.creation import or_float
from functrans.numpy.padding import pad
from functrans.numpy.promotion import array_of, axes_of, cast, inexact_dtype, invalid
from functrans.numpy.repeating import roll
from functrans.primitives.call import composite
from functrans.primitives.linalg_products import conj as conjugate
from functrans.primitives.shape import slice_axis
from functrans.trace import literal, typeof

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip


# --- the transform along any axes -----------------------------------------------------------------


def _transform(name: str, kind: str, a: Any, s: Any, axes: Any, norm: str | None) -> Any:
    """Transform axes of a, the last of `axes` being that which is halved by RFFT."""
    a = array_of(a, name)
    n = typeof(a).ndim
    s = None if s is None else integers(s, name, "s")
    axes = None if axes is None else integers(axes, name, "axes")
    if s is not None and any(size <= 0 for size in s):
        raise invalid(name, f"lengths must be positive, got {s}")
    if s is not None and axes is not None and len(s) != len(axes):
        raise invalid(name, f"shape {s} and axes {axes} have different lengths")
    if axes is None:
        chosen = tuple(range(n - (n if s is None else len(s)), n))
    else:
        chosen = axes_of(axes, n, name)
    if any(axis < 0 for axis in chosen):
        raise invalid(name, f"{len(chosen)} lengths for {typeof(a)}")
    last = tuple(range(n - len(chosen), n))
    a = shaping.moveaxis(a, chosen, last)
    if s is None:
        s = typeof(a).shape[n - len(chosen) :]
        if kind == "IRFFT" and s:
            s = (*s[:-1], max(0, 2 * (s[-1] - 1)))
    if kind == "RFFT" and 0 in s[-1:]:
        raise invalid(name, f"takes at least one point, got {typeof(a)}")
    if s:
        a = _resized(a, (*s[:-1], s[-1] // 2 + 1) if kind == "IRFFT" else s)
    made = _many_axes(a, kind, s)
    scale = _scale(name, kind, s, norm)
    if scale != 1:
        made = prims.mul(made, literal(scale, typeof(made)))
    return shaping.moveaxis(made, last, chosen)


def _resized(a: Any, sizes: Sequence[int]) -> Any:
    """The last axes cut, or filled up with zeros behind."""
    n = typeof(a).ndim
    for axis, size in enumerate(sizes, n - len(sizes)):
        a = slice_axis(a, axis, 0, min(size, typeof(a).shape[axis]))
    missing = [
        size - have for size, have in zip(sizes, typeof(a).shape[n - len(sizes) :], strict=True)
    ]
    if any(missing):
        a = pad(a, [(0, 0)] * (n - len(sizes)) + [(0, m) for m in missing])
    return a


def _many_axes(a: Any, kind: str, s: tuple[int, ...]) -> Any:
    """Up to three axes at once, the last ones by RFFT first or IRFFT last."""
    if len(s) <= 3:
        return lax.fft(a, kind, s)
    n = typeof(a).ndim
    inner, outer = s[-3:], s[:-3]
    now, there = tuple(range(n - len(s), n - 3)), tuple(range(n - len(outer), n))

    def rest(a: Any, kind: str) -> Any:
        made = _many_axes(shaping.moveaxis(a, now, there), kind, outer)
        return shaping.moveaxis(made, there, now)

    if kind in ("FFT", "RFFT"):
        return rest(lax.fft(a, kind, inner), "FFT")
    return lax.fft(rest(a, "IFFT"), kind, inner)


def _scale(name: str, kind: str, s: tuple[int, ...], norm: str | None) -> float:
    """What a norm asks for; IFFT and IRFFT divide by the number of points themselves."""
    inverse = name.startswith("i")
    if norm in (None, "backward"):
        return 1.0
    if norm not in ("ortho", "forward"):
        raise invalid(name, f"invalid norm {norm!r}", "Norms: 'backward', 'ortho', 'forward'.")
    points = sqrt(prod(s)) if norm == "ortho" else float(prod(s))
    return points if inverse or not points else 1 / points


# --- the family: names of NumPy's --------------------------------------------------------------

_ABOUT = {
    "FFT": "the discrete Fourier transform",
    "IFFT": "the inverse of the discrete Fourier transform",
    "RFFT": "the first half of the discrete Fourier transform of real numbers",
    "IRFFT": "the real numbers of whose discrete Fourier transform the first half is given",
}


def _one_axis(name: str, kind: str) -> Callable[..., Any]:
    """A transform along one axis."""

    def transform(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
        return _transform(name, kind, a, _one(n), _along(name, axis), norm)

    return _named(transform, name, kind, "one axis.")


def _two_axes(name: str, kind: str) -> Callable[..., Any]:
    """A transform along two axes."""

    def transform(
        a: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1),
        norm: str | None = None,
    ) -> Any:  # fmt: skip
        two = integers(axes, name, "axes")
        if len(two) != 2:
            raise invalid(name, f"takes two axes, got {two}")
        return _transform(name, kind, a, s, two, norm)

    return _named(transform, name, kind, "two axes.")


def _all_axes(name: str, kind: str) -> Callable[..., Any]:
    """A transform along any number of axes."""

    def transform(
        a: Any, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
        norm: str | None = None,
    ) -> Any:  # fmt: skip
        return _transform(name, kind, a, s, axes, norm)

    return _named(transform, name, kind, "axes, all of them or the last by default.")


def _named(transform: Callable[..., Any], name: str, kind: str, along: str) -> Callable[..., Any]:
    """Give a member of the family its name and its text, and let it run as one operation."""
    transform.__name__ = transform.__qualname__ = name
    about = _ABOUT[kind]
    transform.__doc__ = f"""{about[0].upper()}{about[1:]}, along {along}

    Arguments:
      a: array of numbers{", real ones" * (kind == "RFFT")}.
      n, s: lengths along the axes, of the result; by default those of a.
      norm: "backward", the inverse divides by the number of points; "forward", the transform
        does; "ortho", both by its root.

    Source: `jax.numpy.fft.{name}`.
    """
    return composite(transform)


def _along(name: str, axis: Any) -> Any:
    """The axes of a function of one axis; as in JAX None stands for the default of `fftn`."""
    if isinstance(axis, (list, tuple)):
        raise invalid(name, f"transforms one axis, got {axis}", f"Use {name}n for several.")
    return _one(axis)


def _one(given: Any) -> Any:
    return None if given is None else (given,)


fft, ifft = _one_axis("fft", "FFT"), _one_axis("ifft", "IFFT")
rfft, irfft = _one_axis("rfft", "RFFT"), _one_axis("irfft", "IRFFT")
fft2, ifft2 = _two_axes("fft2", "FFT"), _two_axes("ifft2", "IFFT")
rfft2, irfft2 = _two_axes("rfft2", "RFFT"), _two_axes("irfft2", "IRFFT")
fftn, ifftn = _all_axes("fftn", "FFT"), _all_axes("ifftn", "IFFT")
rfftn, irfftn = _all_axes("rfftn", "RFFT"), _all_axes("irfftn", "IRFFT")


@composite
def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The transform, which is real, of numbers of whose hermitian sequence the first half is given.

    Source: `jax.numpy.fft.hfft`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.fft.hfft(jnp.array([1.0, 2.0, 1.0])))
      [ 6.  0. -2.  0.]
    """
    along, a = _along("hfft", axis), array_of(a, "hfft")
    points = 2 * (_size("hfft", a, axis) - 1) if n is None else n
    made = _transform("hfft", "IRFFT", conjugate(a), _one(n), along, norm)
    return prims.mul(made, literal(points, typeof(made)))


@composite
def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `hfft`.

    Source: `jax.numpy.fft.ihfft`.
    """
    along, a = _along("ihfft", axis), array_of(a, "ihfft")
    points = _size("ihfft", a, axis) if n is None else n
    made = _transform("ihfft", "RFFT", a, _one(n), along, norm)
    return prims.mul(conjugate(made), literal(1 / max(points, 1), typeof(made)))


def _size(name: str, a: Any, axis: Any) -> int:
    return typeof(a).shape[axis_index(axis, typeof(a).ndim, name)]


# --- frequencies ----------------------------------------------------------------------------------


def fftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of the results of `fft` of n points that are d apart.

    Source: `jax.numpy.fft.fftfreq`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.fft.fftfreq(4))
      [ 0.    0.25 -0.5  -0.25]
    """
    return _frequencies("fftfreq", n, d, dtype, device)


def rfftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of the results of `rfft` of n points that are d apart.

    Source: `jax.numpy.fft.rfftfreq`.
    """
    return _frequencies("rfftfreq", n, d, dtype, device)


def _frequencies(name: str, n: Any, d: Any, dtype: Any, device: Any) -> Any:
    if isinstance(n, (list, tuple)) or isinstance(d, (list, tuple)):
        raise invalid(name, f"takes one n and one d, got {n} and {d}")
    out = or_float(dtype)
    half = name == "rfftfreq"
    places = np.arange(n // 2 + 1) if half else (np.arange(n) + n // 2) % n - n // 2
    # as in JAX integers, where they are asked for, are divided: the result is of floats
    within = out if half else inexact_dtype(out)
    made = cast(array_of(places, name), within) / cast(array_of(d * n, name), within)
    return placed(made if half else cast(made, out), device)


@composite
def fftshift(x: Any, axes: int | Sequence[int] | None = None) -> Any:
    """Roll axes so that the frequency zero stands in the middle.

    Source: `jax.numpy.fft.fftshift`.

    Example:
      >>> import functrans.numpy as jnp
      >>> print(jnp.fft.fftshift(jnp.fft.fftfreq(4)))
      [-0.5  -0.25  0.    0.25]
    """
    return _rolled("fftshift", x, axes, lambda n: n // 2)


@composite
def ifftshift(x: Any, axes: int | Sequence[int] | None = None) -> Any:
    """The inverse of `fftshift`.

    Source: `jax.numpy.fft.ifftshift`.
    """
    return _rolled("ifftshift", x, axes, lambda n: -(n // 2))


def _rolled(name: str, x: Any, axes: Any, by: Callable[[int], int]) -> Any:
    x = array_of(x, name)
    t = typeof(x)
    chosen = axes_of(axes, t.ndim, name)
    return roll(x, tuple([by(t.shape[i]) for i in chosen]), chosen)
