"""The gamma distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the gamma distribution", "0.3, 2.0"

cdf = imported("gamma.cdf", _WHAT, _EXAMPLE)
logcdf = imported("gamma.logcdf", _WHAT, _EXAMPLE)
logpdf = imported("gamma.logpdf", _WHAT, _EXAMPLE)
logsf = imported("gamma.logsf", _WHAT, _EXAMPLE)
pdf = imported("gamma.pdf", _WHAT, _EXAMPLE)
sf = imported("gamma.sf", _WHAT, _EXAMPLE)

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]
