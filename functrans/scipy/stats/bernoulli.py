"""The Bernoulli distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the Bernoulli distribution", "1, 0.3"

cdf = imported("bernoulli.cdf", _WHAT, _EXAMPLE)
logpmf = imported("bernoulli.logpmf", _WHAT, _EXAMPLE)
pmf = imported("bernoulli.pmf", _WHAT, _EXAMPLE)
ppf = imported("bernoulli.ppf", _WHAT, _EXAMPLE)

__all__ = ["cdf", "logpmf", "pmf", "ppf"]
