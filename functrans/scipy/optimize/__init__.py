"""Minima of functions of vectors.

Not JAX's, whose line search gives up too early: from 200 starts in [-2, 2]^2 its BFGS reaches the
minimum of Rosenbrock's function from 66, this one from all. This one also supports reverse mode.
"""

from typing import TYPE_CHECKING

from functrans.loading import lazily as _lazily

if TYPE_CHECKING:
    from jax.scipy.optimize import OptimizeResults as OptimizeResults

    from functrans.scipy.optimize.minimizers import minimize as minimize
else:
    __getattr__, __dir__, __all__ = _lazily(
        __name__,
        {"jax.scipy.optimize": "OptimizeResults", "functrans.scipy.optimize.minimizers": "minimize"},
        shown="functrans.ir.tracebacks.shown",
    )
