"""The right-skewed Gumbel distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the right-skewed Gumbel distribution", "0.3"

cdf = imported("gumbel_r.cdf", _WHAT, _EXAMPLE)
logcdf = imported("gumbel_r.logcdf", _WHAT, _EXAMPLE)
logpdf = imported("gumbel_r.logpdf", _WHAT, _EXAMPLE)
logsf = imported("gumbel_r.logsf", _WHAT, _EXAMPLE)
pdf = imported("gumbel_r.pdf", _WHAT, _EXAMPLE)
ppf = imported("gumbel_r.ppf", _WHAT, _EXAMPLE)
sf = imported("gumbel_r.sf", _WHAT, _EXAMPLE)

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]
