"""The names of `jax.scipy`. Its modules are loaded when they are first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from functrans.loading import lazily as _lazily

if TYPE_CHECKING:
    from functrans.scipy import cluster as cluster
    from functrans.scipy import fft as fft
    from functrans.scipy import integrate as integrate
    from functrans.scipy import interpolate as interpolate
    from functrans.scipy import linalg as linalg
    from functrans.scipy import ndimage as ndimage
    from functrans.scipy import optimize as optimize
    from functrans.scipy import signal as signal
    from functrans.scipy import sparse as sparse
    from functrans.scipy import spatial as spatial
    from functrans.scipy import special as special
    from functrans.scipy import stats as stats
else:
    __getattr__, __dir__, __all__ = _lazily(__name__, {
        "functrans.scipy": (
            "cluster fft integrate interpolate linalg ndimage optimize signal sparse spatial "
            "special stats"
        ),
    })  # fmt: skip
