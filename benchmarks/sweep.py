"""`python -m benchmarks.sweep [--side N] [WORD ...]`: 203 functions of `jnp`, `lax`, `nn` and
`jax.scipy`, and their gradients, by `ft.jit` and by `jax.jit` in turn.

Prints the rows that take more than a tenth longer than JAX's, also when measured again, and the mean. The
matrices have N x N numbers, by default 256. With words, only functions whose names contain one of them.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn
from jax.scipy import linalg, signal, special, stats

import functrans as ft
from benchmarks.compared import difference
from benchmarks.timing import Row, pair, table

Case = tuple[str, Callable[..., Any], tuple[Any, ...]]

SLOW = 1.1  # of JAX's time
DIFFERENCE = 1e-3  # of the largest number; in bfloat16 its precision
SHORT = 0.03  # ms; a shorter call is one of the dispatch, not of the function
REPEATS, AGAIN = 25, 61

SMOOTH = "abs exp exp2 expm1 tanh sinh cosh arcsinh sin cos tan arctan sign floor square cbrt sinc i0"
INSIDE = "log log1p log2 log10 sqrt arcsin arccos arctanh reciprocal"
OF_TWO = "add subtract multiply divide power maximum minimum arctan2 hypot fmod remainder copysign logaddexp"
ACTIVATIONS = """relu relu6 sigmoid softplus silu gelu elu selu celu leaky_relu hard_tanh hard_sigmoid
log_sigmoid mish soft_sign softmax log_softmax logsumexp standardize squareplus glu"""
OF_AXIS = "sum mean var std max min median cumsum sort argsort argmax flip ptp nansum diff gradient"
SPECIAL = "entr logit ndtr ndtri i1e erfinv digamma gammaln"
NHWC = ("NHWC", "HWIO", "NHWC")


class Numbers:
    """Makes the arguments: arrays of normal numbers, or of numbers between 0.1 and 0.9."""

    def __init__(self, side: int):
        self.rng: np.random.Generator = np.random.default_rng(0)
        self.square: Any = self.normal(side, side)
        self.other: Any = self.normal(side, side)
        self.row: Any = self.normal(side * side)
        self.inside: Any = self.between(side * side)

    def normal(self, *shape: int) -> Any:
        return jnp.asarray(self.rng.normal(size=shape), "float32")

    def between(self, *shape: int) -> Any:
        return jnp.asarray(self.rng.uniform(0.1, 0.9, shape), "float32")

    def places(self, count: int, below: int) -> Any:
        return jnp.asarray(self.rng.integers(0, below, count), "int32")


def elementwise(of: Numbers) -> Iterator[Case]:
    for name in SMOOTH.split():
        yield f"jnp.{name}", getattr(jnp, name), (of.row,)
    for name in INSIDE.split():
        yield f"jnp.{name}", getattr(jnp, name), (of.inside,)
    for name in OF_TWO.split():
        yield f"jnp.{name}", getattr(jnp, name), (of.inside, of.inside[::-1])
    for name in SPECIAL.split():
        yield f"special.{name}", getattr(special, name), (of.inside,)
    for name in ACTIVATIONS.split():
        yield f"nn.{name}", getattr(nn, name), (of.square,)
    yield "where", lambda a, b: jnp.where(a > b, a * b, a - b), (of.square, of.other)
    yield "clip", lambda a: jnp.clip(a, -1, 1), (of.square,)
    yield "polyval", lambda a: jnp.polyval(jnp.arange(6.0), a), (of.row,)
    yield "interp", lambda x: jnp.interp(x, jnp.linspace(0, 1, 99), jnp.linspace(0, 1, 99) ** 2), (of.inside,)
    yield "t.logpdf", lambda x: stats.t.logpdf(x, 3.0), (of.row,)
    yield "beta.logpdf", lambda x: stats.beta.logpdf(x, 2.0, 3.0), (of.inside,)
    yield "adam", lambda p, g: p - 1e-3 * g / (jnp.sqrt(0.001 * g * g) + 1e-8), (of.square, of.other)
    yield "complex product", lambda a, b: jnp.abs((a + 1j * b) * (b - 1j * a)), (of.square, of.other)
    for name in ("exp", "tanh", "sqrt"):
        yield f"jnp.{name}, bfloat16", getattr(jnp, name), (of.inside.astype("bfloat16"),)


def along_axes(of: Numbers) -> Iterator[Case]:
    for axis in (0, 1):
        for name in OF_AXIS.split():
            yield f"jnp.{name}, axis {axis}", partial(getattr(jnp, name), axis=axis), (of.square,)
        for name in ("cummax", "cumlogsumexp"):
            yield f"lax.{name}, axis {axis}", partial(getattr(lax, name), axis=axis), (of.square,)
        for name in ("prod", "cumprod"):
            yield f"jnp.{name}, axis {axis}", partial(getattr(jnp, name), axis=axis), (1 + of.square / 99,)
    x, image = of.square, of.normal(8, 32, 32, 16)
    yield "norm", lambda a: jnp.linalg.norm(a, axis=1), (x,)
    yield "layer norm", lambda a: (a - a.mean(-1, keepdims=True)) * lax.rsqrt(a.var(-1, keepdims=True)), (x,)
    yield "batch norm", lambda a: (a - a.mean((0, 1, 2))) * lax.rsqrt(a.var((0, 1, 2))), (image,)
    yield "rms norm", lambda a: a * lax.rsqrt(jnp.mean(a * a, -1, keepdims=True)), (x,)
    yield "sum, bfloat16", lambda a: a.sum(1), (x.astype("bfloat16"),)
    yield "softmax, bfloat16", nn.softmax, (x.astype("bfloat16"),)
    yield "top_k", lambda a: lax.top_k(a, 8)[0], (x,)
    yield "quantile", lambda a: jnp.quantile(a, 0.3, axis=1), (x,)
    yield "cov", jnp.cov, (of.normal(64, 512),)
    yield "average", lambda a, w: (lambda f: (1 - f) * a + f * w)(nn.sigmoid(a)), (x, of.other)
    yield "associative_scan", partial(lax.associative_scan, lambda a, b: a + b - 0.1 * a * b), (x,)
    yield "scan", lambda a: lax.scan(lambda c, row: (jnp.tanh(0.9 * c + row), c), a[0], a)[1], (x,)


def moves(of: Numbers) -> Iterator[Case]:
    x, y, side = of.square, of.other, len(of.square)
    at = of.places(4096, side)
    yield "rows", lambda a: a[at], (x,)
    yield "take_along_axis", lambda a: jnp.take_along_axis(a, jnp.argsort(a, 1), 1), (x,)
    yield "at add", lambda a: a.at[at].add(1.5 * a[at]), (x,)
    yield "at set", lambda a: a.at[10:50, ::2].set(a[10:50, 1::2]), (x,)
    yield "at multiply", lambda a: a.at[at[:200]].multiply(2.0), (x,)
    yield "one_hot", lambda a: nn.one_hot(at % 64, 64) @ a[:64], (x,)
    yield "segment_sum", lambda a: jax.ops.segment_sum(a[at], at % 64, 64), (x,)
    yield "segment_max", lambda a: jax.ops.segment_max(a[at], at % 64, 64), (x,)
    yield "roll", lambda a: jnp.roll(a, 3, 0) * jnp.roll(a, -2, 1), (x,)
    for mode in ("constant", "edge", "reflect"):
        yield f"pad {mode}", lambda a, mode=mode: jnp.pad(a, 3, mode=mode), (x,)
    yield "concatenate", lambda a, b: jnp.concatenate([a, 2 * b, a], 1), (x, y)
    yield "stack", lambda a, b: jnp.stack([a, b, a + b], -1), (x, y)
    yield "tile", lambda a: jnp.tile(a[:64], (2, 3)), (x,)
    yield "repeat", lambda a: jnp.repeat(a, 3, 0), (x,)
    yield "transpose", lambda a: a.T * 2 + a, (x,)
    yield "tril", lambda a: jnp.tril(a) @ a, (x,)
    yield "diag of a product", lambda a, b: jnp.diag(a @ b), (x, y)
    yield "trace", lambda a: jnp.trace(a) * a, (x,)
    yield "split", lambda a: sum(jnp.split(a, 4, 1)), (x,)
    yield "resize", lambda a: jax.image.resize(a, (4, 96, 96, 8), "bilinear"), (of.normal(4, 64, 64, 8),)
    yield "uniform", lambda a: a * jax.random.uniform(jax.random.key(1), a.shape), (x,)
    yield "normal", lambda a: a + jax.random.normal(jax.random.key(0), a.shape), (x,)
    yield "permutation", lambda a: jax.random.permutation(jax.random.key(1), a), (x,)


def products(of: Numbers) -> Iterator[Case]:
    x, y, threes = of.normal(256, 256), of.normal(256, 256), of.normal(20_000, 3)
    heads, image = of.normal(4, 64, 4, 16), of.normal(8, 32, 32, 16)
    yield "matmul", jnp.matmul, (x, y)
    yield "matrix by vector", jnp.matmul, (x, y[0])
    yield "vector by matrix", jnp.matmul, (x[0], y)
    yield "outer", jnp.outer, (x[0], y[0])
    yield "vdot", jnp.vdot, (x, y)
    yield "batched matmul", jnp.matmul, (of.normal(16, 64, 64), of.normal(16, 64, 64))
    yield "small matmuls", jnp.matmul, (of.normal(20_000, 4, 4), of.normal(20_000, 4, 4))
    yield "kron", jnp.kron, (of.normal(16, 16), of.normal(16, 16))
    yield "cross", jnp.cross, (threes, threes[::-1])
    yield "distances", lambda a: jnp.exp(-((a[:, None] - a) ** 2).sum(-1)), (of.normal(512, 8),)
    yield "attention", lambda q: nn.dot_product_attention(q, q, q), (heads,)
    yield "matmul, bfloat16", jnp.matmul, (x.astype("bfloat16"), y.astype("bfloat16"))
    for name, kernel, how in (
        ("3 x 3", (3, 3, 16, 32), {}),
        ("3 x 3, strides 2", (3, 3, 16, 32), {"window_strides": (2, 2)}),
        ("3 x 3, dilated", (3, 3, 16, 16), {"rhs_dilation": (2, 2)}),
        ("1 x 1", (1, 1, 16, 64), {}),
        ("depthwise", (3, 3, 1, 16), {"feature_group_count": 16}),
        ("in 4 groups", (3, 3, 4, 16), {"feature_group_count": 4}),
    ):
        options: dict[str, Any] = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": NHWC}
        conv = partial(lax.conv_general_dilated, **(options | how))
        yield f"convolution, {name}", conv, (image, of.normal(*kernel))
    conv = partial(lax.conv_general_dilated, window_strides=(1, 1), padding="SAME")
    yield "convolution, NCHW", conv, (of.normal(8, 16, 32, 32), of.normal(32, 16, 3, 3))
    for name, start, fold in (("max", -jnp.inf, lax.max), ("sum", 0.0, lax.add)):
        for size in (2, 3):
            pool = partial(lax.reduce_window, init_value=start, computation=fold, padding="SAME")
            how = {"window_dimensions": (1, size, size, 1), "window_strides": (1, 2, 2, 1)}
            yield f"pool {name}, {size} x {size}", partial(pool, **how), (image,)


def algebra(of: Numbers) -> Iterator[Case]:
    x = of.normal(256, 256)
    positive, tall = x @ x.T / 256 + jnp.eye(256), of.normal(128, 64)
    yield "cholesky", jnp.linalg.cholesky, (positive,)
    yield "solve", jnp.linalg.solve, (positive, x)
    yield "inv", jnp.linalg.inv, (positive,)
    yield "slogdet", lambda a: jnp.linalg.slogdet(a)[1] * a, (positive,)
    yield "qr", lambda a: jnp.linalg.qr(a)[1], (tall,)
    yield "svd", lambda a: jnp.linalg.svd(a, full_matrices=False)[1], (tall,)
    yield "eigh", lambda a: jnp.linalg.eigh(a)[0], (positive[:96, :96],)
    yield "solve_triangular", partial(linalg.solve_triangular, lower=True), (jnp.tril(positive), x)
    yield "expm", linalg.expm, (positive[:64, :64],)
    yield "lstsq", lambda a, b: jnp.linalg.lstsq(a, b)[0], (tall, of.normal(128, 4))
    many = 3 * jnp.eye(4) + 0.1 * of.normal(2000, 4, 4)
    for name in ("cholesky", "inv", "det"):
        yield f"{name} of 2,000", getattr(jnp.linalg, name), (many,)
    yield "solve of 2,000", jnp.linalg.solve, (many, of.normal(2000, 4, 1))
    yield "eigh of 2,000", lambda a: jnp.linalg.eigh(a + a.mT)[0], (many,)
    yield "qr of 2,000", lambda a: jnp.linalg.qr(a)[1], (many,)


def transforms(of: Numbers) -> Iterator[Case]:
    for name in ("fft", "fft2", "rfft"):
        yield name, lambda a, name=name: jnp.abs(getattr(jnp.fft, name)(a)), (of.square,)
    yield "irfft", lambda a: jnp.fft.irfft(a + 0j), (of.square,)
    yield "convolve", jnp.convolve, (of.normal(4096), of.normal(64))
    yield "correlate", jnp.correlate, (of.normal(4096), of.normal(64))
    yield "fftconvolve", partial(signal.fftconvolve, mode="same"), (of.square, of.normal(16, 16))


GROUPS = (elementwise, along_axes, moves, products, algebra, transforms)


def gradient(f: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return the gradient, by all `count` arguments, of the sum of the squares of the results' real parts."""
    return jax.grad(lambda *args: jnp.sum(jnp.real(f(*args)).astype("float32") ** 2), tuple(range(count)))


