"""The functions of `jax.scipy.special`.

Those that are a formula or an operation stand here; those that are series or tables are programs of
JAX (`imported`), with the derivatives that JAX gives them.
"""

from __future__ import annotations

import functools
import math
import operator
import sys as _sys
from collections.abc import Callable
from typing import Any

import jax.scipy.special  # noqa: F401  (a namespace that JAX loads when it is asked for)
import numpy as np

from functrans import errors, lax
from functrans import numpy as jnp
from functrans.api.custom_rules import custom_jvp
from functrans.ir.source import describe, user_source
from functrans.ir.tracebacks import guard as _guard
from functrans.ir.types import dtype_class
from functrans.loading import hand_on as _hand_on
from functrans.nn import log_softmax as _log_softmax
from functrans.nn import logsumexp as logsumexp
from functrans.nn import softmax as _softmax
from functrans.numpy.arithmetic import beside
from functrans.numpy.promotion import (
    align_inexact,
    cast,
    invalid,
    promote_inexact,
    type_of,
)
from functrans.numpy.windows import grown
from functrans.primitives import special as _operations
from functrans.primitives import special_incomplete as _incomplete
from functrans.primitives.base import Primitive
from functrans.primitives.transcendental import logistic
from functrans.scipy.arguments import constant, documented, imported, numbers, reals
from functrans.scipy.normal import log_ndtr as log_ndtr
from functrans.scipy.normal import ndtr as ndtr
from functrans.trace import bind, literal, materialize, typeof

__all__ = [
    "bernoulli", "bessel_jn", "beta", "betainc", "betaln", "boxcox", "boxcox1p", "comb", "dawsn",
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp1", "expi", "expit", "expn",
    "factorial", "fresnel", "gamma", "gammainc", "gammaincc", "gammaln", "gammasgn", "hyp1f1",
    "hyp2f1", "i0", "i0e", "i1", "i1e", "kl_div", "log_ndtr", "log_softmax", "loggamma", "logit",
    "logsumexp", "multigammaln", "ndtr", "ndtri", "owens_t", "poch", "polygamma", "rel_entr",
    "sici", "softmax", "spence", "sph_harm_y", "wofz", "xlog1py", "xlogy", "zeta",
]  # fmt: skip


# --- operations -----------------------------------------------------------------------------------


def _operation(
    name: str, primitive: Primitive, does: str, example: str, count: int = 1
) -> Callable[..., Any]:
    """A function of `count` arrays that is one operation."""
    if count == 1:

        def function(x: Any) -> Any:
            return bind(primitive, promote_inexact([x], name), {})
    elif count == 2:

        def function(a: Any, x: Any) -> Any:  # type: ignore[misc]
            return bind(primitive, align_inexact([a, x], name), {})
    else:

        def function(a: Any, b: Any, x: Any) -> Any:  # type: ignore[misc]
            return bind(primitive, reals(name, a, b, x), {})

    return documented(function, "special", name, does, example)


erf = _operation("erf", _operations.erf, "The error function.", "0.0 -> 0.0")
erfc = _operation("erfc", _operations.erfc, "1 - erf(x), precise for large x.", "0.0 -> 1.0")
erfinv = _operation("erfinv", _operations.erf_inv, "The inverse of erf.", "0.0 -> 0.0")
gammaln = _operation("gammaln", _operations.lgamma, "log |Gamma(x)|.", "4.0 -> 1.7917...")
digamma = _operation(
    "digamma", _operations.digamma, "The derivative of log Gamma.", "1.0 -> -0.577215..."
)
expit = _operation("expit", logistic, "1 / (1 + e^-x).", "0.0 -> 0.5")
i0e = _operation("i0e", _incomplete.bessel_i0e, "e^-|x| I0(x).", "0.0 -> 1.0...")
i1e = _operation("i1e", _incomplete.bessel_i1e, "e^-|x| I1(x).", "0.0 -> 0.0")
gammainc = _operation(
    "gammainc", _incomplete.igamma, "The regularised lower incomplete gamma function.",
    "1.0, 2.0 -> 0.86466...", 2,
)  # fmt: skip
gammaincc = _operation(
    "gammaincc", _incomplete.igammac, "The regularised upper incomplete gamma function.",
    "1.0, 2.0 -> 0.13533...", 2,
)  # fmt: skip
betainc = _operation(
    "betainc", _incomplete.regularized_incomplete_beta,
    "The regularised incomplete beta function; differentiable in x.",
    "1.0, 1.0, 0.5 -> 0.5...", 3,
)  # fmt: skip


def i0(x: Any) -> Any:
    """The modified Bessel function of order zero.

    Source: `jax.scipy.special.i0`.

    >>> from functrans.scipy import special
    >>> print(special.i0(1.0))
    1.266...
    """
    (x,) = numbers("i0", x)
    return grown(i0e, x)


