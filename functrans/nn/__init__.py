"""Neural network functions with the names and signatures of `jax.nn`.

Functions that are not defined here are JAX's (loading.py).
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from functrans.loading import lazily as _lazily

if _TYPE_CHECKING:
    from typing import Any

    from functrans.nn.activations import *

    def __getattr__(name: str) -> Any: ...

else:
    __getattr__, __dir__, _ = _lazily(__name__, {}, "activations", "functrans.ir.tracebacks.shown")
