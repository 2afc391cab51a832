"""The beta distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the beta distribution", "0.3, 2.0, 3.0"

cdf = imported("beta.cdf", _WHAT, _EXAMPLE)
logcdf = imported("beta.logcdf", _WHAT, _EXAMPLE)
logpdf = imported("beta.logpdf", _WHAT, _EXAMPLE)
logsf = imported("beta.logsf", _WHAT, _EXAMPLE)
pdf = imported("beta.pdf", _WHAT, _EXAMPLE)
sf = imported("beta.sf", _WHAT, _EXAMPLE)

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]
