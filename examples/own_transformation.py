"""Two transformations of one's own, written outside of the library from its public names.

    python examples/own_transformation.py

A Program is data: `ft.make_ir` gives it, `ft.evaluate` walks it and asks for each equation what it
means. A transformation is that meaning.

  1. Interval bounds: what can a network say when its input is any point of a box?
  2. Mixed precision: contractions read bfloat16, everything else stays float32.

Both results are ordinary code again: they are jitted, and the second is a Program one can print.
The data are the digits that ship inside scikit-learn: no network is needed.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import jax
import numpy as np
from sklearn.datasets import load_digits

import functrans as ft
import functrans.numpy as jnp
from functrans import lax, nn, random

# --- 1. interval bounds ---------------------------------------------------------------------------


class Box(NamedTuple):
    """All arrays between two."""

    low: jnp.ndarray
    high: jnp.ndarray


def bounds(f):
    """The function from boxes (or arrays) to a list of boxes that hold every result of f.

    Sound up to the rounding of float32. Each value is bounded by itself, so bounds grow with depth.
    """

    def bounded(*args):
        leaves = jax.tree.leaves(args, is_leaf=is_box)
        examples = jax.tree.map(lambda x: x.low if is_box(x) else x, args, is_leaf=is_box)
        return ft.evaluate(ft.make_ir(f)(*examples), leaves, interval)

    return bounded


def interval(equation, values):
    """What an equation does to boxes."""

    def run(*xs):
        return equation.primitive(*xs, **equation.params)

    if not any(is_box(x) for x in values):
        return run(*values)
    name = equation.primitive.name
    if name == "jit":
        return ft.evaluate(equation.params["program"], values, interval)
    lows, highs = ([x[i] if is_box(x) else x for x in values] for i in (0, 1))
    if name in INCREASING:
        return Box(run(*lows), run(*highs))
    if name in DECREASING_LAST:
        return Box(run(*lows[:-1], highs[-1]), run(*highs[:-1], lows[-1]))
    if name in BILINEAR and not all(is_box(x) for x in values):
        # the middle moves as it does; the radius by the sizes of the weights
        middle = run(*[(a + b) / 2 if is_box(x) else x for x, a, b in zip(values, lows, highs, strict=True)])
        radius = run(
            *[(b - a) / 2 if is_box(x) else abs(x) for x, a, b in zip(values, lows, highs, strict=True)]
        )
        return Box(middle - radius, middle + radius)
    raise NotImplementedError(f"no bounds are known for {equation}")


def is_box(x):
    return isinstance(x, Box)


INCREASING = {  # in every operand; so relu is written as a maximum
    "add",
    "max",
    "min",
    "exp",
    "log",
    "tanh",
    "logistic",
    "sqrt",
    "reshape",
    "transpose",
    "broadcast_in_dim",
    "concatenate",
    "slice",
    "reduce_sum",
    "reduce_max",
    "reduce_min",
}
DECREASING_LAST = {"neg", "sub"}
BILINEAR = {"mul", "dot_general", "conv_general_dilated"}


# --- 2. mixed precision ---------------------------------------------------------------------------


def mixed_precision(program):
    """The Program whose products of float32 matrices read bfloat16 and add up in float32."""

    def lower(equation, values):
        params = {  # also inside of jit, scan, ...
            name: mixed_precision(p) if isinstance(p, ft.ir.Program) else p
            for name, p in equation.params.items()
        }
        contracts = equation.primitive.name in ("dot_general", "conv_general_dilated")
        if contracts and all(x.dtype == jnp.float32 for x in values):
            values = [x.astype(jnp.bfloat16) for x in values]
            params["preferred"] = np.dtype("float32")
        return equation.primitive(*values, **params)

    inputs = [ft.ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak_type) for t in program.in_types]
    return ft.make_ir(lambda *args: ft.evaluate(program, args, lower))(*inputs)


# --- the networks and their data ------------------------------------------------------------------


def load(seed: int = 0):
    """Images in [0, 1] of shape (n, 8, 8) and labels, split 1,437 : 360."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.images))
    images = (digits.images[order] / 16.0).astype("float32")
    labels = digits.target[order].astype("int32")
    return images[360:], labels[360:], images[:360], labels[:360]


SHAPES = {
    "MLP": {"w1": (64, 64), "b1": (64,), "w2": (64, 10), "b2": (10,)},
    "conv net": {"k": (3, 3, 1, 8), "c": (8,), "w": (128, 10), "b": (10,)},
}


def mlp(params, images):
    """(n, 8, 8) -> logits (n, 10)."""
    x = images.reshape(images.shape[0], 64)
    x = jnp.maximum(x @ params["w1"] + params["b1"], 0.0)
    return x @ params["w2"] + params["b2"]


