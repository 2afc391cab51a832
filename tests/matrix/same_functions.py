"""One function by functrans and by JAX, and whether their results are the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as onp

import functrans as ft
import functrans.numpy as fnp
from tests.support.closeness import assert_close
from tests.support.versions import QUICK

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


# --- pytrees --------------------------------------------------------------------------------------


@jax.tree_util.register_pytree_node_class
class Pair:
    """A registered class with static data."""

    def __init__(self, first: Any, second: Any, name: str = "pair"):
        self.first, self.second, self.name = first, second, name

    def tree_flatten(self) -> tuple:
        return (self.first, self.second), self.name

    @classmethod
    def tree_unflatten(cls, name: str, children: Any) -> Pair:
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


ROWS: dict[str, tuple[Callable[[Any, Any], Any], tuple]] = {
    # argnums
    "grad argnums=1": (lambda L, np: L.grad(lambda x, y: np.sum(x * y * y), 1), (X, V)),
    "grad argnums=-1": (lambda L, np: L.grad(lambda x, y: np.sum(x * y * y), -1), (X, V)),
    "grad argnums=(1, 0)": (lambda L, np: L.grad(lambda x, y: np.sum(x * y * y), (1, 0)), (X, V)),
    "grad argnums=(0,)": (lambda L, np: L.grad(lambda x, y: np.sum(x * y * y), (0,)), (X, V)),
    "grad argnums=[0, -1]": (lambda L, np: L.grad(lambda x, n, y: np.sum(x * y * y) * n, [0, -1]), (X, 3, V)),
    "grad of a number": (lambda L, np: L.grad(lambda x: np.sin(x) * 2), (1.5,)),
    "grad of an unused argument": (lambda L, np: L.grad(lambda x, y: np.sum(y)), (X, V)),
    "grad has_aux": (
        lambda L, np: L.grad(lambda x: (np.sum(x * x), {"y": x + 1, "n": 3}), has_aux=True),
        (X,),
    ),
    "value_and_grad has_aux argnums=(0, 1)": (
        lambda L, np: L.value_and_grad(lambda x, y: (np.sum(x * y), (x, None, y * 2)), (0, 1), has_aux=True),
        (X, V),
    ),
    "grad keyword arguments": (
        lambda L, np: lambda x, y: L.grad(lambda a, *, b: np.sum(a * b))(x, b=y),
        (X, V),
    ),
    "grad holomorphic": (lambda L, np: L.grad(lambda z: z * z * np.sin(z), holomorphic=True), (0.5 + 1.5j,)),
    "grad of complex to real": (
        lambda L, np: L.grad(lambda z: np.sum(np.abs(z) ** 2 + np.real(z) * np.imag(z))),
        (Z,),
    ),
    "jacfwd holomorphic": (lambda L, np: L.jacfwd(lambda z: z * z, holomorphic=True), (Z,)),
    "jacrev holomorphic": (lambda L, np: L.jacrev(lambda z: z * z, holomorphic=True), (Z,)),
    # pytrees
    "grad of a pytree": (lambda L, np: L.grad(pytree_loss(L, np)), (PARAMS, X)),
    "jit(grad) of a pytree": (lambda L, np: L.jit(L.grad(L.jit(pytree_loss(L, np)))), (PARAMS, X)),
    "jvp of a pytree": (lambda L, np: lambda p, x: L.jvp(pytree_loss(L, np), (p, x), (p, x)), (PARAMS, X)),
    "per-example gradients of a pytree": (
        lambda L, np: L.vmap(L.grad(pytree_loss(L, np)), (None, 0)),
        (PARAMS, XS),
    ),
    "grad of a dataclass": (lambda L, np: L.grad(dataclass_loss(L, np)), (Layer(A, X, "first"), V)),
    "hessian of a dict": (
        lambda L, np: L.hessian(lambda p: np.sum(np.sin(p["a"]) * p["b"])),
        ({"a": X, "b": V},),
    ),
    "jacrev of a dict to a dict": (
        lambda L, np: L.jacrev(lambda p: {"y": p["a"] * p["b"], "z": [p["c"] * 2.0]}),
        ({"a": X, "b": V, "c": onp.float32(1.0)},),
    ),
    "jacfwd of a dict to a dict": (
        lambda L, np: L.jacfwd(lambda p: {"y": p["a"] * p["b"], "z": [p["c"] * 2.0]}),
        ({"a": X, "b": V, "c": onp.float32(1.0)},),
    ),
    "jacfwd argnums=(0, 1)": (lambda L, np: L.jacfwd(lambda x, y: np.sin(x) * y, (0, 1)), (X, V)),
    "jacrev argnums=(0, 1)": (lambda L, np: L.jacrev(lambda x, y: np.sin(x) * y, (0, 1)), (X, V)),
    "jacfwd has_aux": (lambda L, np: L.jacfwd(lambda x: (x * x, {"aux": np.sum(x)}), has_aux=True), (X,)),
    "jacrev has_aux": (lambda L, np: L.jacrev(lambda x: (x * x, {"aux": np.sum(x)}), has_aux=True), (X,)),
    "hessian has_aux": (lambda L, np: L.hessian(lambda x: (np.sum(x**3), np.cos(x)), has_aux=True), (X,)),
    "jacobian of a matrix": (lambda L, np: L.jacfwd(lambda x: np.sin(x) @ x), (A,)),
    "jacrev to a matrix": (lambda L, np: L.jacrev(lambda x: np.outer(x, x)), (X,)),
    "jacobian to an empty tree": (lambda L, np: L.jacfwd(lambda x: ()), (X,)),
    # vjp, jvp, linearize
    "vjp twice": (
        lambda L, np: (
            lambda x, y: [
                pullback({"a": c, "b": (x,)})
                for pullback in [L.vjp(lambda p, q: {"a": np.sin(p) * q, "b": (q,)}, x, y)[1]]
                for c in (x, 2 * y)
            ]
        ),
        (X, V),
    ),
    "vjp has_aux": (
        lambda L, np: (
            lambda x: [
                (out, pullback(x), aux)
                for out, pullback, aux in [L.vjp(lambda y: (y * y, {"s": np.sum(y)}), x, has_aux=True)]
            ]
        ),
        (X,),
    ),
    "jvp has_aux": (
        lambda L, np: lambda x: L.jvp(lambda y: (y * y, {"s": y}), (x,), (x,), has_aux=True),
        (X,),
    ),
    "jvp with a zero result": (lambda L, np: lambda x: L.jvp(lambda y: (np.ones(3), y), (x,), (x,)), (X,)),
    "linearize of two": (
        lambda L, np: (
            lambda x, y: [(out, f(x, y), f(y, y)) for out, f in [L.linearize(lambda a, b: (a * b, b), x, y)]]
        ),
        (X, V),
    ),
    "linearize has_aux": (
        lambda L, np: (
            lambda x: [
                (out, f(x), aux)
                for out, f, aux in [L.linearize(lambda a: (a * a, np.cos(a)), x, has_aux=True)]
            ]
        ),
        (X,),
    ),
    "linear_transpose": (
        lambda L, np: (
            lambda c: L.linear_transpose(lambda p: A @ p["x"] + np.sum(p["y"]), {"x": X, "y": V})(c)
        ),
        (V,),
    ),
    "linear_transpose of a function of shapes": (
        lambda L, np: (
            lambda c: L.linear_transpose(
                lambda x: np.reshape(x, (3, 2)).T[:, ::-1], jax.ShapeDtypeStruct((6,), "float32")
            )(c)
        ),
        (A[:2],),
    ),
    # vmap
    "vmap in_axes=1": (lambda L, np: L.vmap(lambda x: np.sum(x * x), 1), (XS,)),
    "vmap in_axes=-1 out_axes=1": (lambda L, np: L.vmap(lambda x: x * 2, -1, 1), (XS,)),
    "vmap in_axes=(None, 0)": (lambda L, np: L.vmap(np.dot, (None, 0)), (X, XS)),
    "vmap in_axes pytree": (
        lambda L, np: L.vmap(lambda p, x: p["a"] * p["b"] + x, ({"a": 0, "b": None}, None)),
        ({"a": XS, "b": X}, V),
    ),
    "vmap in_axes prefix": (
        lambda L, np: L.vmap(lambda p, x: p["a"] * p["b"] + x, (0, None)),
        ({"a": XS, "b": XS}, V),
    ),
    "vmap in_axes None for a pytree": (
        lambda L, np: L.vmap(lambda p, x: p["a"] * p["b"] + x, (None, 0)),
        ({"a": X, "b": V}, XS),
    ),
    "vmap out_axes pytree": (
        lambda L, np: L.vmap(
            lambda x: {"a": x, "b": (np.sum(x), np.outer(x, x))}, out_axes={"a": 1, "b": (0, -1)}
        ),
        (XS,),
    ),
    "vmap out_axes None": (lambda L, np: L.vmap(lambda x: (x, np.ones(2)), out_axes=(0, None)), (XS,)),
    "vmap of a constant": (lambda L, np: L.vmap(lambda x: np.ones(2)), (XS,)),
    "vmap of a closed-over value": (lambda L, np: lambda x: L.vmap(lambda y: x)(XS), (X,)),
    "vmap of the identity": (lambda L, np: L.vmap(lambda x: x, 1, 0), (XS,)),
    "vmap axis_size": (lambda L, np: L.vmap(lambda: np.ones(3), axis_size=4), ()),
    "vmap axis_size with None": (lambda L, np: L.vmap(lambda x: x + 1, None, axis_size=2), (X,)),
    "vmap keyword arguments": (lambda L, np: lambda x: L.vmap(lambda a, b: a * b, (None,))(X, b=x), (XS,)),
    "vmap of numbers": (lambda L, np: lambda x: L.vmap(lambda a, b: a * b, (0, None))(x, 2.0), (X,)),
    "vmap of integers": (lambda L, np: L.vmap(lambda i: np.asarray(X)[i] * i), (onp.array([2, 0, 1, 1]),)),
    "vmap with both axes": (lambda L, np: L.vmap(L.vmap(lambda x, y: x * y, (None, 0)), (0, None)), (X, V)),
    "vmap of a registered class": (
        lambda L, np: L.vmap(lambda p: Pair(p.second, p.first * 2, p.name)),
        (Pair(XS, XS, "n"),),
    ),
    # weak types
    "weak types": (
        lambda L, np: lambda x: (x, x * 2, 3.0, np.sin(1.0), x.astype("float16") * 2, x > 0, 1),
        (X,),
    ),
    "weak argument": (lambda L, np: lambda x, n: (x * n, x + 1, n * n, n / 2), (1.5, 2)),
    "weak jvp": (lambda L, np: lambda x: L.jvp(lambda y: y * y, (x,), (1.0,)), (1.5,)),
    "weak vjp": (lambda L, np: lambda x: L.vjp(lambda y: y * y, x)[1](1.0), (1.5,)),
    "weak vmap": (lambda L, np: lambda x: L.vmap(lambda y: (y * 2.0, 2.0, x))(X), (1.5,)),
}


# --- perturbation confusion and closures ----------------------------------------------------------

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
    "Siskind and Pearlmutter": lambda L, np: L.grad(lambda x: x * L.grad(lambda y: x + y)(1.0)),
    "with jvp inside": lambda L, np: L.grad(lambda x: x * L.jvp(lambda y: x + y, (1.0,), (1.0,))[1]),
    "with jvp outside": lambda L, np: (
        lambda v: L.jvp(lambda x: x * L.grad(lambda y: x * y * y)(x), (v,), (1.0,))
    ),
    "jvp in jvp": lambda L, np: (
        lambda v: L.jvp(lambda x: x * L.jvp(lambda y: x * np.sin(y), (x,), (x,))[1], (v,), (1.0,))
    ),
    "a tangent that is traced": lambda L, np: L.grad(lambda x: L.jvp(lambda y: y * y * x, (2.0,), (x,))[1]),
    "three deep": lambda L, np: L.grad(lambda x: L.grad(lambda y: L.grad(lambda z: x * y * z * z)(x * y))(x)),
    "grad inside jit inside grad": lambda L, np: L.grad(
        lambda x: L.jit(lambda w: w * L.grad(lambda y: x * y * w)(w))(x * 2)
    ),
    "vmap inside grad": lambda L, np: L.grad(lambda x: np.sum(L.vmap(lambda y: np.sin(x * y))(X))),
    "grad inside vmap": lambda L, np: (
        lambda v: L.vmap(lambda y: L.grad(lambda x: np.sin(x * y) * v)(y * v))(X)
    ),
    "vmap in vmap": lambda L, np: lambda v: L.vmap(lambda y: L.vmap(lambda x: x * y * v)(X))(V),
    "jit closes over grad's": lambda L, np: L.grad(
        lambda x: L.jit(lambda y: y * x)(3.0) + L.jit(lambda: x * x)()
    ),
    "jit closes over vmap's": lambda L, np: lambda v: L.vmap(lambda x: L.jit(lambda y: y * x * v)(3.0))(X),
    "vjp closes over grad's": lambda L, np: L.grad(lambda x: L.vjp(lambda y: y * x * y, 3.0)[1](x)[0]),
    "pullback under another trace": lambda L, np: (
        lambda v: (lambda pullback: L.grad(lambda c: pullback(c * c)[0])(onp.float32(2.0)))(
            L.vjp(lambda y: y * y * y, v)[1]
        )
    ),
    "linear function under vmap": lambda L, np: (
        lambda v: [L.vmap(f)(X) for f in [L.linearize(lambda y: np.sin(y) * y, v)[1]]]
    ),
    "Hessian-vector product": lambda L, np: (
        lambda v: L.grad(lambda x: np.vdot(L.grad(lambda y: np.sum(y**3) * v)(x), V))(X)
    ),
    **{
        f"{outer} of {inner} of another's variable": _returned(inner, outer)
        for inner in _INNER
        for outer in _OUTER
    },
}


# --- Python that looks at values ------------------------------------------------------------------


def newton(L: Any, np: Any) -> Callable[[Any], Any]:
    def root(a: Any) -> Any:
        x = a
        while abs(x * x - a) > 1e-6:
            x = x - (x * x - a) / (2 * x)
        return x

    return root


LOOKING: dict[str, Callable[[Any, Any], Callable[[Any], Any]]] = {
    "if": lambda L, np: lambda x: x * x if x > 1 else np.sin(x),
    "while": newton,
    "bool": lambda L, np: lambda x: x * (2 if bool(x > 0) else 3),
    "index": lambda L, np: lambda x: x * [1.0, 2.0, 3.0][(x > 0).astype("int32")],
    "and": lambda L, np: lambda x: x * 2 if x > 0 and x < 10 else x,
    "min": lambda L, np: lambda x: max(x, 2 * x, 1.0),
    "iteration": lambda L, np: lambda x: sum(y * y for y in np.stack([x, 2 * x])),
    "recursion": lambda L, np: lambda x: (lambda f: f(f, x))(lambda f, y: y if y > 100 else f(f, y * y + 1)),
}

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
