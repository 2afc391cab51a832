"""Operations with the names and signatures of `jax.lax`.

What is not defined here is JAX's (loading.py).
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from functrans.loading import lazily as _lazily

if _TYPE_CHECKING:
    from typing import Any

    def __getattr__(name: str) -> Any: ...


with _lazily(__name__, "functrans.ir.tracebacks.shown"):
    from functrans.lax.collective import *
    from functrans.lax.contraction import *
    from functrans.lax.control_flow import *
    from functrans.lax.elementwise import *
    from functrans.lax.loops import *
    from functrans.lax.reduction import *
