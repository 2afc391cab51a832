"""Cases of primitives/indexing/sorting.py."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from tests.matrix.cases.case import BOOL, COMPLEX, FLOATS, INTS, UINTS, Case, fixed, normal

ALL = (*BOOL, *INTS, *UINTS, *FLOATS, *COMPLEX)
REAL = (*BOOL, *INTS, *UINTS, *FLOATS)

SPECIAL = [1, np.nan, -0.0, 0.0, -np.inf, np.inf, np.nan, 0.0, -0.0, 2]
COMPLEX_SPECIAL = [complex(a, b) for a in (1, np.nan, -0.0, 0.0) for b in (0.0, np.nan, -0.0, -1)]


def ordered(label: str, *operands: Any, dtypes: Sequence[str], n: int = 1, axis: int = 0, **how):
    stable = how.pop("stable", True)
    return Case(
        "sort",
        operands,
        lambda *xs: lax.sort(xs, axis, is_stable=stable, num_keys=n),
        {"dimension": axis, "is_stable": stable, "num_keys": n},
        dtypes,
        label=label,
        **how,
    )


def largest(label: str, operand: Any, k: int, axis: int, dtypes: Sequence[str], **how: Any):
    return Case(
        "top_k",
        (operand,),
        lambda x: lax.top_k(x, k, axis=axis),
        {"k": k, "axis": axis},
        dtypes,
        label=label,
        **how,
    )


COUNT = fixed(np.arange(10), np.int32)

CASES: list[Case] = [
    ordered("one", normal(7), dtypes=ALL, differentiable=(0,)),
    ordered("matrix", normal(3, 4), dtypes=("float32", "float64"), axis=1, differentiable=(0,)),
    ordered("unstable", normal(3, 4), dtypes=("float32",), stable=False),
    ordered("carried", normal(5, 2), normal(5, 2), dtypes=("float64", "int8"), differentiable=(0, 1)),
    ordered(
        "two-keys",
        fixed([2, 1, 2, 1, 2, 2]),
        normal(6),
        normal(6),
        n=2,
        dtypes=("float32", "float64", "complex128", "uint8"),
        differentiable=(1, 2),
    ),
    ordered("ties", fixed([2, 1, 2, 1, 2, 2, 0, 0, 1, 1]), COUNT, dtypes=ALL),
    ordered("nans", fixed(SPECIAL), COUNT, dtypes=FLOATS),
    ordered("complex-nans", fixed(COMPLEX_SPECIAL), fixed(np.arange(16), np.int32), dtypes=COMPLEX),
    ordered("nothing", normal(0, 2), dtypes=("float32", "int32"), differentiable=(0,)),
    largest("some", normal(6), 3, 0, REAL, differentiable=(0,)),
    largest("first-axis", normal(5, 3), 2, 0, ("float32", "float64"), differentiable=(0,)),
    largest("ties", fixed([2, 1, 2, 1, 2, 2, 0]), 6, 0, REAL),
    largest("nans", fixed(SPECIAL), 10, 0, FLOATS),
    largest("all", normal(3, 4), 4, 1, ("float32",)),
    largest("none", normal(3, 4), 0, 1, ("float32",), differentiable=(0,)),
]
