"""One function by functrans and by JAX, and whether their results are the same."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as onp

import functrans as ft
import functrans.numpy as fnp
from tests.support.closeness import assert_close
from tests.support.tables import TABLES, functions, rows
from tests.support.versions import QUICK

TABLE = TABLES / "transformations.txt"
X = onp.array([0.5, -1.25, 2.0], "float32")
V = onp.array([1.0, 0.25, -0.5], "float32")
A = onp.array([[0.5, -1.0, 0.25], [1.5, 0.75, -0.5], [0.1, 0.2, 0.3]], "float32")
Z = (X + 1j * V).astype("complex64")
XS = onp.stack([X, V, X * V, X + 1])


def assert_same(ours: Any, theirs: Any, tolerance: float | None = None) -> None:
    """Structure, dtypes, shapes, weak types and numbers."""
    left, right = jax.tree_util.tree_flatten(ours), jax.tree_util.tree_flatten(theirs)
    assert left[1] == right[1]
    assert_close(left[0], right[0], tolerance)
    for x, y in zip(left[0], right[0], strict=True):
        assert is_weak(x) == is_weak(y), (x, y)


def is_weak(x: Any) -> bool:
    return getattr(x, "weak_type", isinstance(x, (int, float, complex)) and x.__class__ is not bool)


def check(build: Callable[[Any, Any], Any], *args: Any, eager: bool = True, tolerance: Any = 1e-5):
    """The function that `build` makes of a library: ours is JAX's, however it is run."""
    ours, theirs = build(ft, fnp), jax.jit(build(jax, jnp), compiler_options=QUICK)(*args)
    if eager:
        assert_same(ours(*args), theirs, tolerance)
    assert_same(ft.jit(ours)(*args), theirs, tolerance)
    interpreted = ft.interpret(ft.make_ir(ours)(*args), *args)
    assert_close(interpreted, jax.tree_util.tree_leaves(theirs), tolerance)


@jax.tree_util.register_pytree_node_class
class Pair:
    """A registered class with static data."""

    def __init__(self, first: Any, second: Any, name: str = "pair"):
        self.first, self.second, self.name = first, second, name

    def tree_flatten(self) -> tuple:
        return (self.first, self.second), self.name

    @classmethod
    def tree_unflatten(cls, name: str, children: Any) -> Any:
        return cls(*children, name)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    """A dataclass pytree with one static field."""

    w: Any
    b: Any
    name: str = dataclasses.field(metadata={"static": True}, default="layer")


PARAMS = {"w": A, "b": [X, None, (onp.float32(2.0),)], "empty": (), "pair": Pair(X, {"a": V})}


def pytree_loss(L: Any, np: Any) -> Callable[..., Any]:
    def loss(p: Any, x: Any) -> Any:
        y = np.tanh(x @ p["w"] + p["b"][0]) * p["b"][2][0]
        return np.sum(y * p["pair"].first * p["pair"].second["a"])

    return loss


def dataclass_loss(L: Any, np: Any) -> Callable[..., Any]:
    return lambda layer, x: np.sum(np.sin(x @ layer.w + layer.b) ** 2)


ROWS = {
    row.fields[0]: (row.function("L, np", globals()), eval(row.fields[1]))
    for row in rows(TABLE, "arguments and results")
}


# Derivatives with respect to y of functions that give x alone, or x beside something of y.
_INNER: dict[str, Callable[..., Any]] = {
    "jvp": lambda L, f: L.jvp(f, (3.0,), (1.0,))[1],
    "grad": lambda L, f: L.grad(lambda y: sum(f(y)))(3.0),
    "vjp": lambda L, f: L.vjp(f, 3.0)[1]((1.0, 1.0, 1.0)),
    "linearize": lambda L, f: L.linearize(f, 3.0)[1](1.0),
    "jacfwd": lambda L, f: L.jacfwd(f)(3.0),
}
_OUTER: dict[str, Callable[..., Any]] = {
    "jvp": lambda L, f: lambda v: L.jvp(f, (v,), (1.0,)),
    "grad": lambda L, f: L.grad(lambda x: sum(f(x))),
    "linearize": lambda L, f: lambda v: L.linearize(f, v)[1](1.0),
}


def _returned(inner: str, outer: str) -> Callable[[Any, Any], Callable[[Any], Any]]:
    def build(L: Any, np: Any) -> Callable[[Any], Any]:
        def f(x: Any) -> list[Any]:
            made = _INNER[inner](L, lambda y: (x, y * x, x * x))
            return [x * z for z in jax.tree_util.tree_leaves(made)]

        return _OUTER[outer](L, f)

    return build


CLOSURES: dict[str, Callable[[Any, Any], Callable[[Any], Any]]] = {
    **functions(TABLE, "closures", "L, np", globals()),
    **{
        f"{outer} of {inner} of another's variable": _returned(inner, outer)
        for inner in _INNER
        for outer in _OUTER
    },
}


def newton(L: Any, np: Any) -> Callable[[Any], Any]:
    def root(a: Any) -> Any:
        x = a
        while abs(x * x - a) > 1e-6:
            x = x - (x * x - a) / (2 * x)
        return x

    return root


LOOKING = functions(TABLE, "values", "L, np", globals())

# What JAX does not answer under differentiation, with what it is at 2.5.
LOOKING_FURTHER: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "float": (lambda x: x * float(x), lambda x: x * 2.5),
    "int": (lambda x: x ** int(x), lambda x: x**2),
    "complex": (lambda x: x * complex(x).real, lambda x: x * 2.5),
    "range": (lambda x: sum(x * i for i in range(int(x) + 2)), lambda x: x * 6.0),
    "item": (lambda x: x * x.item(), lambda x: x * 2.5),
    "tolist": (lambda x: x * x.tolist(), lambda x: x * 2.5),
    "numpy": (lambda x: x * float(onp.asarray(ft.lax.stop_gradient(x))), lambda x: x * 2.5),
    "format": (lambda x: x * len(f"{x:.2f}"), lambda x: x * 4),
}
