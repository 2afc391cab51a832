"""`jax_debug_key_reuse`: JAX's check for random keys that are used twice, for our programs.

In: a JAX equation that holds one of our programs. Out: its signature, that is which keys it
consumes and which it creates, or JAX's `KeyReuseError`. JAX has signatures for its own operations
on typed keys. So the program is traced to a jaxpr of JAX's operations on its keys only, and JAX
computes the signature of that. The data of a key represents the key until an operation other than
our random ones reads it; a key made from data is new, as in JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental.key_reuse import _core as theirs

from functrans.backends import xla
from functrans.caching import memo
from functrans.interop.loops import LOOPS, by_jax
from functrans.ir.program import Equation, Program, Var
from functrans.ir.types import ArrayType, is_key_dtype
from functrans.primitives.control_flow.cond import cond
from functrans.primitives.random.bits import impl_of, key_shape
from functrans.trace import at_once

Key = Any  # a JAX key tracer; None: not a key


@theirs.dynamic_key_reuse_signature
def signature(eqn: Any) -> Any:
    """Return the key-reuse signature of an equation."""
    program: Program = eqn.params["program"]
    return memo(program, _signature)


for _primitive in xla.PRIMITIVES:
    theirs.key_reuse_signatures[_primitive] = signature


def _signature(program: Program) -> Any:
    ins = [i for i, t in enumerate(program.in_types) if is_key_dtype(t.dtype)]
    outs = [i for i, t in enumerate(program.out_types) if is_key_dtype(t.dtype)]

    def keys(*given: Key) -> list[Key]:
        env = dict(zip(ins, given, strict=True))
        found = _run(program, [env.get(i) for i in range(len(program.inputs))])
        return [found[i] for i in outs]

    types = [program.in_types[i] for i in ins]
    with at_once():
        closed = jax.make_jaxpr(keys)(*[jax.ShapeDtypeStruct(t.shape, t.dtype) for t in types])
    found = theirs.jaxpr_type_signature(closed.jaxpr)
    return theirs.KeyReuseSignature(
        *[theirs.Sink(ins[s.idx], s.mask) for s in found.sinks],
        *[theirs.Source(outs[s.idx], s.mask) for s in found.sources],
        *[theirs.Forward(ins[f.in_idx], outs[f.out_idx]) for f in found.forwards],
    )


def _run(program: Program, keys: Sequence[Key]) -> list[Key]:
    """Return the keys among the results of a program."""
    env: dict[Any, Key] = dict(zip(program.inputs, keys, strict=True))
    for v in program.constants:
        env[v] = _new(v.type)
    for e in program.equations:
        outs = _equation(e, [env.get(v) if v.__class__ is Var else None for v in e.inputs])
        for v, k in zip(e.outputs, outs, strict=True):
            env[v] = _new(v.type) if k is None else k
    return [env.get(v) if v.__class__ is Var else None for v in program.outputs]


def _new(t: ArrayType) -> Key:
    """Return a new key, or None if the type is not a key."""
    if not is_key_dtype(t.dtype):
        return None
    impl = impl_of(t.dtype)
    words = jax.numpy.zeros((*t.shape, *key_shape(impl)), np.uint32)
    return jax.random.wrap_key_data(words, impl=impl)


def _equation(e: Equation, keys: Sequence[Key]) -> Sequence[Key]:
    """Return the keys among the results of an equation; None for results that are not tracked."""
    name, program = e.primitive.name, e.params.get("program")
    if name in _OF_ONE_KEY:
        return [None] * len(e.outputs) if keys[0] is None else _OF_ONE_KEY[name](e, keys[0])
    if name in _RULES:
        return _RULES[name](e, keys)
    if program.__class__ is Program and len(program.inputs) == len(keys):
        return _run(program, keys)
    return [None] * len(e.outputs)


def _moved(e: Equation, key: Key) -> Sequence[Key]:
    """Apply the rule of `_MOVES` to the first operand's key, unless the words of a key are split."""
    x, y = e.inputs[0].type, e.outputs[0].type
    n = y.ndim - (x.ndim - key.ndim)  # axes of the result before the words
    if x.shape[key.ndim :] != y.shape[n:]:
        return [None] * len(e.outputs)
    return _MOVES[e.primitive.name](e, key, y.shape[:n])


