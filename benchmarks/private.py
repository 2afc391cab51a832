"""Models whose per-example gradients are wanted, and uses of these gradients.

In: a `Library`, JAX's or ours. Out: functions of (params, x, y), written in the obvious way. The loss
of a model is that of one example, and x and y hold a batch along their first axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.models import Library, mlp_loss, mlp_params, transformer_loss, transformer_params

Loss = Callable[..., Any]


class Model(NamedTuple):
    """A loss of one example for each library, and arguments for a batch."""

    loss: Callable[[Library], Loss]
    args: tuple[Any, Any, Any]  # params, x, y


def normal(*shape: int, scale: float | None = None, seed: int = 0) -> jax.Array:
    """Return normal numbers; the scale, if left out, is that of weights: 1 / sqrt(fan-in)."""
    scale = 1 / max(1, shape[0]) ** 0.5 if scale is None else scale
    rng = np.random.default_rng((seed, *shape))
    return jnp.asarray(scale * rng.normal(size=shape), "float32")


def integers(high: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(shape).integers(0, high, shape), "int32")


# --- models ---------------------------------------------------------------------------------------


def mlp(batch: int) -> Model:
    """784-512-512-10, mean squared error."""
    data = normal(batch, 784, scale=1.0), normal(batch, 10, scale=1.0)
    return Model(mlp_loss, (mlp_params((784, 512, 512, 10)), *data))


def narrow_mlp(batch: int) -> Model:
    """The same, computed in bfloat16 from float32 parameters."""
    wide = mlp(batch)

    def loss(lib: Library) -> Loss:
        of_example = mlp_loss(lib)

        def narrowed(*args):
            return of_example(*jax.tree.map(lambda v: v.astype("bfloat16"), args))

        return narrowed

    return wide._replace(loss=loss)


def transformer(batch: int = 64, layers: int = 4, width: int = 128, time: int = 64) -> Model:
    """A decoder with layer norms and a tied embedding; x holds token ids."""

    def loss(lib: Library) -> Loss:
        of_sequence = transformer_loss(lib)
        return lambda params, tokens, _: of_sequence(params, tokens)

    params = transformer_params(layers, width)
    return Model(loss, (params, integers(64, batch, time + 1), jnp.zeros(batch)))


def sequence(batch: int = 64, time: int = 16, width: int = 256) -> Model:
    """A dense network over each step of a sequence: the weights are shared by the steps."""
    params = [normal(width, width), normal(width, width, seed=1), normal(width, 10)]
    data = normal(batch, time, width, scale=1.0), normal(batch, time, 10, scale=1.0)
    return Model(tanh_loss, (params, *data))


def tanh_loss(lib: Library) -> Loss:
    """Mean squared error of a tanh network without biases."""

    def loss(params, x, y):
        for w in params[:-1]:
            x = lib.np.tanh(x @ w)
        return lib.np.mean((x @ params[-1] - y) ** 2)

    return loss


def gated(batch: int = 64, width: int = 512) -> Model:
    """Two layers of gated linear units."""

    def loss(lib: Library) -> Loss:
        def of_example(params, x, y):
            for up, gate, down in params:
                x = ((x @ up) * lib.nn.sigmoid(x @ gate)) @ down
            return lib.np.mean((x - y) ** 2)

        return of_example

    params = [
        (normal(784, width), normal(784, width, seed=1), normal(width, width)),
        (normal(width, width, seed=2), normal(width, width, seed=3), normal(width, 10)),
    ]
    return Model(loss, (params, normal(batch, 784, scale=1.0), normal(batch, 10, scale=1.0)))


def tied(batch: int = 64, width: int = 512) -> Model:
    """An autoencoder that uses one weight three times, once transposed."""

    def loss(lib: Library) -> Loss:
        def of_example(w, x, y):
            h = lib.np.tanh(lib.np.tanh(x @ w) @ w)
            return lib.np.mean((h @ w.T - y) ** 2)

        return of_example

    x = normal(batch, width, scale=1.0)
    return Model(loss, (normal(width, width), x, x))


def embedding(batch: int = 64, words: int = 8, vocabulary: int = 1000, width: int = 128) -> Model:
    """The mean of some words' embeddings, and a dense layer."""

    def loss(lib: Library) -> Loss:
        def of_example(params, x, y):
            h = lib.np.mean(lib.np.tanh(params["table"][x]), axis=0)
            return lib.np.mean((h @ params["out"] - y) ** 2)

        return of_example

    params = {"table": normal(vocabulary, width, scale=1.0), "out": normal(width, 10)}
    return Model(loss, (params, integers(vocabulary, batch, words), normal(batch, 10, scale=1.0)))


