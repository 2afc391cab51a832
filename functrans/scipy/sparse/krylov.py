"""GMRES: the vector of a Krylov space whose residual is least, again from there until it is small.

In: A, its preconditioner M, the right hand side b and a guess, all of flat vectors. Out: x.

A cycle makes an orthonormal basis v_0, v_1, ... of r, MA r, (MA)^2 r, ... (Arnoldi) with

    M A [v_0 ... v_(m-1)] = [v_0 ... v_m] H        H: [m+1, m], zero below its first subdiagonal

and y with least | |r| e_0 - H y |, so that x + [v_0 ... v_(m-1)] y has the least residual.
Saad and Schultz, 1986.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import functrans.numpy as jnp
from functrans import lax
from functrans.lax.linalg import qr
from functrans.scipy.linalg import solve_triangular
from functrans.scipy.sparse.recurrences import Limits, Map, norm, start, unfinished

Cycle = Callable[[Map, Any, Any, int, Any], Any]


def dot(x: Any, y: Any) -> Any:
    return jnp.dot(x, y, precision=lax.Precision.HIGHEST)


class Outer(NamedTuple):
    """Where the cycles are. r = M (b - A x); size = |r|."""

    x: Any
    r: Any
    size: Any
    cycles: Any


def generalized_minimal_residuals(
    A: Map, b: Any, x0: Any, M: Map | None, limits: Limits, restart: int, cycle: Cycle
) -> Any:
    """Solve A x = b by cycles of at most `restart` steps."""
    conditioned = M or (lambda v: v)
    b_norm, mb_norm = norm(b), norm(conditioned(b))
    enough = jnp.maximum(limits.tol * b_norm, limits.atol)
    # no progress is to be had below rounding
    enough = jnp.maximum(enough, jnp.finfo(mb_norm.dtype).eps * mb_norm)
    within = mb_norm * jnp.minimum(1.0, enough / jnp.where(b_norm > 0, b_norm, 1))

    def of(x: Any, residual: Any, cycles: Any) -> Outer:
        r = conditioned(residual)
        return Outer(x, r, norm(r), cycles)

    def going(s: Outer) -> Any:
        return unfinished(s.size, enough, s.cycles, limits)

    def step(s: Outer) -> Outer:
        unit = s.r / s.size.astype(s.r.dtype)
        x = s.x + cycle(lambda v: conditioned(A(v)), unit, s.size, restart, within)
        return of(x, b - A(x), s.cycles + 1)

    return lax.while_loop(going, step, of(*start(A, b, x0), 0)).x


# --- the basis ------------------------------------------------------------------------------------


def _next(apply: Map, basis: Any, k: Any) -> tuple[Any, Any, Any]:
    """The basis with v_(k+1), column k of H, and whether the space is invariant: v_(k+1) is zero.

    Gram and Schmidt's projection is made twice: once leaves what is not orthogonal by as much as
    the vectors made are nearly dependent; with a condition of 1e4 in float32 a hundred steps ended
    at a residual of 7e-2 then, and end at 2e-4 now.
    """
    w = apply(basis[k])
    before = norm(w)
    h = jnp.zeros(basis.shape[0], basis.dtype)
    for _ in range(2):
        part = dot(jnp.conj(basis), w)
        w, h = w - dot(part, basis), h + part
    size = norm(w)
    ended = ~(size > jnp.finfo(size.dtype).eps * before)
    v = jnp.where(ended, 0, w / jnp.where(ended, 1, size))
    h = h.at[k + 1].set(jnp.where(ended, 0, size).astype(h.dtype))
    return basis.at[k + 1].set(v), h, ended


def _first(unit: Any, m: int) -> tuple[Any, Any]:
    """The basis of v_0 alone, and H: columns that are never made are those of the identity."""
    basis = jnp.zeros((m + 1, unit.shape[0]), unit.dtype).at[0].set(unit)
    return basis, jnp.eye(m + 1, m, dtype=unit.dtype)


# --- the cycles -----------------------------------------------------------------------------------


def batched(apply: Map, unit: Any, size: Any, m: int, within: Any) -> Any:
    """All m steps, then the least squares at once."""

    def going(s: Any) -> Any:
        return (s[-1] < m) & ~s[-2]

    def step(s: Any) -> Any:
        basis, hessenberg, _, k = s
        basis, h, ended = _next(apply, basis, k)
        return basis, hessenberg.at[:, k].set(h), ended, k + 1

    basis, hessenberg, *_ = lax.while_loop(going, step, (*_first(unit, m), False, 0))
    q, r = qr(hessenberg, full_matrices=False)
    y = solve_triangular(r, size.astype(r.dtype) * jnp.conj(q[0]))
    return dot(y, basis[:-1])


class Rotated(NamedTuple):
    """A cycle whose H is made triangular as it grows: rotations @ H = r. error: the residual."""

    basis: Any
    r: Any
    rotations: Any  # [m+1, m+1], unitary
    error: Any
    steps: Any


def incremental(apply: Map, unit: Any, size: Any, m: int, within: Any) -> Any:
    """Steps until the residual, which Givens rotations tell after each, is `within`."""

    def going(s: Rotated) -> Any:
        return (s.steps < m) & (s.error > within)

    def step(s: Rotated) -> Rotated:
        k = s.steps
        basis, h, _ = _next(apply, s.basis, k)
        rotation = _rotation(dot(s.rotations, h), k)
        pair = dot(rotation, lax.dynamic_slice_in_dim(s.rotations, k, 2))
        rotations = lax.dynamic_update_slice_in_dim(s.rotations, pair, k, 0)
        r = s.r.at[:, k].set(dot(rotations, h))
        return Rotated(basis, r, rotations, size * jnp.abs(rotations[k + 1, 0]), k + 1)

    basis, r = _first(unit, m)
    end = lax.while_loop(going, step, Rotated(basis, r, jnp.eye(m + 1, dtype=r.dtype), size, 0))
    rhs = jnp.where(jnp.arange(m) < end.steps, size * end.rotations[:-1, 0], 0)
    return dot(solve_triangular(end.r[:-1], rhs.astype(r.dtype)), end.basis[:-1])


def _rotation(h: Any, k: Any) -> Any:
    """[2, 2], unitary, that takes (a, b) = h[k], h[k+1] to (c, 0).

    [ a*/c   b*/c ] [ a ]   [ c ]
    [ -b/c    a/c ] [ b ] = [ 0 ]        c = sqrt(|a|^2 + |b|^2)
    """
    ab = lax.dynamic_slice_in_dim(h, k, 2)
    c = norm(ab)
    a, b = jnp.where(c > 0, ab / jnp.where(c > 0, c, 1), jnp.array([1, 0], h.dtype))
    return jnp.stack([jnp.stack([jnp.conj(a), jnp.conj(b)]), jnp.stack([-b, a])])


CYCLES: dict[str, Cycle] = {"batched": batched, "incremental": incremental}
