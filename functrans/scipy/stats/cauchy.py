"""The Cauchy distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the Cauchy distribution", "0.3"

cdf = imported("cauchy.cdf", _WHAT, _EXAMPLE)
isf = imported("cauchy.isf", _WHAT, _EXAMPLE)
logcdf = imported("cauchy.logcdf", _WHAT, _EXAMPLE)
logpdf = imported("cauchy.logpdf", _WHAT, _EXAMPLE)
logsf = imported("cauchy.logsf", _WHAT, _EXAMPLE)
pdf = imported("cauchy.pdf", _WHAT, _EXAMPLE)
ppf = imported("cauchy.ppf", _WHAT, _EXAMPLE)
sf = imported("cauchy.sf", _WHAT, _EXAMPLE)

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]
