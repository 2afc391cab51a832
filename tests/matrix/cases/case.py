"""One row of the primitive table."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
INTS = ("int8", "int16", "int32", "int64")
UINTS = ("uint8", "uint16", "uint32", "uint64")
BOOL = ("bool",)
# One dtype per class, for operations that treat all dtypes of a class alike.
CLASSES = ("bool", "int32", "uint8", "float32", "bfloat16", "float64", "complex64")

# Relative and absolute: a few units in the last place of results of size 1. Others are exact.
TOLERANCES = {
    "float16": 1e-2,
    "bfloat16": 5e-2,
    "float32": 1e-5,
    "float64": 1e-12,
    "complex64": 1e-5,
    "complex128": 1e-12,
}


@dataclass(frozen=True, eq=False)
class Case:
    """A primitive with operands and parameters; the suite multiplies it with every rule.

    primitive   : its name in `PRIMITIVES`
    operands    : one function per operand, (rng, dtype) -> NumPy array
    jax         : the same operation by `jax.lax` (or jax.numpy) on the same operands
    dtypes      : dtypes to run it at (given to the operand functions)
    differentiable : operand positions to check jvp and vjp of, at inexact dtypes
    tolerance   : relative (and absolute) tolerance per dtype that differs from the default
    """

    primitive: str
    operands: Sequence[Callable[[np.random.Generator, Any], np.ndarray]]
    jax: Callable[..., Any]
    params: dict[str, Any] = field(default_factory=dict)
    dtypes: Sequence[str] = ("float32",)
    differentiable: Sequence[int] = ()
    tolerance: dict[str, float] = field(default_factory=dict)
    label: str = ""

    def __str__(self) -> str:
        return self.primitive + (f"-{self.label}" if self.label else "")

    def rng(self, salt: str = "") -> np.random.Generator:
        """The same numbers in every run."""
        return np.random.default_rng(zlib.crc32(f"{self}{salt}".encode()))

    def make(self, rng: np.random.Generator, dtype: Any) -> list[Any]:
        """One draw of the operands."""
        return [operand(rng, dtype) for operand in self.operands]

    def close(self, dtype: str) -> float:
        """The tolerance of results at a dtype of the operands; 0 is exact."""
        return self.tolerance.get(dtype, TOLERANCES.get(dtype, 0.0))


def normal(*shape: int, scale: float = 1.0, shift: float = 0.0) -> Callable[..., np.ndarray]:
    """Normal numbers for inexact dtypes, small integers for others, coin flips for bool."""

    def make(rng: np.random.Generator, dtype: Any) -> np.ndarray:
        dtype = jnp.dtype(dtype)
        if dtype.kind == "b":
            return rng.random(shape) < 0.5
        if jnp.issubdtype(dtype, jnp.complexfloating):
            z = rng.normal(size=shape) + 1j * rng.normal(size=shape)
            return np.asarray(z * scale + shift).astype(dtype)
        if jnp.issubdtype(dtype, jnp.integer):
            low = 0 if jnp.issubdtype(dtype, jnp.unsignedinteger) else -5
            return rng.integers(low, 6, size=shape).astype(dtype)
        return np.asarray(rng.normal(size=shape) * scale + shift).astype(dtype)

    return make


def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> Callable[..., np.ndarray]:
    """Numbers in [low, high); integers likewise."""

    def make(rng: np.random.Generator, dtype: Any) -> np.ndarray:
        dtype = jnp.dtype(dtype)
        if jnp.issubdtype(dtype, jnp.integer):
            return rng.integers(int(low), max(int(high), int(low) + 1), size=shape).astype(dtype)
        return np.asarray(rng.uniform(low, high, size=shape)).astype(dtype)

    return make


def fixed(values: Any, dtype: Any = None) -> Callable[..., np.ndarray]:
    """The same array always, at its own dtype if one is given."""

    def make(rng: np.random.Generator, case_dtype: Any) -> np.ndarray:
        with np.errstate(over="ignore"):  # infinity at a narrow dtype
            return np.asarray(values, dtype or case_dtype)

    return make
