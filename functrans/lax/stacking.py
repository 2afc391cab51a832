"""Arrays side by side along a new axis and apart again, repeated, at the shape of another; and the
names of types that `jax.lax` has."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.lax import ConvGeneralDilatedDimensionNumbers as ConvGeneralDilatedDimensionNumbers
from jax.lax import DotAlgorithm as DotAlgorithm
from jax.lax import DotDimensionNumbers as DotDimensionNumbers
from jax.lax import PrecisionLike as PrecisionLike

from functrans import pytrees as tree
from functrans.ir.types import ArrayType
from functrans.lax.arguments import (
    as_array,
    axis_index,
    check_sizes,
    invalid,
    mismatch,
    sizes_of,
)
from functrans.lax.elementwise import operand as number_or_array
from functrans.lax.shape import concatenate, expand_dims, index_in_dim
from functrans.primitives.base import PRIMITIVES
from functrans.primitives.shape import broadcast_in_dim, reshape
from functrans.trace import AnyTracer, full, typeof

__all__ = [
    "ConvGeneralDilatedDimensionNumbers", "DotAlgorithm", "DotDimensionNumbers", "PrecisionLike",
    "broadcast_like", "composite", "dce_sink", "shape_as_value", "stack", "stage", "tile",
    "unstack",
]  # fmt: skip


def stack(operands: Sequence[Any], axis: int = 0) -> Any:
    """Put arrays of one type side by side along a new axis.

    Source: `jax.lax.stack`.

    >>> import numpy as np
    >>> stack([np.zeros(3), np.ones(3)], 1).shape
    (3, 2)
    """
    xs = [as_array(x) for x in operands]
    if not xs:
        raise invalid("stack", "needs at least one array")
    types = [typeof(x) for x in xs]
    if any(t.shape != types[0].shape for t in types):
        shapes = ", ".join([str(t.shape) for t in types])
        raise invalid("stack", f"all arrays must have the same shape, got {shapes}")
    if any(t.dtype != types[0].dtype for t in types):
        dtypes = ", ".join([str(t.dtype) for t in types])
        raise mismatch("stack", f"requires arguments to have the same dtypes, got {dtypes}")
    axis = axis_index(axis, types[0].ndim + 1, "stack")
    return concatenate([expand_dims(x, (axis,)) for x in xs], axis)


def unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """Take the slices along an axis apart.

    Source: `jax.lax.unstack`.

    >>> import numpy as np
    >>> [y.shape for y in unstack(np.zeros((2, 3)))]
    [(3,), (3,)]
    """
    x = as_array(x)
    axis = axis_index(axis, typeof(x).ndim, "unstack")
    return tuple([index_in_dim(x, i, axis, False) for i in range(typeof(x).shape[axis])])


def tile(operand: Any, reps: Sequence[int]) -> Any:
    """Repeat an array along each of its axes.

    Source: `jax.lax.tile`.

    >>> import numpy as np
    >>> print(tile(np.array([1, 2]), (2,)))
    [1 2 1 2]
    """
    x, times = as_array(operand), check_sizes(sizes_of(reps), "tile")
    shape = typeof(x).shape
    if len(times) != len(shape):
        raise mismatch(
            "tile", f"reps must have one entry per axis of {typeof(x)}, got {len(times)}"
        )
    both = [n for pair in zip(times, shape, strict=True) for n in pair]
    wide = broadcast_in_dim(x, shape=tuple(both), dimensions=tuple(range(1, len(both), 2)))
    return reshape(wide, shape=tuple([r * n for r, n in zip(times, shape, strict=True)]))


def broadcast_like(arr: Any, like_arr: Any) -> Any:
    """Broadcast an array to the shape of another.

    Source: `jax.lax.broadcast_like`.

    >>> import numpy as np
    >>> broadcast_like(np.ones(3), np.ones((2, 3))).shape
    (2, 3)
    """
    x, shape = as_array(arr), typeof(like_arr).shape
    have = typeof(x).shape
    lead = len(shape) - len(have)
    if lead < 0 or any(n not in (1, m) for n, m in zip(have, shape[lead:], strict=True)):
        raise invalid("broadcast_like", f"shape {have} does not broadcast to {shape}")
    kept = tuple([i for i, n in enumerate(have) if n == shape[lead + i]])
    x = reshape(x, shape=tuple([have[i] for i in kept]))
    return broadcast_in_dim(x, shape=shape, dimensions=tuple([lead + i for i in kept]))


def shape_as_value(shape: Sequence[int]) -> Any:
    """A shape as an array of integers.

    Source: `jax.lax.shape_as_value`.

    >>> print(shape_as_value((2, 3)))
    [2 3]
    """
    int32 = np.dtype(np.int32)
    return np.asarray(shape, int32) if len(shape) else full(0, ArrayType((0,), int32))


def stage(x: Any, /) -> Any:
    """A Python number or NumPy array as an array; traced, where something is being traced.

    Source: `jax.lax.stage`.

    >>> print(stage(2.0))
    2.0
    """
    return PRIMITIVES["copy"](number_or_array(x))


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Take a tree of values and give nothing. (What nobody uses is removed from programs here.)

    Source: `jax.lax.dce_sink`.

    >>> dce_sink(1.0)
    """
    tree.map(typeof, val)


def composite(decomposition: Callable[..., Any], name: str, version: int = 0) -> Callable[..., Any]:
    """A function that computes what `decomposition` does; keyword arguments are attributes. Its
    operations are recorded one by one: programs here have no operation of a name of one's own.

    Source: `jax.lax.composite`.

    >>> from functrans import lax
    >>> print(composite(lambda x, *, n: lax.integer_pow(x, n), "my.power")(3.0, n=2))
    9.0
    """

    @functools.wraps(decomposition)
    def call(*args: Any, **attributes: Any) -> Any:
        if any(isinstance(v, AnyTracer) for v in attributes.values()):
            raise invalid(
                f"composite {name}", "an attribute is a traced value",
                "Pass it as a positional argument.",
            )  # fmt: skip
        return decomposition(*args, **attributes)

    return call
