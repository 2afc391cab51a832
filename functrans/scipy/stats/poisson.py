"""The Poisson distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the Poisson distribution", "2, 3.0"

cdf = imported("poisson.cdf", _WHAT, _EXAMPLE)
entropy = imported("poisson.entropy", _WHAT, "3.0")
logpmf = imported("poisson.logpmf", _WHAT, _EXAMPLE)
pmf = imported("poisson.pmf", _WHAT, _EXAMPLE)

__all__ = ["cdf", "entropy", "logpmf", "pmf"]