def i1(x: Any) -> Any:
    """The modified Bessel function of order one.

    Source: `jax.scipy.special.i1`.

    >>> from functrans.scipy import special
    >>> print(special.i1(1.0))
    0.565...
    """
    (x,) = numbers("i1", x)
    return grown(i1e, x)


def polygamma(n: Any, x: Any) -> Any:
    """The n-th derivative of digamma, n integer; differentiable in x.

    Source: `jax.scipy.special.polygamma`.

    >>> from functrans.scipy import special
    >>> print(special.polygamma(1, 1.0))
    1.6449...
    """
    kind = type_of(n, "polygamma").dtype
    if dtype_class(kind) not in ("int", "uint"):
        raise invalid("polygamma", f"n must be of integer type, got {kind}")
    return bind(_operations.polygamma, reals("polygamma", n, x), {})


# --- gamma and beta -------------------------------------------------------------------------------

_complex_loggamma = imported("loggamma", "log Gamma of complex numbers.", "1j")
_complex_gamma = imported("gamma", "Gamma of complex numbers.", "1j")


def gammasgn(x: Any) -> Any:
    """The sign of Gamma(x); NaN at its poles.

    Source: `jax.scipy.special.gammasgn`.

    >>> from functrans.scipy import special
    >>> print(special.gammasgn(-0.5))
    -1.0
    """
    (x,) = reals("gammasgn", x)
    t = typeof(x)
    one, minus, nan = [literal(v, t.strong()) for v in (1.0, -1.0, math.nan)]
    below = jnp.floor(x)
    negative = jnp.less(x, 0)
    odd = negative & (jnp.remainder(below, 2) != 0) | jnp.equal(x, 0) & jnp.signbit(x)
    pole = negative & jnp.equal(x, below) | jnp.isnan(x)
    return lax.select(pole, nan, lax.select(odd, minus, one))


def gamma(x: Any) -> Any:
    """The gamma function; complex numbers too.

    Source: `jax.scipy.special.gamma`.

    >>> from functrans.scipy import special
    >>> print(special.gamma(5.0))
    24.0...
    """
    (x,) = numbers("gamma", x)
    if dtype_class(typeof(x).dtype) == "complex":
        return _complex_gamma(x)
    return gammasgn(x) * lax.exp(lax.lgamma(x))


def loggamma(x: Any) -> Any:
    """log Gamma(x), NaN for negative real x; the principal branch for complex x.

    Source: `jax.scipy.special.loggamma`.

    >>> from functrans.scipy import special
    >>> print(special.loggamma(4.0))
    1.7917...
    """
    (x,) = numbers("loggamma", x)
    if dtype_class(typeof(x).dtype) == "complex":
        return _complex_loggamma(x)
    return jnp.where(jnp.greater(x, 0), lax.lgamma(x), jnp.nan)


def factorial(n: Any, exact: bool = False) -> Any:
    """n!, by the gamma function; 0 for negative n. `exact`: of a Python integer, as one.

    Source: `jax.scipy.special.factorial`.

    >>> from functrans.scipy import special
    >>> print(special.factorial(4))
    24.0...
    """
    if exact:
        if not isinstance(n, int):
            raise errors.MissingRule(
                f"factorial: exact=True takes a Python integer, got {n!r:.60}, at\n"
                f"    {describe(user_source())}\nLeave exact= away for arrays."
            )
        return math.factorial(operator.index(n))
    (n,) = numbers("factorial", n)
    return jnp.where(jnp.less(n, 0), 0, lax.exp(lax.lgamma(jnp.add(n, 1))))


betaln = imported("betaln", "log |B(a, b)|, precise for large a and b.", "2.0, 3.0")


def beta(a: Any, b: Any) -> Any:
    """The beta function Gamma(a) Gamma(b) / Gamma(a + b).

    Source: `jax.scipy.special.beta`.

    >>> from functrans.scipy import special
    >>> print(special.beta(1.0, 2.0))
    0.5...
    """
    a, b = reals("beta", a, b)
    return gammasgn(a) * gammasgn(b) * gammasgn(jnp.add(a, b)) * lax.exp(betaln(a, b))


def comb(N: Any, k: Any, *, repetition: bool = False) -> Any:
    """How many ways there are to choose k of N things; each any number of times if `repetition`.

    Source: `jax.scipy.special.comb`.

    >>> from functrans.scipy import special
    >>> print(special.comb(4, 2))
    6.0...
    """
    N, k = numbers("comb", N, k)
    if repetition:
        none = jnp.equal(k, 0) & jnp.greater_equal(N, 0)
        return jnp.where(none, 1.0, comb(jnp.add(N, k) - 1, k))
    there = jnp.less_equal(k, N) & jnp.greater_equal(N, 0) & jnp.greater_equal(k, 0)
    n, k = jnp.where(there, N, 0.0), jnp.where(there, k, 0.0)
    ways = lax.exp(gammaln(n + 1) - gammaln(k + 1) - gammaln(n + 1 - k))
    return jnp.where(there, ways, 0.0)


