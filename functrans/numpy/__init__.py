"""NumPy functions of arrays and tracers, with the names and signatures of `jax.numpy`.

What is not defined here is JAX's (loading.py).
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from jax.numpy import __array_api_version__ as __array_api_version__
from jax.numpy import __array_namespace_info__ as __array_namespace_info__

from functrans.loading import lazily as _lazily

if _TYPE_CHECKING:
    from typing import Any

    def __getattr__(name: str) -> Any: ...


with _lazily(__name__, "functrans.numpy.ufunc_methods.shown"):
    from jax.numpy import fft as fft
    from jax.numpy import linalg as linalg

    from functrans.numpy import operators as operators
    from functrans.numpy.arithmetic import *
    from functrans.numpy.creation import *
    from functrans.numpy.linear import *
    from functrans.numpy.reductions import *
    from functrans.numpy.selecting import *
    from functrans.numpy.shaping import *
    from functrans.numpy.ufunc_methods import *
    from functrans.numpy.ufuncs import *
