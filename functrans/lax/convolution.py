"""`jax.lax` names over primitives/contractions/convolution.py."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from jax.lax import ConvDimensionNumbers, PrecisionLike

from functrans import errors
from functrans.caching import cached
from functrans.ir.source import here
from functrans.ir.types import ArrayType, dtype_class
from functrans.lax.arguments import integers, invalid, mismatch
from functrans.lax.contraction import contraction_options
from functrans.primitives.contractions.convolution import conv_general_dilated as _convolution
from functrans.primitives.reductions.windows import dilated
from functrans.primitives.shape.moving import reshape
from functrans.trace import bind, typeof
from functrans.typing import Array, ArrayLike, Device, DTypeLike, PyTree

__all__ = [
    "ConvDimensionNumbers",
    "conv",
    "conv_dimension_numbers",
    "conv_general_dilated",
    "conv_with_general_padding",
    "padtype_to_pads",
]

# --- arguments ------------------------------------------------------------------------------------


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """Return the axis layout of a convolution in canonical form.

    Source: jax.lax.conv_dimension_numbers

    Example:
        >>> conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 16), ("NHWC", "HWIO", "NHWC")).lhs_spec
        (0, 3, 1, 2)
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    n = len(lhs_shape)
    if n != len(rhs_shape):
        raise _wrong(
            f"input and kernel must have equal numbers of axes, got shapes {tuple(lhs_shape)} and "
            f"{tuple(rhs_shape)}"
        )
    if dimension_numbers is None:
        axes = tuple(range(n))
        return ConvDimensionNumbers(axes, axes, axes)
    return _numbers(n, tuple(dimension_numbers))