def multigammaln(a: Any, d: Any) -> Any:
    """log of the gamma function of d dimensions, d a known integer.

    Source: `jax.scipy.special.multigammaln`.

    >>> from functrans.scipy import special
    >>> print(special.multigammaln(3.0, 1))
    0.69314...
    """
    count = int(d)
    a, d = [materialize(v) for v in promote_inexact([a, count], "multigammaln")]
    log_pi = lax.log(constant(math.pi, a))
    volume = jnp.multiply(constant(0.25, a), d) * jnp.subtract(d, constant(1, a)) * log_pi
    steps = jnp.divide(jnp.arange(count, dtype=typeof(d).dtype), constant(2, a))
    steps = jnp.expand_dims(steps, tuple(range(typeof(a).ndim)))
    total = jnp.sum(gammaln(jnp.expand_dims(a, -1) - steps), axis=-1)
    return total + volume


# --- entropies and powers -------------------------------------------------------------------------


@custom_jvp
def xlogy(x: Any, y: Any) -> Any:
    """x log(y), which is 0 where x is 0.

    Source: `jax.scipy.special.xlogy`.

    >>> from functrans.scipy import special
    >>> print(special.xlogy(0.0, 0.0))
    0.0
    """
    x, y = numbers("xlogy", x, y)
    there = jnp.not_equal(x, 0.0) | jnp.isnan(y)
    return jnp.where(there, lax.mul(x, lax.log(y)), jnp.zeros_like(x))


