"""`python -m benchmarks.memory [--only WORD]`: temporary memory of compiled programs against JAX's.

In: programs with scans and checkpoints, mostly gradients. Out: a table of the bytes that XLA states
it allocates beside arguments and results. Nothing is run, and one version of XLA always states the
same.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np

from benchmarks.models import (
    JAX,
    OURS,
    Library,
    rnn_loss,
    rnn_params,
    sgd_step,
    transformer_loss,
    transformer_params,
)

Program = tuple[Callable[..., Any], tuple[Any, ...]]  # a function and its arguments
LAYERS = 16


def array(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(len(shape)).normal(size=shape) / 8, "float32")


# --- a stack of layers, and the ways to write it --------------------------------------------------


def layer(lib: Library) -> Callable[..., Any]:
    """Two dense layers; the value between them has a name that policies can keep."""

    def apply(x, w):
        h = lib.ft.ad_checkpoint.checkpoint_name(lib.np.tanh(x @ w), "hidden")
        return lib.np.sin(h @ w)

    return apply


def remat(lib: Library, f: Callable[..., Any], policy: Any = None, cse: bool = False) -> Any:
    """Return `f` checkpointed; `policy` is an attribute of `checkpoint_policies`, or a name to keep."""
    policies = lib.ft.checkpoint_policies
    if policy == "hidden":
        chosen = policies.save_only_these_names(policy)
    else:
        chosen = getattr(policies, policy) if policy else None
    return lib.ft.checkpoint(f, policy=chosen, prevent_cse=cse)


def as_it_is(lib: Library, f: Callable[..., Any]) -> Callable[..., Any]:
    return f


def closed_over(lib: Library, make: Any = as_it_is, **how: Any) -> Program:
    """One weight, which the layer closes over."""

    def loss(w, x):
        apply = layer(lib)
        step = make(lib, lambda x: apply(x, w))
        return lib.lax.scan(lambda x, _: (step(x), None), x, None, length=LAYERS, **how)[0].sum()

    return lib.ft.grad(loss), (array(64, 64), array(256, 64))


def as_arguments(lib: Library, make: Any = as_it_is, **how: Any) -> Program:
    """One weight, which the layer takes as an argument."""

    def loss(w, x):
        step = make(lib, layer(lib))
        return lib.lax.scan(lambda x, _: (step(x, w), None), x, None, length=LAYERS, **how)[0].sum()

    return lib.ft.grad(loss), (array(64, 64), array(256, 64))


def scanned(lib: Library, make: Any = as_it_is, **how: Any) -> Program:
    """A weight for each layer, which the scan reads."""

    def loss(ws, x):
        step = make(lib, layer(lib))
        return lib.lax.scan(lambda x, w: (step(x, w), None), x, ws, **how)[0].sum()

    return lib.ft.grad(loss), (array(LAYERS, 64, 64), array(256, 64))


def written_out(lib: Library, make: Any = as_it_is) -> Program:
    """A weight for each layer, and no loop."""

    def loss(ws, x):
        step = make(lib, layer(lib))
        for i in range(LAYERS):
            x = step(x, ws[i])
        return x.sum()

    return lib.ft.grad(loss), (array(LAYERS, 64, 64), array(256, 64))


# --- loops in loops -------------------------------------------------------------------------------


def around_a_scan(lib: Library) -> Program:
    """A checkpoint around all of a scan, twice in a row."""

    def loss(ws, x):
        def run(x):
            return lib.lax.scan(lambda x, w: (layer(lib)(x, w), None), x, ws)[0]

        run = remat(lib, run, cse=True)
        return run(run(x)).sum()

    return lib.ft.grad(loss), (array(LAYERS, 64, 64), array(256, 64))


def square_root(lib: Library, inner: bool = False) -> Program:
    """A scan of checkpointed scans: only every eighth carry is kept."""

    def loss(ws, x):
        step = remat(lib, layer(lib)) if inner else layer(lib)

        def block(x, ws):
            return lib.lax.scan(lambda x, w: (step(x, w), None), x, ws)[0]

        block = remat(lib, block)
        return lib.lax.scan(lambda x, ws: (block(x, ws), None), x, ws)[0].sum()

    return lib.ft.grad(loss), (array(8, 8, 64, 64), array(256, 64))


def per_example(lib: Library, program: Any, **how: Any) -> Program:
    """The gradient for each of 4 batches."""
    f, (w, x) = program(lib, **how)
    return lib.ft.vmap(f, (None, 0)), (w, x.reshape(4, 64, 64))


def counted(lib: Library, make: Any = as_it_is) -> Program:
    """A `fori_loop` with known bounds."""

    def loss(w, x):
        step = make(lib, layer(lib))
        return lib.lax.fori_loop(0, LAYERS, lambda i, x: step(x, w) * (i + 1), x).sum()

    return lib.ft.grad(loss), (array(64, 64), array(256, 64))


def forward(lib: Library) -> Program:
    """The derivative along a direction of a `while_loop` with a `fori_loop` in it."""

    def f(w, x):
        def step(x):
            return lib.lax.fori_loop(0, 4, lambda i, x: layer(lib)(x, w), x)

        return lib.lax.while_loop(lambda x: x.sum() > 1.0, step, x)

    return lambda w, x: lib.ft.jvp(f, (w, x), (w, x)), (array(64, 64), array(256, 64))


# --- models ---------------------------------------------------------------------------------------


def rnn(lib: Library) -> Program:
    return sgd_step(lib, rnn_loss(lib)), (rnn_params(), array(100, 32, 32), array(32, 1))


def lstm(lib: Library, make: Any = as_it_is) -> Program:
    """A step of a long short-term memory network; the four gates are one product."""

    def loss(params, xs, y):
        def cell(carry, x):
            h, c = carry
            gates = x @ params["in"] + h @ params["hidden"] + params["bias"]
            i, f, g, o = lib.np.split(gates, 4, axis=-1)
            c = lib.nn.sigmoid(f) * c + lib.nn.sigmoid(i) * lib.np.tanh(g)
            return (lib.nn.sigmoid(o) * lib.np.tanh(c), c)

        cell = make(lib, cell)
        start = lib.np.zeros((xs.shape[1], 64))
        (h, _), _ = lib.lax.scan(lambda c, x: (cell(c, x), None), (start, start), xs)
        return lib.np.mean((h @ params["out"] - y) ** 2)

    shapes = {"in": (32, 256), "hidden": (64, 256), "bias": (256,), "out": (64, 1)}
    params = {name: array(*shape) for name, shape in shapes.items()}
    return sgd_step(lib, loss), (params, array(50, 32, 32), array(32, 1))


def transformer(lib: Library, make: Any = as_it_is) -> Program:
    """A step of a decoder whose layers are a scan."""
    tokens = jnp.asarray(np.random.default_rng(1).integers(0, 64, (8, 33)), "int32")
    params = transformer_params(6, 64)
    params["blocks"] = jax.tree.map(lambda *xs: jnp.stack(xs), *params["blocks"])
    wrapped = Library(lib.ft, lib.np, _Scans(lib, make), lib.nn)
    loss = transformer_loss(wrapped, scanned=True)

    def mean(params, tokens):
        return lib.np.mean(lib.ft.vmap(loss, (None, 0))(params, tokens))

    return sgd_step(lib, mean), (params, tokens)


class _Scans:
    """`lax`, with the bodies of its scans wrapped by `make`."""

    def __init__(self, lib: Library, make: Any):
        self.lib, self.make = lib, make

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lib.lax, name)

    def scan(self, f: Any, init: Any, xs: Any) -> Any:
        return self.lib.lax.scan(self.make(self.lib, f), init, xs)


# --- the table ------------------------------------------------------------------------------------


def with_policy(policy: str | None, cse: bool = False) -> Callable[..., Any]:
    return lambda lib, f: remat(lib, f, policy, cse)


plain, guarded = with_policy(None), with_policy(None, cse=True)
dots, batchless = with_policy("dots_saveable"), with_policy("dots_with_no_batch_dims_saveable")
everything, nothing = with_policy("everything_saveable"), with_policy("nothing_saveable")
hidden = with_policy("hidden")

PROGRAMS: dict[str, Callable[[Library], Program]] = {
    "RNN, SGD step": rnn,
    "LSTM, SGD step": lstm,
    "LSTM, checkpointed cell, SGD step": lambda lib: lstm(lib, plain),
    "transformer by scan, SGD step": transformer,
    "transformer by scan, checkpointed layers": lambda lib: transformer(lib, plain),
    "transformer by scan, dots_saveable": lambda lib: transformer(lib, dots),
    "transformer by scan, dots_with_no_batch_dims": lambda lib: transformer(lib, batchless),
    "layers, weight closed over": closed_over,
    "layers, closed over, checkpoint": lambda lib: closed_over(lib, plain),
    "layers, closed over, checkpoint, prevent_cse": lambda lib: closed_over(lib, guarded),
    "layers, closed over, dots_saveable": lambda lib: closed_over(lib, dots),
    "layers, closed over, a name is kept": lambda lib: closed_over(lib, hidden),
    "layers, weight as argument": as_arguments,
    "layers, argument, checkpoint": lambda lib: as_arguments(lib, plain),
    "layers, argument, checkpoint, prevent_cse": lambda lib: as_arguments(lib, guarded),
    "layers, argument, dots_saveable": lambda lib: as_arguments(lib, dots),
    "layers, argument, a name is kept": lambda lib: as_arguments(lib, hidden),
    "layers, weights scanned": scanned,
    "layers, scanned, checkpoint": lambda lib: scanned(lib, plain),
    "layers, scanned, checkpoint, prevent_cse": lambda lib: scanned(lib, guarded),
    "layers, scanned, everything_saveable": lambda lib: scanned(lib, everything),
    "layers, scanned, nothing_saveable": lambda lib: scanned(lib, nothing),
    "layers, scanned, dots_saveable": lambda lib: scanned(lib, dots),
    "layers, scanned, dots_with_no_batch_dims": lambda lib: scanned(lib, batchless),
    "layers, scanned, a name is kept": lambda lib: scanned(lib, hidden),
    "layers, scanned, unroll=4": lambda lib: scanned(lib, unroll=4),
    "layers, scanned, checkpoint, unroll=4": lambda lib: scanned(lib, plain, unroll=4),
    "layers written out": written_out,
    "layers written out, checkpoint, prevent_cse": lambda lib: written_out(lib, guarded),
    "checkpoint around a scan, twice": around_a_scan,
    "scan of checkpointed scans": square_root,
    "scan of checkpointed scans of checkpoints": lambda lib: square_root(lib, inner=True),
    "vmap of layers, closed over, checkpoint": lambda lib: per_example(lib, closed_over, make=plain),
    "vmap of layers, argument, checkpoint": lambda lib: per_example(lib, as_arguments, make=plain),
    "vmap of layers, scanned, checkpoint": lambda lib: per_example(lib, scanned, make=plain),
    "vmap of layers, scanned, dots_saveable": lambda lib: per_example(lib, scanned, make=dots),
    "vmap of scan of checkpointed scans": lambda lib: per_example(lib, square_root),
    "fori_loop": counted,
    "fori_loop, checkpoint": lambda lib: counted(lib, plain),
    "jvp of while_loop of fori_loop": forward,
}


def compiled(lib: Library, program: Callable[[Library], Program]) -> Any:
    """Return a program of the table, compiled by one of the libraries."""
    f, args = program(lib)
    return (f if hasattr(f, "lower") else lib.ft.jit(f)).lower(*args).compile()


def temporary_bytes(lib: Library, program: Callable[[Library], Program]) -> int:
    """Return what XLA allocates for a program of the table beside its arguments and results."""
    return compiled(lib, program).memory_analysis().temp_size_in_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="the programs with this word in their name")
    options = parser.parse_args()
    device = jax.devices()[0]
    print(f"jax {jax.__version__}, {device.platform}\n")
    print("| temporary memory, bytes | functrans | JAX | ratio |\n|---|---:|---:|---:|")
    for name, program in PROGRAMS.items():
        if options.only in name:
            ours, theirs = (temporary_bytes(lib, program) for lib in (OURS, JAX))
            print(f"| {name} | {ours:,} | {theirs:,} | {ours / theirs:.3f} |", flush=True)


if __name__ == "__main__":
    main()
