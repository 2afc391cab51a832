"""The left-skewed Gumbel distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the left-skewed Gumbel distribution", "0.3"

cdf = imported("gumbel_l.cdf", _WHAT, _EXAMPLE)
logcdf = imported("gumbel_l.logcdf", _WHAT, _EXAMPLE)
logpdf = imported("gumbel_l.logpdf", _WHAT, _EXAMPLE)
logsf = imported("gumbel_l.logsf", _WHAT, _EXAMPLE)
pdf = imported("gumbel_l.pdf", _WHAT, _EXAMPLE)
ppf = imported("gumbel_l.ppf", _WHAT, _EXAMPLE)
sf = imported("gumbel_l.sf", _WHAT, _EXAMPLE)

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]
