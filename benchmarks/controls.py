"""Ten training steps in which the passes find nothing to gain: they must not become slower.

In: a `Library`, JAX's or ours. Out: steps of ordinary training on a batch, and the per-example
gradients of the same models, whose equations are counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.models import (
    Library,
    conv_loss,
    conv_params,
    mlp_loss,
    mlp_params,
    rnn_loss,
    rnn_params,
    transformer_loss,
    transformer_params,
)
from benchmarks.private import integers, normal

Loss = Callable[..., Any]


class Control(NamedTuple):
    """A loss of a batch. `examples` are the arrays of the batch with one more axis in front, so that
    each example is a batch of its own."""

    loss: Callable[[Library], Loss]
    params: Any
    batch: tuple[jax.Array, ...]
    examples: tuple[jax.Array, ...]


def of_rows(loss: Callable[[Library], Loss], params: Any, *batch: jax.Array) -> Control:
    """Return a control whose loss takes a batch of any length."""
    return Control(loss, params, batch, tuple([x[:, None] for x in batch]))


def cross_entropy(lib: Library, logits: Any, labels: Any) -> Any:
    log_p = lib.nn.log_softmax(logits)
    return -lib.np.mean(lib.np.take_along_axis(log_p, labels[:, None], axis=1))


def batched_transformer_loss(lib: Library) -> Loss:
    of_sequence = transformer_loss(lib)
    return lambda p, tokens: lib.np.mean(lib.ft.vmap(of_sequence, (None, 0))(p, tokens))


def embedding_loss(lib: Library) -> Loss:
    """A classifier of the mean of some words' embeddings."""

    def loss(params, words, labels):
        h = lib.np.mean(params["table"][words], axis=1)
        return cross_entropy(lib, lib.np.tanh(h @ params["w"]) @ params["out"], labels)

    return loss


def normed_loss(lib: Library) -> Loss:
    """A network with a layer norm before each dense layer."""

    def loss(params, x, labels):
        for scale, shift, w in params:
            centred = x - lib.np.mean(x, axis=-1, keepdims=True)
            var = lib.np.mean(centred**2, axis=-1, keepdims=True)
            x = lib.nn.relu(centred / lib.np.sqrt(var + 1e-5) * scale + shift) @ w
        return cross_entropy(lib, x, labels)

    return loss


def attention_loss(lib: Library) -> Loss:
    """One block of attention with 4 heads, mean squared error; x: (batch, time, width)."""

    def loss(params, x, y):
        b, t, d = x.shape
        q, k, v = ((x @ params[n]).reshape(b, t, 4, d // 4) for n in ("q", "k", "v"))
        scores = lib.np.einsum("bqhd,bkhd->bhqk", q, k) / (d // 4) ** 0.5
        mixed = lib.np.einsum("bhqk,bkhd->bqhd", lib.nn.softmax(scores, axis=-1), v)
        return lib.np.mean((mixed.reshape(b, t, d) @ params["out"] - y) ** 2)

    return loss


def logistic_loss(lib: Library) -> Loss:
    def loss(params, x, labels):
        w, b = params
        return cross_entropy(lib, x @ w + b, labels)

    return loss


def autoencoder_loss(lib: Library) -> Loss:
    """An autoencoder: down to 32 numbers and up again."""

    def loss(params, x):
        h = x
        for w in params[:-1]:
            h = lib.nn.gelu(h @ w)
        return lib.np.mean((h @ params[-1] - x) ** 2)

    return loss


def controls() -> dict[str, Control]:
    """Return the ten controls by name."""
    x, labels = normal(256, 784, scale=1.0), integers(10, 256)
    sizes = (784, 256, 256, 10)
    norms = [(jnp.ones(m), jnp.zeros(m), normal(m, n)) for m, n in itertools.pairwise(sizes)]
    words = {"table": normal(5000, 128), "w": normal(128, 256), "out": normal(256, 10)}
    heads = {name: normal(128, 128, seed=i) for i, name in enumerate(("q", "k", "v", "out"))}
    series, target = normal(50, 32, 32, scale=1.0), normal(32, 1)
    narrow = [normal(784, 256), normal(256, 32), normal(32, 256), normal(256, 784)]
    regression = (mlp_params((784, 512, 512, 10)), x, normal(256, 10, scale=1.0))
    tokens = (normal(16, 64, 128, scale=1.0), normal(16, 64, 128, scale=1.0, seed=1))
    return {
        "MLP": of_rows(mlp_loss, *regression),
        "conv net": of_rows(conv_loss, conv_params(), x.reshape(-1, 28, 28, 1)[:64], labels[:64]),
        "4-layer transformer": of_rows(
            batched_transformer_loss, transformer_params(4, 64), integers(64, 8, 33)
        ),
        "RNN by scan": Control(
            rnn_loss,
            rnn_params(),
            (series, target),
            (jnp.moveaxis(series, 1, 0)[:, :, None], target[:, None]),
        ),
        "embedding classifier": of_rows(embedding_loss, words, integers(5000, 256, 16), labels),
        "layer-norm MLP": of_rows(normed_loss, norms, x, labels),
        "MLP by Adam": of_rows(mlp_loss, *regression),
        "attention block": of_rows(attention_loss, heads, *tokens),
        "logistic regression": of_rows(logistic_loss, (normal(784, 10), jnp.zeros(10)), x, labels),
        "autoencoder": of_rows(autoencoder_loss, narrow, x),
    }


# --- steps ----------------------------------------------------------------------------------------


def step_of(lib: Library, name: str, control: Control) -> tuple[Callable[..., Any], tuple]:
    """Return the training step of a control, not jitted, and its arguments."""
    loss = control.loss(lib)
    if name.endswith("Adam"):
        zeros = jax.tree.map(jnp.zeros_like, control.params)
        return adam(lib, loss), (control.params, (zeros, zeros, jnp.float32(0)), *control.batch)

    def step(params, *batch):
        value, grads = lib.ft.value_and_grad(loss)(params, *batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return step, (control.params, *control.batch)


def adam(lib: Library, loss: Loss) -> Callable[..., Any]:
    """A step of Adam (Kingma and Ba 2015)."""

    def step(params, state, *batch):
        value, grads = lib.ft.value_and_grad(loss)(params, *batch)
        m, v, n = state
        n = n + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, v, grads)
        rate = 1e-3 * lib.np.sqrt(1 - 0.999**n) / (1 - 0.9**n)
        params = jax.tree.map(lambda p, m, v: p - rate * m / (lib.np.sqrt(v) + 1e-8), params, m, v)
        return params, (m, v, n), value

    return step


def per_example(lib: Library, control: Control) -> tuple[Callable[..., Any], tuple]:
    """Return `vmap(grad(loss))` and its arguments."""
    axes = (None, *[0] * len(control.examples))
    f = lib.ft.vmap(lib.ft.grad(control.loss(lib)), axes)
    return f, (control.params, *control.examples)
