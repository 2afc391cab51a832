"""Neural network functions with the names and signatures of `jax.nn`.

Functions that are not defined here are JAX's (loading.py).
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from functrans.loading import lazily as _lazily

if _TYPE_CHECKING:
    from typing import Any

    def __getattr__(name: str) -> Any: ...


with _lazily(__name__, "functrans.ir.tracebacks.shown"):
    from functrans.nn.activations import *
