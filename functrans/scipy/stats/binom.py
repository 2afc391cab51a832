"""The binomial distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the binomial distribution", "1, 3, 0.3"

logpmf = imported("binom.logpmf", _WHAT, _EXAMPLE)
pmf = imported("binom.pmf", _WHAT, _EXAMPLE)

__all__ = ["logpmf", "pmf"]
