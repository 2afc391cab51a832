"""The truncated normal distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the truncated normal distribution", "0.3, -1.0, 1.0"

cdf = imported("truncnorm.cdf", _WHAT, _EXAMPLE)
logcdf = imported("truncnorm.logcdf", _WHAT, _EXAMPLE)
logpdf = imported("truncnorm.logpdf", _WHAT, _EXAMPLE)
logsf = imported("truncnorm.logsf", _WHAT, _EXAMPLE)
pdf = imported("truncnorm.pdf", _WHAT, _EXAMPLE)
sf = imported("truncnorm.sf", _WHAT, _EXAMPLE)

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]
