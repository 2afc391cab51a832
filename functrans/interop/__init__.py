"""Interoperation of functrans and JAX. `from_jax` is loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from functrans.loading import lazily as _lazily

if TYPE_CHECKING:
    from functrans.interop import jit_callers as jit_callers
    from functrans.interop.jax_functions import from_jax as from_jax
    from functrans.interop.takeover import take_over as take_over
else:
    __getattr__, __dir__, __all__ = _lazily(
        __name__,
        {
            "functrans.interop": "jit_callers",
            "functrans.interop.jax_functions": "from_jax",
            "functrans.interop.takeover": "take_over",
        },
    )
