"""`scipy.optimize.minimize`, against JAX's and against what is known."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.scipy.optimize import minimize as their_minimize

import functrans as ft
import functrans.numpy as jnp
from functrans.scipy.optimize import OptimizeResults, minimize
from tests.support.versions import QUICK

BFGS, LBFGS = "BFGS", "l-bfgs-experimental-do-not-rely-on-this"


def rosenbrock(x):
    return sum(100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(x.shape[0] - 1))


def himmelblau(x):
    return (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


def matyas(x):
    return 0.26 * (x[0] ** 2 + x[1] ** 2) - 0.48 * x[0] * x[1]


def bowl(x):
    return 3 * (x[0] - 1) ** 2 + (x[1] + 2) ** 2


FAMILY = (rosenbrock, himmelblau, matyas, bowl)


def member(x, which):
    """One of the family, so that all of them are compiled once."""
    return sum(w * f(x) for w, f in zip(which, FAMILY, strict=True))


# where JAX's line search succeeds too: the same path
STARTS = {
    BFGS: [
        (0, [[2.0, -2.6], [0.5, -0.2], [-0.2, 1.0]]),
        (1, [[1.0, 1.0], [-4.0, 2.0], [3.0, 2.0]]),
        (2, [[1.0, 5.0], [-3.0, 0.5], [0.0, 0.0]]),
        (3, [[1.0, 1.0], [40.0, -7.0], [1.0, -2.0]]),
    ],
    LBFGS: [
        (0, [[-0.3, -0.7], [0.7, 0.5], [-2.2, -0.5]]),
        (1, [[1.0, 1.0], [3.1, 2.0]]),
        (2, [[1.0, 5.0], [-3.0, 0.5], [0.3, 0.1]]),
    ],
}


# where it gives up, as the better end of an interval is the right one
OTHERS = [[0.0, 0.0], [-1.2, 1.0], [-3.0, 4.0]]


@pytest.mark.parametrize("method", [BFGS, LBFGS])
def test_the_same_path_as_jax_and_on_where_it_ends(method):
    with jax.enable_x64(True):
        starts = np.array([x for _, xs in STARTS[method] for x in xs] + OTHERS)
        which = np.array([np.eye(4)[i] for i, xs in [*STARTS[method], (0, OTHERS)] for _ in xs])
        ours, theirs = (
            lib.jit(lib.vmap(lambda x, w, of=of: of(member, x, (w,), method=method)), compiler_options=QUICK)(
                starts, which
            )
            for lib, of in ((ft, minimize), (jax, their_minimize))
        )
        ours, theirs = jax.tree.map(np.asarray, (ours, theirs))
    same = slice(0, len(starts) - len(OTHERS))
    assert theirs.success[same].all()
    assert ours.success[same].all()
    np.testing.assert_allclose(ours.x[same], theirs.x[same], rtol=1e-6, atol=1e-6)
    for name in ("nit", "nfev", "njev", "status"):
        a, b = getattr(ours, name), getattr(theirs, name)
        np.testing.assert_array_equal(a[same], b[same], name)
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        assert a is None or (a.dtype, a.shape) == (b.dtype, b.shape)
    np.testing.assert_allclose(ours.x[-3:], np.ones((3, 2)), atol=1e-5)
    assert set(ours.status[-3:]) <= ({0} if method == BFGS else {0, 4})


def test_results_belong_to_one_point():
    """Out of iterations or without a step: fun and jac are those of x."""
    with jax.enable_x64(True):
        x0 = np.array([-1.2, 1.0])
        found = minimize(rosenbrock, x0, method=BFGS, options={"maxiter": 3})
        assert isinstance(found, OptimizeResults)
        assert (int(found.nit), int(found.status), bool(found.success)) == (3, 1, False)
        np.testing.assert_allclose(found.fun, rosenbrock(np.asarray(found.x)))
        np.testing.assert_allclose(found.jac, jax.grad(rosenbrock)(found.x), rtol=1e-9)
        # nothing to bracket below a line: no step in 10 doublings
        line = minimize(lambda x: jnp.sum(x), x0, method=BFGS)
        theirs = their_minimize(lambda x: x.sum(), x0, method=BFGS)
        assert (int(line.status), int(line.nfev)) == (int(theirs.status), int(theirs.nfev)) == (5, 11)
        np.testing.assert_array_equal(line.x, theirs.x)
        np.testing.assert_array_equal(line.x, x0)


def test_options_and_args():
    with jax.enable_x64(True):
        x0 = np.array([1.0, 5.0])
        options = {"gtol": 1e-2, "norm": 2, "line_search_maxiter": 4, "maxiter": 50}
        ours = minimize(lambda x, a: a * matyas(x), x0, (2.0,), method="bfgs", options=options)
        theirs = their_minimize(lambda x, a: a * matyas(x), x0, (2.0,), method="bfgs", options=options)
        np.testing.assert_allclose(ours.x, theirs.x, atol=1e-9)
        np.testing.assert_allclose(ours.hess_inv, theirs.hess_inv, rtol=1e-6)
        assert (ours.nit, ours.nfev) == (theirs.nit, theirs.nfev)


def _tilted(x, t):
    return (1 - x[0]) ** 2 + t * (x[1] - x[0] ** 2) ** 2 + t * x[0]


@pytest.mark.parametrize("method", [BFGS, pytest.param(LBFGS, marks=pytest.mark.heavy)])
def test_derivatives_of_the_minimum(method):
    """Of the steps taken, as JAX's forward mode gives them; at the end, those of the minimum: it is
    at x0 = 1 - t / 2, x1 = x0^2."""
    with jax.enable_x64(True):
        start = np.array([-0.5, -0.2])

        def end(minimize, t, most):
            options = {"maxiter": most, "gtol": 1e-8}
            return minimize(_tilted, start, (t,), method=method, options=options).x

        gradient = ft.jit(ft.grad(lambda t, most: end(minimize, t, most).sum()), compiler_options=QUICK)
        slope = jax.jacfwd(lambda t: end(their_minimize, t, 3).sum())
        slope = jax.jit(slope, compiler_options=QUICK)(5.0)
        np.testing.assert_allclose(gradient(5.0, 3), slope, rtol=1e-6)
        np.testing.assert_allclose(gradient(5.0, 100), -0.5 - (1 - 5.0 / 2), rtol=1e-4)


def test_misuse():
    x = jnp.ones(2)
    with pytest.raises(ValueError, match="unknown method 'newton'"):
        minimize(bowl, x, method="newton")
    with pytest.raises(TypeError, match="args must be a tuple"):
        minimize(bowl, x, 3.0, method=BFGS)
    with pytest.raises(TypeError, match="BFGS has no option ftol"):
        minimize(bowl, x, method=BFGS, options={"ftol": 1.0})
    with pytest.raises(ValueError, match="x0 must be a vector"):
        minimize(bowl, jnp.ones((2, 2)), method=BFGS)
    with pytest.raises(TypeError, match="x0 must be floats"):
        minimize(bowl, jnp.arange(2), method=BFGS)
