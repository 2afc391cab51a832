"""`jax.lax` names over primitives/fft.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.lax import FftType as FftType

from functrans.ir.types import canonical_dtype, dtype_class
from functrans.lax.arguments import as_array, integers, invalid, mismatch
from functrans.primitives.conversion import convert_element_type
from functrans.primitives.fft import fft as _fft
from functrans.trace import typeof

__all__ = ["FftType", "fft"]


def fft(x: Any, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Any:
    """The discrete Fourier transform along the last axes.

    Arguments:
      x: array; real numbers are taken for complex ones, by "RFFT" integers for floats.
      fft_type: "FFT", "IFFT", "RFFT", "IRFFT" or the `FftType`.
      fft_lengths: the number of points along each of the last axes, at most three, of the result
        of "IRFFT" and of x otherwise.

    Returns:
      Complex numbers, of "IRFFT" real ones.

    Raises:
      InvalidArgument: an unknown type, or complex numbers for "RFFT".
      ShapeMismatch: the lengths do not fit x.

    Source: `jax.lax.fft`.

    Example:
      >>> import numpy as np
      >>> print(fft(np.ones(4, np.float32), "RFFT", (4,)))
      [4.+0.j 0.+0.j 0.+0.j]
    """
    kind = fft_type.upper() if isinstance(fft_type, str) else getattr(fft_type, "name", "")
    if kind not in FftType.__members__:
        if isinstance(fft_type, str):
            raise invalid("fft", f"unknown type {fft_type!r}", f"Types: {[*FftType.__members__]}.")
        raise mismatch("fft", f"fft_type must be a string or an FftType, got {fft_type!r:.60}")
    x = as_array(x)
    t = typeof(x)
    found = dtype_class(t.dtype)
    if kind == "RFFT" and found == "complex":
        raise invalid("fft", f"RFFT transforms real numbers, got {t}", "Use FFT, or x.real.")
    dtype = t.dtype
    if found not in ("float", "complex"):
        dtype = canonical_dtype(np.dtype(np.float32 if dtype.itemsize < 8 else np.float64))
    if kind != "RFFT" and found != "complex":
        dtype = np.dtype(np.complex128 if dtype == np.float64 else np.complex64)
    if kind == "RFFT" and dtype.itemsize < 4:
        raise invalid(
            "fft", f"RFFT takes float32 or float64, got {t}", "Cast with x.astype(jnp.float32)."
        )
    if dtype != t.dtype or t.weak_type:
        x = convert_element_type(x, dtype=dtype, weak_type=False)
    lengths = integers(fft_lengths, "fft", "fft_lengths")
    return _fft(x, kind=kind, lengths=lengths) if lengths else x