def conv_net(params, images):
    """(n, 8, 8) -> logits (n, 10)."""
    x = lax.conv_general_dilated(
        images[..., None], params["k"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    x = jnp.tanh(x + params["c"])
    return x.reshape(x.shape[0], -1) @ params["w"] + params["b"]


NETWORKS = {"MLP": mlp, "conv net": conv_net}


def make_loss(network):
    """Mean cross-entropy."""

    def loss(params, images, labels):
        log_p = nn.log_softmax(network(params, images))
        return -jnp.mean(jnp.sum(log_p * nn.one_hot(labels, 10), axis=1))

    return loss


def initial(name):
    """Weights of variance 1 / fan-in, biases zero."""
    params = {}
    for i, (key, shape) in enumerate(SHAPES[name].items()):
        scale = np.prod(shape[:-1]) ** -0.5 if len(shape) > 1 else 0.0
        params[key] = scale * random.normal(random.key(i), shape)
    return params


def train(name, images, labels, rewrite=lambda program: program, epochs=15, rate=0.3):
    """Parameters after gradient descent, by the program of the gradient as rewritten."""
    params = initial(name)
    gradient = ft.grad(make_loss(NETWORKS[name]))
    program = rewrite(ft.make_ir(gradient)(params, images[:64], labels[:64]))

    @ft.jit
    def step(params, images, labels):
        leaves, structure = jax.tree.flatten(params)
        grads = ft.evaluate(program, [*leaves, images, labels])
        return jax.tree.unflatten(structure, [p - rate * g for p, g in zip(leaves, grads, strict=True)])

    rng = np.random.default_rng(0)
    for _ in range(epochs):
        for chosen in np.split(rng.permutation(len(images))[:1408], 22):
            params = step(params, images[chosen], labels[chosen])
    return params


# --- what they show -------------------------------------------------------------------------------


def certify(name, params, images, labels, epsilon):
    """-> (share of images classified rightly at every point within epsilon of each pixel, box of
    the logits)."""
    box = Box(images - epsilon, images + epsilon)
    (logits,) = ft.jit(bounds(NETWORKS[name]))(params, box)
    low, high = np.asarray(logits.low), np.asarray(logits.high)
    right = np.arange(10) == labels[:, None]
    others = np.where(right, -np.inf, high).max(axis=1)
    return float((low[right] > others).mean()), Box(low, high)


def sample(name, params, image, epsilon, n=1000, seed=0):
    """The box that holds the logits at n random points around an image, half of them corners."""
    rng = np.random.default_rng(seed)
    noise = rng.uniform(-1, 1, (n, 8, 8))
    noise[::2] = np.sign(noise[::2])
    logits = ft.jit(NETWORKS[name])(params, (image + epsilon * noise).astype("float32"))
    return Box(np.asarray(logits).min(axis=0), np.asarray(logits).max(axis=0))


def accuracy(name, params, images, labels):
    """The share of images that are classified rightly."""
    return float((np.asarray(NETWORKS[name](params, images)).argmax(axis=1) == labels).mean())


def gradient_error(name, params, images, labels):
    """-> (|g' - g| / |g| for the gradient g' in mixed precision, its Program)."""
    gradient = ft.grad(make_loss(NETWORKS[name]))
    program = mixed_precision(ft.make_ir(gradient)(params, images, labels))
    args = [*jax.tree.leaves(params), images, labels]
    low = np.concatenate([np.ravel(g) for g in ft.jit(lambda *a: ft.evaluate(program, a))(*args)])
    full = np.concatenate([np.ravel(g) for g in jax.tree.leaves(ft.jit(gradient)(params, images, labels))])
    return float(np.linalg.norm(low - full) / np.linalg.norm(full)), program


def main() -> None:
    start = time.perf_counter()
    images, labels, test_images, test_labels = load()
    for name in NETWORKS:
        params = train(name, images, labels)
        print(f"{name}: test accuracy {100 * accuracy(name, params, test_images, test_labels):.1f} %")
        print("  interval bounds: every pixel may move by epsilon")
        print("    epsilon   certainly right   width of the logits: bounds   1,000 samples")
        for epsilon in (0.002, 0.01, 0.03):
            share, box = certify(name, params, test_images, test_labels, epsilon)
            seen = sample(name, params, test_images[0], epsilon)
            widths = [(b.high - b.low).mean() for b in (Box(box.low[0], box.high[0]), seen)]
            print(f"    {epsilon:<9} {100 * share:13.1f} %   {widths[0]:27.3f}   {widths[1]:13.3f}")
        error, program = gradient_error(name, initial(name), images[:256], labels[:256])
        low = train(name, images, labels, mixed_precision)
        final = accuracy(name, low, test_images, test_labels)
        print(f"  mixed precision: the first gradient differs by {100 * error:.2f} %; trained with")
        print(f"    such gradients, test accuracy {100 * final:.1f} %")
        shown = [line for line in str(program).splitlines() if "bf16" in line]
        print(f"    {len(shown)} equations of its program speak of bfloat16, such as")
        print("\n".join(f"     {line[:110]}" for line in shown[:3]))
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
