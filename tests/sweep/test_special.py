"""functrans.scipy.special and functrans.scipy.stats against those of JAX."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.scipy.special
import jax.scipy.stats
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import errors, lax
from functrans.primitives.base import PRIMITIVES
from functrans.scipy import special, stats
from tests.support.closeness import assert_close
from tests.support.versions import NEWER

NAMES = [name for name in dir(jax.scipy.special) if not name.startswith("_")]
MODULES = [
    name for name in dir(jax.scipy.stats) if inspect.ismodule(getattr(jax.scipy.stats, name))
]
MODULES = [name for name in MODULES if not name.startswith("_")]

X = np.linspace(-3.0, 3.0, 7)
UNIT = np.linspace(0.05, 0.95, 7)
ABOVE = np.linspace(0.3, 12.0, 7)
EDGES = np.array([-np.inf, -25.0, -2.0, -1.0, -0.0, 0.0, 9.0, np.inf, np.nan])

# arguments of the functions that are written here, and which of them are differentiated
NATIVE: dict[str, tuple[tuple[Any, ...], tuple[int, ...]]] = {
    "beta": ((ABOVE, UNIT), (0, 1)),
    "betainc": ((ABOVE, ABOVE[::-1], UNIT), (2,)),
    "boxcox": ((ABOVE, X), (0, 1)),
    "boxcox1p": ((ABOVE, X), (0, 1)),
    "comb": ((ABOVE, UNIT), (0, 1)),
    "digamma": ((ABOVE,), (0,)),
    "entr": ((np.append(ABOVE, [0.0, -1.0]),), ()),
    "erf": ((X,), (0,)),
    "erfc": ((X,), (0,)),
    "erfinv": ((UNIT,), (0,)),
    "expit": ((EDGES,), (0,)),
    "factorial": ((EDGES[2:],), ()),
    "gamma": ((X + 0.25,), (0,)),
    "gammainc": ((ABOVE, ABOVE[::-1]), (0, 1)),
    "gammaincc": ((ABOVE, ABOVE[::-1]), (0, 1)),
    "gammaln": ((ABOVE,), (0,)),
    "gammasgn": ((EDGES,), ()),
    "i0": ((X if NEWER else X[X != 0],), (0,)),  # JAX 0.10 has the derivative of |x| at 0
    "i0e": ((X,), (0,)),
    "i1": ((X,), (0,)),
    "i1e": ((X,), (0,)),
    "kl_div": ((ABOVE, UNIT), (0, 1)),
    "log_ndtr": ((EDGES,), (0,)),
    "loggamma": ((X + 0.25,), ()),
    "logit": ((UNIT,), (0,)),
    "multigammaln": ((ABOVE + 2, 3), (0,)),
    "ndtr": ((EDGES,), (0,)),
    "polygamma": ((np.arange(1, 8), ABOVE), ()),
    "rel_entr": ((np.array([0.5, 0, 0, -1, 1]), np.array([0.25, 1, 0, 1, 0])), ()),
    "xlog1py": ((X, UNIT), (0, 1)),
    "xlogy": ((X, UNIT), (0, 1)),
}
# Series that run until they converge stop at different last bits; the derivative in `a` of the
# incomplete gamma function sums some tens of terms.
CLOSE = {"float32": 2e-5, "float64": 1e-11}


def at(dtype: str, args: tuple[Any, ...]) -> list[Any]:
    return [np.asarray(x, dtype) if np.asarray(x).dtype.kind == "f" else x for x in args]


def compared(ours: Callable[..., Any], theirs: Callable[..., Any], dtype: str, what: str) -> None:
    """Both in one compilation each: values, dtypes, shapes, weak types."""
    found, wanted = jax.jit(ft.jit(ours))(), jax.jit(theirs)()
    for name in wanted:
        assert_close(found[name], wanted[name], CLOSE[dtype], f"{what} {name},")
        for y, z in zip(jax.tree.leaves(found[name]), jax.tree.leaves(wanted[name]), strict=True):
            assert y.weak_type == z.weak_type, f"{what} {name}: weak type"


def values(module: Any, dtype: str) -> dict[str, Any]:
    return {name: getattr(module, name)(*at(dtype, args)) for name, (args, _) in NATIVE.items()}


def gradients(library: Any, module: Any, dtype: str) -> dict[str, Any]:
    """The derivatives of the sums of all results along all differentiable arguments."""
    found = {}
    for name, (args, which) in NATIVE.items():
        xs = at(dtype, args)
        if which:
            fixed = getattr(module, name)
            total = lambda *ys, f=fixed: f(*ys).sum()  # noqa: E731
            moving = [library.numpy.asarray(x) if i in which else x for i, x in enumerate(xs)]
            found[name] = library.grad(total, which)(*moving)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_and_gradients_of_native_functions(dtype: str):
    with jax.enable_x64(dtype == "float64"):
        compared(
            lambda: values(special, dtype), lambda: values(jax.scipy.special, dtype), dtype, "value"
        )
        if dtype == "float64":
            compared(
                lambda: gradients(ft, special, dtype),
                lambda: gradients(jax, jax.scipy.special, dtype),
                dtype,
                "gradient",
            )


def test_scalars_and_integers():
    def all_of(module: Any) -> dict[str, Any]:
        return {
            "xlogy": module.xlogy(2, 3),
            "xlog1py": module.xlog1py(np.int8(2), 0.5),
            "erf": module.erf(1),
            "gammaln": module.gammaln(np.array([1, 2, 3])),
            "comb": module.comb(5, 2, repetition=True),
            "logit": module.logit(0.25),
            "entr": module.entr(1),
            "beta": module.beta(1, np.float16(2)),
            "multigammaln": module.multigammaln(4, 2),
            "factorial": module.factorial(np.arange(4)),
            "kl_div": module.kl_div(0.5, np.array([0.25, 1.0])),
            "logsumexp": module.logsumexp(np.arange(4.0)),
            "gammasgn": module.gammasgn(-0.5),
        }

    compared(lambda: all_of(special), lambda: all_of(jax.scipy.special), "float32", "scalar")
    for name, args in {"erf": (1,), "xlogy": (2, 3), "kl_div": (0.5, 0.25)}.items():  # un-jitted
        assert isinstance(getattr(special, name)(*args), jax.Array), name


# arguments of some functions that are imported
IMPORTED: dict[str, tuple[Any, ...]] = {
    "ndtri": (np.array([0.0, 1e-20, 0.01, 0.5, 0.99, 1.0, np.nan]),),
    "dawsn": (X,),
    "erfcx": (X,),
    "expi": (X,),
    "betaln": (ABOVE, ABOVE[::-1]),
    "zeta": (ABOVE + 1, ABOVE),
    "poch": (ABOVE, UNIT),
    "owens_t": (X, UNIT),
}


def test_imported_functions():
    def all_of(library: Any, module: Any) -> dict[str, Any]:
        found = {}
        for name, args in IMPORTED.items():
            xs = [library.numpy.asarray(x) for x in at("float32", args)]
            f = getattr(module, name)
            found[name] = f(*xs), library.grad(lambda *ys, f=f: f(*ys).sum())(*xs)
        return found

    compared(
        lambda: all_of(ft, special), lambda: all_of(jax, jax.scipy.special), "float32", "imported"
    )


def test_complex_numbers():
    z = np.array([0.3 + 0.4j, -1.5 + 2j], np.complex64)
    assert_close(special.gamma(z), jax.scipy.special.gamma(z), 1e-4)
    with pytest.raises(errors.InvalidArgument, match="entr: does not support complex"):
        special.entr(z)


def test_every_name_is_there_with_its_signature():
    for name in NAMES:
        ours, theirs = getattr(special, name), getattr(jax.scipy.special, name)
        parameters = [list(inspect.signature(f).parameters) for f in (ours, theirs)]
        assert len(parameters[0]) == len(parameters[1]), name
    for module in MODULES:
        theirs = getattr(jax.scipy.stats, module)
        for name in dir(theirs):
            if not name.startswith("_"):
                ours = getattr(getattr(stats, module), name)
                wanted = list(inspect.signature(getattr(theirs, name)).parameters)
                assert list(inspect.signature(ours).parameters) == wanted, (module, name)


def test_lists_where_jax_takes_them():
    assert_close(special.ndtr([1.0, 2.0]), jax.scipy.special.ndtr([1.0, 2.0]))
    assert_close(special.log_ndtr([-9.0]), jax.scipy.special.log_ndtr([-9.0]))


def test_the_order_of_the_series_is_an_integer():
    with pytest.raises(TypeError):
        jax.scipy.special.log_ndtr(1.0, series_order=2.5)
    with pytest.raises(errors.TypeMismatch, match=r"series_order .* 2\.5, at\n.*test_special"):
        special.log_ndtr(1.0, series_order=2.5)


def test_bad_arguments():
    with pytest.raises(NotImplementedError, match="exact=True takes a Python integer"):
        special.factorial(np.ones(2), exact=True)
    with pytest.raises(TypeError, match="ndtr: takes float32 or float64"):
        special.ndtr(np.arange(3))
    with pytest.raises(ValueError, match="polygamma: n must be of integer type"):
        special.polygamma(1.0, 2.0)
    with pytest.raises(ValueError, match="series_order must lie in"):
        special.log_ndtr(0.5, 31)
    with pytest.raises(errors.MissingRule, match="regularized_incomplete_beta"):
        ft.grad(special.betainc)(1.0, 2.0, 0.5)
    assert special.factorial(20, exact=True) == 2432902008176640000


# --- the operations -------------------------------------------------------------------------------

A = np.array([1.5, 2.5, -1.0, 2.0, np.nan, 0.5, 30.0])
B = np.array([0.0, np.inf, 1.0, -1.0, 1.0, 1e-3, 40.0])


def test_incomplete_gamma_functions():
    """At the edges of their domain: XLA, the reference, JAX; and batched."""
    names = ("igamma", "igammac", "igamma_grad_a", "random_gamma_grad")
    with jax.enable_x64(True):
        program = ft.make_ir(lambda a, x: [getattr(lax, name)(a, x) for name in names])(A, B)
        found = ft.jit(lambda a, x: [getattr(lax, name)(a, x) for name in names])(A, B)
        wanted = jax.jit(lambda a, x: [getattr(jax.lax, name)(a, x) for name in names])(A, B)
        assert_close(found, wanted, 1e-11)
        here = ft.interpret(program, A, B)
        finite = np.isfinite(B)  # the gradients have limits at infinity that XLA does not give
        assert_close(
            [y[finite] for y in here], [np.asarray(y)[finite] for y in wanted], 1e-10
        )  # fmt: skip
        one = PRIMITIVES["igamma"]
        mapped = ft.jit(ft.vmap(one, (0, None)))(np.stack([A, A[::-1]]), B)
        assert_close(mapped, np.stack([one(A, B), one(A[::-1], B)]), 1e-12)


def test_mixed_second_derivative_of_igamma():
    """d2P / da dx = p (log x - digamma(a)), which JAX has not."""
    with jax.enable_x64(True):
        a, x, h = 1.7, 2.3, 1e-5
        slope = ft.grad(ft.grad(lax.igamma, 0), 1)(a, x)
        by_differences = (ft.grad(lax.igamma, 0)(a, x + h) - ft.grad(lax.igamma, 0)(a, x - h)) / (
            2 * h
        )
        np.testing.assert_allclose(slope, by_differences, rtol=1e-8)
        with pytest.raises(errors.MissingRule, match="igamma_grad_a"):
            ft.grad(ft.grad(lax.igamma, 0), 0)(a, x)


def test_second_derivative_of_a_gamma_sample():
    """That of random_gamma_grad in a, by XLA and the reference; and of samples, as JAX has it."""
    a = np.array([0.3, 0.9, 2.0, 5.0, 30.0, 4.0, 12.0])
    x = np.array([0.01, 1.2, 1.5, 4.0, 33.0, 11.0, 25.0])
    with jax.enable_x64(True):

        def slope(lib: Any) -> Any:
            return lambda a, x: lib.jvp(
                lambda a: lib.lax.random_gamma_grad(a, x), (a,), (a * 0 + 1,)
            )[1]

        wanted = jax.jit(slope(jax))(jnp.asarray(a), jnp.asarray(x))
        assert_close(ft.jit(slope(ft))(a, x), wanted, 1e-12)
        assert_close(ft.jit(ft.vmap(slope(ft)))(a, x), wanted, 1e-12)
        (here,) = ft.interpret(ft.make_ir(slope(ft))(a, x), a, x)
        assert_close(here, np.asarray(wanted), 1e-9)

        def curvature(lib: Any) -> Any:
            return lib.jacfwd(lib.jacfwd(lambda a: lib.random.gamma(lib.random.key(3), a)))

        for at in (0.4, 1.7, 20.0):
            np.testing.assert_allclose(curvature(ft)(at), curvature(jax)(at), rtol=1e-9)
            np.testing.assert_allclose(
                ft.hessian(lambda a: ft.random.gamma(ft.random.key(3), a))(at),
                curvature(jax)(at), rtol=1e-9,
            )  # fmt: skip


def test_bessel_functions_at_zero():
    for name in ("bessel_i0e", "bessel_i1e"):
        ours, theirs = ft.grad(getattr(lax, name))(0.0), jax.grad(getattr(jax.lax, name))(0.0)
        np.testing.assert_allclose(ours, theirs, atol=1e-7)


@pytest.mark.parametrize("i0", [jnp.i0, special.i0])
def test_i0_is_flat_at_zero(i0):
    for x in (0.0, -0.0, 1.5, -1.5):
        np.testing.assert_allclose(ft.grad(i0)(x), special.i1(x), rtol=1e-6)
    assert ft.grad(i0)(0.0) == 0
    np.testing.assert_allclose(ft.grad(ft.grad(i0))(0.0), 0.5, rtol=1e-6)
    np.testing.assert_allclose(ft.grad(special.i1)(0.0), 0.5, rtol=1e-6)


def test_constants_beside_weak_types():
    """JAX's are weak beside a weak scalar, and not beside a weak array."""
    weak = jnp.full((3,), 2.0)
    assert weak.weak_type
    numbers = (1.5, 2, weak, np.arange(1, 4), np.float32([1, 2, 3]))
    for x, y in itertools.product(numbers, numbers):
        for name in ("rel_entr", "kl_div"):
            ours, theirs = [getattr(s, name)(x, y) for s in (special, jax.scipy.special)]
            assert_close(ours, theirs)
            assert ours.weak_type == theirs.weak_type, (name, x, y)
        ours, theirs = [s.norm.pdf(x, y) for s in (stats, jax.scipy.stats)]
        assert ours.weak_type == theirs.weak_type, (x, y)
    ours, theirs = [s.multigammaln(weak, 2.5) for s in (special, jax.scipy.special)]  # 2.5 is 2
    assert_close(ours, theirs)
    assert ours.weak_type == theirs.weak_type


