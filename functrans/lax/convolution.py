"""`jax.lax` names over primitives/contractions/convolution.py."""

from __future__ import annotations

from collections.abc import Sequence

from jax.lax import ConvDimensionNumbers as ConvDimensionNumbers
from jax.lax import PrecisionLike

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.lax.arguments import integers
from functrans.lax.contraction import contraction_options
from functrans.lax.convolution_arguments import check_preferred, pairs, plan_of
from functrans.lax.convolution_arguments import conv_dimension_numbers as conv_dimension_numbers
from functrans.lax.convolution_arguments import padtype_to_pads as padtype_to_pads
from functrans.primitives.contractions.convolution import conv_general_dilated as _convolution
from functrans.primitives.shape.moving import reshape
from functrans.trace import bind, typeof
from functrans.typing import Array, ArrayLike, Device, DTypeLike, PyTree


def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: PyTree = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: Device = None,
) -> Array:
    """Compute an n-dimensional convolution with strides, padding, dilation and groups.

    Arguments:
        lhs: the input: batch, features and n spatial axes.
        rhs: the kernel: output features, input features and n spatial axes.
        window_strides: n strides.
        padding: "SAME", "SAME_LOWER", "VALID", or n pairs of (low, high) zero padding (negative
            padding removes elements).
        lhs_dilation, rhs_dilation: n dilation factors of the input and of the kernel; None is 1.
        dimension_numbers: layout of the axes: None is ("NCHW", "OIHW", "NCHW") for n = 2; three
            such strings, or a `ConvDimensionNumbers`.
        feature_group_count: number of independent groups of features.
        batch_group_count: number of groups of examples, each with its own output features.
        precision, preferred_element_type: as in `dot_general`.
        out_sharding: must be None here.

    Returns:
        The output array, with the layout `dimension_numbers[2]`.

    Raises:
        TypeMismatch, InvalidArgument: the arguments are inconsistent.

    Source: jax.lax.conv_general_dilated

    Example:
        >>> import numpy as np
        >>> image, kernel = np.ones((1, 8, 8, 3)), np.ones((3, 3, 3, 16))
        >>> layout = ("NHWC", "HWIO", "NHWC")
        >>> conv_general_dilated(image, kernel, (2, 2), "SAME", dimension_numbers=layout).shape
        (1, 4, 4, 16)
    """
    if out_sharding is not None:
        raise errors.InvalidArgument(
            f"conv_general_dilated does not support out_sharding, got {out_sharding}, at\n"
            f"    {describe(user_source())}\nUse in_shardings and out_shardings of jit."
        )
    name = "conv_general_dilated"
    x, y = typeof(lhs), typeof(rhs)
    plan = plan_of(
        x, y, integers(window_strides, name, "window_strides"),
        padding if isinstance(padding, str) else pairs(padding),
        None if lhs_dilation is None else integers(lhs_dilation, name, "lhs_dilation"),
        None if rhs_dilation is None else integers(rhs_dilation, name, "rhs_dilation"),
        conv_dimension_numbers(x.shape, y.shape, dimension_numbers),
        feature_group_count, batch_group_count,
    )  # fmt: skip
    options = contraction_options(precision, preferred_element_type)
    if "preferred" in options:
        check_preferred(x, y, options["preferred"])
    if plan.lhs_shape is not None:
        lhs, rhs = reshape(lhs, shape=plan.lhs_shape), reshape(rhs, shape=plan.rhs_shape)
    out = bind(_convolution, (lhs, rhs), plan.params | options)
    if plan.merged_axis is None:
        return out
    shape, i = typeof(out).shape, plan.merged_axis
    return reshape(out, shape=(*shape[:i], shape[i] * shape[i + 1], *shape[i + 2 :]))


def conv(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Compute `conv_general_dilated` with the layout NCHW, OIHW, NCHW.

    Source: jax.lax.conv

    Example:
        >>> import numpy as np
        >>> conv(np.ones((1, 3, 8, 8)), np.ones((16, 3, 3, 3)), (1, 1), "VALID").shape
        (1, 16, 6, 6)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_with_general_padding(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Compute `conv_general_dilated` with the layout NCHW, OIHW, NCHW and dilations.

    Source: jax.lax.conv_with_general_padding

    Example:
        >>> import numpy as np
        >>> x, w = np.ones((1, 3, 8)), np.ones((16, 3, 3))
        >>> conv_with_general_padding(x, w, (1,), [(2, 2)], None, (2,)).shape
        (1, 16, 8)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, lhs_dilation=lhs_dilation, rhs_dilation=rhs_dilation,
        precision=precision, preferred_element_type=preferred_element_type,
    )  # fmt: skip


__all__ = [
    "ConvDimensionNumbers", "conv", "conv_dimension_numbers", "conv_general_dilated",
    "conv_with_general_padding", "padtype_to_pads",
]  # fmt: skip
