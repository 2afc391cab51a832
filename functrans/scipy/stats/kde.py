"""Kernel density estimation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from jax.tree_util import register_pytree_node_class

from functrans import errors, random
from functrans import numpy as jnp
from functrans.api.vmap import vmap
from functrans.ir.source import describe, user_source
from functrans.ir.tracebacks import guard_methods
from functrans.ir.types import dtype_class
from functrans.numpy.promotion import array_of, invalid, promote_inexact
from functrans.scipy import special
from functrans.scipy.linalg import cho_factor, cho_solve
from functrans.trace import materialize, typeof

__all__ = ["gaussian_kde"]


def _inexact(name: str, *xs: Any) -> list[Any]:
    made = [materialize(x) for x in promote_inexact(xs, name)]
    if any(dtype_class(typeof(x).dtype) == "complex" for x in made):
        raise errors.NotSupported(
            f"{name}: does not support complex data, at\n    {describe(user_source())}"
        )
    return [array_of(x, name) for x in made]


@register_pytree_node_class
@guard_methods
class gaussian_kde:
    """An estimate of a density from samples of it: the mean of normal densities around them.

    Arguments:
      dataset: [n] samples, or [d, n] of d dimensions.
      bw_method: how wide the kernels are: "scott" (None), "silverman", a factor, or a function of
        the estimate that gives one.
      weights: [n] numbers, as often each sample counts; None: all alike.

    Returns:
      A pytree; call it on points [m] or [d, m] for the densities there.

    Raises:
      InvalidArgument: the shapes do not fit together, or there are too few samples.

    Source: `jax.scipy.stats.gaussian_kde`.

    Example:
      >>> import numpy as np
      >>> from functrans.scipy.stats import gaussian_kde
      >>> gaussian_kde(np.array([-1.0, 0.0, 1.0])).d
      1
    """

    __slots__ = ("covariance", "dataset", "inv_cov", "neff", "weights")

    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None):
        name = "gaussian_kde"
        if weights is None:
            (dataset,) = _inexact(name, dataset)
        else:
            dataset, weights = _inexact(name, dataset, weights)
        dataset = jnp.atleast_2d(dataset)
        d, n = typeof(dataset).shape
        if d * n < 2:
            raise invalid(name, "dataset should have multiple elements")
        if weights is None:
            weights = jnp.full(n, 1.0 / n, typeof(dataset).dtype)
        else:
            if typeof(weights).shape != (n,):
                raise invalid(name, f"weights must have shape ({n},), got {typeof(weights).shape}")
            weights = weights / jnp.sum(weights)
        self.dataset, self.weights = dataset, weights
        self.neff = 1 / jnp.sum(weights**2)
        factor = _factor(self, "scott" if bw_method is None else bw_method)
        covariance = jnp.atleast_2d(jnp.cov(dataset, rowvar=True, bias=False, aweights=weights))
        self.covariance = covariance * factor**2
        self.inv_cov = jnp.linalg.inv(covariance) / factor**2

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        return (self.neff, self.dataset, self.weights, self.covariance, self.inv_cov), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any, ...]) -> gaussian_kde:
        made = cls.__new__(cls)
        made.neff, made.dataset, made.weights, made.covariance, made.inv_cov = children
        return made

    @property
    def d(self) -> int:
        """How many dimensions."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """How many samples."""
        return self.dataset.shape[1]

    def evaluate(self, points: Any) -> Any:
        """The density at points."""
        return jnp.sum(self.weights[None] * jnp.exp(self._log_kernels(points)), axis=1)

    __call__ = evaluate
    pdf = evaluate

    def logpdf(self, x: Any) -> Any:
        """The logarithm of the density at points."""
        return special.logsumexp(jnp.log(self.weights)[None] + self._log_kernels(x), axis=1)

    def integrate_gaussian(self, mean: Any, cov: Any) -> Any:
        """The integral of the density times a normal density."""
        mean, cov = jnp.atleast_1d(jnp.squeeze(mean)), jnp.atleast_2d(cov)
        if mean.shape != (self.d,):
            raise invalid("integrate_gaussian", f"mean does not have dimension {self.d}")
        if cov.shape != (self.d, self.d):
            raise invalid("integrate_gaussian", f"covariance does not have dimension {self.d}")
        return _convolved(self.covariance + cov, self.dataset, self.weights)(mean)

    def integrate_box_1d(self, low: Any, high: Any) -> Any:
        """The probability of an interval, of one dimension."""
        if self.d != 1:
            raise invalid("integrate_box_1d", "only handles 1D pdfs")
        if jnp.ndim(low) or jnp.ndim(high):
            raise invalid("integrate_box_1d", "the limits of integration must be scalars")
        sigma = jnp.squeeze(jnp.sqrt(self.covariance))
        low, high = [jnp.squeeze((x - self.dataset) / sigma) for x in (low, high)]
        return jnp.sum(self.weights * (special.ndtr(high) - special.ndtr(low)))

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Any:
        """`integrate_box_1d`, the only box whose probability has a formula."""
        return self.integrate_box_1d(low_bounds, high_bounds)

    def integrate_kde(self, other: gaussian_kde) -> Any:
        """The integral of the product of two estimates."""
        if other.d != self.d:
            raise invalid("integrate_kde", "KDEs are not the same dimensionality")
        few, many = (self, other) if self.n < other.n else (other, self)
        convolve = _convolved(self.covariance + other.covariance, many.dataset, many.weights)
        return jnp.sum(vmap(convolve, 1)(few.dataset) * few.weights)

    def resample(self, key: Any, shape: Any = ()) -> Any:
        """Draw samples of the estimate: [d, *shape]."""
        first, second = random.split(key)
        chosen = random.choice(first, self.n, shape=shape, p=self.weights)
        zero = jnp.zeros(self.d, self.covariance.dtype)
        noise = random.multivariate_normal(
            second, zero, self.covariance, shape=shape, dtype=self.dataset.dtype
        )
        return self.dataset[:, chosen] + noise.T

    def set_bandwidth(self, bw_method: Any = None) -> None:
        """Estimates do not change: make another."""
        raise errors.NotSupported(
            f"gaussian_kde.set_bandwidth: an estimate cannot be changed, at\n"
            f"    {describe(user_source())}\nMake a new one: gaussian_kde(dataset, bw_method)."
        )

    def _log_kernels(self, points: Any) -> Any:
        """[m, n]: the logarithm of the normal density around each sample, at each point."""
        points, dataset, precision = _inexact(
            "gaussian_kde",
            jnp.atleast_2d(array_of(points, "gaussian_kde")),
            self.dataset,
            self.inv_cov,
        )
        d, m = typeof(points).shape
        if d != self.d:
            if d != 1 or m != self.d:
                raise invalid(
                    "gaussian_kde", f"points have dimension {d}, dataset has dimension {self.d}"
                )
            points = jnp.reshape(points, (self.d, 1))
        root = jnp.linalg.cholesky(precision)
        x, y = jnp.dot(points.T, root), jnp.dot(dataset.T, root)
        log_norm = jnp.sum(jnp.log(jnp.diag(root))) - 0.5 * self.d * math.log(2 * math.pi)
        return log_norm - 0.5 * jnp.sum(jnp.square(x[:, None] - y[None, :]), axis=-1)


def _factor(kde: gaussian_kde, method: Any) -> Any:
    """How much narrower than the samples' covariance the kernels are."""
    if isinstance(method, str) and method == "scott":
        return jnp.power(kde.neff, -1.0 / (kde.d + 4))
    if isinstance(method, str) and method == "silverman":
        return jnp.power(kde.neff * (kde.d + 2) / 4.0, -1.0 / (kde.d + 4))
    if callable(method):
        return method(kde)
    if not isinstance(method, str) and jnp.ndim(method) == 0:
        return method
    raise invalid(
        "gaussian_kde",
        f"bw_method should be 'scott', 'silverman', a scalar, or a callable, got {method!r:.40}",
    )


def _convolved(covariance: Any, target: Any, weights: Any) -> Callable[[Any], Any]:
    """mean -> sum over samples of weight * normal density of the difference."""
    factor = cho_factor(covariance)
    d = covariance.shape[0]
    norm = 1.0 / (math.sqrt(2 * math.pi) ** d * jnp.prod(jnp.diag(factor[0])))

    def at(mean: Any) -> Any:
        difference = target - mean[:, None]
        energy = jnp.sum(difference * cho_solve(factor, difference), axis=0) / 2
        return norm * jnp.sum(jnp.exp(-energy) * weights)

    return at