# --- stats ----------------------------------------------------------------------------------------


def test_shapes_that_do_not_fit_are_told_at_the_users_line():
    x, y = np.ones(2, "float32"), np.ones(3, "float32")
    for call in (special.rel_entr, special.kl_div, stats.norm.pdf, stats.norm.cdf):
        with pytest.raises(errors.ShapeMismatch, match=r"at\n.*test_special"):
            call(x, y)


def test_the_normal_density_of_complex_numbers():
    for name in ("pdf", "logpdf"):
        ours, theirs = [getattr(s.norm, name)(1j, 0.5, 2.0) for s in (stats, jax.scipy.stats)]
        assert_close(ours, theirs)
    for name in ("cdf", "logcdf", "sf", "logsf"):
        for library in (stats, jax.scipy.stats):
            with pytest.raises(TypeError):
                getattr(library.norm, name)(1j)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_normal_distribution(dtype: str):
    def all_of(module: Any) -> dict[str, Any]:
        x = np.asarray(X, dtype)
        found = {
            name: getattr(module, name)(x, 0.5, np.asarray(2.0, dtype))
            for name in ("cdf", "logcdf", "logpdf", "logsf", "pdf", "sf")
        }
        q = np.asarray(UNIT, dtype)
        return found | {name: getattr(module, name)(q, 0.5, 2) for name in ("ppf", "isf")}

    with jax.enable_x64(dtype == "float64"):
        compared(
            lambda: all_of(stats.norm), lambda: all_of(jax.scipy.stats.norm), dtype, "normal"
        )  # fmt: skip


