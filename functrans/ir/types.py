"""The types of the values in a program.

In: shapes, dtypes, weak-type flags. Out: interned `ArrayType`s: equal types are the same object,
and hashing one hashes its address.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import jax
import numpy as np

from functrans import errors
from functrans.caching import cached
from functrans.flags import flags
from functrans.ir.source import here

float0 = jax.dtypes.float0
OF_FLOAT0 = "A float0 is the gradient of an integer. It holds no numbers: leave it out."


class ArrayType:
    """Shape, dtype and weak-type flag of an array. Interned: compare with `is`.

    `dtype` is a `numpy.dtype` or one of JAX's extended dtypes (typed PRNG keys).
    """

    __slots__ = ("__weakref__", "dtype", "ndim", "shape", "size", "weak_type")

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    ndim: int
    size: int

    def __new__(cls, shape: tuple[int, ...], dtype: Any, weak_type: bool = False) -> ArrayType:
        return _interned(shape, dtype, weak_type)

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrayType, (self.shape, self.dtype, self.weak_type)

    def update(
        self, shape: tuple[int, ...] | None = None, dtype: Any = None, weak_type: bool | None = None
    ) -> ArrayType:
        return ArrayType(
            self.shape if shape is None else shape,
            self.dtype if dtype is None else dtype,
            self.weak_type if weak_type is None else weak_type,
        )

    def without_axis(self, axis: int | None) -> ArrayType:
        """Return the type without an axis, such as a batch axis; unchanged if there is none.

        Example:
          >>> import functrans as ft, numpy as np
          >>> ft.ir.ArrayType((3, 4), np.dtype("float32")).without_axis(0)
          f32[4]
        """
        shape = self.shape
        return self if axis is None else self.update(shape=(*shape[:axis], *shape[axis + 1 :]))

    def strong(self) -> ArrayType:
        """Return the type without the weak-type flag.

        Example:
          >>> import functrans as ft, numpy as np
          >>> weak = ft.ir.ArrayType((), np.dtype("float32"), weak_type=True)
          >>> weak, weak.strong()
          (~f32[], f32[])
        """
        return ArrayType(self.shape, self.dtype, False) if self.weak_type else self

    def same(self, other: ArrayType) -> bool:
        """Return whether the types are equal up to the weak-type flag, as the strict IR requires of
        operands.

        Example:
          >>> import functrans as ft, numpy as np
          >>> weak = ft.ir.ArrayType((), np.dtype("float32"), weak_type=True)
          >>> weak.same(weak.strong())
          True
        """
        return self is other or (self.shape == other.shape and self.dtype == other.dtype)

    def tangent(self) -> ArrayType:
        """Return the tangent type: the type itself for inexact dtypes, float0 for others.

        Example:
          >>> import functrans as ft, numpy as np
          >>> ft.ir.ArrayType((3,), np.dtype("int32")).tangent()
          float0[3]
        """
        if is_inexact(self.dtype):
            return self
        return ArrayType(self.shape, float0, self.weak_type)

    def __repr__(self) -> str:
        return _text(self)


@cached("texts of types", 4096)
def _text(t: ArrayType) -> str:
    mark = "~" if t.weak_type else ""
    return f"{mark}{dtype_name(t.dtype)}[{','.join(map(str, t.shape))}]"


# All live types, so that equal types are one object even after the cache evicts one.
_ALIVE: WeakValueDictionary[tuple[Any, ...], ArrayType] = WeakValueDictionary()
_ADDING = threading.RLock()


@cached("types", 16_384)  # keyed by the caller's spelling (np.float32, sizes as np.int64, ...)
def _interned(shape: tuple[int, ...], dtype: Any, weak_type: bool) -> ArrayType:
    try:
        shape = tuple([operator.index(d) for d in shape])
    except TypeError:
        raise _no_size(shape) from None
    if not is_key_dtype(dtype):
        dtype = np.dtype(dtype)
    key = (shape, dtype, bool(weak_type))
    with _ADDING:
        found = _ALIVE.get(key)
        if found is None:
            found = _ALIVE[key] = object.__new__(ArrayType)
            found.shape, found.dtype, found.weak_type = key
            found.ndim, found.size = len(shape), math.prod(shape)
    return found


def _no_size(shape: tuple[Any, ...]) -> Exception:
    """Return the error for a shape with an entry that is not an integer."""
    if not any([type(d).__name__ == "_DimExpr" for d in shape]):
        return TypeError(f"the sizes {shape} must be integers")
    return errors.SymbolicSize(
        f"the shape ({', '.join(map(str, shape))}) has a symbol as a size, but programs of functrans have "
        f"fixed sizes, {here()}\nFor jax.export, use functions of jax.numpy and jax.lax inside ft.jit, "
        "ft.grad, ft.vmap and other transformations: there JAX traces."
    )


_SHORT = {
    "float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16",
    "complex64": "c64", "complex128": "c128", "bool": "bool",
    "int2": "i2", "int4": "i4", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint2": "u2", "uint4": "u4", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}  # fmt: skip
_LONG = {short: long for long, short in _SHORT.items()}


def dtype_name(dtype: Any) -> str:
    """Return a dtype's name in programs and messages: `f32` for float32, `key<fry>` for a key."""
    if dtype == float0:
        return "float0"
    name = getattr(dtype, "name", str(dtype))
    return _SHORT.get(name, name)


