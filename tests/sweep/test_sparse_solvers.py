"""`scipy.sparse.linalg`: cg, bicgstab and gmres, against JAX's and against dense solutions."""

from __future__ import annotations

import re

import jax
import jax.numpy as jax_numpy
import jax.scipy.sparse.linalg as theirs
import numpy as np
import pytest
import scipy.sparse
from jax.experimental.sparse import BCOO, BCSR

import functrans as ft
import functrans.numpy as jnp
import functrans.scipy.sparse.linalg as ours
from functrans import errors, lax

BOTH = ((ft, jnp, ours), (jax, jax_numpy, theirs))
SOLVERS = {
    "cg": ("cg", {}),
    "bicgstab": ("bicgstab", {}),
    "gmres": ("gmres", {}),
    "incremental": ("gmres", {"solve_method": "incremental"}),
}
solvers = pytest.mark.parametrize(("name", "how"), SOLVERS.values(), ids=SOLVERS)


def at_first(*chosen):
    """All solvers, those not chosen in the long run only."""
    rows = [
        pytest.param(*SOLVERS[key], id=key, marks=() if key in chosen else pytest.mark.heavy)
        for key in SOLVERS
    ]
    return pytest.mark.parametrize(("name", "how"), rows)


N = 8
rng = np.random.default_rng(0)
NOISE, COMPLEX_NOISE = rng.normal(size=(2, N, N))
GENERAL = 0.3 * NOISE + np.diag(np.linspace(1.0, 4.0, N))
DEFINITE = GENERAL @ GENERAL.T
B, X0, DB = rng.normal(size=(3, N))
DA = rng.normal(size=(N, N))


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def matrix_for(name, dtype=np.float64):
    """A matrix that the solver takes."""
    a = GENERAL + (0.3j * COMPLEX_NOISE if np.dtype(dtype).kind == "c" else 0)
    return (a @ a.conj().T if name == "cg" else a).astype(dtype)


def vector(dtype=np.float64):
    return (B + (1j * X0 if np.dtype(dtype).kind == "c" else 0)).astype(dtype)


def assert_same(a, b, rtol=1e-9):
    (a, in_a), (b, in_b) = map(jax.tree.flatten, (a, b))
    assert in_a == in_b
    for x, y in zip(a, b, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * max(1, np.abs(y).max(initial=0)))


# --- values and derivatives -----------------------------------------------------------------------

TIGHT = {"tol": 1e-12}


def of_matrix(lib, np_, solve, a, b):
    return solve(a, b, **TIGHT)


def of_function(lib, np_, solve, a, b):
    return solve(lambda x: a @ x, b, **TIGHT)


def from_a_guess(lib, np_, solve, a, b):
    return solve(a, b, np_.asarray(X0, b.dtype), atol=1e-11, tol=0.0)


def preconditioned(lib, np_, solve, a, b):
    """By the diagonal, as a matrix, and by a function of the parameters."""
    inverse = np_.diag(1 / np_.diag(a))
    first, info = solve(a, b, M=inverse, **TIGHT)
    return first + solve(a, b, M=lambda x: x / np_.diag(a), **TIGHT)[0], info


def of_pytrees(lib, np_, solve, a, b):
    def apply(x):
        flat = np_.concatenate([x["p"].ravel(), x["q"][0][None], x["q"][1]])
        return parts(a @ flat)

    def parts(v):
        return {"p": v[:4].reshape(2, 2), "q": (v[4], v[5:])}

    return solve(apply, parts(b), parts(0 * b), M=lambda x: x, **TIGHT)


def nested(lib, np_, solve, a, b):
    """The matrix depends on a solution."""
    x, _ = solve(lambda x: a @ x, b, **TIGHT)
    return solve(lambda y: a @ y + np_.vdot(x, x).real * y, b + x, **TIGHT)


def of_columns(lib, np_, solve, a, b):
    return solve(a, np_.stack([b, np_.sin(b)], 1), **TIGHT)


PROGRAMS = [
    of_matrix, of_function, from_a_guess, preconditioned, of_pytrees, nested, of_columns,
]  # fmt: skip


