"""The Laplace distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the Laplace distribution", "0.3"

cdf = imported("laplace.cdf", _WHAT, _EXAMPLE)
logpdf = imported("laplace.logpdf", _WHAT, _EXAMPLE)
pdf = imported("laplace.pdf", _WHAT, _EXAMPLE)

__all__ = ["cdf", "logpdf", "pdf"]
