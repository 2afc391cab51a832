"""The windows of a convolution as arrays, convolutions whose kernel differs from place to place,
and the shapes of convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from functrans.lax.arguments import as_array, integers, invalid, mismatch
from functrans.lax.contraction import dot_general
from functrans.lax.convolution import conv_general_dilated
from functrans.lax.convolution_arguments import conv_dimension_numbers, padtype_to_pads, pairs
from functrans.primitives.shape import move_axis
from functrans.trace import typeof

__all__ = [
    "conv_general_dilated_local", "conv_general_dilated_patches", "conv_general_permutations",
    "conv_general_shape_tuple", "conv_shape_tuple", "conv_transpose_shape_tuple",
]  # fmt: skip


def conv_general_dilated_patches(
    lhs: Any,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Cut an input into the windows that a convolution multiplies by its kernel.

    Arguments:
        lhs: the input.
        filter_shape: the size of a window along each spatial axis.
        window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, precision,
            preferred_element_type: as of `conv_general_dilated`.

    Returns:
        An array with the axes of a convolution's result; its features are the elements of a window,
        those of the first feature of lhs first.

    Source: jax.lax.conv_general_dilated_patches

    Example:
        >>> import numpy as np
        >>> conv_general_dilated_patches(np.ones((1, 2, 8)), (3,), (1,), "VALID").shape
        (1, 6, 6)
    """
    x = as_array(lhs)
    sizes = integers(filter_shape, "conv_general_dilated_patches", "filter_shape")
    numbers = conv_dimension_numbers(typeof(x).shape, (1, 1, *sizes), dimension_numbers)
    lhs_spec, rhs_spec, _ = numbers
    channels, count = typeof(x).shape[lhs_spec[1]], math.prod(sizes)
    # one kernel per element of a window: a one there, zeros elsewhere
    kernel = np.tile(np.eye(count, dtype=np.float32), (channels, 1)).reshape(-1, 1, *sizes)
    kernel = np.moveaxis(kernel, (0, 1), (rhs_spec[0], rhs_spec[1])).astype(typeof(x).dtype)
    highest = None if precision is None else (precision, jax.lax.Precision.DEFAULT)
    return conv_general_dilated(
        x, kernel, window_strides, padding, lhs_dilation, rhs_dilation, numbers,
        feature_group_count=channels, precision=highest,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_general_dilated_local(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
) -> Any:
    """Convolve with a kernel that differs from place to place.

    Arguments:
        lhs: the input.
        rhs: the kernels: its spatial axes are those of the result, its input features the elements
            of a window as `conv_general_dilated_patches` has them.
        filter_shape: the size of a window along each spatial axis.
        window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, precision: as of
            `conv_general_dilated`.

    Source: jax.lax.conv_general_dilated_local

    Example:
        >>> import numpy as np
        >>> x, w = np.ones((1, 2, 8)), np.ones((5, 6, 6))
        >>> conv_general_dilated_local(x, w, (1,), "VALID", (3,)).shape
        (1, 5, 6)
    """
    x = as_array(lhs)
    both = jax.lax.Precision(precision) if isinstance(precision, str) else precision
    first = both[0] if isinstance(both, tuple) else both
    patches = conv_general_dilated_patches(
        x, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers,
        first,
    )  # fmt: skip
    sizes = integers(filter_shape, "conv_general_dilated_local", "filter_shape")
    numbers = conv_dimension_numbers(typeof(x).shape, (1, 1, *sizes), dimension_numbers)
    _, rhs_spec, out_spec = numbers
    pairs = sorted(zip(out_spec[2:], rhs_spec[2:], strict=True))  # of spatial axes, as they stand
    spatial = [p[0] for p in pairs], [p[1] for p in pairs]
    summed = [out_spec[1]], [rhs_spec[1]]
    out = dot_general(patches, as_array(rhs), (summed, spatial), precision=precision)
    # [spatial..., examples, features] -> as out_spec says
    ndim = typeof(out).ndim
    order = {out_spec[0]: ndim - 2, out_spec[1]: ndim - 1}
    order |= {axis: i for i, axis in enumerate(spatial[0])}
    return _permuted(out, [order[i] for i in range(ndim)])


def _permuted(x: Any, order: Sequence[int]) -> Any:
    for to, axis in enumerate(order):
        at = axis + sum(1 for later in order[:to] if later > axis)
        x = move_axis(x, at, to)
    return x


# --- shapes ---------------------------------------------------------------------------------------


def conv_general_permutations(dimension_numbers: Sequence[str]) -> Any:
    """How the axes of input, kernel and result stand: examples, features, spatial axes as the
    kernel has them.

    Source: `jax.lax.conv_general_permutations`.

    >>> conv_general_permutations(("NHWC", "HWIO", "NHWC"))
    ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    """
    marks = (("N", "C"), ("O", "I"), ("N", "C"))
    for i, (spec, (a, b)) in enumerate(zip(dimension_numbers, marks, strict=True)):
        if spec.count(a) != 1 or spec.count(b) != 1 or len(set(spec)) != len(spec):
            raise mismatch(
                "conv_general_permutations", f"dimension_numbers[{i}] must contain {a!r} and {b!r} "
                f"once, and no letter twice, got {spec!r}",
            )  # fmt: skip
    spatial = [set(s) - set(m) for s, m in zip(dimension_numbers, marks, strict=True)]
    if not spatial[0] == spatial[1] == spatial[2]:
        raise mismatch(
            "conv_general_permutations",
            f"dimension_numbers must have the same spatial letters, got {dimension_numbers}",
        )
    kernel = dimension_numbers[1]
    order = [c for c in kernel if c in spatial[1]]
    return tuple([
        (spec.index(a), spec.index(b), *[spec.index(c) for c in order])
        for spec, (a, b) in zip(dimension_numbers, marks, strict=True)
    ])  # fmt: skip


def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Sequence[int],
    pads: str | Sequence[tuple[int, int]],
    batch_group_count: int = 1,
) -> tuple[int, ...]:
    """The shape of a convolution of the layout NCHW, OIHW.

    Source: `jax.lax.conv_shape_tuple`.

    >>> conv_shape_tuple((1, 3, 8), (16, 3, 3), (2,), "SAME")
    (1, 16, 4)
    """
    name = "conv_shape_tuple"
    lhs_shape, rhs_shape, strides = [
        integers(given, name, what)
        for given, what in (
            (lhs_shape, "lhs_shape"), (rhs_shape, "rhs_shape"), (strides, "strides"),
        )
    ]  # fmt: skip
    space, window = lhs_shape[2:], rhs_shape[2:]
    if lhs_shape[0] % batch_group_count:
        raise invalid(name, f"{lhs_shape[0]} examples do not make {batch_group_count} groups")
    pads = padtype_to_pads(space, window, strides, pads) if isinstance(pads, str) else pairs(pads)
    if len(pads) != len(space):
        raise mismatch(name, f"expects {len(space)} pairs of padding, got {pads}")
    padded = [n + low + high for n, (low, high) in zip(space, pads, strict=True)]
    if min(padded, default=0) < 0:
        raise invalid(name, f"padding {pads} removes more than there is of {space}")
    out = [
        0 if n < k else (n - k) // s + 1 for n, k, s in zip(padded, window, strides, strict=True)
    ]
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *out)


