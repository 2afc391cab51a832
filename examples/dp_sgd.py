"""Handwritten digits learned in private: clipped and noised per-example gradients (DP-SGD, Abadi et
al. 2016), written the obvious way, and what the step costs with and without functrans's passes.

    python examples/dp_sgd.py [--steps N] [--noise SIGMA]

The data are the 1,797 digits of 8 x 8 pixels that ship inside scikit-learn: no network is needed.
Each step draws every training image with the same probability, independently (Poisson sampling):
that, and images added or removed one at a time, is what the printed (epsilon, delta) is proved for.
The proof is about real numbers and secret noise, and takes the rate of sampling as public. This
program, so that its runs repeat, draws float32 noise and its samples from seeds that stand in it:
to publish a network, take seeds from `secrets` and a generator made for cryptography.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time

import jax
import numpy as np
from scipy.special import gammaln, logsumexp
from scipy.stats import binom
from sklearn.datasets import load_digits
from tqdm import tqdm

import functrans as ft
import functrans.numpy as jnp
from functrans import nn, random

SIZES = (64, 256, 256, 10)
BATCH, ROOM = 256, 400  # images expected in a batch; arrays have room for more
CLIP, RATE = 1.0, 1.0
DELTA = 1e-5

# --- data -----------------------------------------------------------------------------------------


def load(seed: int = 0) -> tuple[np.ndarray, ...]:
    """Images in [0, 1] of shape (n, 64) and labels, split 1,437 : 360."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.data))
    images = (digits.data[order] / 16.0).astype("float32")
    labels = digits.target[order].astype("int32")
    return images[360:], labels[360:], images[:360], labels[:360]


def sample(rng: np.random.Generator, images: np.ndarray, labels: np.ndarray):
    """A Poisson sample: each image with probability BATCH / n. Arrays of length ROOM, so that one
    compiled step serves all samples, and 1 where an image is, 0 where none is."""
    chosen = np.flatnonzero(rng.random(len(images)) < BATCH / len(images))
    if len(chosen) > ROOM:
        raise RuntimeError(f"a sample of {len(chosen)} images where {ROOM} have room")
    padded = np.zeros(ROOM, "int32")
    padded[: len(chosen)] = chosen
    return images[padded], labels[padded], (np.arange(ROOM) < len(chosen)).astype("float32")


# --- the model and its step -----------------------------------------------------------------------


def init(key) -> list:
    """Weights with variance 2 / fan-in, biases zero."""
    params = []
    for m, n in itertools.pairwise(SIZES):
        key, sub = random.split(key)
        params.append(((2.0 / m) ** 0.5 * random.normal(sub, (m, n)), jnp.zeros(n)))
    return params


def network(params, x):
    """Logits of one image, or of many."""
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def loss(params, image, label):
    """Cross-entropy of one image."""
    return -nn.log_softmax(network(params, image))[label]


def private_gradient(params, images, labels, present):
    """The sum over a batch of gradients, each of them shortened to CLIP where it is longer."""
    grads = ft.vmap(ft.grad(loss), (None, 0, 0))(params, images, labels)
    squares = [jnp.sum(g**2, axis=tuple(range(1, g.ndim))) for g in jax.tree.leaves(grads)]
    scale = present * jnp.minimum(1.0, CLIP / jnp.sqrt(sum(squares)))

    def total(g):
        return jnp.sum(g * scale.reshape(-1, *[1] * (g.ndim - 1)), axis=0)

    return jax.tree.map(total, grads)


def step(params, key, noise, images, labels, present):
    """One step of DP-SGD: clipped sum, Gaussian noise of `noise` times CLIP, average, descent. The
    average is over the expected size: the real one is private too."""
    total, structure = jax.tree.flatten(private_gradient(params, images, labels, present))
    keys = random.split(key, len(total))
    noised = [
        (g + noise * CLIP * random.normal(k, g.shape)) / BATCH for g, k in zip(total, keys, strict=True)
    ]
    return jax.tree.map(lambda p, g: p - RATE * g, params, structure.unflatten(noised))


def train(steps: int, noise: float, data) -> tuple[list, float]:
    """Train; the parameters and the test accuracy."""
    images, labels, test_images, test_labels = data
    params, rng, compiled = init(random.key(0)), np.random.default_rng(0), ft.jit(step)
    for i in tqdm(range(steps), desc="   private training", ncols=80):
        key = random.fold_in(random.key(1), i)
        params = compiled(params, key, noise, *sample(rng, images, labels))
    predicted = np.asarray(network(params, test_images)).argmax(axis=1)
    return params, float((predicted == test_labels).mean())


# --- privacy --------------------------------------------------------------------------------------


def renyi(rate: float, noise: float, order: int) -> float:
    """Renyi divergence of an integer order that one step spends at most: the Gaussian mechanism on
    a Poisson sample (Mironov, Talwar, Zhang 2019, "Renyi Differential Privacy of the Sampled
    Gaussian Mechanism", section 3.3)."""
    k = np.arange(order + 1)
    choose = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    terms = choose + k * np.log(rate) + (order - k) * np.log1p(-rate)
    return float(logsumexp(terms + k * (k - 1) / (2 * noise**2))) / (order - 1)


def epsilon(rate: float, noise: float, steps: int, delta: float) -> float:
    """The least epsilon over the orders 2..256 such that `steps` steps are (epsilon, delta)-private
    (from Renyi to delta by Canonne, Kamath, Steinke 2020, proposition 12)."""
    return min(
        steps * renyi(rate, noise, a) + np.log1p(-1 / a) - np.log(delta * a) / (a - 1) for a in range(2, 257)
    )


def guarantee(n: int, noise: float, steps: int) -> tuple[float, float]:
    """The (epsilon, delta) of `train` on n images; the chance that a sample finds no room, which
    would end the program, is part of delta."""
    eps = epsilon(BATCH / n, noise, steps, DELTA)
    overflow = steps * float(binom.sf(ROOM, n, BATCH / n))
    return eps, DELTA + (1 + np.exp(eps)) * overflow


# --- what it costs --------------------------------------------------------------------------------


def cost(args, repeats: int = 15, **how) -> tuple[float, int]:
    """Seconds of the jitted step (median), and bytes XLA allocates beside arguments and results."""
    compiled = ft.jit(step, **how).lower(*args).compile()
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*args))
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:]), compiled.memory_analysis().temp_size_in_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--noise", type=float, default=2.5, help="standard deviation over CLIP")
    options = parser.parse_args()
    data = load()
    images, labels = data[:2]

    print(
        f"1. a network {'-'.join(map(str, SIZES))}, {options.steps} steps of DP-SGD, batches of "
        f"about {BATCH}, noise {options.noise:g}"
    )
    params, accuracy = train(options.steps, options.noise, data)
    eps, delta = guarantee(len(images), options.noise, options.steps)
    print(f"   test accuracy {100 * accuracy:.1f} %")
    print(f"   ({eps:.2f}, {delta:.1e})-differentially private under Poisson sampling")

    batch = sample(np.random.default_rng(0), images, labels)
    args = (params, random.key(0), options.noise, *batch)
    with_passes, without = cost(args), cost(args, passes=("dead_code",))
    print("2. one step of it, the same program:        time    temporary memory")
    for name, (seconds, size) in (("all passes", with_passes), ("without them", without)):
        print(f"   {name:34s} {1e3 * seconds:9.2f} ms {size / 1e6:13.2f} MB")


if __name__ == "__main__":
    main()
