"""The Pareto distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the Pareto distribution", "1.3, 2.0"

cdf = imported("pareto.cdf", _WHAT, _EXAMPLE)
logcdf = imported("pareto.logcdf", _WHAT, _EXAMPLE)
logpdf = imported("pareto.logpdf", _WHAT, _EXAMPLE)
logsf = imported("pareto.logsf", _WHAT, _EXAMPLE)
pdf = imported("pareto.pdf", _WHAT, _EXAMPLE)
ppf = imported("pareto.ppf", _WHAT, _EXAMPLE)
sf = imported("pareto.sf", _WHAT, _EXAMPLE)

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]