@xlogy.defjvp
def _xlogy_jvp(primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    out = xlogy(x, y)
    return out, cast(dx * jnp.log(y) + dy * x / y, typeof(out).dtype, typeof(out).weak_type)


@custom_jvp
def xlog1py(x: Any, y: Any) -> Any:
    """x log(1 + y), which is 0 where x is 0.

    Source: `jax.scipy.special.xlog1py`.

    >>> from functrans.scipy import special
    >>> print(special.xlog1py(0.0, -1.0))
    0.0
    """
    x, y = numbers("xlog1py", x, y)
    there = jnp.not_equal(x, 0.0) | jnp.isnan(y)
    return jnp.where(there, lax.mul(x, lax.log1p(y)), jnp.zeros_like(x))


@xlog1py.defjvp
def _xlog1py_jvp(primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    out = xlog1py(x, y)
    slope = dx * jnp.log1p(y) + dy * x / (1 + y)
    return out, cast(slope, typeof(out).dtype, typeof(out).weak_type)


@custom_jvp
def _xlogx(x: Any) -> Any:
    return xlogy(x, x)


@_xlogx.defjvp
def _xlogx_jvp(primals: Any, tangents: Any) -> Any:
    return _xlogx(*primals), tangents[0] * (lax.log(primals[0]) + 1)


def entr(x: Any) -> Any:
    """-x log(x), the entropy of a probability; -inf for negative x.

    Source: `jax.scipy.special.entr`.

    >>> from functrans.scipy import special
    >>> print(special.entr(0.5))
    0.3465...
    """
    (x,) = reals("entr", x)
    return lax.select(jnp.less(x, 0), literal(-math.inf, typeof(x)), lax.neg(_xlogx(x)))


def rel_entr(p: Any, q: Any) -> Any:
    """p log(p / q); 0 where p is 0, inf where p or q is negative or q alone is 0.

    Source: `jax.scipy.special.rel_entr`.

    >>> from functrans.scipy import special
    >>> print(special.rel_entr(0.5, 0.25))
    0.3465...
    """
    p, q = reals("rel_entr", p, q, broadcast=False)
    both = jnp.greater(p, 0) & jnp.greater(q, 0)
    none = jnp.equal(p, 0) & jnp.greater_equal(q, 0)
    x, y = jnp.where(both, p, 1), jnp.where(both, q, 1)
    return jnp.where(both, _xlogx(x) - xlogy(x, y), jnp.where(none, constant(0.0, p), jnp.inf))


def kl_div(p: Any, q: Any) -> Any:
    """p log(p / q) - p + q, elements of the Kullback-Leibler divergence.

    Source: `jax.scipy.special.kl_div`.

    >>> from functrans.scipy import special
    >>> print(special.kl_div(0.5, 0.25))
    0.0965...
    """
    p, q = reals("kl_div", p, q, broadcast=False)
    return rel_entr(p, q) - p + q


def _box_cox(name: str, log: Callable[[Any], Any], does: str, example: str) -> Callable:
    """(x^lmbda - 1) / lmbda, of which log(x) is the limit at lmbda 0."""

    def function(x: Any, lmbda: Any) -> Any:
        x, lmbda = numbers(name, x, lmbda)
        zero = jnp.equal(lmbda, 0)
        safe, log_x = jnp.where(zero, jnp.ones_like(lmbda), lmbda), log(x)
        return jnp.where(zero, log_x, jnp.expm1(safe * log_x) / safe)

    return documented(function, "special", name, does, example)


boxcox = _box_cox(
    "boxcox", jnp.log, "The Box-Cox power transform (x^lmbda - 1) / lmbda.", "2.0, 2.0 -> 1.5..."
)
boxcox1p = _box_cox(
    "boxcox1p", jnp.log1p, "The Box-Cox power transform of 1 + x.", "1.0, 2.0 -> 1.5..."
)


@custom_jvp
def logit(x: Any) -> Any:
    """log(x / (1 - x)), the inverse of expit.

    Source: `jax.scipy.special.logit`.

    >>> from functrans.scipy import special
    >>> print(special.logit(0.5))
    0.0
    """
    (x,) = numbers("logit", x)
    return lax.log(lax.div(x, lax.sub(literal(1, beside(typeof(x))), x)))


@logit.defjvp
def _logit_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return logit(x), dx / (x * (1 - x))


def softmax(x: Any, /, *, axis: Any = None) -> Any:
    """e^x over its sum along axes; None: all.

    Source: `jax.scipy.special.softmax`.

    >>> import numpy as np
    >>> from functrans.scipy import special
    >>> print(special.softmax(np.zeros(4)))
    [0.25 0.25 0.25 0.25]
    """
    return _softmax(x, axis=axis)


def log_softmax(x: Any, /, *, axis: Any = None) -> Any:
    """The logarithm of softmax.

    Source: `jax.scipy.special.log_softmax`.

    >>> import numpy as np
    >>> from functrans.scipy import special
    >>> print(special.log_softmax(np.zeros(1)))
    [0.]
    """
    return _log_softmax(x, axis=axis)


# --- series and tables ----------------------------------------------------------------------------

ndtri = imported(
    "ndtri", "The inverse of ndtr: quantiles of the standard normal distribution.", "0.5"
)
zeta = imported("zeta", "The Hurwitz zeta function.", "2.0, 1.0")
erfcx = imported("erfcx", "e^(x^2) erfc(x).", "0.0")
wofz = imported("wofz", "The Faddeeva function e^(-z^2) erfc(-iz).", "0.0")
dawsn = imported("dawsn", "Dawson's integral e^(-x^2) int_0^x e^(t^2) dt.", "0.0")
expi = imported("expi", "The exponential integral Ei.", "1.0")
exp1 = imported("exp1", "The exponential integral E1.", "1.0")
_expn = imported("expn", "The exponential integrals En.", "2, 1.0")


@functools.partial(custom_jvp, nondiff_argnums=(0,))
@functools.wraps(_expn)
def expn(n: Any, x: Any) -> Any:
    return _expn(n, x)


@expn.defjvp
def _(n: Any, primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return expn(n, x), jnp.negative(dx) * expn(jnp.subtract(n, 1), x)


sici = imported("sici", "The sine and cosine integrals.", "1.0")
fresnel = imported("fresnel", "The Fresnel integrals S and C.", "0.0")
spence = imported("spence", "Spence's function, a dilogarithm.", "1.0")
owens_t = imported("owens_t", "Owen's T function.", "0.0, 1.0")
poch = imported("poch", "The Pochhammer symbol Gamma(z + m) / Gamma(z).", "2.0, 2.0")
hyp1f1 = imported("hyp1f1", "Kummer's function.", "1.0, 1.0, 0.0")
hyp2f1 = imported("hyp2f1", "Gauss's hypergeometric function.", "1.0, 1.0, 1.0, 0.0")
bernoulli = imported("bernoulli", "The Bernoulli numbers B0 to Bn.", "1", ("n",))
bessel_jn = imported(
    "bessel_jn", "Bessel functions of the first kind, of orders 0 to v.",
    "np.array([5.0]), v=1", ("v", "n_iter"),
)  # fmt: skip
_sph_harm_y = imported(
    "sph_harm_y", "Spherical harmonics of degree n and order m.",
    "np.array([0]), np.array([0]), np.array([0.0]), np.array([0.0])",
    ("diff_n", "n_max"),
)  # fmt: skip


@functools.wraps(_sph_harm_y)
def sph_harm_y(
    n: Any, m: Any, theta: Any, phi: Any, diff_n: int | None = None, n_max: int | None = None
) -> Any:
    if n_max is None:  # the values of n are known here even where theta and phi are traced
        n_max = int(np.max(n))
    return _sph_harm_y(n, m, theta, phi, diff_n=diff_n, n_max=n_max)


_guard(_sys.modules[__name__])

_hand_on(__name__)