STATS: dict[str, tuple[Any, ...]] = {
    "bernoulli": (np.array([0, 1, 2]), 0.3), "beta": (UNIT, 2.0, 3.0),
    "betabinom": (np.arange(4), 5, 2.0, 3.0), "binom": (np.arange(4), 3, 0.3), "cauchy": (X,),
    "chi2": (ABOVE, 3.0), "dirichlet": (np.array([0.3, 0.7]), np.array([2.0, 3.0])),
    "expon": (X,), "gamma": (ABOVE, 2.0), "gennorm": (X, 1.5), "geom": (np.arange(4), 0.3),
    "gumbel_l": (X,), "gumbel_r": (X,), "laplace": (X,), "logistic": (X,),
    "multinomial": (np.array([1, 2]), 3, np.array([0.3, 0.7])),
    "multivariate_normal": (np.ones((3, 2)), np.zeros(2), np.array([[2.0, 0.5], [0.5, 1.0]])),
    "nbinom": (np.arange(4), 3, 0.3), "norm": (X,), "pareto": (ABOVE + 1, 2.0),
    "poisson": (np.arange(4), 3.0), "t": (X, 3.0), "truncnorm": (X, -1.0, 2.0), "uniform": (X,),
    "vonmises": (X, 2.0), "wrapcauchy": (UNIT, 0.5),
}  # fmt: skip


