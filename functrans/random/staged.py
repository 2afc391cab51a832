"""Samplers as nested programs.

`@sampler` makes of a function (source, *parameters, static options) -> array one whose call is a
single equation: the operations are recorded once per signature and found again in a cache. So
drawing noise costs a trace one equation, a module one function per signature, an un-jitted call one
dispatch; and XLA sees the same fused computation either way, which bit-identity with JAX needs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans import errors
from functrans.flags import flags
from functrans.ir.program import Program
from functrans.ir.types import ArrayType, dtype_class
from functrans.numpy.promotion import invalid, mismatch, value_of
from functrans.primitives import random_bits as prims
from functrans.primitives.call import jit as call_program
from functrans.primitives.random_gamma import random_gamma
from functrans.primitives.shape import reshape, slice_axis
from functrans.trace import Tracer, stage, typeof

UINT32 = np.dtype(np.uint32)


class Source(NamedTuple):
    """The data of one key, and how its generator is run."""

    data: Any
    impl: str
    partitionable: bool
    rolled: bool = False  # see `RandomBits`

    def bits(self, shape: tuple[int, ...], bit_width: int) -> Any:
        """Random unsigned integers."""
        how = self._how() | ({"rolled": True} if self.rolled else {})
        return prims.random_bits(self.data, shape=shape, bit_width=bit_width, **how)

    def gamma(self, a: Any, log_space: bool = False) -> Any:
        """A sample of the gamma distribution for each parameter, or its logarithm."""
        return random_gamma(self.data, a, log_space=log_space, **self._how())

    def split(self, n: int = 2) -> list[Source]:
        """New sources."""
        rows = self.split_data((n,))
        shape = prims.key_shape(self.impl)
        return [
            self._replace(data=reshape(slice_axis(rows, 0, i, i + 1), shape=shape))
            for i in range(n)
        ]

    def split_data(self, shape: tuple[int, ...]) -> Any:
        """The data of new keys."""
        return prims.random_split(self.data, shape=shape, **self._how())

    def _how(self) -> dict[str, Any]:
        return {} if self[1:3] == _DEFAULTS else {"impl": self[1], "partitionable": self[2]}


_DEFAULTS = (prims.DEFAULT, True)
_PROGRAMS: dict[tuple, Program] = {}
_SINGLE_KEYS: dict[tuple, str] = {}  # (type of a key, default generator) -> its generator


def sampler(name: str, gives_keys: bool = False) -> Callable[..., Any]:
    """Make a sampler of a function of a Source, parameters and static keyword options. It takes a
    key in its place and fails with a clear error where it is given something else. `gives_keys`:
    its result is data of keys, handed back in the form of the key given."""

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(key: Any, *parameters: Any, **options: Any) -> Any:
            t, impl = _single_key(name, key)
            operands = [key, *[value_of(x, name, i) for i, x in enumerate(parameters)]]
            types = (t, *[typeof(x) for x in operands[1:]])
            how = (impl, flags.jax_threefry_partitionable)
            cached = (function, types, how, flags.jax_enable_x64, *options.values())
            program = _PROGRAMS.get(cached)
            if program is None:
                body = functools.partial(_record, function, gives_keys, how, options)
                program = _PROGRAMS[cached] = stage(body, types, name)
            return call_program(*operands, program=program)[0]

        return call

    return make


def _record(
    function: Callable[..., Any], gives_keys: bool, how: Any, options: Any, key: Any, *xs: Any
) -> Sequence[Any]:
    typed = dtype_class(key.dtype) == "key"
    out = function(Source(prims.random_unwrap(key) if typed else key, *how), *xs, **options)
    return [prims.random_wrap(out, impl=how[0]) if typed and gives_keys else out]


def _single_key(name: str, key: Any) -> tuple[ArrayType, str]:
    """`key_type`, fast for traced keys."""
    if key.__class__ is Tracer:
        found = _SINGLE_KEYS.get((key.type, flags.jax_default_prng_impl))
        if found is not None:
            return key.type, found
    t, impl = key_type(name, key)
    _SINGLE_KEYS[t, flags.jax_default_prng_impl] = impl
    return t, impl


def key_type(name: str, key: Any, batch: bool = False) -> tuple[ArrayType, str]:
    """The type of a key, typed or its data, and the name of its generator."""
    try:
        t = typeof(key)
    except errors.NotAnArray:
        raise _not_a_key(name, f"{key!r:.60} of type {type(key).__qualname__}") from None
    if dtype_class(t.dtype) == "key":
        shape, impl = t.shape, prims.impl_of(t.dtype)
    else:
        impl = flags.jax_default_prng_impl
        last = prims.key_shape(impl)
        if t.dtype != UINT32 or t.shape[t.ndim - len(last) :] != last or not t.shape:
            raise _not_a_key(name, str(t))
        shape = t.shape[: t.ndim - len(last)]
    if shape and not batch:
        raise invalid(
            name,
            f"accepts a single key, but was given a key array of shape {shape}",
            f"Use vmap: vmap(lambda key: random.{name}(key, ...))(keys); or pick one of them.",
        )
    return t, impl


def _not_a_key(name: str, given: str) -> Exception:
    return mismatch(
        name,
        f"takes a PRNG key as its first argument, but was given {given}",
        "Make one with random.key(seed), and new ones of it with random.split(key).",
    )