def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: Sequence[str],
) -> tuple[int, ...]:
    """The shape of a convolution of any layout.

    Source: `jax.lax.conv_general_shape_tuple`.

    >>> layout = ("NHWC", "HWIO", "NHWC")
    >>> conv_general_shape_tuple((1, 8, 8, 3), (3, 3, 3, 16), (2, 2), "SAME", layout)
    (1, 4, 4, 16)
    """
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    made = conv_shape_tuple(
        [lhs_shape[i] for i in lhs], [rhs_shape[i] for i in rhs], window_strides, padding
    )
    return _laid_out(made, out)


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: Sequence[str],
) -> tuple[int, ...]:
    """The shape of a transposed convolution.

    Source: `jax.lax.conv_transpose_shape_tuple`.

    >>> layout = ("NHWC", "HWIO", "NHWC")
    >>> conv_transpose_shape_tuple((1, 4, 4, 16), (3, 3, 16, 3), (2, 2), "SAME", layout)
    (1, 8, 8, 3)
    """
    name = "conv_transpose_shape_tuple"
    if isinstance(padding, str) and padding not in ("SAME", "VALID"):
        raise invalid(name, f"padding must be 'SAME', 'VALID' or pairs, got {padding!r}")
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    x, y = [lhs_shape[i] for i in lhs], [rhs_shape[i] for i in rhs]
    sizes = []
    strides = integers(window_strides, name, "window_strides")
    for i, (n, k, s) in enumerate(zip(x[2:], y[2:], strides, strict=True)):
        extra = {
            "SAME": k + s - 2, "VALID": k + s - 2 + max(k - s, 0)
        }[padding] if isinstance(padding, str) else sum(padding[i])  # fmt: skip
        sizes.append((n - 1) * s - k + 2 + extra)
    return _laid_out((x[0], y[0], *sizes), out)


def _laid_out(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    return tuple([shape[order.index(i)] for i in range(len(order))])
