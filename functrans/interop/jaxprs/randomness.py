"""JAX's operations on random keys. A program works on the data of keys."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans.flags import flags
from functrans.interop.jaxprs.walk import means, opaque, operation, plain, spread
from functrans.primitives.random import bits as prims
from functrans.trace import typeof


def _generator(key: Any) -> dict[str, Any]:
    """Return the parameters of the generator of typed keys, unless it is the default one."""
    impl, partitionable = prims.impl_of(typeof(key).dtype), flags.jax_threefry_partitionable
    usual = impl == prims.DEFAULT and partitionable
    return {} if usual else {"impl": impl, "partitionable": partitionable}


def _impl(eqn: Any) -> str:
    impl = eqn.params["impl"]
    return str(getattr(impl, "name", impl))


def _wrapped(data: Any, key: Any) -> Any:
    return prims.random_wrap(data, impl=prims.impl_of(typeof(key).dtype))


@means("random_seed")
def _seed(eqn: Any, seed: Any) -> Any:
    impl = _impl(eqn)
    return prims.random_wrap(prims.random_seed(seed, impl=impl), impl=impl)


@means("random_wrap")
def _wrap(eqn: Any, data: Any) -> Any:
    return prims.random_wrap(data, impl=_impl(eqn))


@means("random_unwrap")
def _unwrap(eqn: Any, key: Any) -> Any:
    return prims.random_unwrap(key)


@means("random_bits")
def _bits(eqn: Any, key: Any) -> Any:
    shape, width = plain(eqn.params["shape"]), plain(eqn.params["bit_width"])
    data = prims.random_unwrap(key)
    return prims.random_bits(data, shape=shape, bit_width=width, **_generator(key))


@means("random_split")
def _split(eqn: Any, key: Any) -> Any:
    shape = plain(eqn.params["shape"])
    data = prims.random_split(prims.random_unwrap(key), shape=shape, **_generator(key))
    return _wrapped(data, key)


@means("random_fold_in")
def _fold_in(eqn: Any, key: Any, number: Any) -> Any:
    shape = eqn.outvars[0].aval.shape
    key, number = spread(key, shape), spread(number, shape)
    impl = prims.impl_of(typeof(key).dtype)
    how = {} if impl == prims.DEFAULT else {"impl": impl}
    return _wrapped(prims.random_fold_in(prims.random_unwrap(key), number, **how), key)


@means("random_clone")
def _cloned(eqn: Any, key: Any) -> Any:
    """Return the same key; an operation if checking for reused keys."""
    return opaque(eqn, key) if flags.jax_debug_key_reuse else key


@means("threefry2x32")
def _threefry(eqn: Any, *words: Any) -> Sequence[Any]:
    shape = eqn.outvars[0].aval.shape
    return operation(eqn, "threefry2x32")(*[spread(w, shape) for w in words])


@means("random_gamma")
def _gamma(eqn: Any, key: Any, a: Any) -> Any:
    data, log_space = prims.random_unwrap(key), eqn.params["log_space"]
    return operation(eqn, "random_gamma")(data, a, log_space=log_space, **_generator(key))


@means("rng_bit_generator")
def _generated(eqn: Any, key: Any) -> Any:
    p = eqn.params
    if typeof(key).ndim > 1:
        return opaque(eqn, key)
    return operation(eqn, "rng_bit_generator")(
        key, shape=plain(p["shape"]), dtype=np.dtype(p["dtype"]), algorithm=int(p["algorithm"])
    )


_CALLS = itertools.count()


@means("rng_uniform")
def _drawn(eqn: Any, low: Any, high: Any) -> Any:
    """An operation that is never merged with another: no two draw the same numbers."""
    shape = plain(eqn.params["shape"])
    return operation(eqn, "rng_uniform")(low, high, shape=shape, call=next(_CALLS))