def is_slow(row: Row) -> bool:
    return row.ratio > SLOW and row.peer > SHORT


def measured(words: list[str], side: int) -> Iterator[Row]:
    """Yield a row for each value and gradient, for a slow one that of a second measurement; check that the
    answers agree."""
    of = Numbers(side)
    for name, f, args in (case for group in GROUPS for case in group(of)):
        if words and not any(word in name for word in words):
            continue
        for kind, g in (("value", f), ("gradient", gradient(f, len(args)))):
            ours, theirs = (partial(jit(lambda *a, g=g: g(*a)), *args) for jit in (ft.jit, jax.jit))
            if not (off := difference(ours(), theirs())) <= max(DIFFERENCE, jnp.finfo(args[0].dtype).eps):
                print(f"{name}, {kind}: the answers differ by {off:.0e} of the largest number")
            row = pair(f"{name}, {kind}", ours, theirs, repeats=REPEATS)
            if is_slow(row):
                row = pair(row.name, ours, theirs, repeats=AGAIN)
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--side", type=int, default=256)
    given = parser.parse_args()
    rows = list(measured(given.words, given.side))
    mean = statistics.geometric_mean([row.ratio for row in rows])
    slow = [row for row in rows if is_slow(row)]
    print(f"JAX {jax.__version__}: geometric mean of {len(rows)} rows {mean:.3f}, {len(slow)} above {SLOW}")
    print(table(slow))


if __name__ == "__main__":
    main()
