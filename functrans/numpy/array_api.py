"""The Python array API standard: which version of it this namespace is, and what it can do.

Importing this module gives traced arrays their `__array_namespace__`. That of concrete arrays,
which are JAX's, is `jax.numpy`, whose functions take them.
"""

from __future__ import annotations

import sys
from types import ModuleType

from jax.numpy import __array_api_version__ as __array_api_version__
from jax.numpy import __array_namespace_info__ as __array_namespace_info__

from functrans.numpy.promotion import invalid
from functrans.trace import Tracer

__all__ = ["__array_api_version__", "__array_namespace_info__"]


def _array_namespace(self: Tracer, *, api_version: str | None = None) -> ModuleType:
    if api_version not in (None, __array_api_version__):
        raise invalid(
            "__array_namespace__", f"api_version {api_version!r} is not there",
            f"It is {__array_api_version__!r}.",
        )  # fmt: skip
    return sys.modules["functrans.numpy"]


setattr(Tracer, "__array_namespace__", _array_namespace)  # noqa: B010  # its type is JAX's
