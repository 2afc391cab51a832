"""The beta-binomial distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the beta-binomial distribution", "1, 3, 2.0, 3.0"

logpmf = imported("betabinom.logpmf", _WHAT, _EXAMPLE)
pmf = imported("betabinom.pmf", _WHAT, _EXAMPLE)

__all__ = ["logpmf", "pmf"]
