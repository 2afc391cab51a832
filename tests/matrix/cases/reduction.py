"""Cases of primitives/reductions/folds.py and primitives/reductions/cumulative.py."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax, nn

from tests.matrix.cases.case import BOOL, COMPLEX, FLOATS, INTS, UINTS, Case, fixed, normal, uniform

NUMBERS = (*INTS, *UINTS, *FLOATS, *COMPLEX)
ALL = (*BOOL, *NUMBERS)
BITS = (*BOOL, *INTS, *UINTS)
REAL = (*BOOL, *INTS, *UINTS, *FLOATS)
FEW = ("int32", "float32", "float64", "complex64", "complex128")


def reduced(name: str, dtypes: Sequence[str], differentiable: bool, **how: Any) -> list[Case]:
    """Over some axes of every kind, and over nothing."""
    function: Callable[..., Any] = getattr(lax, name)
    few = [d for d in FEW if d in dtypes] or list(dtypes)[:2]
    operand = how.pop("operand", normal)

    def case(shape: tuple[int, ...], axes: tuple[int, ...], dtypes: Any, label: str) -> Case:
        return Case(
            name,
            (operand(*shape),),
            lambda x: function(x, axes),
            {"axes": axes},
            dtypes,
            differentiable=(0,) if differentiable else (),
            label=label,
            **how,
        )

    return [
        case((3, 4, 2), (1,), dtypes, "one-axis"),
        case((3, 4, 2), (0, 2), few, "two-axes"),
        case((3, 2), (0, 1), few, "all-axes"),
        case((3, 2), (), few, "no-axes"),
        case((3, 0), (0,), few, "none-left"),
        case((), (), few, "scalar"),
    ]


def empty(name: str, dtypes: Sequence[str]) -> Case:
    """What no elements fold to."""
    return Case(
        name, (normal(2, 0),), lambda x: getattr(lax, name)(x, (1,)), {"axes": (1,)}, dtypes, label="empty"
    )


def special(name: str, values: Any, label: str) -> Case:
    return Case(
        name, (fixed(values),), lambda x: getattr(lax, name)(x, (1,)), {"axes": (1,)}, FLOATS, label=label
    )


# Rows with a NaN first, in the middle, twice; with infinities; with ties.
NANS = [[np.nan, 1, 2], [1, np.nan, 3], [np.nan, np.inf, np.nan], [-np.inf, np.inf, 0], [2, 2, 1]]


def position(name: str, dtypes: Sequence[str], operand: Any, axis: int, index: str, label: str):
    index_dtype = np.dtype(index)
    return Case(
        name,
        (operand,),
        lambda x: getattr(lax, name)(x, axis, index_dtype),
        {"axes": (axis,), "index_dtype": index_dtype},
        dtypes,
        label=label,
    )


def normalized(name: str, dtypes: Sequence[str], function: Callable[..., Any]) -> list[Case]:
    """Along one axis, several, of one element, of none, far from zero."""
    few = [d for d in FEW if d in dtypes]

    def case(operand: Any, axes: tuple[int, ...], dtypes: Any, label: str, **how: Any) -> Case:
        return Case(
            name,
            (operand,),
            lambda x: function(x, axis=axes),
            {"axes": axes},
            dtypes,
            differentiable=(0,),
            label=label,
            **how,
        )

    return [
        case(normal(3, 5), (1,), dtypes, "rows"),
        case(normal(3, 4, 2), (0, 2), few, "two axes"),
        case(normal(2, 1), (1,), few, "one"),
        case(normal(2, 0), (1,), few, "none"),
        case(fixed([800.0, 801.0, -900.0]), (0,), few, "large"),
    ]


def running(name: str, dtypes: Sequence[str], **how: Any) -> list[Case]:
    """Along some axes, forwards and backwards, of odd and even sizes, of none."""
    function: Callable[..., Any] = getattr(lax, name)
    few = [d for d in FEW if d in dtypes]

    def case(shape: tuple[int, ...], axis: int, reverse: bool, dtypes: Any, label: str) -> Case:
        return Case(
            name,
            (normal(*shape),),
            lambda x: function(x, axis=axis, reverse=reverse),
            {"axis": axis, "reverse": reverse},
            dtypes,
            differentiable=(0,),
            label=label,
            **how,
        )

    return [
        case((2, 5), 1, False, dtypes, "forwards"),
        case((4, 2, 2), 0, True, few, "backwards"),
        case((7,), 0, False, few, "seven"),
        case((2, 1), 1, False, few, "one"),
        case((2, 0), 1, True, few, "none"),
        Case(
            name,
            (fixed([0, 0, 2, 2, 0, 1, 1, 3]),),
            lambda x: function(x),
            {"axis": 0, "reverse": False},
            few,
            label="ties",
            **how,
        ),
    ]


CASES: list[Case] = [
    *reduced("reduce_sum", NUMBERS, True),
    *reduced("reduce_prod", NUMBERS, True),
    *reduced("reduce_max", ALL, True),
    *reduced("reduce_min", ALL, True),
    *reduced("reduce_and", BITS, False, operand=lambda *shape: uniform(*shape, high=2)),
    *reduced("reduce_or", BITS, False),
    *reduced("reduce_xor", BITS, False),
    empty("reduce_sum", NUMBERS),
    empty("reduce_prod", NUMBERS),
    empty("reduce_max", ALL),
    empty("reduce_min", ALL),
    empty("reduce_and", BITS),
    empty("reduce_or", BITS),
    empty("reduce_xor", BITS),
    special("reduce_max", NANS, "nans"),
    special("reduce_min", NANS, "nans"),
    *[
        case
        for name in ("argmax", "argmin")
        for case in (
            position(name, REAL, normal(3, 5), 1, "int32", "last"),
            position(name, ("float32", "int8"), normal(3, 5, 2), 0, "uint8", "first"),
            position(name, ("float64",), normal(3, 5), 1, "int64", "wide"),
            position(name, FLOATS, fixed(NANS), 1, "int32", "nans"),
        )
    ],
    *normalized("softmax", FLOATS, nn.softmax),
    *running("cumsum", NUMBERS),
    *running("cumprod", NUMBERS),
    *running("cummax", NUMBERS),
    *running("cummin", NUMBERS),
    *running("cumlogsumexp", (*FLOATS, *COMPLEX)),
]
