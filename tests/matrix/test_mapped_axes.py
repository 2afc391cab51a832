"""vmap with its axes at every place, over everything that holds programs, against one example after
the other.

The functions return what they were given, transposed or not, beside what depends on nothing, so
that inside the batch axes of results are at all places, or nowhere. All is run by the reference.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from tests.support.closeness import assert_close
from tests.support.wide import each

N = 4  # examples; every other axis has size 3
RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(N, 3, 3)).astype("float32"), RNG.normal(size=(N, 3)).astype("float32")
P = np.array([1, 0, 2, 3], "int32")
C = np.arange(3, dtype="float32")

Function = Callable[[Any, Any, Any], Any]


def same(a: Any, b: Any) -> Any:
    return a, b, C + 0.0


def turned(a: Any, b: Any) -> Any:
    return a.T, b * 2.0, b


def made(a: Any, b: Any) -> Any:
    return jnp.outer(b, C), a[:, 1], a[0]


def mixed(a: Any, b: Any) -> Any:
    return a * b, C * 3.0, jnp.full(3, 2.0, "float32")


PARTS = [same, turned, made, mixed]


def through_all(wrap: Callable[[Any], Any]) -> Function:
    """Each of the parts, wrapped, of the arguments and of each other's results."""

    def f(a: Any, b: Any, p: Any) -> Any:
        outs = []
        for part in PARTS:
            outs += wrap(part)(a, b)
        for first, second in itertools.pairwise(PARTS):
            x, y, _ = wrap(first)(a, b)
            outs += wrap(second)(x, y)
        return [*outs, p]

    return f


def custom_jvp(part: Any) -> Any:
    f = ft.custom_jvp(part)
    f.defjvp(lambda primals, tangents: ft.jvp(part, primals, tangents))
    return f


def custom_vjp(part: Any) -> Any:
    f = ft.custom_vjp(part)
    f.defvjp(lambda a, b: (part(a, b), (a, b)), lambda kept, cts: ft.vjp(part, *kept)[1](cts))
    return f


def pulled(part: Any) -> Any:
    """The cotangents of its arguments, with its first result."""

    def f(a: Any, b: Any) -> Any:
        outs, pullback = ft.vjp(part, a, b)
        return *pullback((outs[0], b, outs[1])), outs[2]

    return f


def pushed(part: Any) -> Any:
    return lambda a, b: ft.jvp(part, (a, b), (a.T, C * b))[1]


def switched(a: Any, b: Any, p: Any) -> Any:
    return lax.switch(p, PARTS, a, b)


def cond_of_nothing_given(a: Any, b: Any, p: Any) -> Any:
    return lax.cond(p > 1, lambda: (a.T, b), lambda: (a, C))


def scanned(a: Any, b: Any, p: Any) -> Any:
    """A carry of which part turns, steps of which part is given, results that no step changes."""

    def step(carry: Any, row: Any) -> Any:
        x, y, kept, free = carry
        return (x.T, y + row, kept, free * 2.0), (x, row, b, C, free, 1.0)

    return lax.scan(step, (a, b, p, C), a)


def scanned_back(a: Any, b: Any, p: Any) -> Any:
    return lax.scan(lambda c, x: (c * x[1] + x[0][0], (c, x[0])), 0.5, (a.T, b), reverse=True)


def scanned_without_steps(a: Any, b: Any, p: Any) -> Any:
    return lax.scan(lambda c, _: ((c[1] @ a, c[0].T, c[2]), (b, c[2])), (a, a, C), None, length=3)


def looped(a: Any, b: Any, p: Any) -> Any:
    start = (0, a, b, C, jnp.outer(C, C))
    return lax.while_loop(
        lambda c: c[0] < p, lambda c: (c[0] + 1, c[1].T * 0.5, c[2], c[3] * 2.0, c[1]), start
    )


def looped_until_a_value(a: Any, b: Any, p: Any) -> Any:
    return lax.while_loop(lambda c: c[0].sum() < 3.0, lambda c: (c[0] + 1.0 + b * b, c[2].T, a), (b, a, a.T))


