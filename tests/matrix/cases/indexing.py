"""Cases of primitives/indexing/gather.py, scatter.py and dynamic_slice.py."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.matrix.cases.case import BOOL, CLASSES, COMPLEX, FLOATS, INTS, UINTS, Case, normal

ALL = (*BOOL, *INTS, *UINTS, *FLOATS, *COMPLEX)
NUMBERS = ("int32", "uint8", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")
CLIP, FILL, PROMISE = "clip", "fill_or_drop", "promise_in_bounds"


def indices(*shape: int, low: int = 0, high: int, dtype: str = "int32") -> Callable[..., Any]:
    """Indices that may repeat."""
    return lambda rng, _: rng.integers(low, high, size=shape).astype(dtype)


def distinct(n: int, k: int) -> Callable[..., Any]:
    """k different indices below n, as [k, 1]."""
    return lambda rng, _: rng.permutation(n)[:k, None].astype("int32")


def scalar(low: int, high: int, dtype: str = "int32") -> Callable[..., Any]:
    return lambda rng, _: np.asarray(rng.integers(low, high), dtype)


def keys(*shape: int) -> Callable[..., Any]:
    """Typed PRNG keys."""
    return lambda rng, _: jax.random.split(jax.random.key(int(rng.integers(1000))), shape)


def axes(operand: Any, indices: Any, slices: Any, indexed: Any, sizes: Any, **how: Any) -> Any:
    return {
        "operand": operand,
        "indices": indices,
        "slices": slices,
        "indexed": indexed,
        "sizes": sizes,
        **how,
    }


# x[i] and x.at[i] of rows: x [5, 3], i [4, 1], slices [4, 3]
ROWS = axes((0, 1), (2,), (2, 1), (0,), (1, 3))
# x[i] of elements: x [n], i [k, 1], slices [k]
VECTOR = axes((0,), (1,), (1,), (0,), (1,))
# x[i, j] of elements: x [5, 3], i [2, 2, 2], slices [2, 2]
ELEMENTS = axes((0, 1), (2, 3), (2, 3), (0, 1), (1, 1))
# windows of [2, 2] in x [5, 3], at start indices in both axes, the second axis first
WINDOWS = axes((0, 1), (2,), (0, 2, 1), (1, 0), (2, 2))
# x[b, i[b]] along the middle axis: x [4, 5, 3], i [4, 2, 1], slices [4, 2, 3]
BATCHED = axes((0, 1, 2), (0, 3), (0, 3, 2), (1,), (1, 1, 3))

WINDOW_GATHER = lax.GatherDimensionNumbers((0, 2), (), (1, 0))
BATCHED_GATHER = lax.GatherDimensionNumbers((2,), (1,), (1,), (0,), (0,))
WINDOW_SCATTER = lax.ScatterDimensionNumbers((0, 2), (), (1, 0))
BATCHED_SCATTER = lax.ScatterDimensionNumbers((2,), (1,), (1,), (0,), (0,))


# JAX's names of the modes
JAX_MODE = {CLIP: "clip", FILL: "fill", PROMISE: "promise_in_bounds"}


def take_windows(mode: str) -> Callable[..., Any]:
    return lambda x, i: lax.gather(x, i, WINDOW_GATHER, (2, 2), mode=JAX_MODE[mode], fill_value=7)


def gathers() -> list[Case]:
    rows = [normal(5, 3), indices(4, 1, high=5)]
    wild = [normal(5, 3), indices(4, 1, low=-9, high=14)]
    made = [
        Case("gather", rows, lambda x, i: x[i[:, 0]], {**ROWS, "mode": PROMISE}, ALL, (0,)),
        Case("gather", wild, lambda x, i: x[jnp.clip(i[:, 0], 0, 4)],
             {**ROWS, "mode": CLIP}, CLASSES, (0,), label="clip"),
        Case("gather", wild, lambda x, i: jnp.take(x, jnp.where(i < 0, 9, i)[:, 0], 0, mode="fill"),
             {**ROWS, "mode": FILL}, ALL, label="fill"),
        Case("gather", [normal(5, 3), indices(4, 1, high=300, dtype="uint8")],
             lambda x, i: jnp.take(x, i[:, 0], 0, mode="fill", fill_value=2),
             {**ROWS, "mode": FILL, "fill": 2}, CLASSES, (0,), label="fill-value"),
        Case("gather", [normal(200), indices(6, 1, low=-9, high=128, dtype="int8")],
             lambda x, i: jnp.take(x, jnp.where(i < 0, 999, i.astype("int32"))[:, 0]),
             {**VECTOR, "mode": FILL}, label="narrow-indices"),
        Case("gather", [normal(5, 3), indices(2, 2, 2, high=3)],
             lambda x, i: x[i[..., 0], i[..., 1]],
             {**ELEMENTS, "mode": PROMISE}, ("float32", "float64"), (0,), label="elements"),
        Case("gather", [normal(4, 5, 3), indices(4, 2, 1, high=5)],
             lambda x, i: lax.gather(x, i, BATCHED_GATHER, (1, 1, 3)),
             {**BATCHED, "mode": PROMISE}, ("float32", "float64"), (0,), label="batched"),
        Case("gather", [normal(4, 5, 3), indices(4, 2, 1, low=-3, high=9)],
             lambda x, i: lax.gather(x, i, BATCHED_GATHER, (1, 1, 3), mode="fill", fill_value=-1),
             {**BATCHED, "mode": FILL, "fill": -1}, ("float32", "float64"), (0,),
             label="batched-fill"),
        Case("gather", [normal(5, 3), indices(0, 1, high=5)], lambda x, i: x[i[:, 0]],
             {**ROWS, "mode": PROMISE}, ("float32", "int32"), (0,), label="empty"),
        Case("gather", [normal(5, 3), indices(4, 0, high=5)],
             lambda x, i: jnp.broadcast_to(x[:1], (4, 3)),
             {**axes((0, 1), (2,), (2, 1), (), (1, 3)), "mode": FILL}, ("float32", "float64"), (0,),
             label="no-index"),
        Case("gather", [keys(5), indices(4, 1, high=5)], lambda x, i: x[i[:, 0]],
             {**VECTOR, "mode": PROMISE}, label="keys"),
        Case("gather", [normal(5, 3), lambda rng, _: np.sort(rng.permutation(5)[:3])[:, None]],
             lambda x, i: x[i[:, 0]],
             {**ROWS, "mode": PROMISE, "indices_are_sorted": True, "unique_indices": True},
             ("float32", "float64"), (0,), label="promises"),
    ]  # fmt: skip
    for mode in (CLIP, FILL, PROMISE):
        low, high = (0, 2) if mode == PROMISE else (-3, 7)
        made.append(
            Case(
                "gather",
                [normal(5, 3), indices(3, 2, low=low, high=high)],
                take_windows(mode),
                {**WINDOWS, "mode": mode, "fill": 7 if mode == FILL else None},
                ("float32", "float64", "complex64"),
                (0,),
                label=f"windows-{mode}",
            )
        )
    return made


def scatters() -> list[Case]:
    """The same places for every scatter; with repeated ones too."""
    made = []
    for name, dtypes in (
        ("scatter", ALL),
        ("scatter_add", NUMBERS),
        ("scatter_sub", NUMBERS),
        ("scatter_mul", NUMBERS),
        ("scatter_min", ALL),
        ("scatter_max", ALL),
    ):
        made += scatter_rows(name, getattr(lax, name), dtypes)
    made += [
        Case("scatter", [keys(5), distinct(5, 3), keys(3)], lambda x, i, u: x.at[i[:, 0]].set(u),
             {**VECTOR, "mode": FILL}, label="keys"),
        Case("scatter_add", [normal(2), indices(3, 0, high=1), normal(3, 2)],
             lambda x, i, u: x + u.sum(0), {**axes((0,), (1,), (1, 0), (), (2,)), "mode": FILL},
             ("float32", "float64"), (0, 2), label="no-index"),
        Case("scatter_add", [normal(), indices(3, 0, high=1), normal(3)],
             lambda x, i, u: x + u.sum(), {**axes((), (0,), (0,), (), ()), "mode": FILL},
             ("float32", "float64"), (0, 2), label="rank-0"),
        Case("scatter_add", [normal(5, 3), indices(0, 1, high=5), normal(0, 3)],
             lambda x, i, u: x, {**ROWS, "mode": FILL}, ("float32", "int32"), (0, 2),
             label="empty"),
    ]  # fmt: skip
    return made


def scatter_rows(name: str, function: Callable[..., Any], dtypes: Any) -> list[Case]:
    some = tuple([d for d in ("int32", "float32", "float64") if d in dtypes])
    add = name in ("scatter_add", "scatter_sub")
    unique = {} if add or name in ("scatter_min", "scatter_max") else {"unique_indices": True}
    where = (0, 2)

    def of(numbers: Any, **how: Any) -> Callable[..., Any]:
        return lambda x, i, u: function(x, i, u, numbers, **how)

    rows = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    elements = lax.ScatterDimensionNumbers((), (0, 1), (0, 1))
    made = [
        Case(name, [normal(5, 3, scale=4), distinct(5, 4), normal(4, 3)], of(rows, **unique),
             {**ROWS, "mode": FILL, **unique}, dtypes, where),
        Case(name, [normal(5, 3), distinct(12, 8), normal(8, 3)], of(rows, **unique),
             {**ROWS, "mode": FILL, **unique}, some, where, label="drop"),
        Case(name, [normal(5, 3), indices(4, 1, high=5), normal(4, 3)], of(rows, mode="fill"),
             {**ROWS, "mode": FILL}, some, where[: 1 if name == "scatter_mul" else 2],
             label="repeated"),
        Case(name, [normal(4, 5, 3), indices(4, 1, 1, high=5), normal(4, 1, 3)],
             of(BATCHED_SCATTER, mode="promise_in_bounds", **unique),
             {**BATCHED, "mode": PROMISE, **unique}, some, where, label="batched"),
    ]  # fmt: skip
    if add:
        made += [
            Case(
                name,
                [normal(5, 3), indices(3, 2, low=-3, high=7), normal(2, 3, 2)],
                of(WINDOW_SCATTER, mode=JAX_MODE[mode]),
                {**WINDOWS, "mode": mode},
                some,
                where,
                label=f"windows-{mode}",
            )
            for mode in (CLIP, FILL)
        ]
        made.append(
            Case(
                name,
                [normal(5, 3), indices(2, 2, 2, high=3), normal(2, 2)],
                of(elements),
                {**ELEMENTS, "mode": FILL},
                some,
                where,
                label="elements",
            )
        )
    else:
        made.append(
            Case(
                name,
                [normal(5, 3), indices(1, 2, high=2), normal(2, 1, 2)],
                of(WINDOW_SCATTER, mode=CLIP, **unique),
                {**WINDOWS, "mode": CLIP, **unique},
                some,
                where,
                label="window-clip",
            )
        )
    return made


def windows() -> list[Case]:
    starts = [scalar(-3, 7), scalar(-3, 7)]
    return [
        Case("dynamic_slice", [normal(5, 4), *starts],
             lambda x, i, j: lax.dynamic_slice(x, (i, j), (2, 3), allow_negative_indices=False),
             {"sizes": (2, 3)}, ALL, (0,)),
        Case("dynamic_slice", [normal(5, 4), *[scalar(0, 250, "uint8")] * 2],
             # signed: of constant unsigned starts XLA reads the highest bit as a sign
             lambda x, i, j: lax.dynamic_slice(x, (i.astype(int), j.astype(int)), (1, 4)),
             {"sizes": (1, 4)}, ("float32", "float64"), (0,), label="unsigned"),
        Case("dynamic_slice", [normal(5, 4), *starts],
             lambda x, i, j: x, {"sizes": (5, 4)}, ("float32", "float64"), (0,), label="whole"),
        Case("dynamic_slice", [normal(5, 4), *starts],
             lambda x, i, j: x[:, :0], {"sizes": (5, 0)}, ("float32",), (0,), label="empty"),
        Case("dynamic_slice", [normal()], lambda x: x, {"sizes": ()}, ("float32", "float64"), (0,),
             label="rank-0"),
        Case("dynamic_slice", [keys(6), scalar(0, 6)],
             lambda x, i: lax.dynamic_slice(x, (i,), (2,)), {"sizes": (2,)}, label="keys"),
        Case("dynamic_update_slice", [normal(5, 4), normal(2, 3), *starts],
             lambda x, u, *at: lax.dynamic_update_slice(x, u, at, allow_negative_indices=False),
             {}, ALL, (0, 1)),
        Case("dynamic_update_slice", [normal(5, 4), normal(5, 4), *starts],
             lambda x, u, i, j: u, {}, ("float32", "float64"), (0, 1), label="whole"),
        Case("dynamic_update_slice", [normal(5, 4), normal(0, 4), *starts],
             lambda x, u, i, j: x, {}, ("float32",), (0, 1), label="empty"),
        Case("dynamic_update_slice", [normal(), normal()], lambda x, u: u, {},
             ("float32", "float64"), (0, 1), label="rank-0"),
        Case("dynamic_update_slice", [keys(6), keys(2), scalar(0, 6)],
             lambda x, u, i: lax.dynamic_update_slice(x, u, (i,)), {}, label="keys"),
    ]  # fmt: skip


CASES: list[Case] = [*gathers(), *scatters(), *windows()]
