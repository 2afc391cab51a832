"""The distributions of `jax.scipy.stats`, one module each, and summaries of samples."""

import sys as _sys
from types import ModuleType as _ModuleType

from functrans.ir.tracebacks import guard as _guard
from functrans.loading import hand_on as _hand_on
from functrans.scipy.stats import bernoulli as bernoulli
from functrans.scipy.stats import beta as beta
from functrans.scipy.stats import betabinom as betabinom
from functrans.scipy.stats import binom as binom
from functrans.scipy.stats import cauchy as cauchy
from functrans.scipy.stats import chi2 as chi2
from functrans.scipy.stats import dirichlet as dirichlet
from functrans.scipy.stats import expon as expon
from functrans.scipy.stats import gamma as gamma
from functrans.scipy.stats import gennorm as gennorm
from functrans.scipy.stats import geom as geom
from functrans.scipy.stats import gumbel_l as gumbel_l
from functrans.scipy.stats import gumbel_r as gumbel_r
from functrans.scipy.stats import laplace as laplace
from functrans.scipy.stats import logistic as logistic
from functrans.scipy.stats import multinomial as multinomial
from functrans.scipy.stats import multivariate_normal as multivariate_normal
from functrans.scipy.stats import nbinom as nbinom
from functrans.scipy.stats import norm as norm
from functrans.scipy.stats import pareto as pareto
from functrans.scipy.stats import poisson as poisson
from functrans.scipy.stats import t as t
from functrans.scipy.stats import truncnorm as truncnorm
from functrans.scipy.stats import uniform as uniform
from functrans.scipy.stats import vonmises as vonmises
from functrans.scipy.stats import wrapcauchy as wrapcauchy
from functrans.scipy.stats.kde import gaussian_kde as gaussian_kde
from functrans.scipy.stats.summaries import mode as mode
from functrans.scipy.stats.summaries import rankdata as rankdata
from functrans.scipy.stats.summaries import sem as sem

for _module in (*vars().copy().values(), _sys.modules[__name__]):
    if isinstance(_module, _ModuleType) and _module.__name__.startswith(__name__):
        _guard(_module)
        _hand_on(_module.__name__)