def counted(a: Any, b: Any, p: Any) -> Any:
    return lax.fori_loop(0, p, lambda i, c: (c[1].T, c[0] + b, c[2] + i), (a, a.T, C))


def mapped_inside(a: Any, b: Any, p: Any) -> Any:
    rows = ft.vmap(lambda x, y: (x * y, b, y, p, C), in_axes=(1, None), out_axes=(1, 1, 0, 0, 1))
    return rows(a, b), ft.vmap(lambda i: lax.switch(i, PARTS, a, b), out_axes=-1)(jnp.arange(2))


def solved(a: Any, b: Any, p: Any) -> Any:
    """Of a diagonal system whose matrix is batched or not."""
    d = jnp.abs(a).sum(0) + 1.0
    x = lax.custom_linear_solve(lambda v: d * v, b, lambda _, w: w / d, symmetric=True)
    return x, b


def derived(f: Function) -> Function:
    """The gradient in a and b of a weighted sum of all results."""

    def g(a: Any, b: Any, p: Any) -> Any:
        def total(a: Any, b: Any) -> Any:
            outs = [y for y in ft.tree.leaves(f(a, b, p)) if y.dtype == np.float32]
            return sum(jnp.sum(jnp.sin(y) * (1.0 + jnp.arange(y.size).reshape(y.shape))) for y in outs)

        return ft.grad(total, (0, 1))(a, b)

    return g


WRAPS: dict[str, Callable[[Any], Any]] = {
    "jit": ft.jit,
    "checkpoint": ft.checkpoint,
    "custom_jvp": custom_jvp,
    "custom_vjp": custom_vjp,
    "vjp": pulled,
    "jvp": pushed,
    "jit of jit": lambda part: ft.jit(ft.jit(part)),
}
FUNCTIONS: dict[str, Function] = {name: through_all(wrap) for name, wrap in WRAPS.items()} | {
    f.__name__: f
    for f in (
        switched,
        cond_of_nothing_given,
        scanned,
        scanned_back,
        scanned_without_steps,
        looped,
        looped_until_a_value,
        counted,
        mapped_inside,
        solved,
    )
}
FUNCTIONS |= {
    f"gradient of {f.__name__}": derived(f)
    for f in (switched, cond_of_nothing_given, scanned, scanned_back, looped, counted, solved)
}

IN_AXES = [
    *[axes for axes in itertools.product((None, 0), repeat=3) if any(d == 0 for d in axes)],
    (1, None, None),
    (2, None, None),
    (None, 1, None),
    (-1, 1, 0),
    (1, 0, None),
    (2, 1, None),
    (1, -1, 0),
    (-2, None, 0),
    (None, -1, 0),
]


def given(axes: tuple[int | None, ...]) -> Iterator[Any]:
    for x, d in zip((A, B, P), axes, strict=True):
        yield x[0] if d is None else np.moveaxis(x, 0, d)


SMOKE = ("jit", "switched", "scanned", "looped_until_a_value")


@pytest.mark.parametrize(
    "name", [pytest.param(f, marks=[pytest.mark.smoke] * (f in SMOKE)) for f in FUNCTIONS]
)
def test_axes_at_every_place(name: str):
    """Results with their axes in front, behind each other's, and from the end."""
    f = FUNCTIONS[name]
    program = ft.make_ir(f)(A[0], B[0], P[0])
    ranks = [len(t.shape) for t in program.out_types]

    def check(axes: tuple[int | None, ...]) -> None:
        k = IN_AXES.index(axes)
        places = [(i + k) % (2 * n + 2) - n - 1 if k else 0 for i, n in enumerate(ranks)]
        args = list(given(axes))
        flat = ft.vmap(lambda *xs: ft.tree.leaves(f(*xs)), axes, places)
        outs = ft.interpret(ft.make_ir(flat)(*args), *args)
        rows = [
            ft.interpret(program, *[x[0 if d is None else i] for x, d in zip((A, B, P), axes, strict=True)])
            for i in range(N)
        ]
        wanted = [np.stack(ys, d) for ys, d in zip(zip(*rows, strict=True), places, strict=True)]
        assert_close(outs, wanted, 1e-4)

    each(IN_AXES, check)
