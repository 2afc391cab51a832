"""Convolutional networks in equinox, whose layers keep images channel by channel; nothing here knows
functrans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from benchmarks.training_models import CLASSES

Case = tuple[str, Callable[..., Any], Any, int]  # a name, a loss, parameters, the size of an image


class Residual(eqx.Module):
    """Two convolutions, each of normalized and rectified features, beside the identity."""

    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    norms: list[eqx.nn.GroupNorm]

    def __init__(self, width: int, key: jax.Array):
        a, b = jax.random.split(key)
        self.first = eqx.nn.Conv2d(width, width, 3, padding=1, key=a)
        self.second = eqx.nn.Conv2d(width, width, 3, padding=1, key=b)
        self.norms = [eqx.nn.GroupNorm(8, width) for _ in range(2)]

    def __call__(self, x: jax.Array, key: Any = None) -> jax.Array:
        y = self.first(jax.nn.relu(self.norms[0](x)))
        return x + self.second(jax.nn.relu(self.norms[1](y)))


def networks() -> Iterator[Case]:
    """Yield networks for images `(batch, 3, size, size)` and their classes."""
    keys = iter(jax.random.split(jax.random.key(0), 32))

    def conv(inputs: int, outputs: int, stride: int = 1) -> eqx.nn.Conv2d:
        return eqx.nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, key=next(keys))

    def linear(inputs: int) -> eqx.nn.Linear:
        return eqx.nn.Linear(inputs, CLASSES, key=next(keys))

    relu, norm = eqx.nn.Lambda(jax.nn.relu), eqx.nn.GroupNorm
    mean, flat = eqx.nn.Lambda(lambda x: x.mean((1, 2))), eqx.nn.Lambda(jnp.ravel)
    pool = eqx.nn.MaxPool2d(2, 2)
    first = [conv(3, 32), relu, conv(32, 32), relu, pool]
    yield case("VGG", 32, *first, conv(32, 64), relu, conv(64, 64), relu, pool, flat, linear(4096))
    narrow = [conv(3, 32, 2), Residual(32, next(keys)), Residual(32, next(keys))]
    wide = [conv(32, 64, 2), Residual(64, next(keys)), Residual(64, next(keys))]
    yield case("ResNet, group norm", 32, *narrow, *wide, mean, linear(64))
    normed = [conv(3, 16), norm(8, 16), relu, conv(16, 32, 2), norm(8, 32), relu]
    yield case("strides, group norm", 64, *normed, conv(32, 64, 2), norm(8, 64), relu, mean, linear(64))
    plain = [conv(3, 16), relu, conv(16, 32, 2), relu, conv(32, 64, 2), relu, conv(64, 128, 2), relu]
    yield case("strides", 64, *plain, mean, linear(128))


def case(name: str, size: int, *layers: Any) -> Case:
    params, static = eqx.partition(eqx.nn.Sequential(layers), eqx.is_array)

    def loss(params: Any, x: jax.Array, labels: jax.Array) -> jax.Array:
        logits = jax.vmap(eqx.combine(params, static))(x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return f"equinox: {name}", loss, params, size
