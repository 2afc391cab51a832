"""The Dirichlet distribution."""

from functrans.scipy.stats.imported import imported

_WHAT, _EXAMPLE = "the Dirichlet distribution", "np.array([0.3, 0.7]), np.array([2.0, 3.0])"

logpdf = imported("dirichlet.logpdf", _WHAT, _EXAMPLE)
pdf = imported("dirichlet.pdf", _WHAT, _EXAMPLE)

__all__ = ["logpdf", "pdf"]
