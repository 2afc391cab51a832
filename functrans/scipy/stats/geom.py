"""The geometric distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the geometric distribution", "2, 0.3"

logpmf = imported("geom.logpmf", _WHAT, _EXAMPLE)
pmf = imported("geom.pmf", _WHAT, _EXAMPLE)

__all__ = ["logpmf", "pmf"]
