"""The von Mises distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the von Mises distribution", "0.3, 2.0"

logpdf = imported("vonmises.logpdf", _WHAT, _EXAMPLE)
pdf = imported("vonmises.pdf", _WHAT, _EXAMPLE)

__all__ = ["logpdf", "pdf"]
