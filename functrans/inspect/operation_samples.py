"""Small functions that together use every primitive, for the doctor to compare on each device.

`samples()` yields (name, function, operands). Elementwise primitives are found by their class; the
others are used through the public functions that a user would call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from functrans import lax as _lax
from functrans import nn, random
from functrans import numpy as _jnp
from functrans.api import callbacks
from functrans.api.checkpoint import checkpoint
from functrans.api.custom_rules import custom_jvp, custom_vjp, custom_vmap
from functrans.api.derivatives import grad, jvp, linearize
from functrans.api.jit import jit
from functrans.api.vmap import vmap
from functrans.errors import FunctransError
from functrans.flags import flags
from functrans.ir.program import PRIMITIVES
from functrans.primitives.calls.captured import constant
from functrans.primitives.elementwise.families import Elementwise
from functrans.primitives.random.bits import threefry2x32
from functrans.trace import typeof

lax: Any = _lax  # whose names are mostly JAX's
jnp: Any = _jnp
linalg: Any = lax.linalg
Sample = tuple[str, Callable[..., Any], tuple[Any, ...]]

_RNG = np.random.default_rng(0)
X = _RNG.uniform(0.1, 0.9, (4, 4)).astype("float32")
Y = _RNG.uniform(0.1, 0.9, (4, 4)).astype("float32")
Z = (X + 1j * Y).astype("complex64")
N = _RNG.integers(-9, 9, (4, 4)).astype("int32")
V = X[0]
SPD = (X @ X.T + 4 * np.eye(4)).astype("float32")

# Operands of operations that are not defined between 0.1 and 0.9.
_DOMAINS: dict[str, tuple[Any, ...]] = {
    "acosh": (X + 1,),
    "zeta": (X + 2, Y + 1),
    "polygamma": (np.round(X * 3), Y + 1),
}


def samples() -> Iterator[Sample]:
    """Yield every sample, single operations first."""
    for name, primitive in sorted(PRIMITIVES.items()):
        if isinstance(primitive, Elementwise):
            operands = _DOMAINS.get(name) or _operands(primitive)
            if operands:
                yield name, primitive, operands
    for name, (function, operands) in _SAMPLES.items():
        yield name, function, operands


def _operands(primitive: Any) -> tuple[Any, ...]:
    """Return operands that a primitive accepts without parameters; () if there are none."""
    for pool in ((X, Y, X + Y), (Z, X + Z, Z), (N, N + 3, N), (N > 0, N < 3, N > 3)):
        for n in (1, 2, 3):
            try:
                primitive.result_types([typeof(x) for x in pool[:n]], {})
            except (FunctransError, TypeError):
                continue
            return pool[:n]
    return ()


def _each(module: Any, names: str, *operands: Any) -> list[Any]:
    """Apply the functions of a module with these names."""
    return [getattr(module, name)(*operands) for name in names.split()]


def _reduce(op: Callable[..., Any], x: Any, init: Any) -> Any:
    return lax.reduce_window(x, init, op, (2, 2), (1, 1), "VALID")


def _maxima(x: Any) -> Any:
    return _reduce(lax.max, x, -np.inf)


_own_jvp: Any = custom_jvp(lambda x: x * x)
_own_jvp.defjvp(lambda primals, tangents: (primals[0] ** 2, 2 * primals[0] * tangents[0]))
_own_vjp: Any = custom_vjp(lambda x: x * x)
_own_vjp.defvjp(lambda x: (x * x, x), lambda x, ct: (2 * x * ct,))
_own_vmap: Any = custom_vmap(lambda x: x * x)
_own_vmap.def_vmap(lambda size, mapped, x: (x * x, True))


def _doubled(x: Any) -> Any:
    return lax.while_loop(lambda v: v < 9.0, lambda v: v * 2, x)


@checkpoint
def _checkpointed(x: Any) -> Any:
    return jnp.sum(jnp.sin(checkpoint_name(x, "x")))


_SAMPLES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    # arrays
    "clamp": (lambda x: lax.clamp(0.2, x, 0.7), (X,)),
    "select_n": (lambda x, y: lax.select(x < y, x, y), (X, Y)),
    "integer_pow": (lambda x: lax.integer_pow(x, 3), (X,)),
    "round": (lambda x: lax.round(9 * x), (X,)),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 5, 7), (X,)),
    "convert_element_type": (lambda x: (x.astype("bfloat16"), (9 * x).astype("int32")), (X,)),
    "bitcast_convert_type": (lambda x: lax.bitcast_convert_type(x, "int32"), (X,)),
    "copy": (jnp.copy, (X,)),
    "optimization_barrier": (lambda x: lax.optimization_barrier(x), (X,)),
    "reductions": (
        lambda x, n: (
            _each(jnp, "sum prod max min argmax argmin", x, 0),
            _each(jnp, "all any", x > 0.5, 0),
            lax.reduce_xor(n, (0,)),
        ),
        (X, N),
    ),
    "cumulative": (
        lambda x: (_each(lax, "cumsum cumprod cummax cummin cumlogsumexp", x), nn.softmax(x)),
        (X,),
    ),
    "shapes": (
        lambda x: (
            x.T,
            x.reshape(2, 8),
            lax.broadcast_in_dim(x, (2, 4, 4), (1, 2)),
            x[::2, 1:],
            lax.squeeze(x[:1], (0,)),
            lax.rev(x, (0,)),
            lax.pad(x, np.float32(0), [(1, 1, 1)] * 2),
            jnp.concatenate([x, x]),
            lax.split(x, (1, 3)),
            lax.iota("float32", 5),
        ),
        (X,),
    ),
    "indexing": (
        lambda x, n: (
            x[n[0]],
            lax.dynamic_slice(x, (n[0, 0], 1), (2, 2)),
            lax.dynamic_update_slice(x, 2 * x[:2, :2], (n[0, 1], 0)),
            x.at[n[0]].set(1.0),
            _each(x.at[n[0]], "add multiply max min subtract", x),
        ),
        (X, N % 4),
    ),
    "sorting": (lambda x: (jnp.sort(x), lax.top_k(x, 2)), (X,)),
    "contractions": (
        lambda x, y: (
            x @ y,
            jnp.einsum("ij,ij->i", x, y),
            lax.conv_general_dilated(x[None, None], y[None, None, :2, :2], (1, 1), "SAME"),
        ),
        (X, Y),
    ),
    "windows": (
        lambda x: (
            _reduce(lax.add, x, 0.0),
            _maxima(x),
            _reduce(lax.min, x, np.inf),
            _reduce(lambda a, b: a * b + 0 * a, x, 1.0),
        ),
        (X,),
    ),
    "derivatives of windows": (
        lambda x, y: (grad(lambda x: jnp.sum(_maxima(x) ** 2))(x), jvp(_maxima, (x,), (y,))),
        (X, Y),
    ),
    "fft": (lambda x: (jnp.fft.fft(x), jnp.fft.rfft(x)), (X,)),
    "segments": (lambda x: jax.ops.segment_sum(x, np.array([0, 1, 1, 0]), 2), (X,)),
    # linear algebra
    "cholesky": (linalg.cholesky, (SPD,)),
    "eigh": (linalg.eigh, (SPD,)),
    "eig": (lambda x: jnp.linalg.eigvals(x), (SPD,)),
    "qr": (linalg.qr, (X,)),
    "svd": (linalg.svd, (X,)),
    "lu": (linalg.lu, (X,)),
    "pivots": (lambda p: linalg.lu_pivots_to_permutation(p, 4), (np.array([2, 1, 3, 3], "int32"),)),
    "triangular_solve": (lambda a, b: linalg.triangular_solve(a, b, left_side=True, lower=True), (SPD, Y)),
    "tridiagonal_solve": (lambda d, b: linalg.tridiagonal_solve(d * 0.1, d + 1.0, d * 0.1, b), (V, Y)),
    # random numbers, and functions that draw or invert them
    "keys": (
        lambda seed: [
            random.key_data(k)
            for k in [random.key(seed), *random.split(random.key(seed)), random.fold_in(random.key(seed), 3)]
        ],
        (np.int32(1),),
    ),
    "bits": (lambda seed: random.bits(random.key(seed), (5,)), (np.int32(1),)),
    "counters": (lambda key: threefry2x32(key, key, key, key), (np.arange(4, dtype="uint32"),)),
    "gamma": (
        lambda a: (
            random.gamma(random.key(0), a),
            grad(lambda a: jnp.sum(random.gamma(random.key(0), a)))(a),
        ),
        (V + 1,),
    ),
    "incomplete": (
        lambda x, y: (
            _each(lax, "igamma igammac", x + 1, y),
            lax.betainc(x + 1, y + 1, y),
            jvp(lambda a: lax.igamma(a, y), (x + 1,), (y,)),
        ),
        (V, Y[0]),
    ),
    # operations that hold programs
    "jit": (jit(lambda x: x + 1), (X,)),
    "scan": (lambda x: lax.scan(lambda c, x: (c * x, c), V, x), (X,)),
    "while": (_doubled, (X[0, 0],)),
    "while, linearized": (lambda x: linearize(_doubled, x)[1](x), (X[0, 0],)),
    "while, backwards": (grad(_doubled), (X[0, 0],)),
    "cond": (lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x), (V,)),
    "checkpoint": (grad(_checkpointed), (X,)),
    "custom rules": (
        lambda x: (
            _own_jvp(x),
            _own_vjp(x),
            jvp(_own_jvp, (x,), (x,)),
            jvp(_own_vjp, (x,), (x,)),
            _own_vmap(x),
            grad(lambda x: jnp.sum(_own_vjp(x)))(x),
        ),
        (X,),
    ),
    "solvers": (
        lambda x: (lax.custom_linear_solve(lambda v: v * (x + 1), x, lambda f, b: b / (x + 1)),),
        (X[0, 0],),
    ),
    "callbacks": (
        lambda x: (
            callbacks.debug_callback(lambda x: None, x),
            callbacks.pure_callback(lambda x: 2 * np.asarray(x), X[0], x),
            callbacks.io_callback(lambda x: 3 * np.asarray(x), X[0], x),
        )[1:],
        (V,),
    ),
    "platforms": (lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=lambda x: jnp.sin(x)), (X,)),
    "layouts": (
        lambda x: lax.with_sharding_constraint(
            x, jax.sharding.SingleDeviceSharding(flags.jax_default_device or jax.devices()[0])
        ),
        (X,),
    ),
    "constants": (lambda x: x + constant(values=(1.0, 2.0, 3.0, 4.0), shape=(4,), dtype=X.dtype), (V,)),
    "vmap": (vmap(lambda x: lax.cond(x[0] > 0.5, jnp.sin, jnp.cos, x)), (X,)),
}
