"""Models as people train them, each written once for both libraries.

A model is a function that takes a `Library` and returns the loss of parameters and a batch. The
parameters and batches, NumPy arrays or JAX's, follow their model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import recurrences
from benchmarks.models import Library, mlp, mlp_loss, mlp_params, transformer_loss, transformer_params
from benchmarks.simulators import Function, normal

Params = Any


def weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Return normal arrays of these shapes, divided by sqrt(fan-in): the size of all axes except the
    first (outputs) of a convolution's kernel, OIHW, and except the last of a matrix."""
    return {
        name: normal(*s, seed=i) / np.prod(s[1:] if len(s) == 4 else s[:-1]) ** 0.5
        for i, (name, s) in enumerate(shapes.items())
    }


def integers(below: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, below, shape).astype("int32")


def cross_entropy(lib: Library, logits: Any, labels: Any) -> Any:
    picked = lib.nn.one_hot(labels, logits.shape[-1]) * lib.nn.log_softmax(logits)
    return -lib.np.mean(lib.np.sum(picked, axis=-1))


# --- a language model -----------------------------------------------------------------------------


def gpt(lib: Library, heads: int = 4) -> Function:
    """Next-token cross-entropy of sequences, (batch, time + 1)."""
    loss = lib.ft.vmap(transformer_loss(lib, heads), (None, 0))
    return lambda params, tokens: lib.np.mean(loss(params, tokens))


def gpt_params(rms: bool) -> Params:
    return transformer_params(6, 128, 512, rms)


# --- images ---------------------------------------------------------------------------------------

CLASSES = 10


def _convolution(lib: Library, layout: str) -> Function:
    """Return a convolution of stride 1 that keeps the size; kernels are OIHW or HWIO by the layout."""
    kernels = "OIHW" if layout == "NCHW" else "HWIO"

    def conv(x, kernel, groups=1):
        return lib.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=(layout, kernels, layout), feature_group_count=groups
        )

    return conv


def resnet(lib: Library, layout: str = "NCHW") -> Function:
    """Cross-entropy of a residual network with batch norm (statistics of the batch)."""
    jnp, relu = lib.np, lib.nn.relu
    channels = layout.index("C")
    others = tuple(axis for axis in range(4) if axis != channels)
    across = tuple(-1 if axis == channels else 1 for axis in range(4))
    conv = _convolution(lib, layout)

    def norm(x, scale, shift):
        mean = jnp.mean(x, axis=others, keepdims=True)
        var = jnp.mean((x - mean) ** 2, axis=others, keepdims=True)
        scale, shift = scale.reshape(across), shift.reshape(across)
        return (x - mean) / jnp.sqrt(var + 1e-5) * scale + shift

    def loss(params, x, labels):
        x = conv(x, params["stem"])
        for block in params["blocks"]:
            h = relu(norm(conv(x, block["conv1"]), *block["norm1"]))
            x = relu(x + norm(conv(h, block["conv2"]), *block["norm2"]))
        pooled = jnp.mean(x, axis=tuple(axis for axis in others if axis != 0))
        return cross_entropy(lib, pooled @ params["out"], labels)

    return loss


def resnet_params(layout: str = "NCHW", blocks: int = 4, channels: int = 32) -> Params:
    def kernels(params):
        if layout == "NCHW":
            return params
        return {k: v.transpose(2, 3, 1, 0) if v.ndim == 4 else v for k, v in params.items()}

    def block():
        square = (channels, channels, 3, 3)
        norm = np.ones(channels), np.zeros(channels)
        return {**kernels(weights(conv1=square, conv2=square)), "norm1": norm, "norm2": norm}

    ends = kernels(weights(stem=(channels, 3, 3, 3), out=(channels, CLASSES)))
    return {**ends, "blocks": [block() for _ in range(blocks)]}


def mobilenet(lib: Library) -> Function:
    """Cross-entropy of residual blocks of separable convolutions, NCHW."""
    conv = _convolution(lib, "NCHW")

    def loss(params, x, labels):
        x = conv(x, params["stem"])
        for block in params["blocks"]:
            h = conv(x, block["depthwise"], groups=x.shape[1])
            x = x + conv(lib.nn.relu(conv(h, block["up"])), block["down"])
        return cross_entropy(lib, lib.np.mean(x, axis=(2, 3)) @ params["out"], labels)

    return loss