def everything(lib, np_, library, name, how, program):
    """A jitted function to values, info, a directional derivative and a gradient."""

    def solve(*args, **kwargs):
        return getattr(library, name)(*args, **kwargs, **how)

    def value(a, b):
        return program(lib, np_, solve, a, b)

    def loss(a, b):
        parts = [np_.abs(x) ** 2 for x in lib.tree.leaves(value(a, b)[0])]
        return sum([np_.sum(p * np_.cos(p)) for p in parts])

    def run(a, b, da, db):
        parts = [
            value(a, b),
            lib.jvp(lambda a, b: value(a, b)[0], (a, b), (da, db))[1],
            lib.grad(loss, (0, 1))(a, b),
        ]
        if program in (of_pytrees, nested):  # and the second order
            parts.append(lib.jvp(lib.grad(loss, 1), (a, b), (da, db))[1])
        return parts

    return lib.jit(run)


# which programs run at first; all others are of the long run
USUAL = {
    "cg": of_pytrees, "bicgstab": preconditioned, "gmres": from_a_guess, "incremental": of_columns,
}  # fmt: skip
ROWS = [
    pytest.param(
        *SOLVERS[key], program, id=f"{key}-{program.__name__}",
        marks=() if USUAL[key] is program else pytest.mark.heavy,
    )
    for key in SOLVERS
    for program in PROGRAMS
]  # fmt: skip


@pytest.mark.parametrize(("name", "how", "program"), ROWS)
def test_values_and_derivatives_are_those_of_jax(name, how, program):
    a, b = matrix_for(name), vector()
    found, wanted = (everything(*libs, name, how, program)(a, b, DA + DA.T, DB) for libs in BOTH)
    assert_same(found, wanted, 1e-7)


@at_first("cg")
def test_complex_numbers(name, how):
    a, b = matrix_for(name, complex), vector(complex)
    found, wanted = (
        everything(*libs, name, how, of_function)(a, b, DA + 1j * DA.T, DB + 0j) for libs in BOTH
    )
    assert_same(found, wanted, 1e-7)
    assert_same(found[0][0], np.linalg.solve(a, b), 1e-9)


@at_first("cg", "incremental")
def test_gradients_are_those_of_the_dense_solution(name, how):
    """With respect to the parameters of the matrix, by implicit differentiation."""
    a, b = matrix_for(name), vector()

    def by_hand(a, b):
        return ft.numpy.sum(jnp.sin(ft.numpy.linalg.solve(a, b)))

    def sparse(a, b):
        return jnp.sum(jnp.sin(getattr(ours, name)(a, b, tol=1e-13, **how)[0]))

    assert_same(*(ft.jit(ft.grad(f, (0, 1)))(a, b) for f in (sparse, by_hand)), 1e-8)
    scaled = ft.jit(ft.grad(lambda s: sparse(s * a, b)))(2.0)
    assert_same(scaled, ft.jit(ft.grad(lambda s: by_hand(s * a, b)))(2.0), 1e-8)


@at_first("cg")
def test_vmap(name, how):
    matrices = np.stack([matrix_for(name) + k * np.eye(N) for k in range(3)])
    vectors = np.stack([B, DB, 1e-3 * X0])

    def run(lib, np_, library, axes):
        def one(a, b, tol):
            return getattr(library, name)(a, b, tol=tol, **how)

        def loss(a, b, tol):
            return np_.sum(one(a, b, tol)[0] ** 3)

        args = [x if d == 0 else x[0] for x, d in zip((matrices, vectors, tols), axes, strict=True)]
        return lib.jit(
            lambda *args: (lib.vmap(one, axes)(*args), lib.vmap(lib.grad(loss, 1), axes)(*args))
        )(*args)

    tols = np.full(3, 1e-12)
    for axes in ((0, 0, 0), (None, 0, None)):
        assert_same(*(run(*libs, axes) for libs in BOTH), 1e-7)


# --- when they end --------------------------------------------------------------------------------


@solvers
def test_out_of_steps(name, how):
    """The same iterates."""
    a, b = matrix_for(name), vector()
    more = {"restart": 3} if name == "gmres" else {}

    def both(lib, np_, library):
        @lib.jit
        def run(maxiter):
            solve = getattr(library, name)
            inverse = np_.diag(1 / np_.diag(np_.asarray(a)))
            kinds = ({}, {"x0": X0, "M": inverse})
            return [
                solve(a, b, tol=1e-14, maxiter=maxiter, **kind, **more, **how) for kind in kinds
            ]

        return [run(n) for n in (0, 1, 3)]

    assert_same(*(both(*libs) for libs in BOTH), 1e-9)


