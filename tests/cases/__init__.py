"""The primitive table, one file per family of `functrans/primitives`."""

from tests.cases import (
    contraction,
    convolution,
    elementwise,
    indexing,
    random_bits,
    reduction,
    shape,
    sorting,
)

CASES = [
    *elementwise.CASES, *shape.CASES, *reduction.CASES, *contraction.CASES, *convolution.CASES,
    *indexing.CASES, *sorting.CASES, *random_bits.CASES,
]  # fmt: skip
