"""Handwritten digits, four ways: gradients by hand and by `ft.grad`, two trained networks,
per-example gradients, and the same training step checked by the reference interpreter.

    python examples/train_digits.py [--out digits.png] [--epochs N]

The data are the 1,797 digits of 8 x 8 pixels that ship inside scikit-learn: no network is needed.
"""

from __future__ import annotations

import argparse
import time

import jax
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import functrans as ft
import functrans.numpy as jnp
from functrans import lax, nn, random

# --- data -----------------------------------------------------------------------------------------


def load(seed: int = 0) -> tuple[np.ndarray, ...]:
    """Images in [0, 1] of shape (n, 8, 8) and labels, split 1,437 : 360."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.images))
    images = (digits.images[order] / 16.0).astype("float32")
    labels = digits.target[order].astype("int32")
    return images[360:], labels[360:], images[:360], labels[:360]


# --- 1. softmax regression, its gradient by hand and by ft.grad -----------------------------------


def softmax_loss(params, x, labels):
    """Mean cross-entropy of a linear classifier."""
    w, b = params
    log_p = nn.log_softmax(x @ w + b)
    return -jnp.mean(jnp.sum(log_p * nn.one_hot(labels, 10), axis=1))


def softmax_grad_by_hand(params, x, labels):
    """The same gradient derived on paper: dL/dlogits = (softmax - onehot) / n."""
    w, b = params
    logits = x @ w + b
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    error = (e / e.sum(axis=1, keepdims=True) - np.eye(10, dtype=x.dtype)[labels]) / len(x)
    return x.T @ error, error.sum(axis=0)


def compare_gradients(images: np.ndarray, labels: np.ndarray) -> float:
    """Print both gradients' first numbers; the largest difference."""
    rng = np.random.default_rng(0)
    x = images.reshape(len(images), 64)
    params = (0.1 * rng.normal(size=(64, 10)).astype("float32"), np.zeros(10, "float32"))
    by_hand = softmax_grad_by_hand(params, x, labels)
    by_grad = ft.grad(softmax_loss)(params, x, labels)
    difference = max(float(np.abs(a - np.asarray(b)).max()) for a, b in zip(by_hand, by_grad, strict=True))
    print("1. softmax regression, gradient of the bias (first four):")
    print("   by hand ", np.round(by_hand[1][:4], 6))
    print("   ft.grad ", np.round(np.asarray(by_grad[1])[:4], 6))
    print(f"   largest difference over all 650 numbers: {difference:.1e}")
    return difference


# --- 2. an MLP and a convolutional network --------------------------------------------------------


def init(key, shapes: dict[str, tuple[int, ...]]) -> dict:
    """Weights with variance 2 / fan-in, biases zero."""
    params = {}
    for name, shape in shapes.items():
        key, sub = random.split(key)
        fan_in = int(np.prod(shape[:-1]))
        scale = (2.0 / fan_in) ** 0.5 if len(shape) > 1 else 0.0
        params[name] = scale * random.normal(sub, shape)
    return params


MLP = {"w1": (64, 128), "b1": (128,), "w2": (128, 10), "b2": (10,)}
CONV = {"k1": (3, 3, 1, 16), "c1": (16,), "k2": (3, 3, 16, 32), "c2": (32,), "w": (128, 10), "b": (10,)}


def mlp(params, images):
    """(n, 8, 8) -> logits (n, 10)."""
    x = images.reshape(images.shape[0], 64)
    x = nn.relu(x @ params["w1"] + params["b1"])
    return x @ params["w2"] + params["b2"]


def conv_net(params, images):
    """(n, 8, 8) -> logits (n, 10)."""
    x = images[..., None]
    for kernel, bias in (("k1", "c1"), ("k2", "c2")):
        x = lax.conv_general_dilated(
            x, params[kernel], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = nn.relu(x + params[bias])
    return x.reshape(x.shape[0], -1) @ params["w"] + params["b"]


def make_loss(network):
    """Mean cross-entropy of a network."""

    def loss(params, images, labels):
        log_p = nn.log_softmax(network(params, images))
        return -jnp.mean(jnp.take_along_axis(log_p, labels[:, None], axis=1))

    return loss


def make_step(loss):
    """A jitted step of Adam: `(params, state), batch -> (params, state), loss`."""

    @ft.jit
    def step(params, state, images, labels):
        value, grads = ft.value_and_grad(loss)(params, images, labels)
        m, v, n = state
        n = n + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, v, grads)
        rate = 3e-3 * jnp.sqrt(1 - 0.999**n) / (1 - 0.9**n)
        params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), params, m, v)
        return params, (m, v, n), value

    return step