@solvers
def test_tolerances(name, how):
    """Which may be traced."""
    a, b = matrix_for(name), vector()

    def jitted(lib, np_, library):
        solve = getattr(library, name)
        return lib.jit(lambda tol, atol: solve(a, b, tol=tol, atol=atol, **how))

    found, wanted = (jitted(*libs) for libs in BOTH)
    for tol, atol in [(1e-1, 0.0), (1e-3, 0.0), (0.0, 0.3), (1e-9, 1e-2)]:
        x, info = found(tol, atol)
        assert np.linalg.norm(a @ x - b) <= max(tol * np.linalg.norm(b), atol) * (1 + 1e-9)
        if not how:  # JAX's incremental form adds a vector more than it has made
            assert_same((x, info), wanted(tol, atol))


@at_first("cg")
def test_how_the_search_goes_has_no_derivative(name, how):
    a, b = matrix_for(name), vector()

    def f(tol, x0, M):
        return getattr(ours, name)(a, b, x0, M=M, tol=tol, **how)[0].sum()

    for slope in ft.jit(ft.grad(f, (0, 1, 2)))(1e-3, X0, np.eye(N)):
        assert not np.asarray(slope).any()


@at_first("incremental")
def test_exact_and_empty_and_zero(name, how):
    solve = getattr(ours, name)
    eye = np.eye(N)
    for tol in (1e-5, 0.0):
        assert_same(solve(eye, B, tol=tol, **how)[0], B, 1e-15)
        assert_same(solve(2 * eye, B, X0, tol=tol, **how)[0], B / 2, 1e-15)
    assert not solve(eye, 0 * B, **how)[0].any()
    np.testing.assert_allclose(solve(eye, 0 * B, X0, maxiter=50, **how)[0], 0, atol=1e-12)
    assert solve(lambda x: x, np.zeros(0), **how)[0].shape == (0,)


@solvers
def test_what_is_not_finite_is_seen(name, how):
    """JAX ends at once with x = x0 then."""
    solve = getattr(ours, name)
    eye = np.eye(N)
    for args in ((eye, B * np.nan), (eye * np.nan, B, X0), (eye, B * np.inf), (0 * eye, B)):
        x, info = solve(*args, **how)
        assert not np.isfinite(x).all()
        assert info is None if name != "gmres" else int(info) == -1


@at_first("bicgstab", "gmres")
def test_scale_is_no_matter(name, how):
    """gmres of JAX takes what is below 1e-7 for zero, and a cotangent below the tolerance of b."""
    a, b = matrix_for(name, np.float32), vector(np.float32)

    def solved(b):
        return getattr(ours, name)(a, b, **how)[0]

    x, gradient = solved(b), ft.grad(lambda b: solved(b).sum())(b)
    small = solved(1e-9 * b), ft.grad(lambda b: 1e-9 * solved(b).sum())(b)
    for y, large in zip(small, (x, gradient), strict=True):
        np.testing.assert_allclose(np.asarray(y) * 1e9, large, rtol=2e-4, atol=2e-4)


def test_gmres_keeps_its_basis_orthogonal():
    """A condition of 1e4 in float32; JAX ends at 0.1 here."""
    n = 100
    q, p = (np.linalg.qr(rng.normal(size=(n, n)))[0] for _ in range(2))
    a, b = (q * np.logspace(0, -4, n) @ p).astype("f4"), rng.normal(size=n).astype("f4")
    for method in ("batched", "incremental"):
        x, info = ours.gmres(a, b, restart=n, maxiter=1, solve_method=method)
        assert int(info) == 0
        assert np.linalg.norm(a @ np.asarray(x) - b) < 2e-3 * np.linalg.norm(b)


