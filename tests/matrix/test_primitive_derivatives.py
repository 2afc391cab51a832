"""Every row of the primitive table that has a derivative: first and second order, batched."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
from tests.matrix.cases.case import Case
from tests.matrix.primitive_rows import (
    EVERY_DERIVATIVE,
    Made,
    Point,
    Row,
    both_ways,
    by_primitive,
    compiled,
    interpreted,
    point,
    precision,
    pulled,
    pushed,
    run_together,
    some_or_all,
)
from tests.support.closeness import assert_close, plain
from tests.support.versions import is_derived
from tests.support.wide import each


def pairing(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    """<x, y>, in which tangents and cotangents are dual: the real part of sum(x * y)."""
    return sum(
        float(np.sum(plain(x).astype(np.complex128) * plain(y)).real) for x, y in zip(xs, ys, strict=True)
    )


def is_fine(xs: Sequence[Any]) -> bool:
    """Are the numbers fine enough for differences of them?"""
    return min(np.dtype(x.dtype).itemsize for x in xs) >= 4


def slope(p: Point, f: Callable[..., list[Any]]) -> list[np.ndarray]:
    """The derivative of f along dx by the five-point formula, on the reference interpreter."""
    h = step(p)
    program = ft.make_ir(f)(*p.x)

    def at(k: float) -> list[np.ndarray]:
        moved = [
            np.asarray(x + x.dtype.type(k * h) * v).astype(x.dtype) for x, v in zip(p.x, p.dx, strict=True)
        ]
        wide = interpreted(program, moved)
        return [y.astype(np.complex128 if y.dtype.kind == "c" else np.float64) for y in wide]

    values = zip(at(1), at(-1), at(2), at(-2), strict=True)
    return [(8 * (a - b) - (c - d)) / (12 * h) for a, b, c, d in values]


def slope_error(p: Point) -> float:
    return 1e-7 if step(p) < 1e-3 else 0.05


def step(p: Point) -> float:
    coarse = any(np.dtype(y.dtype).itemsize < 8 or y.dtype == np.complex64 for y in [*p.x, *p.ct])
    return 2.0**-6 if coarse else 2.0**-13


def oracle(p: Point, of: Callable[[Any, Callable[..., Any]], Any]) -> Any:
    """By JAX, unless it has no derivative there."""
    return of(jax, p.jax) if is_derived(p.case.primitive, p.dtype) else of(ft, p.ours)


@some_or_all("compiled_rows", 2)
@by_primitive(EVERY_DERIVATIVE)
def test_derivatives(rows: Sequence[Row], compiled_rows: int | None):
    """jvp = slope, <ct, jvp> = <vjp, dx>, on the reference; some by XLA and by JAX."""

    def make(case: Case, dtype: str) -> Made:
        p = point(case, dtype)
        return compiled(both_ways(ft, p.ours), oracle(p, both_ways)), (p.x, p.dx, p.ct)

    together = run_together(rows[:compiled_rows], make)

    def check(row: Row) -> None:
        with precision(*row):
            p = point(*row)
            n = len(p.inexact)
            args = (p.x, p.dx, p.ct)
            here = interpreted(ft.make_ir(both_ways(ft, p.ours))(*args), args)
            tangents, cotangents = here[n : 2 * n], here[2 * n :]
            tolerance = p.tolerance()
            if is_fine(p.x):  # else rounding hides the slope
                by_slope = slope(p, p.ours)
                close = [s.astype(t.dtype) for s, t in zip(by_slope, tangents, strict=True)]
                assert_close(tangents, close, slope_error(p), "jvp = slope,")
            left, right = pairing(p.ct, tangents), pairing(cotangents, p.dx)
            assert abs(left - right) <= 10 * tolerance * (1 + abs(left)), "<ct, jvp> = <vjp, dx>"
            if row in together:
                by_xla, by_jax = together[row] or make(*row)[0](*args)
                assert_close(here, by_xla, tolerance, "reference against XLA,")
                assert_close(by_xla, by_jax, tolerance, "functrans against JAX,")

    each(rows, check)


def second(p: Point) -> Callable[[Any, Callable[..., Any]], Callable[..., list[Any]]]:
    """jvp of vjp, vjp of jvp, vjp of vjp."""

    def of(library: Any, f: Callable[..., Any]) -> Callable[..., list[Any]]:
        def back(*x: Any) -> list[Any]:
            return pulled(library, f, x, p.ct)

        def along(*x: Any) -> list[Any]:
            return pushed(library, f, x, p.dx)[len(p.ct) :]

        return lambda *x: [
            *pushed(library, back, x, p.dx)[len(p.x) :],
            *pulled(library, along, x, p.ct),
            *pulled(library, back, x, p.dx),
        ]

    return of


@pytest.mark.smoke
@by_primitive(EVERY_DERIVATIVE)
def test_second_order(rows: Sequence[Row]):
    """jvp of vjp = the slope of vjp; vjp of jvp and of vjp pair with it; on the reference."""

    def check(row: Row) -> None:
        with precision(*row):
            p = point(*row)
            if not is_fine(p.x):
                return
            found = interpreted(ft.make_ir(second(p)(ft, p.ours))(*p.x), p.x)
            n = len(p.x)
            forward, crossed, reverse = found[:n], found[n : 2 * n], found[2 * n :]

            def back(*x: Any) -> list[Any]:
                return pulled(ft, p.ours, x, p.ct)

            by_slope = slope(p, back)
            close = [s.astype(t.dtype) for s, t in zip(by_slope, forward, strict=True)]
            assert_close(forward, close, slope_error(p) * 100, "jvp of vjp = slope of vjp,")
            # the Hessian is symmetric: <dx, H dx> however it is made
            tolerance = 100 * p.tolerance()
            assert_close(crossed, forward, tolerance, "vjp of jvp = jvp of vjp,")
            assert_close(reverse, forward, tolerance, "vjp of vjp = jvp of vjp,")

    each(rows, check)


@pytest.mark.parametrize(("transform", "shape"), [("rfft", (3, 8)), ("irfft", (3, 5))])
def test_gradients_of_real_transforms_are_real_transforms(transform: str, shape: tuple[int, ...]):
    """A complex transform would do twice the work."""

    def f(x: Any) -> Any:
        return jax.numpy.sum(jax.numpy.abs(getattr(jax.numpy.fft, transform)(x)) ** 3)

    program = ft.jit(jax.grad(f)).program(np.ones(shape, "float32"))
    kinds = [e.params["kind"] for e in program.equations if e.primitive.name == "fft"]
    assert sorted(kinds) == ["IRFFT", "RFFT"]