def mobilenet_params(blocks: int = 4, channels: int = 48) -> Params:
    square = (channels, channels, 1, 1)
    block = weights(depthwise=(channels, 1, 3, 3), up=square, down=square)
    ends = weights(stem=(channels, 3, 1, 1), out=(channels, CLASSES))
    return {**ends, "blocks": [block] * blocks}


def images(layout: str = "NCHW", batch: int = 32, size: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Pictures in three colours, and their classes; no activation of theirs is within a rounding of 0."""
    x = normal(batch, 3, size, size, seed=1)
    return x if layout == "NCHW" else x.transpose(0, 2, 3, 1), integers(CLASSES, batch)


# --- sequences, graphs, experts -------------------------------------------------------------------


def lstm(lib: Library) -> Function:
    """Squared last states of sequences, (batch, steps, inputs)."""
    loss = lib.ft.vmap(recurrences.lstm(lib), (None, 0))
    return lambda params, xs: lib.np.mean(loss(params, xs))


def graph_net(lib: Library) -> Function:
    """Squared error at the nodes after rounds of messages along the edges."""
    jnp, relu = lib.np, lib.nn.relu

    def loss(params, nodes, senders, receivers, target):
        h = nodes @ params["in"]
        for layer in params["layers"]:
            ends = jnp.concatenate([h[senders], h[receivers]], axis=1)
            messages = relu(ends @ layer["message"])
            received = lib.ft.ops.segment_sum(messages, receivers, len(nodes))
            h = h + relu(jnp.concatenate([h, received], axis=1) @ layer["update"])
        return jnp.mean((h @ params["out"] - target) ** 2)

    return loss


def graph_params(layers: int = 3, inputs: int = 16, width: int = 32) -> Params:
    pairs = (2 * width, width)
    layer = weights(message=pairs, update=pairs)
    return {**weights(**{"in": (inputs, width)}, out=(width, 1)), "layers": [layer] * layers}


def graph(nodes: int = 500, edges: int = 3000) -> tuple[np.ndarray, ...]:
    """Nodes, the start and end of each edge, and targets at the nodes."""
    ends = integers(nodes, 2, edges)
    return normal(nodes, 16), ends[0], ends[1], normal(nodes, 1, seed=1)


def soft_experts(lib: Library) -> Function:
    """Squared error of a mixture in which every expert sees every token."""
    jnp, nn = lib.np, lib.nn

    def loss(params, x, target):
        share = nn.softmax(x @ params["gate"])
        h = nn.gelu(jnp.einsum("td,edh->teh", x, params["up"]))
        y = jnp.einsum("te,teh,ehd->td", share, h, params["down"])
        return jnp.mean((y - target) ** 2)

    return loss


def routed_experts(lib: Library, room: int = 64) -> Function:
    """Squared error of a mixture in which each token goes to its best expert, `room` at most."""
    jnp, nn = lib.np, lib.nn

    def loss(params, x, target):
        share = nn.softmax(x @ params["gate"])
        best = nn.one_hot(jnp.argmax(share, axis=-1), share.shape[-1])
        place = jnp.sum((jnp.cumsum(best, axis=0) - 1) * best, axis=-1).astype("int32")
        seats = best[:, :, None] * nn.one_hot(place, room)[:, None, :]
        seen = jnp.einsum("tec,td->ecd", seats, x)
        made = nn.gelu(seen @ params["up"]) @ params["down"]
        y = jnp.einsum("tec,ecd->td", seats * jnp.max(share, axis=-1)[:, None, None], made)
        return jnp.mean((x + y - target) ** 2)

    return loss


def expert_params(experts: int = 8, width: int = 64, hidden: int = 128) -> Params:
    made = weights(gate=(width, experts), up=(experts, width, hidden), down=(experts, hidden, width))
    return {**made, "up": made["up"] * experts**0.5, "down": made["down"] * experts**0.5}


# --- dense networks -------------------------------------------------------------------------------

PICTURE, LATENT = 784, 20


def vae(lib: Library) -> Function:
    """Negative evidence lower bound of pictures between 0 and 1; the noise is given."""
    jnp = lib.np
    predict = mlp(lib)

    def loss(params, x, noise):
        mean, log_var = jnp.split(predict(params["encoder"], x), 2, axis=1)
        z = mean + jnp.exp(log_var / 2) * noise
        logits = predict(params["decoder"], z)
        missed = jnp.sum(jnp.logaddexp(0.0, logits) - x * logits, axis=1)
        apart = 0.5 * jnp.sum(jnp.exp(log_var) + mean**2 - 1 - log_var, axis=1)
        return jnp.mean(missed + apart)

    return loss


def vae_params(hidden: int = 400) -> Params:
    return {
        "encoder": mlp_params((PICTURE, hidden, 2 * LATENT)),
        "decoder": mlp_params((LATENT, hidden, PICTURE)),
    }


def by_reverse(lib: Library, f: Function) -> tuple[Function, Function]:
    """Return a function's derivative, and its second one by a gradient of a gradient."""
    slope = lib.ft.grad(f)
    return slope, lib.ft.grad(slope)


def by_forward(lib: Library, f: Function) -> tuple[Function, Function]:
    """Return the same by a jvp of a jvp."""

    def derivative(f):
        return lambda x: lib.ft.jvp(f, (x,), (lib.np.ones_like(x),))[1]

    return derivative(f), derivative(derivative(f))


def pinn(lib: Library, derivatives: Callable[..., Any] = by_reverse) -> Function:
    """How far a network u(t, x) is from Burgers' equation, at points."""
    jnp = lib.np
    predict = mlp(lib)

    def loss(params, points):
        def residual(point):
            t, x = point

            def u(t, x):
                return predict(params, jnp.stack([t, x]))[0]

            in_time, _ = derivatives(lib, lambda t: u(t, x))
            in_space, curved = derivatives(lib, lambda x: u(t, x))
            return in_time(t) + u(t, x) * in_space(x) - 0.01 * curved(x)

        return jnp.mean(lib.ft.vmap(residual)(points) ** 2)

    return loss


def navier_stokes(lib: Library) -> Function:
    """How far a network of time and place is from a flow in two dimensions, its two velocities and its
    pressure, at points."""
    jnp, grad = lib.np, lib.ft.grad
    predict = mlp(lib)

    def loss(params, points):
        def residuals(point):
            def quantity(i):
                return lambda t, x, y: predict(params, jnp.stack([t, x, y]))[i]

            u, v, p = map(quantity, range(3))

            def momentum(w, k):
                in_time, in_x, in_y = (grad(w, i) for i in range(3))
                moved = in_time(*point) + u(*point) * in_x(*point) + v(*point) * in_y(*point)
                viscous = grad(in_x, 1)(*point) + grad(in_y, 2)(*point)
                return moved + grad(p, k)(*point) - 0.01 * viscous

            return momentum(u, 1), momentum(v, 2), grad(u, 1)(*point) + grad(v, 2)(*point)

        return sum([jnp.mean(r**2) for r in lib.ft.vmap(residuals)(points)])

    return loss


def laplace(lib: Library) -> Function:
    """How far a network u(x) is from Laplace's equation, at points: the trace of its Hessian."""
    jnp = lib.np
    predict = mlp(lib)

    def loss(params, points):
        def residual(point):
            return jnp.trace(lib.ft.hessian(lambda point: predict(params, point)[0])(point))

        return jnp.mean(lib.ft.vmap(residual)(points) ** 2)

    return loss


def maml(lib: Library) -> Function:
    """Mean loss of tasks after a gradient step in each: x, y to train on, then x, y to test on."""
    loss = mlp_loss(lib)

    def adapted(params, x, y, x_seen, y_seen):
        slopes = lib.ft.grad(loss)(params, x, y)
        params = lib.ft.tree.map(lambda p, g: p - 0.1 * g, params, slopes)
        return loss(params, x_seen, y_seen)

    many = lib.ft.vmap(adapted, (None, 0, 0, 0, 0))
    return lambda params, *tasks: lib.np.mean(many(params, *tasks))


def tasks(count: int = 8, examples: int = 20) -> Iterator[np.ndarray]:
    for columns in (4, 1, 4, 1):
        yield normal(count, examples, columns, seed=columns)


def ntk_step(lib: Library, rate: float = 0.1) -> Function:
    """A step of a network in function space, by its tangent kernel: the new outputs for the examples,
    and the kernel."""
    predict = mlp(lib)

    def step(params, x, y):
        def says(params):
            return predict(params, x)[:, 0]

        slopes = lib.ft.tree.leaves(lib.ft.jacrev(says)(params))
        kernel = sum(s.reshape(len(x), -1) @ s.reshape(len(x), -1).T for s in slopes)
        said = says(params)
        return said - rate * kernel @ (said - y) / len(x), kernel

    return step
