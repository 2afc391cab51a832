"""The wrapped Cauchy distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the wrapped Cauchy distribution", "0.3, 0.5"

logpdf = imported("wrapcauchy.logpdf", _WHAT, _EXAMPLE)
pdf = imported("wrapcauchy.pdf", _WHAT, _EXAMPLE)

__all__ = ["logpdf", "pdf"]