def conv_net(batch: int = 64, channels: tuple[int, int] = (16, 32)) -> Model:
    """Two convolutions and two dense layers on 28 x 28 images, cross-entropy."""
    first, second = channels

    def loss(lib: Library) -> Loss:
        def conv(x, k):
            made = lib.lax.conv_general_dilated(
                x, k, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            return lib.nn.relu(made)

        def of_example(params, x, y):
            x = conv(conv(x[None], params["k1"]), params["k2"])
            x = lib.nn.relu(x.reshape(-1) @ params["w1"]) @ params["w2"]
            return -lib.nn.log_softmax(x)[y]

        return of_example

    params = {
        "k1": normal(3, 3, 1, first, scale=0.3),
        "k2": normal(3, 3, first, second, scale=0.1),
        "w1": normal(7 * 7 * second, 64),
        "w2": normal(64, 10),
    }
    return Model(loss, (params, normal(batch, 28, 28, 1, scale=1.0), integers(10, batch)))


# --- what is done with gradients of examples ------------------------------------------------------


def per_example(lib: Library, loss: Loss) -> Callable[..., Any]:
    """One gradient for each example."""
    return lib.ft.vmap(lib.ft.grad(loss), (None, 0, 0))


def squared_norms(lib: Library, loss: Loss) -> Callable[..., Any]:
    """The squared norm of each example's gradient."""

    def norms(params, x, y):
        leaves = jax.tree.leaves(per_example(lib, loss)(params, x, y))
        return sum(lib.np.sum(g**2, axis=tuple(range(1, g.ndim))) for g in leaves)

    return norms


def dp_sgd(lib: Library, loss: Loss, clip: float = 1.0, rate: float = 0.1) -> Callable[..., Any]:
    """A step of DP-SGD without its noise, which costs both libraries the same: per-example gradients
    are computed, clipped by their norms, and summed."""

    def step(params, x, y):
        grads = per_example(lib, loss)(params, x, y)
        squares = [lib.np.sum(g**2, axis=tuple(range(1, g.ndim))) for g in jax.tree.leaves(grads)]
        c = lib.np.minimum(1.0, clip / lib.np.sqrt(sum(squares)))

        def update(p, g):
            return p - rate * (g * c.reshape(-1, *[1] * (g.ndim - 1))).sum(0) / len(x)

        return jax.tree.map(update, params, grads)

    return step


def flat_dp_sgd(lib: Library, loss: Loss, clip: float = 1.0, rate: float = 0.1) -> Any:
    """The same, each gradient flattened into one vector."""

    def step(params, x, y):
        leaves, tree = jax.tree.flatten(params)

        def flat(params, x, y):
            grads = jax.tree.leaves(lib.ft.grad(loss)(params, x, y))
            return lib.np.concatenate([lib.np.ravel(g) for g in grads])

        rows = lib.ft.vmap(flat, (None, 0, 0))(params, x, y)
        c = lib.np.minimum(1.0, clip / lib.np.linalg.norm(rows, axis=1))
        total = (rows * c[:, None]).sum(0) / len(x)
        ends = [0, *itertools.accumulate([p.size for p in leaves])]
        parts = [total[a:b] for a, b in itertools.pairwise(ends)]
        made = [p - rate * g.reshape(p.shape) for p, g in zip(leaves, parts, strict=True)]
        return jax.tree.unflatten(tree, made)

    return step


def sgd(lib: Library, loss: Loss, rate: float = 0.1) -> Callable[..., Any]:
    """The ordinary step: descent along the gradient of the mean loss."""

    def step(params, x, y):
        def mean(params):
            return lib.np.mean(lib.ft.vmap(loss, (None, 0, 0))(params, x, y))

        return jax.tree.map(lambda p, g: p - rate * g, params, lib.ft.grad(mean)(params))

    return step


def noise_scale(lib: Library, loss: Loss) -> Callable[..., Any]:
    """The mean of the per-example gradients, and the sum of their variances."""

    def statistics(params, x, y):
        grads = per_example(lib, loss)(params, x, y)
        means = jax.tree.map(lambda g: lib.np.mean(g, axis=0), grads)
        pairs = zip(jax.tree.leaves(grads), jax.tree.leaves(means), strict=True)
        return means, sum(lib.np.sum((g - m) ** 2) for g, m in pairs) / len(x)

    return statistics