def test_the_transposed_equation_has_the_transposed_preconditioner():
    """A far from symmetric; one Gauss-Seidel sweep. With M itself JAX's gradient is off by much."""
    n = 40
    a = np.triu(0.5 * rng.normal(size=(n, n)), 1) + 2 * np.eye(n) + 0.01 * rng.normal(size=(n, n))
    upper, b = np.triu(a), rng.normal(size=n)

    def sweep(x):
        return ft.scipy.linalg.solve_triangular(upper, x)

    for name, M in (("bicgstab", sweep), ("gmres", np.linalg.inv(upper))):
        solve = getattr(ours, name)
        gradient = ft.jit(ft.grad(lambda b, M=M, f=solve: f(a, b, M=M, tol=1e-9)[0].sum()))(b)
        assert_same(gradient, np.linalg.solve(a.T, np.ones(n)), 1e-6)


def test_a_preconditioner_that_has_no_transpose_serves_both_equations():
    a, b = matrix_for("bicgstab"), vector()

    def sweeps(x):
        """Three steps of Jacobi's, in a loop that cannot be transposed."""
        diagonal = np.diag(a)

        def step(c):
            return c[0] + (x - a @ c[0]) / diagonal, c[1] + 1

        return lax.while_loop(lambda c: c[1] < 3, step, (x / diagonal, 0))[0]

    def loss(b):
        return ours.bicgstab(a, b, M=sweeps, tol=1e-12)[0].sum()

    assert_same(ft.jit(ft.grad(loss))(b), np.linalg.solve(a.T, np.ones(N)), 1e-8)


# --- what they are given --------------------------------------------------------------------------


@at_first("cg")
def test_dtypes(name, how):
    solve = getattr(ours, name)
    a, b = matrix_for(name), vector()
    for dtype in (np.float32, np.complex64, np.complex128, np.float16):
        x, _ = solve(a.astype(dtype), b.astype(dtype), **how)
        assert x.dtype == dtype
    exact = solve(a, b, tol=1e-12, **how)[0]
    assert_same(solve(a, b, X0.astype(np.float32), tol=1e-12, **how)[0], exact)
    assert solve(a, b.astype(int), np.zeros(N, int), **how)[0].dtype == exact.dtype
    assert solve(lambda x: 2 * x, 3.0, **how)[0] == solve(lambda x: 2 * x, 3, **how)[0] == 1.5
    # leaves of several precisions, and a preconditioner of less
    mixed = (b, b.astype(np.float32))
    x, y = solve(lambda x: (a @ x[0], 2 * x[1]), mixed, tol=1e-6, **how)[0]
    assert (x.dtype, y.dtype) == (np.float64, np.float32)
    np.testing.assert_allclose(y, B / 2, rtol=1e-5)
    low = solve(a, b, M=lambda x: x.astype(np.float32), tol=1e-10, **how)[0]
    np.testing.assert_allclose(low, exact, atol=1e-8)


@at_first("cg")
def test_sparse_matrices_and_objects_with_matmul(name, how):
    a, b = matrix_for(name), vector()
    solve = getattr(ours, name)

    class Operator:
        def __matmul__(self, x):
            return a @ x

    wanted = np.linalg.solve(a, b)
    padded = BCOO.fromdense(a, nse=N * N + 3)
    for given in (scipy.sparse.csr_array(a), padded, BCSR.fromdense(a), Operator()):
        assert_same(solve(given, b, tol=1e-12, **how)[0], wanted, 1e-8)
    columns = solve(scipy.sparse.coo_matrix(a), np.stack([b, DB], 1), tol=1e-12, **how)[0]
    assert_same(columns, np.linalg.solve(a, np.stack([b, DB], 1)), 1e-8)

    def loss(lib, library):
        def of(matrix):
            return getattr(library, name)(matrix, b, tol=1e-12, **how)[0].sum()

        return lib.jit(lib.grad(of, allow_int=True))(BCOO.fromdense(a)).data

    assert_same(loss(ft, ours), loss(jax, theirs), 1e-7)


def test_equations_of_matrices_are_compiled_once(monkeypatch):
    """Also where nothing is jitted, whatever their limits."""
    a, b = map(jnp.asarray, (matrix_for("cg"), vector()))
    ours.cg(a, b, tol=1e-3)
    monkeypatch.setattr("functrans.scipy.sparse.linalg.Limits", None)  # tracing would need it
    assert_same(ours.cg(a, b, tol=1e-12, maxiter=50)[0], np.linalg.solve(a, b), 1e-8)


