"""Uses of per-example gradients, in plain JAX and optax; the caller jits them by JAX or by functrans.

Each function takes the loss of one example, and returns a step `(params, x, y) -> params` or a
function of the same arguments that computes statistics of the gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

Loss = Callable[..., Any]
Step = Callable[..., Any]
RATE, CLIP = 0.1, 1.0


def descended(params: Any, grads: Any) -> Any:
    return jax.tree.map(lambda p, g: p - RATE * g, params, grads)


def by_example(loss: Loss) -> Step:
    """One gradient for each example."""
    return jax.vmap(jax.grad(loss), (None, 0, 0))


def plain(loss: Loss) -> Step:
    """Descent along the gradient of the mean loss: the step without privacy."""

    def step(params, x, y):
        def mean(params):
            return jnp.mean(jax.vmap(loss, (None, 0, 0))(params, x, y))

        return descended(params, jax.grad(mean)(params))

    return step


def by_hand(loss: Loss) -> Step:
    """Per-example gradients, clipped by their norms."""

    def step(params, x, y):
        grads = by_example(loss)(params, x, y)
        squares = [jnp.sum(g**2, axis=range(1, g.ndim)) for g in jax.tree.leaves(grads)]
        c = jnp.minimum(1.0, CLIP / jnp.sqrt(sum(squares)))
        mean = jax.tree.map(lambda g: jnp.einsum("b...,b->...", g, c) / len(x), grads)
        return descended(params, mean)

    return step


def by_vdot(loss: Loss) -> Step:
    """The clipped gradient of one example, under vmap."""

    def step(params, x, y):
        def clipped(x, y):
            leaves, tree = jax.tree_util.tree_flatten(jax.grad(loss)(params, x, y))
            norm = jnp.sqrt(sum([jnp.vdot(g, g) for g in leaves]))
            return tree.unflatten([g / jnp.maximum(1.0, norm / CLIP) for g in leaves])

        grads = jax.vmap(clipped)(x, y)
        return descended(params, jax.tree.map(lambda g: g.mean(0), grads))

    return step


def by_global_norm(loss: Loss) -> Step:
    """`optax.clip_by_global_norm` for each example."""
    clip = optax.clip_by_global_norm(CLIP)

    def step(params, x, y):
        def clipped(x, y):
            return clip.update(jax.grad(loss)(params, x, y), clip.init(params))[0]

        grads = jax.vmap(clipped)(x, y)
        return descended(params, jax.tree.map(lambda g: g.mean(0), grads))

    return step


def by_optax(loss: Loss) -> Step:
    """`optax.per_example_global_norm_clip`."""

    def step(params, x, y):
        leaves, tree = jax.tree.flatten(by_example(loss)(params, x, y))
        sums, _ = optax.per_example_global_norm_clip(leaves, CLIP)
        return descended(params, tree.unflatten([g / len(x) for g in sums]))

    return step


def with_noise(loss: Loss) -> Step:
    """`optax.contrib.differentially_private_aggregate`, which adds noise to each parameter."""
    aggregate = optax.contrib.differentially_private_aggregate(CLIP, 1.0, jax.random.key(0))

    def step(params, x, y):
        grads = by_example(loss)(params, x, y)
        mean, _ = aggregate.update(grads, aggregate.init(params), params)
        return descended(params, mean)

    return step


def plain_with_noise(loss: Loss) -> Step:
    """Descent along the gradient of the mean loss with as much noise."""

    def step(params, x, y):
        def mean(params):
            return jnp.mean(jax.vmap(loss, (None, 0, 0))(params, x, y))

        leaves, tree = jax.tree.flatten(jax.grad(mean)(params))
        keys = jax.random.split(jax.random.key(0), len(leaves))
        noise = [jax.random.normal(k, g.shape) for k, g in zip(keys, leaves, strict=True)]
        noisy = [g + n / len(x) for g, n in zip(leaves, noise, strict=True)]
        return descended(params, tree.unflatten(noisy))

    return step


def per_layer(loss: Loss) -> Step:
    """Each leaf clipped by its own norm."""

    def step(params, x, y):
        def clipped(x, y):
            def of_leaf(g):
                return g * jnp.minimum(1.0, CLIP / jnp.linalg.norm(g.ravel()))

            return jax.tree.map(of_leaf, jax.grad(loss)(params, x, y))

        grads = jax.vmap(clipped)(x, y)
        return descended(params, jax.tree.map(lambda g: g.mean(0), grads))

    return step


def by_microbatches(loss: Loss, size: int = 16) -> Step:
    """`jax.lax.map` over microbatches."""

    def step(params, x, y):
        def clipped(example):
            grads = jax.grad(loss)(params, *example)
            norm = optax.tree.norm(grads)
            return jax.tree.map(lambda g: g * jnp.minimum(1.0, CLIP / norm), grads)

        grads = jax.lax.map(clipped, (x, y), batch_size=size)
        return descended(params, jax.tree.map(lambda g: g.mean(0), grads))

    return step


def noise_scale(loss: Loss) -> Step:
    """The mean of the per-example gradients, and the sum of their variances."""

    def statistics(params, x, y):
        grads = by_example(loss)(params, x, y)
        means = jax.tree.map(lambda g: g.mean(0), grads)
        squares = jax.tree.map(lambda g, m: jnp.sum((g - m) ** 2), grads, means)
        return means, sum(jax.tree.leaves(squares)) / len(x)

    return statistics


def tangent_kernel(loss: Loss) -> Step:
    """Inner products of the gradients of all pairs of examples."""

    def kernel(params, x, y):
        grads = by_example(loss)(params, x, y)
        flat = [g.reshape(len(x), -1) for g in jax.tree.leaves(grads)]
        return sum(g @ g.T for g in flat)

    return kernel


def kronecker_factors(loss: Loss) -> Step:
    """For a dense network written by hand: each layer's second moments of its inputs, and of the
    gradients with respect to its outputs."""

    def statistics(params, x, y):
        def of_example(shifts, x, y):
            inputs = []
            for i, ((w, b), shift) in enumerate(zip(params, shifts, strict=True)):
                inputs.append(x)
                x = x @ w + b + shift
                x = jax.nn.relu(x) if i + 1 < len(params) else x
            return optax.softmax_cross_entropy_with_integer_labels(x, y), inputs

        shifts = [jnp.zeros_like(b) for _, b in params]
        grads, inputs = jax.vmap(jax.grad(of_example, has_aux=True), (None, 0, 0))(shifts, x, y)

        def moment(v):
            return jnp.mean(v[:, :, None] * v[:, None, :], axis=0)

        return [(moment(a), moment(g)) for a, g in zip(inputs, grads, strict=True)]

    return statistics


def with_adam(loss: Loss) -> Step:
    """A step of optax's AdamW on the mean loss, without its state."""
    adam = optax.adamw(1e-3, eps=1e-4)  # gradients that are zero except for rounding move nothing

    def step(params, x, y):
        def mean(params):
            return jnp.mean(jax.vmap(loss, (None, 0, 0))(params, x, y))

        updates, _ = adam.update(jax.grad(mean)(params), adam.init(params), params)
        return optax.apply_updates(params, updates)

    return step
