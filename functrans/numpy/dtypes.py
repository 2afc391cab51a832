"""Scalar types, and dtype promotion. Classes of dtypes, `finfo` and the like are JAX's."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.numpy import can_cast as can_cast
from jax.numpy import isdtype as isdtype
from jax.numpy import issubdtype as issubdtype
from jax.numpy import promote_types as promote_types

from functrans.ir.types import dtype_class
from functrans.numpy.promotion import cast, user_dtype
from functrans.trace import Tracer, materialize
from functrans.typing import Array, ArrayLike, DTypeLike

__all__ = [
    "bfloat16", "bool", "bool_", "can_cast", "cdouble", "complex64", "complex128", "csingle",
    "double", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3",
    "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "float8_e8m0fnu", "float16", "float32", "float64", "int1", "int2", "int4", "int8", "int16",
    "int32", "int64", "isdtype", "issubdtype", "ndarray", "promote_types", "result_type",
    "single", "uint1", "uint2", "uint4", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip


# --- scalar types ---------------------------------------------------------------------------------

if TYPE_CHECKING:
    _JaxScalarType = type
else:
    _JaxScalarType = type(jax.numpy.float32)


class _ScalarType(_JaxScalarType):
    """JAX's scalar types, which also convert tracers: `jnp.float32(x)`."""

    dtype: np.dtype

    def __call__(cls, x: ArrayLike) -> Array:
        if isinstance(x, Tracer):
            return materialize(cast(x, user_dtype(cls.dtype)))
        return super().__call__(x)


def _scalar_type(name: str) -> _ScalarType:
    dtype = np.dtype(getattr(jax.numpy, name))
    return _ScalarType(dtype.name, (object,), {"dtype": dtype, "__module__": "functrans.numpy"})


bool_: _ScalarType = _scalar_type("bool_")
int8: _ScalarType = _scalar_type("int8")
int16: _ScalarType = _scalar_type("int16")
int32: _ScalarType = _scalar_type("int32")
int64: _ScalarType = _scalar_type("int64")
uint8: _ScalarType = _scalar_type("uint8")
uint16: _ScalarType = _scalar_type("uint16")
uint32: _ScalarType = _scalar_type("uint32")
uint64: _ScalarType = _scalar_type("uint64")
bfloat16: _ScalarType = _scalar_type("bfloat16")
float16: _ScalarType = _scalar_type("float16")
float32: _ScalarType = _scalar_type("float32")
float64: _ScalarType = _scalar_type("float64")
complex64: _ScalarType = _scalar_type("complex64")
complex128: _ScalarType = _scalar_type("complex128")
bool: _ScalarType = bool_
single: _ScalarType = float32
double: _ScalarType = float64
csingle: _ScalarType = complex64
cdouble: _ScalarType = complex128
# Narrow types, which few operations support.
float4_e2m1fn: _ScalarType = _scalar_type("float4_e2m1fn")
float6_e2m3fn: _ScalarType = _scalar_type("float6_e2m3fn")
float6_e3m2fn: _ScalarType = _scalar_type("float6_e3m2fn")
float8_e3m4: _ScalarType = _scalar_type("float8_e3m4")
float8_e4m3: _ScalarType = _scalar_type("float8_e4m3")
float8_e4m3b11fnuz: _ScalarType = _scalar_type("float8_e4m3b11fnuz")
float8_e4m3fn: _ScalarType = _scalar_type("float8_e4m3fn")
float8_e4m3fnuz: _ScalarType = _scalar_type("float8_e4m3fnuz")
float8_e5m2: _ScalarType = _scalar_type("float8_e5m2")
float8_e5m2fnuz: _ScalarType = _scalar_type("float8_e5m2fnuz")
float8_e8m0fnu: _ScalarType = _scalar_type("float8_e8m0fnu")
int1: _ScalarType = _scalar_type("int1")
int2: _ScalarType = _scalar_type("int2")
int4: _ScalarType = _scalar_type("int4")
uint1: _ScalarType = _scalar_type("uint1")
uint2: _ScalarType = _scalar_type("uint2")
uint4: _ScalarType = _scalar_type("uint4")


class _Arrays(type):
    def __instancecheck__(cls, x: Any) -> builtins.bool:
        return isinstance(x, (jax.Array, Tracer))


if TYPE_CHECKING:
    ndarray = jax.Array
else:

    class ndarray(metaclass=_Arrays):
        """The type of arrays in `isinstance` and annotations: `jax.Array`s and tracers.

        Source: `jax.numpy.ndarray`, `jax.Array`.
        """


def result_type(*args: ArrayLike | DTypeLike) -> np.dtype:
    """Return the dtype of JAX's promotion of arrays, scalars and dtypes.

    Source: `jax.numpy.result_type`.
    """
    return jax.numpy.result_type(*untraced(args))


def untraced(args: Any) -> list[Any]:
    """Replace each tracer by an equivalent for JAX's promotion: its dtype, or a Python type if it
    is weakly typed."""
    return [_point(x) if isinstance(x, Tracer) else x for x in args]


def _point(x: Tracer) -> Any:
    kinds = {"int": int, "uint": int, "float": float, "complex": complex}
    return kinds[dtype_class(x.dtype)] if x.weak_type else x.dtype
