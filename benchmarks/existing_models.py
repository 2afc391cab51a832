"""Models as their users write them, in JAX, flax and haiku; nothing here knows functrans.

A `Model` is a loss of one example, with arguments for a batch of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import optax

from benchmarks.models import mlp_params
from benchmarks.private import integers, normal

cross_entropy = optax.softmax_cross_entropy_with_integer_labels


class Model(NamedTuple):
    """`loss(params, x, y)` of one example; x and y hold a batch along their first axis."""

    loss: Callable[..., Any]
    params: Any
    x: jax.Array
    y: jax.Array

    @property
    def args(self) -> tuple[Any, jax.Array, jax.Array]:
        return self.params, self.x, self.y


def mlp(batch: int = 64) -> Model:
    """784-512-512-10, by hand."""

    def loss(params, x, y):
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = params[-1]
        return cross_entropy(x @ w + b, y)

    params = mlp_params((784, 512, 512, 10))
    return Model(loss, params, normal(batch, 784, scale=1.0), integers(10, batch))


def haiku_mlp(batch: int = 64) -> Model:
    """The same network in haiku."""
    net = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([512, 512, 10])(x)))

    def loss(params, x, y):
        return cross_entropy(net.apply(params, x), y)

    x = normal(batch, 784, scale=1.0)
    return Model(loss, net.init(jax.random.key(0), x[0]), x, integers(10, batch))


class ConvNet(nn.Module):
    """The network of Opacus' MNIST example."""

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(16, (8, 8), (2, 2), padding=3)(x))
        x = nn.max_pool(x, (2, 2), (1, 1))
        x = nn.relu(nn.Conv(32, (4, 4), (2, 2), padding="VALID")(x))
        x = nn.max_pool(x, (2, 2), (1, 1)).reshape(-1)
        return nn.Dense(10)(nn.relu(nn.Dense(32)(x)))


class Classifier(nn.Module):
    """A classifier of words: an embedding, an LSTM, and a class from its last state."""

    @nn.compact
    def __call__(self, words):
        x = nn.RNN(nn.OptimizedLSTMCell(128))(nn.Embed(1000, 64)(words))
        return nn.Dense(2)(x[-1])


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        mask = nn.make_causal_mask(jnp.ones(x.shape[-2]))
        x = x + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(x), mask=mask)
        wide = nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x)))
        return x + nn.Dense(x.shape[-1])(wide)


class Transformer(nn.Module):
    """A decoder whose embedding is also its last layer."""

    layers: int
    width: int
    words: int

    @nn.compact
    def __call__(self, words):
        embedding = nn.Embed(self.words, self.width)
        place = self.param("place", nn.initializers.normal(0.02), (words.shape[-1], self.width))
        x = embedding(words) + place
        for _ in range(self.layers):
            x = Block()(x)
        return embedding.attend(nn.LayerNorm()(x))


def in_flax(module: nn.Module, x: jax.Array, y: jax.Array) -> Model:
    """Return the mean cross-entropy of a module's output for one example."""

    def loss(params, x, y):
        return jnp.mean(cross_entropy(module.apply(params, x), y))

    return Model(loss, module.init(jax.random.key(0), x[0]), x, y)


def cnn(batch: int = 64) -> Model:
    return in_flax(ConvNet(), normal(batch, 28, 28, 1, scale=1.0), integers(10, batch))


def lstm(batch: int = 64, time: int = 32) -> Model:
    return in_flax(Classifier(), integers(1000, batch, time), integers(2, batch))


def transformer(batch: int = 32, layers: int = 2, width: int = 128, time: int = 64) -> Model:
    words = integers(256, batch, time + 1)
    return in_flax(Transformer(layers, width, 256), words[:, :-1], words[:, 1:])