def train(name, network, shapes, data, epochs: int, batch: int = 64):
    """Train; the parameters, the step, the losses and the test accuracy."""
    images, labels, test_images, test_labels = data
    params = init(random.key(0), shapes)
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = (zeros, zeros, jnp.float32(0))
    step = make_step(make_loss(network))
    rng, losses = np.random.default_rng(0), []
    per_epoch = len(images) // batch
    with tqdm(total=epochs * per_epoch, desc=f"   {name}", ncols=80) as bar:
        for _ in range(epochs):
            order = rng.permutation(len(images))
            for i in range(per_epoch):
                chosen = order[i * batch : (i + 1) * batch]
                params, state, value = step(params, state, images[chosen], labels[chosen])
                losses.append(float(value))
                bar.update()
            bar.set_postfix(loss=f"{losses[-1]:.4f}")
    predicted = np.asarray(ft.jit(network)(params, test_images)).argmax(axis=1)
    accuracy = float((predicted == test_labels).mean())
    print(f"   {name}: test accuracy {100 * accuracy:.1f} %")
    return params, state, step, losses, accuracy


# --- 3. per-example gradients ---------------------------------------------------------------------


def hardest(params, images, labels, n: int = 5):
    """The n examples whose own gradient is the longest, and those lengths."""

    def loss_of_one(params, image, label):
        return make_loss(conv_net)(params, image[None], label[None])

    @ft.jit
    def norms(params, images, labels):
        grads = ft.vmap(ft.grad(loss_of_one), (None, 0, 0))(params, images, labels)
        return jnp.sqrt(sum(jnp.sum(g.reshape(g.shape[0], -1) ** 2, 1) for g in grads.values()))

    lengths = np.asarray(norms(params, images, labels))
    chosen = np.argsort(-lengths)[:n]
    return chosen, lengths


# --- 4. the same step by the reference interpreter ------------------------------------------------


def check_step(step, params, state, images, labels) -> float:
    """The largest difference between a step by XLA and by the NumPy interpreter, relative to the
    largest number of each array."""
    args = (params, state, images, labels)
    program = ft.make_ir(step)(*args)
    by_numpy = ft.interpret(program, *args)
    by_xla = jax.tree.leaves(step(*args))
    return max(
        float(np.abs(np.asarray(a) - b).max() / max(1e-30, np.abs(b).max()))
        for a, b in zip(by_xla, by_numpy, strict=True)
    )


# --- all of it ------------------------------------------------------------------------------------


def draw(path: str, curves, images, labels, chosen, lengths) -> None:
    """Loss curves above, the hardest digits below."""
    figure = plt.figure(figsize=(8, 5.5), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=[2, 1])
    axes = top.subplots()
    for name, losses in curves.items():
        axes.semilogy(losses, label=name, linewidth=0.8)
    axes.set(xlabel="step", ylabel="training loss")
    axes.legend()
    bottom.suptitle("the five hardest test digits, by the length of their own gradient")
    for axis, i in zip(bottom.subplots(1, len(chosen)), chosen, strict=True):
        axis.imshow(images[i], cmap="gray_r")
        axis.set_title(f"a {labels[i]}, |g| = {lengths[i]:.1f}", fontsize=9)
        axis.set_axis_off()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="digits.png", help="where the picture goes")
    parser.add_argument("--epochs", type=int, default=30)
    options = parser.parse_args()
    start = time.perf_counter()
    data = load()
    images, labels, test_images, test_labels = data
    compare_gradients(images, labels)
    print("2. training")
    _, _, _, mlp_losses, _ = train("MLP", mlp, MLP, data, options.epochs)
    params, state, step, conv_losses, _ = train("conv net", conv_net, CONV, data, options.epochs)
    chosen, lengths = hardest(params, test_images, test_labels)
    print("3. per-example gradients of the conv net on the test set:")
    print(
        f"   median length {np.median(lengths):.2e}; the hardest: "
        + ", ".join(f"a {test_labels[i]} ({lengths[i]:.1f})" for i in chosen)
    )
    difference = check_step(step, params, state, images[:64], labels[:64])
    print("4. one training step by XLA and by the NumPy reference interpreter:")
    print(f"   largest difference {difference:.1e} (relative to each array's largest number)")
    draw(options.out, {"MLP": mlp_losses, "conv net": conv_losses}, test_images, test_labels, chosen, lengths)
    print(f"picture in {options.out}; {time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
