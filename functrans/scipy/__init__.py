"""The names of `jax.scipy`. Its modules are loaded when they are first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from functrans.loading import hand_on as _hand_on

if _TYPE_CHECKING:
    from jax.scipy import cluster as cluster
    from jax.scipy import fft as fft
    from jax.scipy import integrate as integrate
    from jax.scipy import interpolate as interpolate
    from jax.scipy import linalg as linalg
    from jax.scipy import ndimage as ndimage
    from jax.scipy import signal as signal
    from jax.scipy import sparse as sparse
    from jax.scipy import spatial as spatial
    from jax.scipy import special as special
    from jax.scipy import stats as stats

    from functrans.scipy import optimize as optimize

_hand_on(__name__)
