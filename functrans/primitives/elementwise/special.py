"""Special functions. The reference is SciPy, in double precision."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from math import pi, sqrt
from typing import Any

import jax
import numpy as np

from functrans.mlir import chlo
from functrans.primitives.elementwise.families import Binary, Unary, add, full_like, mul, neg, square
from functrans.primitives.elementwise.transcendental import exp

FLOAT = ("float",)


def scipy_function(name: str) -> Callable[..., Any]:
    """Return a function of scipy.special that imports the module, which is slow, at its first
    call."""

    def function(*xs: Any) -> Any:
        return getattr(importlib.import_module("scipy.special"), name)(*xs)

    return function


def _wide(function: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return a SciPy function that accepts arrays of any float dtype."""
    of_doubles = scipy_function(function) if isinstance(function, str) else function
    return lambda *xs: of_doubles(*[np.asarray(x).astype(np.float64) for x in xs])


_gammaln, _psi = scipy_function("gammaln"), scipy_function("digamma")


def _lgamma(x: np.ndarray) -> np.ndarray:
    return np.where(np.isinf(x), np.inf, _gammaln(x))


# XLA's digamma at 0, where the two limits have different signs.
_POLE = -np.inf if jax.__version_info__ >= (0, 11) else np.nan


def _digamma(x: np.ndarray) -> np.ndarray:
    return np.where(x == 0, _POLE, _psi(x))


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


erf: Unary = Unary(
    "erf", FLOAT, lambda x, y: _bell(x, 2 / sqrt(pi)), numpy=_wide("erf"), op=chlo.erf, flops=10
)
erfc: Unary = Unary(
    "erfc", FLOAT, lambda x, y: _bell(x, -2 / sqrt(pi)), numpy=_wide("erfc"), op=chlo.erfc, flops=10
)
erf_inv: Unary = Unary(
    "erf_inv",
    FLOAT,
    lambda x, y: mul(exp(square(y)), sqrt(pi) / 2),
    numpy=_wide("erfinv"),
    op=chlo.erf_inv,
    flops=20,
)
lgamma: Unary = Unary(
    "lgamma", FLOAT, lambda x, y: digamma(x), numpy=_wide(_lgamma), op=chlo.lgamma, flops=30
)
digamma: Unary = Unary(
    "digamma",
    FLOAT,
    lambda x, y: polygamma(full_like(x, 1), x),
    numpy=_wide(_digamma),
    op=chlo.digamma,
    flops=30,
)
polygamma: Polygamma = Polygamma("polygamma", FLOAT, numpy=_wide("polygamma"), op=chlo.polygamma, flops=50)
zeta: Zeta = Zeta("zeta", FLOAT, numpy=_wide("zeta"), op=chlo.zeta, flops=50)