def wrong(solve):
    """(what JAX raises too, our class, words, program)"""
    eye, mixed = np.eye(N), (B, B + 0j)
    return [
        (TypeError, errors.NotAnArray, "A must be a function", lambda: solve(eye.tolist(), B)),
        (TypeError, errors.NotAnArray, "M must be a function", lambda: solve(eye, B, M=2.0)),
        (ValueError, errors.InvalidArgument, "A must be a square", lambda: solve(eye[1:], B)),
        (ValueError, errors.InvalidArgument, "M must be a square", lambda: solve(eye, B, M=B)),
        (TypeError, errors.ShapeMismatch, "8 rows, got f64[3]", lambda: solve(eye, B[:3])),
        (TypeError, errors.ShapeMismatch, "got the structure [*]", lambda: solve(eye, [B])),
        (ValueError, errors.ShapeMismatch, "x0 is f64[3]", lambda: solve(eye, B, X0[:3])),
        (ValueError, errors.ShapeMismatch, "the structure *, x0 (*,)", lambda: solve(eye, B, (B,))),
        (ValueError, errors.ShapeMismatch, "A(b) is f64[3]", lambda: solve(lambda x: x[:3], B)),
        (TypeError, errors.TypeMismatch, "A(b) (*,)", lambda: solve(lambda x: (x,), B)),
        (TypeError, errors.TypeMismatch, "A(b) is c128[8]", lambda: solve(lambda x: x * 1j, B)),
        (TypeError, errors.TypeMismatch, "A @ b is c128[8]", lambda: solve(eye + 0j, B)),
        (TypeError, errors.ShapeMismatch, "M(b) is f64[3]",
         lambda: solve(eye, B, M=lambda x: x[:3])),
        (TypeError, errors.TypeMismatch, "real and complex", lambda: solve(lambda x: x, mixed)),
        (ValueError, errors.InvalidArgument, "b holds no arrays", lambda: solve(eye, {})),
        (TypeError, errors.NotAnArray, "tol", lambda: solve(eye, B, tol="small")),
        (TypeError, errors.TypeMismatch, "maxiter must be a real number",
         lambda: solve(eye, B, maxiter=np.ones(2))),
    ]  # fmt: skip


@solvers
def test_misuse(name, how):
    def solve(*args, **kwargs):
        return getattr(ours, name)(*args, **kwargs, **how)

    for kind, ours_, words, program in wrong(solve):
        with pytest.raises(kind, match=re.escape(words)) as caught:
            program()
        assert type(caught.value) is ours_
        assert str(caught.value).startswith(f"{name}: ")
        assert "test_sparse_solvers.py" in str(caught.value)


def test_misuse_of_gmres():
    eye = np.eye(N)
    for words, program in [
        ("solve_method must be 'batched'", lambda: ours.gmres(eye, B, solve_method="qr")),
        ("restart must be positive", lambda: ours.gmres(eye, B, restart=0)),
    ]:
        with pytest.raises(errors.InvalidArgument, match=words):
            program()
    with pytest.raises(errors.NotAnArray, match="restart must be a Python int"):
        ours.gmres(eye, B, restart=2.5)
    with pytest.raises(errors.AbstractValueError):
        ft.jit(lambda n: ours.gmres(eye, B, restart=n))(3)
    for name in ("gmres", "bicgstab"):
        with pytest.raises(errors.NotLinear, match="not linear"):
            getattr(ours, name)(lambda x: x**2, B)


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("name", ["cg", "bicgstab", "gmres"])
def test_weak_right_hand_sides(name, integers):
    matrix = jax_numpy.asarray(np.diag([2, 4, 5]), int if integers else "float16")
    if name != "cg" and not integers:  # where JAX has none
        matrix = matrix.astype("float64")
    weak = jax_numpy.full(3, 2.0)
    mine, other = [getattr(module, name)(matrix, weak)[0] for _, _, module in BOTH]
    assert (mine.dtype, mine.weak_type) == (other.dtype, other.weak_type)
    np.testing.assert_allclose(mine, other, rtol=1e-3)
