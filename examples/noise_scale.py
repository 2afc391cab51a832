"""A script that uses JAX alone: it trains a network and measures the noise of its gradient.

    python examples/noise_scale.py
    python -m functrans run --explain examples/noise_scale.py

The first line runs it with JAX, the second with `jax.jit` meaning `ft.jit`. The script does not mention
functrans, and both lines print the same, except for the time of a step.

The gradient noise scale of McCandlish et al., "An Empirical Model of Large-Batch Training" (2018),
says from which batch size on larger batches cease to pay: the variance of the gradient of one
example, over the squared length of the mean gradient. In JAX it takes one gradient per example and
step, which is many times the cost of the step itself.
"""

import functools
import time

import jax
import jax.numpy as jnp

SIZES = (64, 256, 256, 10)
BATCH = 256


def initial(key):
    keys = jax.random.split(key, len(SIZES) - 1)
    shapes = zip(keys, SIZES[:-1], SIZES[1:], strict=True)
    return [(jax.random.normal(k, (m, n)) * (2 / m) ** 0.5, jnp.zeros(n)) for k, m, n in shapes]


def loss(params, image, label):
    *hidden, (w, b) = params
    x = image
    for v, c in hidden:
        x = jax.nn.relu(x @ v + c)
    return -jax.nn.log_softmax(x @ w + b)[label]


def squared_length(tree):
    return sum([jnp.sum(x**2) for x in jax.tree.leaves(tree)])


@functools.partial(jax.jit, static_argnames=("rate",))
def step(params, images, labels, rate=0.1):
    def of_one(image, label):
        value, g = jax.value_and_grad(loss)(params, image, label)
        return value, g, squared_length(g)

    losses, grads, lengths = jax.vmap(of_one)(images, labels)
    mean = jax.tree.map(lambda g: jnp.mean(g, axis=0), grads)
    length = squared_length(mean)
    noise = (jnp.mean(lengths) - length) / length
    params = jax.tree.map(lambda p, g: p - rate * g, params, mean)
    return params, jnp.mean(losses), noise


def train(steps=40):
    """Returns the last loss, the first and last noise scale, and the seconds of a step."""
    key = jax.random.key(0)
    images = jax.random.normal(key, (BATCH, SIZES[0]))
    labels = jnp.argmax(images[:, : SIZES[-1]], axis=1)
    params = initial(jax.random.key(1))
    params, _, first = step(params, images, labels)
    start = time.perf_counter()
    for _ in range(steps):
        params, value, noise = step(params, images, labels)
    jax.block_until_ready(params)
    return float(value), float(first), float(noise), (time.perf_counter() - start) / steps


if __name__ == "__main__":
    value, first, last, seconds = train()
    print(f"loss {value:.3f}, noise scale {first:.1f} -> {last:.1f}")
    print(f"{1000 * seconds:.1f} ms a step")
