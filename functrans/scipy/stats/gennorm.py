"""The generalized normal distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the generalized normal distribution", "0.3, 2.0"

cdf = imported("gennorm.cdf", _WHAT, _EXAMPLE)
logpdf = imported("gennorm.logpdf", _WHAT, _EXAMPLE)
pdf = imported("gennorm.pdf", _WHAT, _EXAMPLE)

__all__ = ["cdf", "logpdf", "pdf"]