def probabilities(library: Any, package: Any, modules: list[str], all_names: bool) -> Any:
    found = {}
    for module in modules:
        functions = getattr(package, module)
        names = [n for n in dir(functions) if n in ("pdf", "pmf", "logpdf", "logpmf")]
        names += [
            n for n in ("cdf", "logcdf", "sf", "logsf") if all_names and hasattr(functions, n)
        ]
        for name in names:
            first, *rest = at("float32", STATS[module])
            f = getattr(functions, name)
            found[f"{module}.{name}"] = f(first, *rest)
        log = getattr(functions, "logpdf", None)
        if log is not None:
            total = lambda x, f=log, rest=rest: f(x, *rest).sum()  # noqa: E731
            found[f"d {module}"] = library.grad(total)(library.numpy.asarray(first))
    return found


@pytest.mark.parametrize(
    "everything", [False, pytest.param(True, marks=pytest.mark.heavy)], ids=["some", "all"]
)
def test_distributions(everything: bool):
    modules = MODULES if everything else ["beta", "cauchy", "gamma", "laplace", "poisson", "t"]
    compared(
        lambda: probabilities(ft, stats, modules, everything),
        lambda: probabilities(jax, jax.scipy.stats, modules, everything),
        "float32",
        "stats",
    )


def test_summaries():
    x = np.array([[3, 1, 2, 2], [1, 1, 4, 0]])
    assert_close(stats.rankdata(x, axis=1), jax.scipy.stats.rankdata(x, axis=1))
    assert_close(stats.sem(x, axis=1), jax.scipy.stats.sem(x, axis=1))
    ours, theirs = stats.mode(x, axis=1), jax.scipy.stats.mode(x, axis=1)
    assert_close(ours.mode, theirs.mode)
    assert_close(ours.count, theirs.count)
    assert_close(
        ft.jit(lambda v: stats.rankdata(v, "min"))(jnp.asarray(x[0])), np.float32([4, 1, 2, 2])
    )


