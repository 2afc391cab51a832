"""The uniform distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the uniform distribution", "0.3"

cdf = imported("uniform.cdf", _WHAT, _EXAMPLE)
logpdf = imported("uniform.logpdf", _WHAT, _EXAMPLE)
pdf = imported("uniform.pdf", _WHAT, _EXAMPLE)
ppf = imported("uniform.ppf", _WHAT, _EXAMPLE)

__all__ = ["cdf", "logpdf", "pdf", "ppf"]
