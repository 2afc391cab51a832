"""Convolution and correlation of vectors."""

from __future__ import annotations

from typing import Any

from functrans.lax.convolution import conv_general_dilated
from functrans.numpy import prims
from functrans.numpy.promotion import array_of, invalid, promote_inexact
from functrans.numpy.ufuncs import conjugate
from functrans.trace import typeof

__all__ = ["convolve", "correlate"]


def convolve(
    a: Any, v: Any, mode: str = "full", *, precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:  # fmt: skip
    """The convolution of two vectors.

    Arguments:
      a, v: vectors.
      mode: "full", all overlaps; "same", as many as the longer has; "valid", complete overlaps.

    Source: `jax.numpy.convolve`.
    """
    return _convolve("convolve", a, v, mode, precision, preferred_element_type)


def correlate(
    a: Any, v: Any, mode: str = "valid", *, precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:  # fmt: skip
    """The sums of a shifted against conj(v).

    Source: `jax.numpy.correlate`.
    """
    v = prims.rev(conjugate(array_of(v, "correlate", 1)), dimensions=(0,))
    return _convolve("correlate", a, v, mode, precision, preferred_element_type)


def _convolve(name: str, a: Any, v: Any, mode: str, precision: Any, preferred: Any) -> Any:
    a, v = promote_inexact((array_of(a, name), array_of(v, name, 1)), name)
    ta, tv = typeof(a), typeof(v)
    if ta.ndim != 1 or tv.ndim != 1 or not ta.size or not tv.size:
        raise invalid(name, f"takes two vectors that are not empty, got {ta} and {tv}")
    if ta.size < tv.size:
        a, v, ta, tv = v, a, tv, ta
    n = tv.size
    pads = {"full": (n - 1, n - 1), "same": (n // 2, n - n // 2 - 1), "valid": (0, 0)}
    if mode not in pads:
        raise invalid(name, f"mode must be 'full', 'same' or 'valid', got {mode!r}")
    made = conv_general_dilated(
        prims.reshape(a, shape=(1, 1, ta.size)),
        prims.reshape(prims.rev(v, dimensions=(0,)), shape=(1, 1, n)),
        (1,), [pads[mode]], precision=precision, preferred_element_type=preferred,
    )  # fmt: skip
    return prims.reshape(made, shape=(typeof(made).size,))
