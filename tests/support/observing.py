"""What functions with callbacks do, by functrans and by JAX: results, lines printed, calls made."""

import contextlib
import io
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np

import functrans as ft
import functrans.numpy as fnp
from tests.support.closeness import assert_close

NUMBER = jax.ShapeDtypeStruct((), "float32")
Seen = tuple[Any, list[str], list[list[list]]]


def observe(L: Any, np_: Any, make: Callable[..., Any], *args: Any) -> Seen:
    """The result of `make(L, np, log)(*args)`, the lines printed, the arguments of each `log`."""
    logged: list[list[list]] = []
    printed = io.StringIO()

    def log(*arrays: Any) -> None:
        assert all(isinstance(x, jax.Array) for x in arrays)
        logged.append([np.asarray(x).tolist() for x in arrays])

    with contextlib.redirect_stdout(printed):
        out = make(L, np_, log)(*args)
        jax.effects_barrier()
    return out, printed.getvalue().splitlines(), logged


def both(make: Callable[..., Any], *args: Any, in_order: bool = True) -> Seen:
    """Observe by functrans and by JAX; the same, up to the order of calls unless `in_order`."""
    ours, theirs = observe(ft, fnp, make, *args), observe(jax, jnp, make, *args)
    assert_close(jax.tree_util.tree_leaves(ours[0]), jax.tree_util.tree_leaves(theirs[0]))
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        assert mine == other if in_order else sorted(mine) == sorted(other)
    return ours


def apply_grad(L, np, f):
    return L.grad(lambda x: np.sum(f(x)))


def apply_jvp(L, np, f):
    return lambda x: sum(L.jvp(f, (x,), (np.ones_like(x),)))


def apply_linearize(L, np, f):
    def run(x):
        y, f_jvp = L.linearize(f, x)
        return y + f_jvp(np.ones_like(x))

    return run


def apply_vjp(L, np, f):
    def run(x):
        y, pullback = L.vjp(f, x)
        return y + pullback(np.ones_like(y))[0]

    return run


TRANSFORMATIONS: dict[str, Callable[..., Any]] = {
    "jit": lambda L, np, f: L.jit(f),
    "vmap": lambda L, np, f: L.vmap(f),
    "grad": apply_grad,
    "jvp": apply_jvp,
    "linearize": apply_linearize,
    "vjp": apply_vjp,
}


def transformed(function: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
    def make(L, np, log):
        f = function(L, np, log)
        for name in reversed(names):
            f = TRANSFORMATIONS[name](L, np, f)
        return f

    return make


def example(names: tuple[str, ...]) -> Any:
    """A scalar with one more axis per vmap."""
    shape = (3, 2)[: names.count("vmap")]
    return jnp.linspace(0.5, 1.5, int(np.prod(shape)), dtype="float32").reshape(shape)
