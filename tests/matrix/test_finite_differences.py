"""Every derivative by finite differences in float64: control flow, solvers, custom rules, checkpoint.

`TABLE` holds functions of a vector of four, which return pytrees. Of each, along one direction,

    jvp             against the central difference of the function
    vjp             against jvp, by their dot products
    jvp of vjp      against the central difference of the gradient
    un-jitted       against jitted

The difference is Richardson's, (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h, with an error of
h^4 f'''''/30 + 1.5 eps |f| / h; for h = 1e-3 and fifth derivatives up to 1e3 that is 3e-11.
"""

import pytest

from tests.matrix.difference_table import TABLE, check

# Compile for long, and stand beside a row that is much the same.
SWEPT = {"while_loop, max_steps", "fori_loop, traced bounds, max_steps"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.sweep] * (n in SWEPT)) for n in TABLE])
def test_derivatives(name):
    check(*TABLE[name])
