"""The exponential distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the exponential distribution", "0.3"

cdf = imported("expon.cdf", _WHAT, _EXAMPLE)
logcdf = imported("expon.logcdf", _WHAT, _EXAMPLE)
logpdf = imported("expon.logpdf", _WHAT, _EXAMPLE)
logsf = imported("expon.logsf", _WHAT, _EXAMPLE)
pdf = imported("expon.pdf", _WHAT, _EXAMPLE)
ppf = imported("expon.ppf", _WHAT, _EXAMPLE)
sf = imported("expon.sf", _WHAT, _EXAMPLE)

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]
