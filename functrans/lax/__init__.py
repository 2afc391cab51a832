"""Operations with the names and signatures of `jax.lax`.

What is not defined here is JAX's (loading.py).
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from functrans.loading import lazily as _lazily

if _TYPE_CHECKING:
    from typing import Any

    from functrans.lax.collective import *
    from functrans.lax.contraction import *
    from functrans.lax.control_flow import *
    from functrans.lax.elementwise import *
    from functrans.lax.loops import *
    from functrans.lax.reduction import *

    def __getattr__(name: str) -> Any: ...

else:
    __getattr__, __dir__, _ = _lazily(
        __name__,
        {},
        "loops control_flow elementwise reduction contraction collective",
        "functrans.ir.tracebacks.shown",
    )
