"""Conversion between pytrees and flat lists of arrays, shared by the modules of this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans import pytrees as tree
from functrans.caching import Cache
from functrans.ir.source import describe, user_source
from functrans.jax_trace import outside
from functrans.primitives.elementwise.conversion import convert_element_type
from functrans.pytrees.functions import FlatFunction as FlatFunction
from functrans.pytrees.functions import check_result as check_result
from functrans.pytrees.functions import function_name as function_name
from functrans.trace import ARRAYS, Tracer, literal, materialize, typeof
from functrans.tracer import not_an_array

_NUMBERS = (np.generic, int, float, complex)


class Function(FlatFunction):
    """A FlatFunction whose result may be `(out, aux)`. The tracers among the leaves of aux follow
    the leaves of out; its other leaves may be any objects and are returned unchanged."""

    __slots__ = ("aux", "has_aux", "n_out")
    out_tree: Any

    def __init__(self, fun: Any, in_tree: Any, has_aux: bool = False):
        super().__init__(fun, in_tree)
        self.has_aux: bool = has_aux
        self.n_out: int = 0
        self.aux: Any = None

    def __call__(self, *leaves: Any) -> list[Any]:
        if not self.has_aux:
            outs = super().__call__(*leaves)
            self.n_out = len(outs)
            return outs
        args, kwargs = tree.unflatten(self.in_tree, leaves)
        result = self.run(args, kwargs)
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise errors.NotAnArray(
                f"with has_aux=True, {function_name(self.named)} must return a pair (out, aux), "
                f"got {_kind_of(result)}, at\n    {describe(user_source())}\n"
                "Return (loss, aux), or leave out has_aux."
            )
        outs, self.out_tree = tree.flatten(result[0])
        self.aux = result[1]
        self.n_out = len(outs)
        for i, y in enumerate(outs):
            check_result(self.named, y, tuple(result), i)
        return [*outs, *[x for x in tree.leaves(self.aux) if isinstance(x, Tracer)]]

    def unflatten(self, outs: Sequence[Any]) -> Any:
        return tree.unflatten(self.out_tree, outs[: self.n_out])

    def results(self, outs: Sequence[Any]) -> tuple[Any, Any]:
        given, self.aux = self.aux, None
        traced = iter(outs[self.n_out :])
        aux = tree.map(lambda x: next(traced) if isinstance(x, Tracer) else x, given)
        return self.unflatten([materialize(y) for y in outs[: self.n_out]]), aux


def _kind_of(result: Any) -> str:
    try:
        return str(typeof(result))
    except errors.NotAnArray:
        return f"a {type(result).__name__}"


_MET = Cache("types of arguments that were converted", 4096)  # how often
_OFTEN = 8


def as_array(x: Any) -> Any:
    """Convert an argument to an operand: NumPy arrays and Python scalars to `jax.Array`s.

    `jax.numpy.asarray` is fastest, but compiles a program for each type. The first arguments of a
    type are put on the device without one: NumPy arrays after a copy, because the device may share
    their memory.
    """
    if x.__class__ in ARRAYS or isinstance(x, (jax.Array, Tracer)):
        return x
    t = typeof(x)  # raises an error unless it is an array
    with outside():
        plain = x.__class__ is np.ndarray
        met = _MET.get(t) or 0
        if met >= _OFTEN or not (plain or isinstance(x, _NUMBERS)):
            return jax.numpy.asarray(x)
        _MET.replace(t, met + 1)
        return jax.device_put(x.copy() if plain else x)


def as_arrays(
    leaves: Sequence[Any], names: Callable[[], Sequence[str]], convert: Callable[[Any], Any] = as_array
) -> list[Any]:
    """Apply `as_array`, or another conversion, to each leaf; an error names the path of the leaf
    that is not an array."""
    try:
        return [convert(x) for x in leaves]
    except errors.NotAnArray:
        for name, x in zip(names(), leaves, strict=False):
            try:
                convert(x)
            except errors.NotAnArray:
                raise errors.NotAnArray(not_an_array(x, name)) from None
        raise


def instantiate(x: Any, like: Any) -> Any:
    """Return a tangent or cotangent as an array of type `like`; None means zero."""
    if x is None:
        tangent = like.tangent()
        if tangent is not like:
            return float0_zeros(like.shape)
        return materialize(literal(0, like))
    if typeof(x).weak_type != like.weak_type:
        x = convert_element_type(x, dtype=like.dtype, weak_type=like.weak_type)
    return materialize(x)


def float0_zeros(shape: Sequence[int]) -> Any:
    return np.zeros(shape, jax.dtypes.float0)
