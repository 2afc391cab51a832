"""The multinomial distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the multinomial distribution", "np.array([1, 2]), 3, np.array([0.3, 0.7])"

logpmf = imported("multinomial.logpmf", _WHAT, _EXAMPLE)
pmf = imported("multinomial.pmf", _WHAT, _EXAMPLE)

__all__ = ["logpmf", "pmf"]
