"""Samplers where something changes: bounds at the ends of a dtype, sizes at which there is another
round, every mode at every width. The same bits as `jax.random`, all rows in one compiled program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
from tests.support.versions import QUICK
from tests.support.wide import each

KEY = jax.random.key(11)
N = (64,)
HALVES = ["float16", "bfloat16"]
NARROW = ["int8", "uint8", "int16", "uint16"]
LOGITS = np.array([[0.3, -np.inf, 1.0, 2.0], [-np.inf, 0.0, -1e30, 0.0]], np.float32)

Row = tuple[str, tuple[Any, ...], dict[str, Any]]


def row(name: str, *args: Any, **options: Any) -> Row:
    return name, args, options


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def integers(dtypes: list[str]) -> Iterator[Row]:
    """Whole ranges, the last number alone, empty ranges, ranges beyond the dtype."""
    for dtype in dtypes:
        info = np.iinfo(dtype)
        wide = info.bits >= 32
        lows = [info.min, info.max, info.min, 5, max(info.min, -9)]
        highs = [info.max, info.max + (not wide), info.min + 1, 5, info.max + (not wide)]
        kind = dtype if wide else "int32"
        yield row("randint", (60, 5), np.array(lows, kind), np.array(highs, kind), dtype)
    for dtype in dtypes:
        if np.iinfo(dtype).bits < 32:
            yield row("randint", N, -(2**20), 2**20, dtype)


ROWS = [
    *integers([*NARROW, "int32", "uint32"]),
    *[row("bits", N, dtype) for dtype in ("uint8", "uint16", "uint32")],
    *[row("uniform", N, dtype, -1.0, 1.0) for dtype in HALVES],
    row("uniform", N, "float32", 2.0, 2.0),
    row("uniform", N, "float32", 1.0, 1.0 + 2**-23),
    *[row("gumbel", N, dtype, mode) for dtype in [*HALVES, "float32"] for mode in ("low", "high", "highest")],
    *[row("bernoulli", floats(0, 1, 1e-9, 0.5), (16, 4), mode) for mode in ("low", "high")],
    *[row("categorical", LOGITS, 1, (16, 2), mode=mode) for mode in ("low", "high", "highest")],
    row("categorical", LOGITS[0], replace=False, shape=(3,)),
    *[row("permutation", n) for n in (0, 1, 2, 1625, 1626)],
    row("permutation", np.arange(3300.0).reshape(2, 1650), 1),
    row("permutation", np.arange(3300.0).reshape(2, 1650), 1, True),
    row("choice", 1700, (5,), False),
    row("choice", 4, (4,), False, np.full(4, 0.25, np.float32)),
    row("truncated_normal", floats(-np.inf, 0, 2, -5), floats(np.inf, np.inf, 2, 0), (16, 4)),
    *[row("rademacher", N, dtype) for dtype in ("int8", "float16")],
    row("geometric", floats(1, 0.999, 1e-3), (16, 3), "int16"),
    row("split", 0),
    row("split", (0, 2)),
    row("fold_in", 0),
    row("fold_in", 2**32 - 1),
]
WIDE = [
    *integers(["int64", "uint64"]),
    row("bits", N, "uint64"),
    row("uniform", N, "float64"),
    *[row("gumbel", N, "float64", mode) for mode in ("high", "highest")],
    row("permutation", 1626),
]
LONG = [
    row("poisson", floats(0, 9.99, 10, 1e-3, 1e4), (20, 5)),
    row("binomial", floats(20, 19, 100, 1, 1, 0), floats(0.5, 0.5, 0.1, 0, 1, 0.5), (20, 6)),
]


def drawn(rows: list[Row], library: Any) -> list[Any]:
    """The draws as numbers; keys as the words they are of."""

    def every(key: Any) -> list[Any]:
        found = [getattr(library.random, name)(key, *args, **opts) for name, args, opts in rows]
        return [library.random.key_data(x) if is_key(x) else x for x in found]

    return jax.device_get(library.jit(every, compiler_options=QUICK)(KEY))


def is_key(x: Any) -> bool:
    return jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)


@pytest.mark.smoke
@pytest.mark.parametrize("table", [ROWS, WIDE, LONG], ids=["32 bits", "64 bits", "loops"])
def test_the_same_bits(table: list[Row]):
    with jax.enable_x64(table is WIDE):
        ours, theirs = drawn(table, ft), drawn(table, jax)

    def check(drawn: tuple[str, int]) -> None:
        x, y = ours[drawn[1]], theirs[drawn[1]]
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_array_equal(x, y, err_msg=str(table[drawn[1]]))

    each([(name, i) for i, (name, _, _) in enumerate(table)], check)
