"""The primitive table, one file per family of `functrans/primitives`."""

from tests.matrix.cases import (
    contraction,
    convolution,
    elementwise,
    indexing,
    linalg,
    random_bits,
    reduction,
    selection,
    shape,
    sorting,
    special,
    windows,
)

CASES = [
    *elementwise.CASES,
    *selection.CASES,
    *shape.CASES,
    *reduction.CASES,
    *contraction.CASES,
    *convolution.CASES,
    *indexing.CASES,
    *sorting.CASES,
    *random_bits.CASES,
    *linalg.CASES,
    *special.CASES,
    *windows.CASES,
]
