"""Where functrans and JAX meet. `from_jax` is loaded when it is first asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from functrans.interop import arrays as arrays

if TYPE_CHECKING:
    from functrans.interop.jax_functions import from_jax as from_jax

__all__ = ["arrays", "from_jax"]


def __getattr__(name: str) -> Any:
    if name != "from_jax":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("functrans.interop.jax_functions").from_jax
