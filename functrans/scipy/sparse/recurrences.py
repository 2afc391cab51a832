"""Conjugate gradients and BiCGSTAB: Krylov methods of a few vectors, which are pytrees here.

In: A and its preconditioner M as functions, the right hand side b, a guess x0 (None: zeros). Out: x
with A x = b, as near as was asked: |b - A x| <= max(tol |b|, atol).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import functrans.numpy as jnp
from functrans import lax
from functrans import pytrees as tree

Map = Callable[[Any], Any]


class Limits(NamedTuple):
    """When a solver ends."""

    tol: Any
    atol: Any
    maxiter: Any


# --- pytrees as vectors ---------------------------------------------------------------------------


def dot(x: Any, y: Any) -> Any:
    """x^H y."""
    parts = tree.map(lambda a, b: jnp.vdot(a, b, precision=lax.Precision.HIGHEST), x, y)
    return functools.reduce(operator.add, tree.leaves(parts))


def real_dot(x: Any, y: Any) -> Any:
    """The real part of x^H y."""
    if not jnp.iscomplexobj(tree.leaves(x)[0]):
        return dot(x, y)
    real, imaginary = [[tree.map(part, v) for v in (x, y)] for part in (jnp.real, jnp.imag)]
    return dot(*real) + dot(*imaginary)


def norm(x: Any) -> Any:
    """The 2-norm."""
    return jnp.sqrt(real_dot(x, x))


def plus(x: Any, a: Any, y: Any) -> Any:
    """x + a y, each array of the dtype it has in x."""
    return tree.map(lambda u, v: u + (a * v).astype(u.dtype), x, y)


def minus(x: Any, y: Any) -> Any:
    """x - y."""
    return tree.map(lambda u, v: u - v, x, y)


def start(A: Map, b: Any, x0: Any) -> tuple[Any, Any]:
    """The first x, and its residual."""
    return (tree.map(jnp.zeros_like, b), b) if x0 is None else (x0, minus(b, A(x0)))


def unfinished(size: Any, enough: Any, steps: Any, limits: Limits) -> Any:
    """Whether to go on. What is not finite is brought into x by one step, and ends the search."""
    more = (size > enough) | ((steps == 0) & ~jnp.isfinite(size))
    return more & (steps < limits.maxiter)


def _enough(b: Any, limits: Limits) -> Any:
    """The squared residual that is small enough."""
    return jnp.maximum(jnp.square(limits.tol) * real_dot(b, b), jnp.square(limits.atol))


# --- conjugate gradients --------------------------------------------------------------------------


class Descent(NamedTuple):
    """Where conjugate gradients are. r = b - A x; rz = r^H M r; p: the direction of the next step,
    A-orthogonal to those before."""

    x: Any
    r: Any
    rz: Any
    p: Any
    steps: Any


def conjugate_gradients(A: Map, b: Any, x0: Any, M: Map | None, limits: Limits) -> Any:
    """Solve A x = b, A Hermitian and positive definite (Hestenes and Stiefel)."""
    enough = _enough(b, limits)

    def going(s: Descent) -> Any:
        rr = s.rz if M is None else real_dot(s.r, s.r)
        return unfinished(rr, enough, s.steps, limits)

    def conditioned(r: Any) -> tuple[Any, Any]:
        z = r if M is None else M(r)
        return z, real_dot(r, z)

    def step(s: Descent) -> Descent:
        ap = A(s.p)
        alpha = s.rz / real_dot(s.p, ap)
        r = plus(s.r, -alpha, ap)
        z, rz = conditioned(r)
        return Descent(plus(s.x, alpha, s.p), r, rz, plus(z, rz / s.rz, s.p), s.steps + 1)

    x, r = start(A, b, x0)
    z, rz = conditioned(r)
    return lax.while_loop(going, step, Descent(x, r, rz, z, 0)).x


# --- BiCGSTAB -------------------------------------------------------------------------------------


class BiDescent(NamedTuple):
    """Where BiCGSTAB is. r = b - A x; p: the direction, v = A M p; rho, alpha, omega: the scalars
    of the last step; stuck: one of them is zero, and there is no next step."""

    x: Any
    r: Any
    p: Any
    v: Any
    rho: Any
    alpha: Any
    omega: Any
    steps: Any
    stuck: Any


def stabilized_biconjugate_gradients(A: Map, b: Any, x0: Any, M: Map | None, limits: Limits) -> Any:
    """Solve A x = b (van der Vorst, 1992, with the preconditioner on the right)."""
    enough = _enough(b, limits)
    conditioned = M or (lambda v: v)
    x, first = start(A, b, x0)  # to the first residual the later ones are made orthogonal

    def going(s: BiDescent) -> Any:
        return unfinished(real_dot(s.r, s.r), enough, s.steps, limits) & ~s.stuck

    def step(s: BiDescent) -> BiDescent:
        rho = dot(first, s.r)
        beta = rho / s.rho * s.alpha / s.omega
        p = plus(s.r, beta, plus(s.p, -s.omega, s.v))
        p_hat = conditioned(p)
        v = A(p_hat)
        alpha = rho / dot(first, v)
        half, half_r = plus(s.x, alpha, p_hat), plus(s.r, -alpha, v)
        done = real_dot(half_r, half_r) <= enough  # then the other half would divide 0 by 0
        s_hat = conditioned(half_r)
        t = A(s_hat)
        omega = dot(t, half_r) / dot(t, t)
        x, r = plus(half, omega, s_hat), plus(half_r, -omega, t)
        x, r = (
            tree.map(lambda a, b: jnp.where(done, a, b), *pair) for pair in ((half, x), (half_r, r))
        )
        stuck = (rho == 0) | (alpha == 0) | (omega == 0)
        return BiDescent(x, r, p, v, rho, alpha, omega, s.steps + 1, stuck)

    one = jnp.ones((), jnp.result_type(*tree.leaves(b)))
    zero = tree.map(jnp.zeros_like, b)
    begin = BiDescent(x, first, zero, zero, one, one, one, 0, False)
    return lax.while_loop(going, step, begin).x