def _parted(e: Equation, key: Key, shape: tuple[int, ...]) -> Sequence[Key]:
    axis, stops = e.params["axis"], np.cumsum(e.params["sizes"])
    parts = zip([0, *stops], stops, strict=False)
    return [jax.lax.slice_in_dim(key, int(a), int(b), axis=axis) for a, b in parts]


# The keys among the results, given the key among the operands and the shape of the first result's.
_MOVES: dict[str, Callable[[Equation, Key, tuple[int, ...]], Sequence[Key]]] = {
    **dict.fromkeys(
        ("reshape", "squeeze", "expand_dims"), lambda e, key, shape: [jax.lax.reshape(key, shape)]
    ),
    "broadcast_in_dim": lambda e, key, shape: [
        jax.lax.broadcast_in_dim(key, shape, e.params["dimensions"][: key.ndim])
    ],
    "slice": lambda e, key, shape: [
        jax.lax.slice(key, *[e.params[k][: len(shape)] for k in ("start", "limit", "strides")])
    ],
    "split": _parted,
    "dynamic_slice": lambda e, key, shape: [jax.lax.dynamic_slice(key, [0] * len(shape), shape)],
    "gather": lambda e, key, shape: [key.reshape(-1)[jax.numpy.zeros(shape, int)]],
}


def _used(e: Equation, key: Key) -> Sequence[Key]:
    theirs.prng.random_bits_p.bind(key, shape=(), bit_width=32)
    return [None]


_OF_ONE_KEY: dict[str, Callable[[Equation, Key], Sequence[Key]]] = {
    **dict.fromkeys(("random_unwrap", "sharding_constraint"), lambda e, key: [key]),
    **dict.fromkeys(_MOVES, _moved),
    **dict.fromkeys(("random_bits", "random_gamma"), _used),
    "random_split": lambda e, key: [theirs.prng.random_split_p.bind(key, shape=e.params["shape"])],
    "random_fold_in": lambda e, key: [theirs.prng.random_fold_in_p.bind(key, np.zeros(key.shape, np.uint32))],
}


def _concatenated(e: Equation, keys: Sequence[Key]) -> Sequence[Key]:
    if any(k is None for k in keys):
        return [None]
    return [jax.lax.concatenate(keys, e.params["dimension"])]


def _called(e: Equation, keys: Sequence[Key]) -> Sequence[Key]:
    """Apply the rule of a `jax_call`: run the JAX operation itself."""
    body = e.params["body"]
    given = [
        jax.numpy.zeros(t.shape, t.dtype) if k is None else k for k, t in zip(keys, body.types, strict=True)
    ]
    return [y if is_key_dtype(y.dtype) else None for y in body.fun(*given)]


def _looped(e: Equation, keys: Sequence[Key]) -> Sequence[Key]:
    """Apply the rule of a loop or branch: JAX's on the keys only. None is a tree without leaves."""

    def typed(values: Sequence[Any], keys: Sequence[Key]) -> list[Key]:
        return [k if is_key_dtype(v.type.dtype) else None for v, k in zip(values, keys, strict=True)]

    def run(program: Program, keys: Sequence[Key]) -> Sequence[Any]:
        found = typed(program.outputs, _run(program, keys))
        return [False] if program is e.params.get("cond") else found

    given: list[Any] = typed(e.inputs, keys)
    if e.primitive is cond:
        given[0] = np.int32(0)
    return by_jax(e, run, given)


_RULES: dict[str, Callable[[Equation, Sequence[Key]], Sequence[Key]]] = {
    "concatenate": _concatenated,
    "jax_call": _called,
    **dict.fromkeys([p.name for p in LOOPS], _looped),
}
