"""Small functions that together use every primitive, for the doctor to compare on each device.

`samples()` yields (name, function, operands). Elementwise primitives are found by their class; the
others are used through the public functions that a user would call.
"""

from __future__ import annotations

import inspect
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
# The operands of the samples, by the names of their parameters.
_OPERANDS: dict[str, Any] = {
    "x": X,
    "y": Y,
    "n": N,
    "i": N % 4,
    "v": V,
    "u": Y[0],
    "s": X[0, 0],
    "seed": np.int32(1),
    "spd": (X @ X.T + 4 * np.eye(4)).astype("float32"),
    "pivots": np.array([2, 1, 3, 3], "int32"),
    "words": np.arange(4, dtype="uint32"),
}

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
    for name, function in _SAMPLES.items():
        yield name, function, tuple([_OPERANDS[p] for p in inspect.signature(function).parameters])


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


def _doubled(s: Any) -> Any:
    return lax.while_loop(lambda s: s < 9.0, lambda s: s * 2, s)


def _gamma(a: Any) -> Any:
    return random.gamma(random.key(0), a)


@checkpoint
def _checkpointed(x: Any) -> Any:
    return jnp.sum(jnp.sin(checkpoint_name(x, "x")))


_SAMPLES: dict[str, Callable[..., Any]] = {
    # arrays
    "clamp": lambda x: lax.clamp(0.2, x, 0.7),
    "select_n": lambda x, y: lax.select(x < y, x, y),
    "integer_pow": lambda x: lax.integer_pow(x, 3),
    "round": lambda x: lax.round(9 * x),
    "reduce_precision": lambda x: lax.reduce_precision(x, 5, 7),
    "convert_element_type": lambda x: (x.astype("bfloat16"), (9 * x).astype("int32")),
    "bitcast_convert_type": lambda x: lax.bitcast_convert_type(x, "int32"),
    "copy": lambda x: jnp.copy(x),
    "optimization_barrier": lambda x: lax.optimization_barrier(x),
    "reductions": lambda x, n: (
        _each(jnp, "sum prod max min argmax argmin", x, 0),
        _each(jnp, "all any", x > 0.5, 0),
        lax.reduce_xor(n, (0,)),
    ),
    "cumulative": lambda x: (_each(lax, "cumsum cumprod cummax cummin cumlogsumexp", x), nn.softmax(x)),
    "shapes": lambda x: (
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
    "indexing": lambda x, i: (
        x[i[0]],
        lax.dynamic_slice(x, (i[0, 0], 1), (2, 2)),
        lax.dynamic_update_slice(x, 2 * x[:2, :2], (i[0, 1], 0)),
        x.at[i[0]].set(1.0),
        _each(x.at[i[0]], "add multiply max min subtract", x),
    ),
    "sorting": lambda x: (jnp.sort(x), lax.top_k(x, 2)),
    "contractions": lambda x, y: (
        x @ y,
        jnp.einsum("ij,ij->i", x, y),
        lax.conv_general_dilated(x[None, None], y[None, None, :2, :2], (1, 1), "SAME"),
    ),
    "windows": lambda x: (
        _reduce(lax.add, x, 0.0),
        _maxima(x),
        _reduce(lax.min, x, np.inf),
        _reduce(lambda a, b: a * b + 0 * a, x, 1.0),
    ),
    "derivatives of windows": lambda x, y: (
        grad(lambda x: jnp.sum(_maxima(x) ** 2))(x),
        jvp(_maxima, (x,), (y,)),
    ),
    "fft": lambda x: (jnp.fft.fft(x), jnp.fft.rfft(x)),
    "segments": lambda x: jax.ops.segment_sum(x, np.array([0, 1, 1, 0]), 2),
    # linear algebra
    "cholesky": lambda spd: linalg.cholesky(spd),
    "eigh": lambda spd: linalg.eigh(spd),
    "eig": lambda spd: jnp.linalg.eigvals(spd),
    "qr": lambda x: linalg.qr(x),
    "svd": lambda x: linalg.svd(x),
    "lu": lambda x: linalg.lu(x),
    "pivots": lambda pivots: linalg.lu_pivots_to_permutation(pivots, 4),
    "triangular_solve": lambda spd, y: linalg.triangular_solve(spd, y, left_side=True, lower=True),
    "tridiagonal_solve": lambda v, y: linalg.tridiagonal_solve(v * 0.1, v + 1.0, v * 0.1, y),
    # random numbers, and functions that draw or invert them
    "keys": lambda seed: [
        random.key_data(k)
        for k in [random.key(seed), *random.split(random.key(seed)), random.fold_in(random.key(seed), 3)]
    ],
    "bits": lambda seed: random.bits(random.key(seed), (5,)),
    "counters": lambda words: threefry2x32(words, words, words, words),
    "gamma": lambda v: (_gamma(v + 1), grad(lambda a: jnp.sum(_gamma(a)))(v + 1)),
    "incomplete": lambda u, v: (
        _each(lax, "igamma igammac", v + 1, u),
        lax.betainc(v + 1, u + 1, u),
        jvp(lambda a: lax.igamma(a, u), (v + 1,), (u,)),
    ),
    # operations that hold programs
    "jit": jit(lambda x: x + 1),
    "scan": lambda x, v: lax.scan(lambda c, x: (c * x, c), v, x),
    "while": _doubled,
    "while, linearized": lambda s: linearize(_doubled, s)[1](s),
    "while, backwards": grad(_doubled),
    "cond": lambda v: lax.cond(v[0] > 0, jnp.sin, jnp.cos, v),
    "checkpoint": grad(_checkpointed),
    "custom rules": lambda x: (
        _own_jvp(x),
        _own_vjp(x),
        jvp(_own_jvp, (x,), (x,)),
        jvp(_own_vjp, (x,), (x,)),
        _own_vmap(x),
        grad(lambda x: jnp.sum(_own_vjp(x)))(x),
    ),
    "solvers": lambda s: lax.custom_linear_solve(lambda v: v * (s + 1), s, lambda f, b: b / (s + 1)),
    "callbacks": lambda v: (
        callbacks.debug_callback(lambda v: None, v),
        callbacks.pure_callback(lambda v: 2 * np.asarray(v), V, v),
        callbacks.io_callback(lambda v: 3 * np.asarray(v), V, v),
    )[1:],
    "platforms": lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=lambda x: jnp.sin(x)),
    "layouts": lambda x: lax.with_sharding_constraint(
        x, jax.sharding.SingleDeviceSharding(flags.jax_default_device or jax.devices()[0])
    ),
    "constants": lambda v: v + constant(values=(1.0, 2.0, 3.0, 4.0), shape=(4,), dtype=V.dtype),
    "vmap": vmap(lambda x: lax.cond(x[0] > 0.5, jnp.sin, jnp.cos, x)),
}
