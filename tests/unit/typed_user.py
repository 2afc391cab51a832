"""What a user's checker and editor see of us. It is not run: `test_types.py` gives it to mypy.

`# is T` after a line: the type that it reveals there. `# wrong: code`: a call that must be an
error. Any other error fails the test.
"""

import functools
from typing import reveal_type

import functrans as ft
import functrans.numpy as jnp
from functrans import lax, tree
from functrans.typing import Array, ArrayLike, Axis, DTypeLike, PyTree, Shape


def loss(w: Array, x: Array, n: int = 1, *, scale: float = 1.0) -> Array:
    return jnp.sum(w * x) * n * scale


def with_aux(w: Array, name: str) -> tuple[Array, str]:
    return jnp.sum(w), name


W = jnp.ones(3)

fast = ft.jit(loss)
reveal_type(fast)  # is Jitted[[w: Array, x: Array, n: int =, *, scale: float =], Array]
reveal_type(fast(W, W, scale=2.0))  # is Array
fast(W)  # wrong: call-arg
fast(W, W, "two")  # wrong: arg-type
fast(W, W, step=1)  # wrong: call-arg
reveal_type(fast.program(W, ft.ShapeDtypeStruct((3,), "float32")))  # is Program
reveal_type(fast.lower(W, W))  # is Lowered
reveal_type(fast.trace(W, W))  # is Traced
reveal_type(fast.cache_size())  # is int
fast.clear_cache()
ft.jit(loss, static_argnum=0)  # wrong: call-overload


@ft.jit
def plain(x: Array) -> Array:
    return x


@ft.jit(static_argnums=1, donate_argnums=0)
def chosen(x: Array, n: int) -> Array:
    return x * n


@functools.partial(ft.jit, static_argnames="n")
def partially(x: Array, n: int) -> Array:
    return x * n


class Model:
    @ft.jit
    def step(self, x: Array) -> Array:
        return x


reveal_type(plain)  # is Jitted[[x: Array], Array]
reveal_type(chosen)  # is Jitted[[x: Array, n: int], Array]
reveal_type(Model().step)  # is def (x: Array) -> Array
chosen(W, "two")  # wrong: arg-type
partially(W, 2)

reveal_type(ft.grad(loss))  # is def (w: Array, x: Array, n: int =, *, scale: float =) -> Any
ft.grad(loss)(W, W, scale=1.0)
ft.grad(loss)(W)  # wrong: call-arg
ft.grad(W)  # wrong: arg-type
reveal_type(ft.value_and_grad(loss)(W, W))  # is tuple[Array, Any]
reveal_type(ft.value_and_grad(with_aux, has_aux=True)(W, "a"))  # is tuple[tuple[Array, str], Any]
reveal_type(ft.vjp(loss, W, W))  # is tuple[Array, Pullback]
reveal_type(ft.vjp(with_aux, W, "a", has_aux=True))  # is tuple[Array, Pullback, str]
reveal_type(ft.jvp(loss, (W, W), (W, W)))  # is tuple[Array, Array]
reveal_type(ft.linearize(loss, W, W)[1].program)  # is Program
ft.jacfwd(loss)(W, "x")  # wrong: arg-type
ft.hessian(loss)(W, W, 1)

reveal_type(ft.vmap(loss))  # is def (w: Array, x: Array, n: int =, *, scale: float =) -> Array
reveal_type(ft.checkpoint(loss)(W, W))  # is Array
reveal_type(ft.named_call(loss, name="loss")(W, W))  # is Array
reveal_type(ft.jit(ft.grad(ft.vmap(plain))))  # is Jitted[[x: Array], Any]
ft.vmap(plain)(W, W)  # wrong: call-arg
reveal_type(ft.make_ir(loss)(W, W))  # is Program
reveal_type(ft.make_jaxpr(loss, return_shape=True)(W, W))  # is tuple[Program, Any]
ft.jit(ft.vmap(ft.grad(lambda x: jnp.sum(x))))(W)
tree.map(ft.vmap(lambda x: x + 1), [W])


@ft.custom_jvp
def own(x: Array, n: int) -> Array:
    return x


@functools.partial(ft.custom_vjp, nondiff_argnums=(1,))
def ours(x: Array, n: int) -> Array:
    return x


@own.defjvp
def own_rule(primals: tuple[Array, int], tangents: tuple[Array, int]) -> tuple[Array, Array]:
    return own(*primals), tangents[0]


reveal_type(own(W, 1))  # is Array
own(W, "one")  # wrong: arg-type
ours(W)  # wrong: call-arg
reveal_type(own_rule((W, 1), (W, 1)))  # is tuple[Array, Array]


def mean(x: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None) -> Array:
    return jnp.mean(x, axis=axis, dtype=dtype)


def filled(shape: Shape, like: PyTree) -> PyTree:
    return tree.map(lambda leaf: jnp.full(shape, leaf, jnp.float32), like)


reveal_type(jnp.sin(2.0))  # is Array
reveal_type(jnp.where(W > 0, W, 0.0))  # is Array
reveal_type(jnp.where(W > 0))  # is tuple[Array, ...]
reveal_type(lax.exp(W) + 1.0)  # is Array
reveal_type(lax.reduce_max(W, axes=(0,)))  # is Array
mean([1.0, 2.0])  # wrong: arg-type
jnp.sum("text")  # wrong: arg-type
jnp.mean(W, axis="rows")  # wrong: arg-type
jnp.zeros("3")  # wrong: arg-type
