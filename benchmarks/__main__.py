"""`python -m benchmarks [WORD] [--json FILE]`: functrans against JAX, as ratios.

The two run in turn in one process; a ratio below 1 means functrans takes less time. Without a word
all groups run. The words `loops`, `ensembles`, `training`, `accelerator`, `options`, `existing` and
`libraries` each print a table of their own, from the module `small_loops` or the one of that name.
`namespace` counts the public names of JAX that functrans has.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import functrans as ft
from benchmarks import accelerator, options, small_loops, training
from benchmarks.models import (
    JAX,
    OURS,
    Library,
    conv_loss,
    conv_params,
    looped_convs_loss,
    mlp_loss,
    mlp_params,
    repeated_layer_loss,
    rnn_loss,
    rnn_params,
    sgd_step,
    transformer_loss,
    transformer_params,
)
from benchmarks.optimizer import optimizer_algebra, optimizer_controls, optimizer_private
from benchmarks.timing import Row, clear, pair, table

NAMESPACE = Path(__file__).parents[1] / "docs" / "make_namespace.py"
TOKENS = jnp.asarray(np.random.default_rng(1).integers(0, 64, (8, 33)), "int32")


def tracing() -> Iterator[Row]:
    """Time the way from user code to a differentiated, batched program: tracing alone."""
    params = transformer_params(12, 64)

    def made(lib: Library, batched: bool):
        g = lib.ft.grad(transformer_loss(lib))
        args = (params, TOKENS if batched else TOKENS[0])
        if batched:
            g = lib.ft.vmap(g, (None, 0))
        make = lib.ft.make_ir if lib is OURS else lib.ft.make_jaxpr
        return lambda: make(g)(*args)

    for batched, name in ((False, "grad"), (True, "vmap(grad)")):
        yield pair(
            f"trace + transform, {name} of a 12-layer transformer",
            made(OURS, batched),
            made(JAX, batched),
            goal=0.2,
            repeats=9,
            before=clear,
        )


def lowering() -> Iterator[Row]:
    """Time the way from the traced program to StableHLO, and all of it from cold."""
    params = transformer_params(12, 64)
    traced = {}

    def trace_again() -> None:  # JAX caches what it lowered, so each run needs a new trace
        clear()
        for lib in (OURS, JAX):
            g = lib.ft.vmap(lib.ft.grad(transformer_loss(lib)), (None, 0))
            traced[id(lib)] = lib.ft.jit(g).trace(params, TOKENS)

    trace_again()
    yield pair(
        "lower vmap(grad) of a 12-layer transformer to StableHLO",
        lambda: traced[id(OURS)].lower(),
        lambda: traced[id(JAX)].lower(),
        goal=0.5,
        repeats=9,
        before=trace_again,
    )
    g = {id(lib): lib.ft.vmap(lib.ft.grad(transformer_loss(lib)), (None, 0)) for lib in (OURS, JAX)}
    yield pair(
        "trace + transform + lower, cold, the same",
        lambda: ft.jit(g[id(OURS)]).lower(params, TOKENS),
        lambda: jax.jit(g[id(JAX)]).lower(params, TOKENS),
        goal=None,
        repeats=7,
        before=clear,
    )


def dispatch() -> Iterator[Row]:
    """Time the call of a compiled function that does next to nothing."""
    x = jnp.ones(4)
    for n in (1, 50):
        args = [x] * n
        ours, peer = ft.jit(lambda *xs: xs[0] + 1), jax.jit(lambda *xs: xs[0] + 1)
        yield pair(
            f"call of a jitted function, {n} argument{'s' * (n > 1)}",
            lambda ours=ours, args=args: ours(*args),
            lambda peer=peer, args=args: peer(*args),
            goal=1.1,
            repeats=41,
            calls=2000,
        )


def steps() -> Iterator[Row]:
    """Time jitted training steps that have been compiled."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(256, 784)), "float32")
    y = jnp.asarray(rng.normal(size=(256, 10)), "float32")
    images = x.reshape(256, 28, 28, 1)[:64]
    labels = jnp.asarray(rng.integers(0, 10, 64), "int32")

    def batched_transformer(lib: Library):
        loss = transformer_loss(lib)
        return lambda p, tokens: lib.np.mean(lib.ft.vmap(loss, (None, 0))(p, tokens))

    models = (
        ("MLP 784-512-512-10", mlp_loss, (mlp_params((784, 512, 512, 10)), x, y)),
        ("conv net on 28x28", conv_loss, (conv_params(), images, labels)),
        ("4-layer transformer", batched_transformer, (transformer_params(4, 64), TOKENS)),
    )
    for name, loss, args in models:
        ours, peer = sgd_step(OURS, loss(OURS)), sgd_step(JAX, loss(JAX))
        yield pair(
            f"jitted training step, {name}",
            lambda ours=ours, args=args: ours(*args),
            lambda peer=peer, args=args: peer(*args),
            goal=1.03,
            repeats=401,
        )


