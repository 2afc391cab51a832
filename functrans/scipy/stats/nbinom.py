"""The negative binomial distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the negative binomial distribution", "2, 3, 0.3"

logpmf = imported("nbinom.logpmf", _WHAT, _EXAMPLE)
pmf = imported("nbinom.pmf", _WHAT, _EXAMPLE)

__all__ = ["logpmf", "pmf"]
