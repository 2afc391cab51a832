"""Elementwise functions as objects, with what NumPy's ufuncs can do: reduce, accumulate, at, ...

In: a function of scalars (`frompyfunc`), or one of this package's own functions, which stays a
plain function, so that a call costs what it did, and gets the methods as attributes:
`jnp.add.reduce(x)`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.tracebacks import guard_methods
from functrans.lax.arguments import integer
from functrans.lax.loops import scan
from functrans.numpy.creation import full_like
from functrans.numpy.indexing import At, getitem, take
from functrans.numpy.joining import concatenate
from functrans.numpy.prims import broadcast_in_dim
from functrans.numpy.promotion import (
    array_of,
    axes_of,
    axis_index,
    cast,
    invalid,
    promote_dtypes,
    user_dtype,
)
from functrans.numpy.ranges import arange
from functrans.numpy.reductions import included
from functrans.numpy.selecting import astype
from functrans.numpy.selecting import where as select
from functrans.numpy.shaping import broadcast_to, expand_dims, moveaxis, ravel, reshape
from functrans.numpy.ufuncs import bitwise_and, greater, less, refuse_out
from functrans.numpy.vectorizing import vectorize
from functrans.trace import materialize, stage, typeof

__all__ = ["frompyfunc", "ufunc"]

Function = Callable[..., Any]

# The functions of this package that have the methods.
NATIVE: set[Function] = set()


class _Ufuncs(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return type.__instancecheck__(cls, x) or (callable(x) and _is_native(x))


def _is_native(x: Any) -> bool:
    try:
        return inspect.unwrap(x) in NATIVE  # shown to users with a frame around them
    except TypeError:
        return False


@guard_methods
class ufunc(metaclass=_Ufuncs):
    """A function of scalars that applies to every element of arrays, with NumPy's methods.

    Arguments:
      func: function of `nin` scalars with `nout` results.
      name, identity: as NumPy's ufuncs have them; None: no identity.
      call, reduce, accumulate, at, reduceat: functions to use for these instead of general ones.

    Source: `jax.numpy.ufunc`.

    Example:
      >>> import functrans.numpy as jnp
      >>> f = jnp.frompyfunc(lambda x, y: x + 2 * y, 2, 1)
      >>> print(f.reduce(jnp.array([1.0, 2.0, 3.0])))
      11.0
    """

    def __init__(
        self, func: Function, /, nin: int, nout: int, *, name: str | None = None,
        nargs: int | None = None, identity: Any = None, call: Function | None = None,
        reduce: Function | None = None, accumulate: Function | None = None,
        at: Function | None = None, reduceat: Function | None = None,
    ):  # fmt: skip
        self.__doc__ = func.__doc__
        self.__name__ = name or func.__name__
        # what an error calls it
        self.said = f"frompyfunc({self.__name__})" if call is None else self.__name__
        self.nin, self.nout = integer(nin, self.said, "nin"), integer(nout, self.said, "nout")
        self.nargs = self.nin if nargs is None else nargs
        self.identity = identity
        self._call = call or vectorize(func)
        self._own = {"reduce": reduce, "accumulate": accumulate, "at": at, "reduceat": reduceat}

    def __repr__(self) -> str:
        return f"<jnp.ufunc '{self.__name__}'>"

    def __hash__(self) -> int:
        return hash((self._call, self.__name__, self.nin, self.nout))

    def __eq__(self, other: Any) -> bool:
        return type(other) is ufunc and self.__dict__ == other.__dict__

    def __call__(self, *args: Any, out: None = None, where: None = None) -> Any:
        refuse_out(self.said, out, where)
        if len(args) != self.nin:
            raise errors.TypeMismatch(
                f"{self.said} takes {self.nin} arguments, got {len(args)}, at\n"
                f"    {describe(user_source())}"
            )
        return self._call(*args)

    # --- the methods ------------------------------------------------------------------------------

    def reduce(
        self, a: Any, axis: Any = 0, dtype: Any = None, out: None = None, keepdims: bool = False,
        initial: Any = None, where: Any = None,
    ) -> Any:  # fmt: skip
        """Join all elements along axes (None: all) by the function.

        Arguments:
          dtype: of the computation.
          initial: what to begin with; by default the identity, or the first element.
          where: truth values that broadcast to a's shape: what to include.

        Source: `jax.numpy.ufunc.reduce`.
        """
        self._check_binary("reduce", out)
        if where is not None and self.identity is None and initial is None:
            raise invalid(
                f"{self.said}.reduce", "has no identity, so that where needs a start",
                "Pass initial=.",
            )  # fmt: skip
        own = self._own["reduce"]
        if own is not None:
            return own(a, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)
        a = self._array("reduce", a, dtype)
        t = typeof(a)
        axes = axes_of(axis, t.ndim, f"{self.said}.reduce")
        rows, mask = _leading(a, axes), None
        if where is not None:
            mask = _leading(included(where, t, f"{self.said}.reduce"), axes)
        result = self._folded(rows, mask, initial)
        for i in sorted(axes) if keepdims else ():
            result = expand_dims(result, i)
        return result

    def _folded(self, rows: Any, mask: Any, initial: Any) -> Any:
        """The rows joined, one after the other."""
        t = typeof(rows)
        if initial is None and (mask is not None or t.shape[0] == 0):
            initial = self.identity
        if initial is None:
            if t.shape[0] == 0:
                raise invalid(
                    f"{self.said}.reduce", f"{t} has nothing to join, and there is no identity"
                )
            start, rows = getitem(rows, 0), getitem(rows, slice(1, None))
            mask = None if mask is None else getitem(mask, slice(1, None))
        else:
            start = full_like(rows, initial, shape=t.shape[1:])
        start = self._as_result(start)

        def step(carry: Any, row: Any) -> tuple[Any, None]:
            row, included = row
            joined = cast(self._call(carry, row), typeof(carry).dtype, typeof(carry).weak_type)
            return (joined if included is None else select(included, joined, carry)), None

        return scan(step, start, (rows, mask))[0]

    def accumulate(self, a: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Any:
        """The results of `reduce` over the first elements along an axis: one, two, ...

        Source: `jax.numpy.ufunc.accumulate`.
        """
        self._check_binary("accumulate", out)
        own = self._own["accumulate"]
        if own is not None:
            return own(a, axis=axis, dtype=dtype)
        check_one_axis(f"{self.said}.accumulate", axis)
        a = self._array("accumulate", a, dtype)
        i = axis_index(axis, typeof(a).ndim, f"{self.said}.accumulate")
        rows = moveaxis(a, i, 0)
        if typeof(rows).shape[0] == 0:
            return self._as_result(a)

        def step(carry: Any, row: Any) -> tuple[Any, Any]:
            joined = cast(self._call(carry, row), typeof(carry).dtype, typeof(carry).weak_type)
            return joined, joined

        first = self._as_result(getitem(rows, 0))
        _, sums = scan(step, first, getitem(rows, slice(1, None)))
        return moveaxis(concatenate([expand_dims(first, 0), sums]), 0, i)

    def _as_result(self, x: Any) -> Any:
        """x at the dtype of the function's result of x and x, which loops carry."""
        t = typeof(x)
        (out,) = stage(lambda a, b: [self._call(a, b)], [t, t], self.said).out_types
        return materialize(cast(x, out.dtype))

    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True) -> Any:
        """a with the function applied to the elements at indices, as often as an index is given.

        Arguments:
          b: the other operands of a function of two.
          inplace: must be False, as arrays cannot be changed.

        Source: `jax.numpy.ufunc.at`.
        """
        name = f"{self.said}.at"
        if inplace:
            raise errors.NotSupported(
                f"{name} cannot change an array in place (arrays are immutable), at\n"
                f"    {describe(user_source())}\nWrite x = jnp.{name}(x, ..., inplace=False)."
            )
        if (b is None) != (self.nin == 1):
            raise errors.TypeMismatch(
                f"{name}: a function of {self.nin} takes {self.nin + 1} arguments, at\n"
                f"    {describe(user_source())}"
            )
        a = array_of(a, name)
        own = self._own["at"]
        if own is not None:
            return own(a, indices, b)
        return self._one_by_one(a, indices, b)

    def _one_by_one(self, a: Any, indices: Any, b: Any) -> Any:
        t = typeof(a)
        places = getitem(_places_in(t.shape), indices)
        values = None
        if b is not None:
            a, b = promote_dtypes((a, b), self.said)
            values = ravel(broadcast_to(b, typeof(places).shape))
            a = self._as_result(a)
        a = cast(a, typeof(a).dtype)
        places, kind = ravel(places), typeof(a).dtype

        def step(flat: Any, one: Any) -> tuple[Any, None]:
            place, value = one
            old = getitem(flat, place)
            new = self._call(old) if value is None else self._call(old, value)
            return At(flat)[place].set(cast(array_of(new, self.said), kind)), None

        flat, _ = scan(step, ravel(a), (places, values))
        return reshape(flat, t.shape)

    def outer(self, A: Any, B: Any, /) -> Any:
        """The function of every element of A with every element of B.

        Source: `jax.numpy.ufunc.outer`.
        """
        self._check_binary("outer", None)
        A, B = array_of(A, f"{self.said}.outer"), array_of(B, f"{self.said}.outer", 1)
        first, shape = typeof(A).ndim, (*typeof(A).shape, *typeof(B).shape)
        A = broadcast_in_dim(A, shape=shape, dimensions=tuple(range(first)))
        B = broadcast_in_dim(B, shape=shape, dimensions=tuple(range(first, len(shape))))
        return self._call(A, B)

    def reduceat(
        self, a: Any, indices: Any, axis: int = 0, dtype: Any = None, out: None = None
    ) -> Any:
        """`reduce` over slices of an axis: from each index up to the next one.

        Arguments:
          indices: vector of integers; where the next is not larger, the slice is one element.

        Source: `jax.numpy.ufunc.reduceat`.
        """
        self._check_binary("reduceat", out)
        check_one_axis(f"{self.said}.reduceat", axis)
        own = self._own["reduceat"]
        if own is not None:
            return own(a, indices, axis=axis, dtype=dtype)
        a = self._array("reduceat", a, dtype)
        name = f"{self.said}.reduceat"
        i = axis_index(axis, typeof(a).ndim, name)
        starts = array_of(indices, name, 1)
        rows = moveaxis(a, i, 0)
        n = typeof(rows).shape[0]
        last = full_like(starts, n, shape=(min(1, typeof(starts).size),))
        ends = concatenate([getitem(starts, slice(1, None)), last])
        first = take(rows, starts, axis=0)
        spread = (-1, *(1,) * (typeof(rows).ndim - 1))

        def step(carry: Any, one: Any) -> tuple[Any, None]:
            row, place = one
            inside = bitwise_and(greater(place, starts), less(place, ends))
            joined = cast(self._call(carry, row), typeof(carry).dtype, typeof(carry).weak_type)
            return select(reshape(inside, spread), joined, carry), None

        places = _places_in((n,))
        return moveaxis(scan(step, first, (rows, places))[0], 0, i)

    def _check_binary(self, method: str, out: Any) -> None:
        refuse_out(f"{self.said}.{method}", out)
        if self.nin != 2 or self.nout != 1:
            raise invalid(
                f"{self.said}.{method}",
                f"is for functions of two arguments with one result, not of {self.nin} with "
                f"{self.nout}",
            )

    def _array(self, method: str, a: Any, dtype: Any) -> Any:
        a = array_of(a, f"{self.said}.{method}")
        return a if dtype is None else astype(a, user_dtype(dtype))