def unjitted() -> Iterator[Row]:
    """Time grad without jit: one operation at a time."""
    rng = np.random.default_rng(0)
    params = mlp_params((32, 32, 32, 32))
    x, y = (jnp.asarray(rng.normal(size=(16, 32)), "float32") for _ in range(2))
    ours, peer = ft.grad(mlp_loss(OURS)), jax.grad(mlp_loss(JAX))
    yield pair(
        "un-jitted grad of a 3-layer MLP",
        lambda: ours(params, x, y),
        lambda: peer(params, x, y),
        goal=0.125,
        repeats=41,
        calls=40,
    )

    def of_scan(lib: Library):  # its body, a new function in each call, has been compiled before
        return lib.ft.grad(lambda x: lib.lax.scan(lambda c, x: (c * lib.np.sin(x), None), 1.0, x)[0])(x[0])

    yield pair("un-jitted grad of a scan of a new lambda", lambda: of_scan(OURS), lambda: of_scan(JAX))


def growth() -> Iterator[Row]:
    """Trace a long chain of operations once and a tenth of it ten times: a ratio of 1 is linear growth."""

    def chain(n: int):
        def f(x):
            for _ in range(n):
                x = OURS.np.sin(x)
            return x

        return lambda: ft.make_ir(ft.grad(f))(1.0)

    long, short = chain(50_000), chain(5_000)
    yield pair(
        "trace of grad, 50,000 operations (ours: once; second column: ten times 5,000)",
        long,
        lambda: [short() for _ in range(10)],
        goal=1.25,
        repeats=3,
    )


def scans() -> Iterator[Row]:
    """Time scans, and one jitted layer that is called many times."""
    rng = np.random.default_rng(0)
    w, x = (jnp.asarray(rng.normal(size=(64, 64)) / 8, "float32") for _ in range(2))
    calls = 96
    grad_of = {id(lib): lib.ft.grad(repeated_layer_loss(lib, calls)) for lib in (OURS, JAX)}
    yield pair(
        f"trace + transform + lower, grad of one jitted layer called {calls} times",
        lambda: ft.jit(grad_of[id(OURS)]).lower(w, x),
        lambda: jax.jit(grad_of[id(JAX)]).lower(w, x),
        goal=0.2,
        repeats=9,
        before=clear,
    )
    w, x = (jnp.asarray(rng.normal(size=(256, 256)) / 16, "float32") for _ in range(2))
    for jitted, about in ((True, "one jitted layer called 24 times"), (False, "24 equal layers")):
        ours, peer = (lib.ft.jit(lib.ft.grad(repeated_layer_loss(lib, 24, jitted))) for lib in (OURS, JAX))
        yield pair(
            f"jitted gradient, {about}",
            lambda ours=ours: ours(w, x),
            lambda peer=peer: peer(w, x),
            goal=1.03,
            repeats=61,
        )
    sequence = jnp.asarray(rng.normal(size=(100, 32, 32)), "float32")
    target = jnp.asarray(rng.normal(size=(32, 1)), "float32")
    params = transformer_params(12, 64)
    stacked = params | {"blocks": jax.tree.map(lambda *xs: jnp.stack(xs), *params["blocks"])}

    def scanned(lib: Library):
        loss = transformer_loss(lib, scanned=True)
        return lambda p, tokens: lib.np.mean(lib.ft.vmap(loss, (None, 0))(p, tokens))

    models = (
        ("RNN, 100 steps", rnn_loss, (rnn_params(), sequence, target), 5),
        ("12-layer transformer by scan", scanned, (stacked, TOKENS), 2),
    )
    for name, loss, args, n in models:
        ours, peer = sgd_step(OURS, loss(OURS)), sgd_step(JAX, loss(JAX))
        yield pair(
            f"trace + transform + lower, {name}",
            lambda ours=ours, args=args: ours.lower(*args),
            lambda peer=peer, args=args: peer.lower(*args),
            goal=1 / 3,
            repeats=9,
            before=clear,
        )
        yield pair(
            f"jitted training step, {name}",
            lambda ours=ours, args=args: ours(*args),
            lambda peer=peer, args=args: peer(*args),
            goal=1.03,
            repeats=31,
            calls=n,
        )
    kernels = jnp.asarray(rng.normal(size=(8, 3, 3, 32, 32)) / 17, "float32")
    images = jnp.asarray(rng.normal(size=(8, 32, 16, 16)), "float32")
    ours, peer = ft.jit(ft.grad(looped_convs_loss(OURS))), jax.jit(jax.grad(looped_convs_loss(JAX)))
    written_out = jax.jit(jax.grad(looped_convs_loss(JAX, unroll=True)))
    name = "gradient of 8 convolutions in a scan"
    for other, about, goal, calls in (
        (peer, "", 0.05, (10, 1)),
        (written_out, ", against JAX's without a loop", None, (10, 10)),
    ):
        yield pair(
            name + about,
            lambda: ours(kernels, images),
            lambda other=other: other(kernels, images),
            goal=goal,
            repeats=15,
            calls=calls,
        )


