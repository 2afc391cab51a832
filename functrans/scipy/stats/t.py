"""Student's t distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "Student's t distribution", "0.3, 2.0"

logpdf = imported("t.logpdf", _WHAT, _EXAMPLE)
pdf = imported("t.pdf", _WHAT, _EXAMPLE)

__all__ = ["logpdf", "pdf"]
