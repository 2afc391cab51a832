"""Special functions. Their reference is SciPy, in double precision."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any

import numpy as np
import scipy.special
from jax.extend.mlir.dialects import chlo

from functrans.primitives.elementwise import Binary, Unary, add, full_like, mul, neg, square
from functrans.primitives.transcendental import exp

FLOAT = ("float",)


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """A SciPy function of arrays of any float dtype."""
    return lambda *xs: function(*[np.asarray(x).astype(np.float64) for x in xs])


def _lgamma(x: np.ndarray) -> np.ndarray:
    return np.where(np.isinf(x), np.inf, scipy.special.gammaln(x))


def _digamma(x: np.ndarray) -> np.ndarray:
    return np.where(x == 0, np.nan, scipy.special.digamma(x))  # its sides differ in sign


def _bell(x: Any, factor: float) -> Any:
    return mul(exp(neg(square(x))), factor)


class Polygamma(Binary):
    """The m-th derivative of digamma at x; differentiable in x."""

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        (m, x), (dm, dx) = primals, tangents
        if dm is not None:
            raise self.missing("jvp")
        return None if dx is None else mul(dx, self(add(m, 1.0), x))


class Zeta(Binary):
    """The sum over k of (k + q) ** -x. It has no derivative."""

    def jvp(self, primals: Any, tangents: Any, out: Any) -> Any:
        raise self.missing("jvp")


erf = Unary(
    "erf", FLOAT, lambda x, y: _bell(x, 2 / sqrt(pi)),
    numpy=_wide(scipy.special.erf), op=chlo.erf, flops=10,
)  # fmt: skip
erfc = Unary(
    "erfc", FLOAT, lambda x, y: _bell(x, -2 / sqrt(pi)),
    numpy=_wide(scipy.special.erfc), op=chlo.erfc, flops=10,
)  # fmt: skip
erf_inv = Unary(
    "erf_inv", FLOAT, lambda x, y: mul(exp(square(y)), sqrt(pi) / 2),
    numpy=_wide(scipy.special.erfinv), op=chlo.erf_inv, flops=20,
)  # fmt: skip
lgamma = Unary(
    "lgamma", FLOAT, lambda x, y: digamma(x),
    numpy=_wide(_lgamma), op=chlo.lgamma, flops=30,
)  # fmt: skip
digamma: Unary = Unary(
    "digamma", FLOAT, lambda x, y: polygamma(full_like(x, 1), x),
    numpy=_wide(_digamma), op=chlo.digamma, flops=30,
)  # fmt: skip
polygamma: Polygamma = Polygamma(
    "polygamma", FLOAT, numpy=_wide(scipy.special.polygamma), op=chlo.polygamma, flops=50
)
zeta = Zeta("zeta", FLOAT, numpy=_wide(scipy.special.zeta), op=chlo.zeta, flops=50)
