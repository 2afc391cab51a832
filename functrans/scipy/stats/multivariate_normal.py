"""The multivariate normal distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the multivariate normal distribution", "np.zeros(2), np.zeros(2), np.eye(2)"

logpdf = imported("multivariate_normal.logpdf", _WHAT, _EXAMPLE)
pdf = imported("multivariate_normal.pdf", _WHAT, _EXAMPLE)

__all__ = ["logpdf", "pdf"]
