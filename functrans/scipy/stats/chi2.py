"""The chi-squared distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the chi-squared distribution", "0.3, 2.0"

cdf = imported("chi2.cdf", _WHAT, _EXAMPLE)
logcdf = imported("chi2.logcdf", _WHAT, _EXAMPLE)
logpdf = imported("chi2.logpdf", _WHAT, _EXAMPLE)
logsf = imported("chi2.logsf", _WHAT, _EXAMPLE)
pdf = imported("chi2.pdf", _WHAT, _EXAMPLE)
sf = imported("chi2.sf", _WHAT, _EXAMPLE)

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]