def padtype_to_pads(
    in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int], padding: str
) -> list[tuple[int, int]]:
    """Return the `(low, high)` pairs for the padding "SAME", "SAME_LOWER" or "VALID".

    Source: jax.lax.padtype_to_pads

    Example:
        >>> padtype_to_pads((8,), (4,), (1,), "SAME")
        [(1, 2)]
    """
    kind = getattr(padding, "name", padding)
    if not isinstance(kind, str):
        raise _wrong(f"padding must be a string, got {padding!r}")
    kind = kind.upper()
    if not len(in_shape) == len(window_shape) == len(window_strides):
        raise _bad_value(
            f"a window {tuple(window_shape)} and strides {tuple(window_strides)} need one number "
            f"for each axis of {tuple(in_shape)}"
        )
    if kind == "VALID":
        return [(0, 0)] * len(in_shape)
    if kind not in ("SAME", "SAME_LOWER"):
        raise errors.UnknownPadding(
            f"unknown padding {padding!r}, {here()}\n"
            "Use 'SAME', 'SAME_LOWER', 'VALID' or one pair (low, high) per spatial axis."
        )
    given = {"in_shape": in_shape, "window_shape": window_shape, "window_strides": window_strides}
    sizes = [integers(numbers, "padtype_to_pads", what) for what, numbers in given.items()]
    made = []
    for n, k, s in zip(*sizes, strict=True):
        extra = max(0, (-(-n // s) - 1) * s + k - n)
        small, large = extra // 2, extra - extra // 2
        made.append((small, large) if kind == "SAME" else (large, small))
    return made


_wrong = partial(mismatch, "conv_general_dilated")
_bad_value = partial(invalid, "conv_general_dilated")


@cached("layouts of convolutions", 256)
def _numbers(n: int, layout: tuple[Any, ...]) -> ConvDimensionNumbers:
    """Parse layout strings; spatial axes are in the order of the kernel's string."""
    if len(layout) != 3 or not all(isinstance(s, str) and len(s) == n for s in layout):
        raise _wrong(f"dimension_numbers must be three strings of {n} letters, got {layout}")
    space = [c for c in layout[1] if c not in "OI"]
    for letters, own in zip(layout, ("NC", "OI", "NC"), strict=True):
        if sorted(letters) != sorted([*own, *space]) or len(set(letters)) != n:
            raise _wrong(
                f"dimension_numbers {layout} must each contain the same spatial letters once, "
                "besides N and C (input and result), O and I (kernel)"
            )
    axes = [
        tuple([letters.index(c) for c in (*own, *space)])
        for letters, own in zip(layout, ("NC", "OI", "NC"), strict=True)
    ]
    return ConvDimensionNumbers(*axes)


def pairs(padding: Any) -> tuple[tuple[int, int], ...]:
    try:
        return tuple([(operator.index(low), operator.index(high)) for low, high in padding])
    except (ValueError, TypeError) as e:
        raise _bad_value(f"padding must be a string or a sequence of (low, high) pairs, got {padding}") from e


class Plan(NamedTuple):
    """The primitive's parameters; for groups, the shapes that split them off, and the axis of the
    result where they are merged with the output features."""

    params: dict[str, Any]
    lhs_shape: tuple[int, ...] | None = None
    rhs_shape: tuple[int, ...] | None = None
    merged_axis: int | None = None


@cached("plans of convolutions", 4096)
def plan_of(
    x: ArrayType,
    y: ArrayType,
    strides: Any,
    padding: Any,
    lhs_dilation: Any,
    rhs_dilation: Any,
    numbers: ConvDimensionNumbers,
    feature_groups: int,
    batch_groups: int,
) -> Plan:
    if x.ndim != y.ndim:
        raise _wrong(f"input and kernel must have equal numbers of axes, got {x} and {y}")
    n = x.ndim - 2
    if isinstance(padding, str) and lhs_dilation is not None and set(lhs_dilation) - {1}:
        raise _bad_value(
            f"padding {padding!r} is not defined for lhs_dilation {lhs_dilation}: use pairs, or "
            "use conv_transpose"
        )
    lhs_dilation, rhs_dilation = lhs_dilation or (1,) * n, rhs_dilation or (1,) * n
    steps = {"window_strides": strides, "lhs_dilation": lhs_dilation, "rhs_dilation": rhs_dilation}
    for what, given in steps.items():
        if len(given) != n or any(step < 1 for step in given):
            raise _bad_value(f"{what} must hold one positive number per spatial axis, {n}, got {given}")
    if isinstance(padding, str):
        inside = [x.shape[i] for i in numbers.lhs_spec[2:]]
        widths = [dilated(y.shape[i], d) for i, d in zip(numbers.rhs_spec[2:], rhs_dilation, strict=True)]
        padding = tuple(padtype_to_pads(inside, widths, strides, padding))
    if len(padding) != n:
        raise _wrong(f"padding must hold one pair per spatial axis, {n}, got {padding}")
    _check_features(x, y, numbers, feature_groups, batch_groups)
    window = {
        "strides": strides,
        "padding": padding,
        "lhs_dilation": lhs_dilation,
        "rhs_dilation": rhs_dilation,
    }
    return _named(x, y, numbers, feature_groups, batch_groups, window)


def _check_features(
    x: ArrayType, y: ArrayType, numbers: ConvDimensionNumbers, feature_groups: int, batch_groups: int
) -> None:
    examples, features = [x.shape[i] for i in numbers.lhs_spec[:2]]
    outputs, inputs = [y.shape[i] for i in numbers.rhs_spec[:2]]
    if feature_groups < 1 or batch_groups < 1 or (feature_groups > 1 and batch_groups > 1):
        raise _bad_value(
            "feature_group_count and batch_group_count must be positive, and one of them 1, got "
            f"{feature_groups} and {batch_groups}"
        )
    if features % feature_groups or features // feature_groups != inputs:
        raise _bad_value(
            f"the input {x} has {features} features (axis {numbers.lhs_spec[1]}) in "
            f"{feature_groups} group(s), but the kernel {y} takes {inputs} per group (axis "
            f"{numbers.rhs_spec[1]})"
        )
    if examples % batch_groups or outputs % (feature_groups * batch_groups):
        raise _bad_value(
            f"{examples} examples in {batch_groups} group(s) and {outputs} output features in "
            f"{feature_groups * batch_groups} group(s): all groups must have equal sizes"
        )


def _named(
    x: ArrayType,
    y: ArrayType,
    numbers: ConvDimensionNumbers,
    feature_groups: int,
    batch_groups: int,
    window: dict[str, Any],
) -> Plan:
    """Name the axes: 0 batch, 1 input features, 2 output features, then spatial axes, then groups.
    Groups are the outer part of the features, so a reshape splits them off."""
    lhs_spec, rhs_spec, out_spec = numbers
    spatial = tuple(range(3, 1 + x.ndim))
    group = 1 + x.ndim

    def names(spec: Any, kinds: tuple[int, int]) -> tuple[int, ...]:
        at = dict(zip(spec, (*kinds, *spatial), strict=True))
        return tuple([at[i] for i in range(x.ndim)])

    lhs, rhs, out = names(lhs_spec, (0, 1)), names(rhs_spec, (2, 1)), names(out_spec, (0, 2))
    groups = feature_groups * batch_groups
    if groups == 1:
        return Plan({"lhs": lhs, "rhs": rhs, "out": out, "spatial": spatial, **window})
    x_at = lhs_spec[1] if feature_groups > 1 else lhs_spec[0]
    y_at, out_at = rhs_spec[0], out_spec[1]

    def split(shape: tuple[int, ...], i: int) -> tuple[int, ...]:
        return (*shape[:i], groups, shape[i] // groups, *shape[i + 1 :])

    def with_group(axes: tuple[int, ...], i: int) -> tuple[int, ...]:
        return (*axes[:i], group, *axes[i:])

    params = {
        "lhs": with_group(lhs, x_at),
        "rhs": with_group(rhs, y_at),
        "out": with_group(out, out_at),
        "spatial": spatial,
        **window,
    }
    return Plan(params, split(x.shape, x_at), split(y.shape, y_at), out_at)


def check_preferred(x: ArrayType, y: ArrayType, preferred: Any) -> None:
    given, to = dtype_class(x.dtype), dtype_class(preferred)
    wider = {
        "bool": ("bool", "int", "uint", "float"),
        "int": ("int", "float"),
        "uint": ("uint", "float"),
        "float": ("float",),
        "complex": ("complex",),
    }
    if to not in wider[given] or preferred.itemsize < x.dtype.itemsize:
        raise _convolution.mismatch(
            (x, y),
            f"preferred_element_type {preferred} must be of the same kind as {x.dtype}, or float "
            "for integers, and not narrower",
        )


# --- functions ------------------------------------------------------------------------------------


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
            f"conv_general_dilated does not support out_sharding, got {out_sharding}, {here()}\n"
            "Use in_shardings and out_shardings of jit."
        )
    name = "conv_general_dilated"
    x, y = typeof(lhs), typeof(rhs)
    plan = plan_of(
        x,
        y,
        integers(window_strides, name, "window_strides"),
        padding if isinstance(padding, str) else pairs(padding),
        None if lhs_dilation is None else integers(lhs_dilation, name, "lhs_dilation"),
        None if rhs_dilation is None else integers(rhs_dilation, name, "rhs_dilation"),
        conv_dimension_numbers(x.shape, y.shape, dimension_numbers),
        feature_group_count,
        batch_group_count,
    )
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
        lhs, rhs, window_strides, padding, precision=precision, preferred_element_type=preferred_element_type
    )


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
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