def dtype_named(name: str) -> Any:
    """Return the dtype of a name, the inverse of `dtype_name`; TypeError if there is none."""
    if name == "float0":
        return float0
    if name in _KEY_KINDS:
        return jax.eval_shape(lambda: jax.random.key(0, impl=_KEY_KINDS[name])).dtype
    if name.startswith("key<") and name in _KEY_DTYPES:
        return _KEY_DTYPES[name]
    return jax.numpy.dtype(_LONG.get(name, name))


_KEY_KINDS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}
_KEY_DTYPES: dict[str, Any] = {}


def is_key_dtype(dtype: Any) -> bool:
    """Return whether a dtype is that of typed PRNG keys."""
    if isinstance(dtype, (np.dtype, type, str)):
        return False
    if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        _KEY_DTYPES.setdefault(dtype.name, dtype)
        return True
    return False


def is_numpy_dtype(x: Any) -> bool:
    """Return whether x is a NumPy dtype or scalar type."""
    return isinstance(x, np.dtype) or (isinstance(x, type) and issubclass(x, np.generic))


# NumPy's `kind` is wrong for ml_dtypes (bfloat16 is 'V'), so the class is looked up and cached.
@cached("classes of dtypes", 256)
def dtype_class(dtype: Any) -> str:
    """Return 'bool', 'int', 'uint', 'float', 'complex', 'key' or 'float0'."""
    if is_key_dtype(dtype):
        return "key"
    if dtype == float0:
        return "float0"
    for name, kind in (
        ("bool", np.bool_),
        ("uint", np.unsignedinteger),
        ("int", np.signedinteger),
        ("complex", np.complexfloating),
        ("float", np.floating),
    ):
        if jax.dtypes.issubdtype(dtype, kind):
            return name
    raise TypeError(f"arrays of a program cannot have dtype {dtype}")


def is_inexact(dtype: Any) -> bool:
    return dtype_class(dtype) in ("float", "complex")


def canonical_dtype(dtype: Any) -> Any:
    """Return the dtype JAX would use: 64-bit types become 32-bit unless `jax_enable_x64` is set."""
    return jax.dtypes.canonicalize_dtype(dtype, allow_extended_dtype=True)


def same_types(types: Sequence[ArrayType], others: Sequence[ArrayType]) -> bool:
    """Return whether two lists of types are equal up to weak-type flags."""
    return len(types) == len(others) and all([t.same(other) for t, other in zip(types, others, strict=True)])


def promote(types: tuple[ArrayType, ...]) -> tuple[Any, bool]:
    """Return the dtype and weak-type flag of JAX's promotion for operands of these types."""
    return _promote(types, flags.jax_enable_x64, flags.jax_numpy_dtype_promotion)


# In the promotion lattice a weak type is one of the three Python scalar types, whatever its width.
# If all operands are weak, they promote as the strong types do.
_WEAK = {"int": 0, "uint": 0, "float": 0.0, "complex": 0j}


@cached("promotions", 4096)
def _promote(types: tuple[ArrayType, ...], x64: bool, mode: str) -> tuple[Any, bool]:
    first = types[0].dtype
    if all([t.dtype == first for t in types]):
        return first, all([t.weak_type for t in types])
    weak = mode != "strict" and all([t.weak_type for t in types])
    points = [
        _WEAK.get(dtype_class(t.dtype), t.dtype) if t.weak_type and not weak else t.dtype for t in types
    ]
    try:
        dtype, found = jax.dtypes.result_type(*points, return_weak_type_flag=True)
        return dtype, found or weak
    except ValueError as error:
        if mode != "strict":  # a 2- or 4-bit integer, or a float of up to 8 bits
            raise errors.ImplicitPromotion(
                f"operands of types {', '.join(map(str, types))} have no common dtype: integers of "
                f"up to 4 bits and floats of up to 8 bits are not promoted, {here()}\n"
                "Convert one of them with x.astype."
            ) from error
        raise errors.ImplicitPromotion(
            f"operands of types {', '.join(map(str, types))} need dtype promotion, which "
            f"jax_numpy_dtype_promotion='strict' forbids, {here()}\n"
            "Convert one with x.astype, or allow it with numpy_dtype_promotion('standard')."
        ) from error
