"""The programs that are measured, each written once for both libraries.

`lib` is a `Library`: functrans' modules, or JAX's under the same names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy
import numpy as np

import functrans
import functrans.lax
import functrans.nn
import functrans.numpy


@dataclass(frozen=True)
class Library:
    """The modules a script imports."""

    ft: Any
    np: Any
    lax: Any
    nn: Any


OURS = Library(functrans, functrans.numpy, functrans.lax, functrans.nn)
JAX = Library(jax, jax.numpy, jax.lax, jax.nn)


def _arrays(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[jax.Array]:
    return [jax.numpy.asarray(rng.normal(size=s) / max(1, s[0]) ** 0.5, "float32") for s in shapes]


def mlp_params(sizes: tuple[int, ...]) -> list[tuple[jax.Array, jax.Array]]:
    """Weights and biases of a dense network."""
    rng = np.random.default_rng(0)
    return [
        tuple(_arrays(rng, (m, n), (n,)))  # type: ignore[misc]
        for m, n in itertools.pairwise(sizes)
    ]


def mlp(lib: Library) -> Callable[..., Any]:
    """A tanh network."""

    def predict(params, x):
        for w, b in params[:-1]:
            x = lib.np.tanh(x @ w + b)
        w, b = params[-1]
        return x @ w + b

    return predict


def mlp_loss(lib: Library) -> Callable[..., Any]:
    """Mean squared error of a tanh network."""
    predict = mlp(lib)
    return lambda params, x, y: lib.np.mean((predict(params, x) - y) ** 2)


def conv_params(channels: int = 16) -> dict[str, jax.Array]:
    """Two convolutions and a dense layer for 28 x 28 images."""
    rng = np.random.default_rng(0)
    k1, k2, w = _arrays(rng, (3, 3, 1, channels), (3, 3, channels, 2 * channels), (7 * 7 * 2 * channels, 10))
    return {"k1": k1, "k2": k2, "w": w}


def conv_loss(lib: Library) -> Callable[..., Any]:
    """Cross-entropy of a small convolutional network, NHWC."""
    jnp = lib.np

    def conv(x, k):
        return lib.lax.conv_general_dilated(x, k, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def loss(params, x, labels):
        x = lib.nn.relu(conv(x, params["k1"]))
        x = lib.nn.relu(conv(x, params["k2"]))
        logits = x.reshape(x.shape[0], -1) @ params["w"]
        return -jnp.mean(jnp.sum(lib.nn.log_softmax(logits) * lib.nn.one_hot(labels, 10), axis=1))

    return loss


def transformer_params(layers: int, width: int, vocabulary: int = 64, rms: bool = False) -> dict[str, Any]:
    """Parameters of a decoder without dropout: embedding, `layers` blocks, tied output. `rms`: for
    RMS norm, which has no shift."""
    rng = np.random.default_rng(0)
    names = ("qkv", "proj", "up", "down")
    shapes = ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
    blocks = []
    for _ in range(layers):
        block = dict(zip(names, _arrays(rng, *shapes), strict=True))
        for norm in ("norm1", "norm2"):
            scale, shift = jax.numpy.ones(width), jax.numpy.zeros(width)
            block[norm] = (scale,) if rms else (scale, shift)
        blocks.append(block)
    (embedding,) = _arrays(rng, (vocabulary, width))
    return {"embedding": embedding, "blocks": blocks}


def transformer_loss(lib: Library, heads: int = 4, scanned: bool = False) -> Callable[..., Any]:
    """Next-token cross-entropy of one sequence of token ids, of shape (time,). `scanned`: the
    parameters of the blocks are stacked, and a scan runs over them."""
    jnp, nn = lib.np, lib.nn

    def norm(x, scale, shift=None):
        if shift is None:
            return x / jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-5) * scale
        mean = jnp.mean(x, axis=-1, keepdims=True)
        var = jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
        return (x - mean) / jnp.sqrt(var + 1e-5) * scale + shift

    def attention(x, block):
        time, width = x.shape
        q, k, v = jnp.split(x @ block["qkv"], 3, axis=-1)
        q, k, v = (a.reshape(time, heads, width // heads) for a in (q, k, v))
        scores = jnp.einsum("qhd,khd->hqk", q, k) / (width // heads) ** 0.5
        mask = jnp.tril(jnp.ones((time, time), dtype=bool))
        scores = jnp.where(mask, scores, -1e9)
        out = jnp.einsum("hqk,khd->qhd", nn.softmax(scores, axis=-1), v)
        return out.reshape(time, width) @ block["proj"]

    def layer(x, block):
        x = x + attention(norm(x, *block["norm1"]), block)
        h = norm(x, *block["norm2"])
        return x + nn.gelu(h @ block["up"]) @ block["down"]

    def loss(params, tokens):
        x = params["embedding"][tokens[:-1]]
        if scanned:
            x, _ = lib.lax.scan(lambda x, block: (layer(x, block), None), x, params["blocks"])
        else:
            for block in params["blocks"]:
                x = layer(x, block)
        logits = x @ params["embedding"].T
        picked = jnp.take_along_axis(nn.log_softmax(logits), tokens[1:, None], axis=-1)
        return -jnp.mean(picked)

    return loss


def training_step(lib: Library, loss: Callable[..., Any], rate: float = 0.1) -> Callable[..., Any]:
    """From parameters and a batch to new parameters and the loss."""

    def step(params, *batch):
        value, grads = lib.ft.value_and_grad(loss)(params, *batch)
        return jax.tree.map(lambda p, g: p - rate * g, params, grads), value

    return step


def sgd_step(lib: Library, loss: Callable[..., Any], rate: float = 0.1) -> Callable[..., Any]:
    """A jitted training step."""
    return lib.ft.jit(training_step(lib, loss, rate))


def rnn_params(inputs: int = 32, width: int = 128) -> dict[str, jax.Array]:
    """Parameters of a recurrent network with one layer and one output."""
    rng = np.random.default_rng(0)
    shapes = ((inputs, width), (width, width), (width, 1))
    return dict(zip(("in", "hidden", "out"), _arrays(rng, *shapes), strict=True))


def rnn_loss(lib: Library) -> Callable[..., Any]:
    """Mean squared error after the last step; x: (time, batch, inputs)."""
    jnp = lib.np

    def loss(params, x, y):
        def step(h, x):
            return jnp.tanh(x @ params["in"] + h @ params["hidden"]), None

        start = jnp.zeros((x.shape[1], params["hidden"].shape[0]))
        h, _ = lib.lax.scan(step, start, x)
        return jnp.mean((h @ params["out"] - y) ** 2)

    return loss


def looped_convs_loss(lib: Library, unroll: bool = False) -> Callable[..., Any]:
    """Sum of the result of convolutions of one kernel size in a scan; k: (layers, 3, 3, c, c)."""

    def loss(kernels, x):
        def step(x, k):
            made = lib.lax.conv_general_dilated(
                x, k, (1, 1), "SAME", dimension_numbers=("NCHW", "HWIO", "NCHW")
            )
            return lib.np.tanh(made), None

        x, _ = lib.lax.scan(step, x, kernels, unroll=unroll)
        return lib.np.sum(x**2)

    return loss


def repeated_layer_loss(lib: Library, calls: int, jitted: bool = True) -> Callable[..., Any]:
    """One layer, called `calls` times."""

    def layer(x, w):
        h = lib.nn.gelu(x @ w)
        return x + h / lib.np.sqrt(lib.np.mean(h**2, axis=-1, keepdims=True) + 1e-6)

    if jitted:
        layer = lib.ft.jit(layer)

    def loss(w, x):
        for _ in range(calls):
            x = layer(x, w)
        return lib.np.sum(x**2)

    return loss
