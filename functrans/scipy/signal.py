"""Filters and spectra of signals, by JAX's own programs."""

import sys as _sys
from functools import partial

from functrans.ir.tracebacks import guard as _guard
from functrans.loading import hand_on as _hand_on
from functrans.scipy.arguments import imported

_of = partial(imported, module="signal")

convolve = _of("convolve", "The convolution of two arrays.", "np.ones(2), np.ones(2) -> [1. 2. 1.]")
convolve2d = _of("convolve2d", "The convolution of two matrices.", "x, y")
correlate = _of(
    "correlate", "The cross-correlation of two arrays.", "np.ones(2), np.ones(2) -> [1. 2. 1.]"
)
correlate2d = _of("correlate2d", "The cross-correlation of two matrices.", "x, y")
fftconvolve = _of("fftconvolve", "The convolution of two arrays by Fourier transforms.", "x, y")
detrend = _of(
    "detrend", "A signal without its mean or its linear trend.",
    'np.ones(3), type="constant" -> [0. 0. 0.]',
)  # fmt: skip
csd = _of("csd", "The cross power spectral density of two signals, by Welch's method.", "x, y")
welch = _of("welch", "The power spectral density of a signal, by Welch's method.", "x")
stft = _of("stft", "The short-time Fourier transform of a signal.", "x")
istft = _of("istft", "The signal of a short-time Fourier transform.", "z")

_guard(_sys.modules[__name__])

_hand_on(__name__)