def inspection() -> Iterator[Row]:
    """Time the tools that watch every equation, against the un-jitted function. Their first call
    compiles each operation and is not counted; `compare` does not compile the whole program."""
    for layers in (12, 28):
        args = transformer_params(layers, 64), TOKENS[0]
        gradient = ft.grad(transformer_loss(OURS))
        for name, tool in (
            ("ft.compare", ft.compare(gradient, compiled=False)),
            ("ft.find_nan", ft.find_nan(gradient)),
        ):
            count = tool(*args).count
            yield pair(
                f"{name}, grad of a {layers}-layer transformer, {count:,} equations (second "
                "column: functrans un-jitted)",
                lambda tool=tool, args=args: tool(*args),
                lambda gradient=gradient, args=args: gradient(*args),
                goal=10,
                repeats=9,
            )


def first_nan() -> Iterator[Row]:
    """Time the search for the first NaN of a gradient in JAX code: `ft.find_nan` against the flag
    `jax_debug_nans`. Each search is given a new function; its operations have been compiled."""
    args = transformer_params(4, 64), TOKENS, 0.0
    loss_of_one = transformer_loss(JAX)

    def loss(params, tokens, scale):  # the derivative of sqrt at 0 is infinite
        return jnp.mean(jnp.sqrt(scale * jax.vmap(loss_of_one, (None, 0))(params, tokens)))

    def gradient():
        return jax.jit(jax.grad(lambda *args: loss(*args)))

    def ours():
        found = ft.find_nan(gradient())(*args).first
        assert "jnp.sqrt" in str(found), found

    def peer():
        with jax.debug_nans(True):
            try:
                jax.block_until_ready(gradient()(*args))
            except FloatingPointError:
                return
        raise AssertionError("JAX found no NaN")

    yield pair("first NaN of a transformer's gradient (JAX: jax_debug_nans)", ours, peer, repeats=7)


GROUPS = (
    tracing,
    lowering,
    dispatch,
    steps,
    unjitted,
    growth,
    scans,
    inspection,
    first_nan,
    optimizer_private,
    optimizer_algebra,
    optimizer_controls,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("word", nargs="?", default="", help="run the groups whose name holds it")
    parser.add_argument("--only", default="", help="the same")
    parser.add_argument("--json", help="where the figures go; of a whole run: benchmarks.json")
    own = parser.add_argument_group("loops, ensembles, training, accelerator, options, existing, libraries")
    own.add_argument("--rows", default="", help="run the rows whose name holds this word")
    own.add_argument("--repeats", type=int, default=15, help="measurements of each row")
    own.add_argument("--x64", action="store_true", help="loops, ensembles: run all rows in float64")
    given = parser.parse_args()
    word = given.word or given.only
    device = jax.devices()[0]
    about = {
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": f"{device.platform} {device.device_kind}",
    }
    if word == "namespace":
        sys.exit(names())
    tables: dict[str, Callable[[], Sequence[Any]]] = {
        "loops": lambda: small_loops.run(given.rows, given.x64, given.repeats),
        "ensembles": lambda: small_loops.run(given.rows, given.x64, given.repeats, [small_loops.ensembles]),
        "training": lambda: training.run(given.rows, given.repeats),
        "accelerator": lambda: accelerator.run(given.rows, given.repeats),
        "options": lambda: options.run(given.rows, given.repeats),
        "existing": lambda: optional("existing").run(given.rows, given.repeats),
        "libraries": lambda: optional("libraries").run(given.rows, given.repeats),
    }
    if word in tables:
        lines = tables[word]()
        rows = [asdict(line) for line in lines]
        failed = any(line.failure for line in lines)
    else:
        rows, failed = [asdict(r) | {"met": r.met} for r in groups(word, about)], False
    figures = given.json or ("" if word else "benchmarks.json")
    if figures:
        with open(figures, "w") as file:
            json.dump({**about, "rows": rows}, file, indent=1)
    sys.exit(failed)


def optional(name: str) -> Any:
    """Return a module of existing JAX code: only its table needs flax, haiku, optax, gymnax, ..."""
    return importlib.import_module(f"benchmarks.{name}")


def names() -> bool:
    """Print how many public names of JAX functrans has; return whether some are missing."""
    lines, all_there = runpy.run_path(str(NAMESPACE))["coverage"]()
    print("\n".join(["| module | names here |", "|---|---|", *lines]))
    return not all_there


def groups(word: str, about: dict[str, str]) -> list[Row]:
    """Run the groups whose name contains the word; print each row when it is measured, then all."""
    rows = []
    for group in GROUPS:
        if word in group.__name__:
            for row in group():
                print(table([row]).splitlines()[-1], flush=True)
                rows.append(row)
    print(f"\n{about}\n{table(rows)}")
    return rows


if __name__ == "__main__":
    main()
