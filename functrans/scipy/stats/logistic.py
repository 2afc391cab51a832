"""The logistic distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the logistic distribution", "0.3"

cdf = imported("logistic.cdf", _WHAT, _EXAMPLE)
isf = imported("logistic.isf", _WHAT, _EXAMPLE)
logpdf = imported("logistic.logpdf", _WHAT, _EXAMPLE)
pdf = imported("logistic.pdf", _WHAT, _EXAMPLE)
ppf = imported("logistic.ppf", _WHAT, _EXAMPLE)
sf = imported("logistic.sf", _WHAT, _EXAMPLE)

__all__ = ["cdf", "isf", "logpdf", "pdf", "ppf", "sf"]