def check_one_axis(name: str, axis: Any) -> None:
    """Raise for no axis, which stands for all of them elsewhere, and for several."""
    if axis is None or isinstance(axis, (tuple, list)):
        raise invalid(name, f"goes along one axis, got {axis}")


def _places_in(shape: tuple[int, ...]) -> Any:
    """The place of each element in the flattened array."""
    return reshape(arange(math.prod(shape)), shape)


def _leading(x: Any, axes: tuple[int, ...]) -> Any:
    """x with some axes as one, in front."""
    x = moveaxis(x, axes, tuple(range(len(axes))))
    shape = typeof(x).shape
    n = len(axes)
    return reshape(x, (math.prod(shape[:n]), *shape[n:]))


def frompyfunc(func: Function, /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """Make an elementwise function, with the methods of `ufunc`, of a function of scalars.

    Arguments:
      func: function of `nin` scalars with `nout` results.
      identity: what leaves other elements as they are, if there is such a value.

    Source: `jax.numpy.frompyfunc`.

    Example:
      >>> import functrans.numpy as jnp
      >>> f = jnp.frompyfunc(lambda x, y: x * y + 1, 2, 1)
      >>> print(f(jnp.arange(3), 2))
      [1 3 5]
    """
    return ufunc(func, nin, nout, identity=identity)
