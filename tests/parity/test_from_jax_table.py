"""`interop.from_jax`: JAX functions as ours, compared with the originals.

Each row of `ROWS` is a JAX function with arguments. One compiled program of ours and one of JAX's
give its value, its gradient and what vmap makes of it; dtypes, weak types and shapes are equal,
values too up to rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as J
import jax.scipy as jsp
import numpy as np
import pytest
from jax import lax as L
from jax import nn as N
from jax import random as R

import functrans as ft
from functrans.interop import from_jax

X = np.linspace(0.2, 1.7, 6, dtype=np.float32).reshape(2, 3)
Y = np.array([[0.5, -1.5, 2.5], [1.0, 0.25, -0.75]], np.float32)
V = np.array([0.3, -1.2, 2.0, 0.7], np.float32)
M = np.array([[2.0, 0.3, 0.1], [0.2, 1.5, -0.4], [-0.3, 0.6, 1.8]], np.float32)
S = (M @ M.T).astype(np.float32)
I = np.array([[3, -1, 4], [1, -5, 9]], np.int32)  # noqa: E741
K = np.array([2, 0, 1], np.int32)
B = np.array([[True, False, True], [False, False, True]])
Z = (X + 1j * Y).astype(np.complex64)


class Row(NamedTuple):
    """A JAX function and its arguments; `grad`: is the gradient compared, by the float ones among
    them; `vmap`: what vmap makes of it."""

    name: str
    function: Any
    args: tuple
    grad: bool = True
    vmap: bool = True


def rows(namespace: Any, args: tuple, names: str, grad: bool = True, vmap: bool = False) -> list:
    return [Row(n, getattr(namespace, n), args, grad, vmap) for n in names.split()]


def row(name: str, function: Any, *args: Any, grad: bool = True, vmap: bool = True) -> Row:
    return Row(name, function, args, grad, vmap)


KEY = R.PRNGKey(7)

ROWS = [
    # elementwise functions of jax.numpy
    *rows(J, (X,), "sin cos tan arctan sinh cosh tanh arcsinh exp exp2 expm1 log log2 log10 log1p"),
    *rows(J, (X,), "sqrt cbrt square reciprocal negative positive fabs deg2rad rad2deg sinc"),
    *rows(J, (Y,), "abs sign floor ceil trunc rint nan_to_num i0"),
    *rows(J, (X, Y), "add subtract multiply divide maximum minimum arctan2 hypot logaddexp fmax"),
    *rows(J, (X, Y), "remainder fmod floor_divide copysign heaviside nextafter", grad=False),
    *rows(J, (X, I), "power ldexp float_power"),
    *rows(J, (I, I), "gcd lcm bitwise_and bitwise_or bitwise_xor left_shift right_shift divmod"),
    *rows(J, (Y,), "isnan isinf isfinite signbit frexp modf", grad=False),
    *rows(J, (B, B), "logical_and logical_or logical_xor"),
    *rows(J, (Z,), "real imag conj angle abs exp", grad=False),
    # reductions
    *rows(J, (X,), "sum mean var std prod max min ptp median nansum nanmean nanmax average"),
    *rows(J, (X,), "cumsum cumprod argmax argmin any all count_nonzero", grad=False),
    row("sum, axis", lambda x: J.sum(x, axis=1, keepdims=True), X),
    row("sum of bfloat16", lambda x: J.sum(x.astype(J.bfloat16), dtype=J.float32), X),
    row("quantile", lambda x: J.quantile(x, 0.3, axis=1), X),
    row("logsumexp", jsp.special.logsumexp, X),
    # shapes
    *rows(J, (X,), "transpose ravel flip fliplr flipud atleast_3d rot90 diagonal trace squeeze"),
    row("reshape", lambda x: J.reshape(x, (3, 2)), X),
    row("pad", lambda x: J.pad(x, ((1, 2), (0, 1)), mode="reflect"), M),
    row("roll", lambda x: J.roll(x, 2, axis=1), X),
    row("tile", lambda x: J.tile(x, (2, 3)), X),
    row("repeat", lambda x: J.repeat(x, 2, axis=0), X),
    row("concatenate", lambda x, y: J.concatenate([x, y], axis=1), X, Y),
    row("stack", lambda x, y: J.stack([x, y], axis=1), X, Y),
    row("split", lambda x: J.split(x, 3, axis=1), X),
    row("unstack", lambda x: J.unstack(x), X),
    row("meshgrid", lambda x: J.meshgrid(x, x + 1), V),
    row("tril", J.tril, M),
    row("broadcast_to", lambda x: J.broadcast_to(x, (4, 2, 3)), X),
    # choosing and ordering
    row("where", J.where, B, X, Y),
    row("clip", lambda x: J.clip(x, -1.0, 1.0), Y),
    row("select", lambda x: J.select([x > 1, x > 0], [x, 2 * x], 0.0), Y),
    row("piecewise", lambda x: J.piecewise(x, [x < 0], [lambda v: -v, lambda v: v * v]), Y),
    *rows(J, (Y,), "sort argsort"),
    row("lexsort", lambda x: J.lexsort((x[0], x[1])), Y, grad=False),
    row("searchsorted", lambda x, v: J.searchsorted(x, v), np.sort(V), Y),
    row("interp", J.interp, X, np.sort(V), V),
    row("top_k", lambda x: L.top_k(x, 2), Y),
    row("approx_min_k", lambda x: L.approx_min_k(x, 2), Y),
    row("unique", lambda x: J.unique(x, size=4), I),
    row("histogram", lambda x: J.histogram(x, bins=4), V, vmap=False, grad=False),
    row("digitize", lambda x: J.digitize(x, J.array([0.0, 1.0])), Y, grad=False),
    # indexing
    row("take", lambda x, i: J.take(x, i, axis=1), X, K),
    row("take_along_axis", lambda x, i: J.take_along_axis(x, i % 3, axis=1), X, I),
    row("x[:, i]", lambda x, i: x[:, i], X, K),
    row("x[1, ::-1]", lambda x: x[1, ::-1], X),
    row("at.set", lambda x, i, u: x.at[i].set(u), V, K, V[:3]),
    row("at.add", lambda x, i, u: x.at[i].add(u), V, K, V[:3]),
    row("at.multiply", lambda x, i: x.at[i].multiply(2.0), V, K),
    row("at.max", lambda x, i, u: x.at[i].max(u), V, K, V[:3]),
    row("at.apply", lambda x, i: x.at[i].apply(J.sin), V, K, grad=False),
    row("dynamic_slice", lambda x, i: L.dynamic_slice(x, (i[0], 0), (1, 2)), X, K),
    row("dynamic_update_slice", lambda x, i: L.dynamic_update_slice(x, x[:1] * 2, (i[0], 0)), X, K),
    row("segment_sum", lambda x, i: jax.ops.segment_sum(x, i, 3), V[:3], K),
    # products
    *rows(J, (M, M), "dot matmul inner outer kron vdot tensordot cross"),
    row("matmul, bfloat16", lambda x: J.matmul(x.astype(J.bfloat16), x.astype(J.bfloat16)), M),
    row("einsum", lambda x, y: J.einsum("ij,kj,j->ki", x, y, y[0]), X, Y),
    row("dot_general", lambda x: L.dot_general(x, x, (((1,), (1,)), ((0,), (0,)))), X),
    row("preferred", lambda x: L.dot(x, x.T, preferred_element_type=J.float32), I, grad=False),
    row("convolve", lambda x: J.convolve(x, x[:2], mode="same"), V),
    row("conv", lambda x: L.conv(x[None, None], x[None, None, :2, :2], (1, 1), "SAME"), M),
    row("polyval", lambda p, x: J.polyval(p, x), V, X),
    row("vander", lambda x: J.vander(x, 3), V),
    row("gradient", lambda x: J.gradient(x), V),
    row("trapezoid", J.trapezoid, V),
    row("cov", lambda x: J.cov(x), X),
    row("apply_along_axis", lambda x: J.apply_along_axis(J.sum, 1, x), X),
    row("vectorize", J.vectorize(lambda x, y: x @ y, signature="(n),(n)->()"), X, Y),
    # matrices, transforms, windows
    *rows(J.linalg, (S,), "inv det cholesky eigvalsh"),
    *rows(J.linalg, (S, V[:3]), "solve lstsq"),
    *rows(J.linalg, (M,), "qr svd pinv eig slogdet", grad=False),
    row("schur", jsp.linalg.schur, M, grad=False, vmap=False),
    *rows(J.fft, (V,), "fft ifft rfft fftshift"),
    row("irfft2", lambda x: J.fft.irfft2(J.fft.rfft2(x)), M),
    row("max_pool", lambda x: L.reduce_window(x, -J.inf, L.max, (2, 2), (1, 1), "SAME"), M),
    row("avg_pool", lambda x: L.reduce_window(x, 0.0, L.add, (2, 2), (1, 2), "VALID"), M),
    row(
        "fold of windows",
        lambda x: L.reduce_window(x, 1.0, lambda a, b: a * b, (2, 1), (1, 1), "VALID"),
        M,
        grad=False,
    ),
    # activations, whose rules are JAX's own
    *rows(N, (Y,), "relu relu6 silu gelu elu celu selu softplus sigmoid log_sigmoid hard_tanh"),
    *rows(N, (Y,), "softmax log_softmax standardize squareplus mish leaky_relu soft_sign"),
    row("glu", N.glu, V, vmap=False),
    row("one_hot", lambda i: N.one_hot(i, 4), K),
    row("attention", lambda x: N.dot_product_attention(x, x, x), V.reshape(1, 2, 1, 2)),
    # special functions and statistics
    *rows(jsp.special, (X,), "erf erfc gammaln digamma expit entr"),
    row("xlogy", jsp.special.xlogy, X, X),
    row("erfinv", lambda x: jsp.special.erfinv(x / 2), X),
    row("norm.logpdf", jsp.stats.norm.logpdf, Y),
    row("beta.logpdf", lambda x: jsp.stats.beta.logpdf(x / 2, 2.0, 3.0), X),
    # random numbers
    row("uniform", lambda k: R.uniform(k, (3,)), KEY, vmap=False),
    row("normal", lambda k: R.normal(k, (3,)), KEY, vmap=False),
    row("randint", lambda k: R.randint(k, (5,), 0, 9), KEY, vmap=False),
    row("permutation", lambda k: R.permutation(k, 5), KEY, vmap=False),
    row("categorical", lambda k, x: R.categorical(k, x), KEY, X, vmap=False, grad=False),
    row("split", lambda k: R.key_data(R.split(R.wrap_key_data(k), 3)), KEY, vmap=False),
    row("fold_in", lambda k: R.uniform(R.fold_in(k, 5)), KEY, vmap=False),
    row("gamma", lambda a: R.gamma(R.key(1), a, (3,)).sum(), V[2], vmap=False),
    row("seed", lambda i: R.key_data(R.key(i[0])), K),
    # control flow
    row("cond", lambda x: L.cond(x[0] > 0, J.sin, J.cos, x), V),
    row("switch", lambda i, x: L.switch(i[0], [J.sin, J.cos, J.exp], x), K, X, vmap=False),
    row("scan", lambda x: L.scan(lambda c, a: (c * a + 1, c), 1.0, x), V),
    row("scan, reverse", lambda x: L.scan(lambda c, a: (c + a, c), 0.0, x, reverse=True), V),
    row("fori_loop", lambda x: L.fori_loop(0, 3, lambda i, v: v * 1.5 + i, x), V),
    row("while", lambda x: L.while_loop(lambda v: v[0] < 9, lambda v: v * 2, x), V, grad=False),
    row("map", lambda x: L.map(J.sin, x), V),
    row("associative_scan", lambda x: L.associative_scan(J.multiply, x), V),
    row("checkpoint", jax.checkpoint(lambda x: J.sin(J.sin(x))), V),
    row("reduce", lambda x: L.reduce(x, 1.0, lambda a, b: a * b, (0,)), V, grad=False),
    row(
        "linear_solve",
        lambda x, b: L.custom_linear_solve(lambda v: x @ v, b, lambda mv, v: v / 2, lambda mv, v: v / 2),
        2 * np.eye(3, dtype=np.float32),
        V[:3],
        vmap=False,
    ),
    row("convert", lambda x: (x.astype(J.int32), x.astype(J.float16), x > 0), Y, grad=False),
    row("bitcast", lambda x: L.bitcast_convert_type(x, J.int32), Y),
    row("reduce_precision", lambda x: L.reduce_precision(x, 5, 2), Y),
    row("stop_gradient", lambda x: x * L.stop_gradient(x), Y),
    row("barrier", lambda x: L.optimization_barrier(J.sin(x)), Y),
    row("platform", lambda x: L.platform_dependent(x, cpu=J.sin, default=J.cos), Y),
    row("gradient inside", jax.grad(lambda x: J.sum(J.sin(x) * x)), V),
    row(
        "vmapped while",
        jax.vmap(lambda x: L.while_loop(lambda v: v < 9, lambda v: v * 2, x)),
        np.abs(V),
        grad=False,
        vmap=False,
    ),
]


def grouped(rows: list[Row]) -> list[list[Row]]:
    """Rows with the same arguments together, some at a time: they are compiled together."""
    groups: list[list[Row]] = []
    for one in rows:
        last = groups[-1] if groups else []
        alike = last and [id(x) for x in last[0].args] == [id(x) for x in one.args]
        if alike and last[0][3:] == one[3:] and len(last) < 16:
            last.append(one)
        else:
            groups.append([one])
    return groups


GROUPS = grouped(ROWS)
HEAVY = (
    "interp attention unique digitize histogram at.max at.multiply at.set cov split erf add clip "
    "solve qr schur searchsorted vander erfinv beta.logpdf fft irfft2 gamma"
)


def params() -> list[Any]:
    return [
        pytest.param(g, id=f"{i} {g[0].name}", marks=pytest.mark.heavy if g[0].name in HEAVY.split() else ())
        for i, g in enumerate(GROUPS)
    ]


def is_float(x: Any) -> bool:
    return jax.dtypes.issubdtype(x.dtype, np.floating)


def floats(tree: Any) -> Any:
    """The sum of the float results: something to differentiate."""
    leaves = [y for y in jax.tree.leaves(tree) if is_float(y)]
    return sum([(y.astype("float32") * (i + 1.5)).sum() for i, y in enumerate(leaves)])


def everything(rows: list[Row], functions: list[Any], lib: Any) -> Any:
    """Value, gradient and vmap of functions by one of the two libraries, compiled together."""
    args, grad, vmap = rows[0].args, rows[0].grad, rows[0].vmap
    numbers = tuple([i for i, x in enumerate(args) if is_float(x)])

    def run(*args: Any) -> Any:
        made: dict[str, Any] = {}
        for one, function in zip(rows, functions, strict=True):
            out = made[f"{one.name}: value"] = function(*args)
            if grad and numbers and any(map(is_float, jax.tree.leaves(out))):
                loss = lambda *xs, function=function: floats(function(*xs))  # noqa: E731
                made[f"{one.name}: gradient"] = lib.grad(loss, numbers)(*args)
            if vmap:
                doubled = [lib.numpy.stack([x, x[::-1]]) for x in args]
                made[f"{one.name}: vmap"] = lib.vmap(function)(*doubled)
        return made

    return lib.jit(run)(*args)


def assert_alike(ours: Any, theirs: Any) -> None:
    mine, structure = jax.tree.flatten_with_path(ours)
    other, wanted = jax.tree.flatten(theirs)
    assert structure == wanted
    for (path, x), y in zip(mine, other, strict=True):
        name = jax.tree_util.keystr(path)
        assert (x.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type), name
        if jax.dtypes.issubdtype(x.dtype, np.inexact):
            # bfloat16 and float16 have 8 and 11 bits, and are rounded where each library casts
            rtol = 2**-6 if x.dtype.itemsize == 2 or "bfloat16" in name else 4e-4
            a, b = (np.asarray(v).astype(np.complex128) for v in (x, y))
            np.testing.assert_allclose(a, b, rtol=rtol, atol=2e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(np.asarray(x), np.asarray(y), err_msg=name)


def test_the_table_is_long_enough():
    assert len([r for g in GROUPS if g[0].name not in HEAVY.split() for r in g]) >= 120


@pytest.mark.parametrize("how", ["called", pytest.param("imported", marks=pytest.mark.sweep)])
@pytest.mark.parametrize("rows", params())
def test_functions_are_the_originals(rows, how):
    """As they are, inside ours; and as `from_jax` makes one program of each."""
    originals = [r.function for r in rows]
    functions = [from_jax(f) for f in originals] if how == "imported" else originals
    assert_alike(everything(rows, functions, ft), everything(rows, originals, jax))