@pytest.mark.heavy
def test_kernel_density_estimates():
    data = np.random.default_rng(0).normal(size=(2, 30)).astype(np.float32)
    weights = np.linspace(1, 2, 30, dtype=np.float32)
    points = data[:, :5] + 0.1
    mean, covariance = np.zeros(2, np.float32), np.eye(2, dtype=np.float32)

    def all_of(kde: Any) -> dict[str, Any]:
        plane, line = kde(data, "silverman", weights), kde(data[0], 0.4)
        return {
            "pdf": plane(points),
            "logpdf": plane.logpdf(points),
            "gaussian": plane.integrate_gaussian(mean, covariance),
            "kde": plane.integrate_kde(kde(data[:, :9])),
            "box": line.integrate_box_1d(-1.0, 0.5),
            "samples": plane.resample(jax.random.key(0), (4,)),
            "scott": kde(data, lambda k: k.neff * 0.01).covariance,
        }

    found, wanted = all_of(stats.gaussian_kde), all_of(jax.scipy.stats.gaussian_kde)
    for name in wanted:
        assert_close(found[name], wanted[name], 1e-4, name)


def test_a_kernel_density_estimate_is_a_pytree():
    data = np.random.default_rng(0).normal(size=(2, 30)).astype(np.float32)
    estimate, theirs = stats.gaussian_kde(data), jax.scipy.stats.gaussian_kde(data)
    points = data[:, :5] + 0.1
    inside = ft.jit(lambda kde, x: (kde(x), kde.logpdf(x)))(estimate, points)
    assert_close(inside, jax.jit(lambda kde, x: (kde(x), kde.logpdf(x)))(theirs, points), 1e-4)
    with pytest.raises(ValueError, match=r"weights must have shape \(30,\)"):
        stats.gaussian_kde(data, weights=data[0, 1:])
    with pytest.raises(ValueError, match="bw_method should be 'scott'"):
        stats.gaussian_kde(data, "wide")
    with pytest.raises(ValueError, match="points have dimension 3, dataset has dimension 2"):
        estimate(np.zeros((3, 4), np.float32))
