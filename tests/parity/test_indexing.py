"""x[...] and x.at[...] against JAX, in and out of transformations."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans.numpy.indexing import At, getitem
from tests.parity.indices import MASK2, ONES, SHAPE, I, data
from tests.support.closeness import assert_close
from tests.support.versions import NEWEST

J = np.array([[1], [-2]])

# What stands in the brackets of an array of shape (5, 4, 3).
STATIC = [
    0, -1, 4, np.int64(2), slice(None), slice(1, 3), slice(None, None, 2), slice(None, None, -1),
    slice(4, 1, -2), slice(-2, None), slice(3, 1), slice(10, 20), slice(2, 3, -1), (), Ellipsis, None,
    (0, 1, 2), (slice(1, 4), 2), (Ellipsis, 0), (0, Ellipsis), (Ellipsis, slice(None, None, -1)),
    (None, 0), (slice(None), None, 1), (1, None, None), (Ellipsis, None), (None, Ellipsis, None, -1),
    (slice(None, None, -2), slice(1, None), slice(None, 2)), (slice(0, 0), 1), 7, (0, -9),
    (slice(None), slice(None, None, 3), -1), slice(np.int32(1), np.int64(3)),
]  # fmt: skip
ARRAYS = [
    I, J, np.array(2), np.array([], int), (I,), (slice(None), I), (Ellipsis, I % 3), (I, I), (I, J),
    (I, slice(None), I % 3), (I, 0), (0, I), (0, slice(None), I % 3), (slice(None), I, 0),
    (slice(None), 0, I % 3), (None, I), (I, None), (I, None, I), (slice(1, 3), I),
    (slice(None, None, -2), I), (slice(None, None, 2), slice(None), I % 3), (I, slice(1, 3)),
    (I, Ellipsis, I % 3), (I, slice(None, None, -1), 1), ([0, 2],), ([0, 2], slice(None), [1, 1]),
    ([[0], [1]], [2, 3]), (slice(0, 0), I), I.astype("uint8") % 5, I.astype("int8"),
    (np.array(1), I), np.array([9, -9, 2]), (slice(None), np.array([7, 1])), (I, J, J),
    (slice(1, None), None, J, Ellipsis), (None, slice(None), I, None, 1), ([],),
]  # fmt: skip
MASKS = [
    ONES, MASK2, (ONES, 0), (ONES, slice(None), [1, 0, 2]), (slice(None), MASK2[0]),
    (Ellipsis, np.array([True, False, True])), np.zeros(5, bool), True, False, (True, 0),
    (slice(None), True), (MASK2, 1), (0, MASK2[0], None), np.arange(60).reshape(SHAPE) % 2 == 0,
]  # fmt: skip
GROUPS = {"static": STATIC, "arrays": ARRAYS, "masks": MASKS}
GROUP = pytest.mark.parametrize("group", GROUPS)


def check(actual: Any, wanted: Any, indices: list[Any], tolerance: float) -> None:
    """Compare lists of results, one per index, and name the index where they differ."""
    for y, z, index in zip(actual, wanted, indices, strict=True):
        assert_close(y, z, tolerance, f"x[{index}]")


def reads(library: Any, indices: list[Any]) -> Callable[..., list[Any]]:
    """For each index x[index], its vjp and its jvp, in one function (so, compiled once)."""

    def run(x: Any) -> list[Any]:
        made = []
        for index in indices:
            y, back = library.vjp(lambda x, index=index: x[index], x)
            along = library.jvp(lambda x, index=index: x[index], (x,), (x,))[1]
            made.append((y, back(y), along))
        return made

    return run


def check_mapped(f: Any, axes: Any, args: list[Any], wanted: list[Any], tolerance: float) -> None:
    """vmap, interpreted, gives the results of the single examples."""
    program = ft.make_ir(ft.vmap(f, axes))(*args)
    stacked = [np.stack(ys) for ys in zip(*map(jax.tree.leaves, wanted), strict=True)]
    assert_close(ft.interpret(program, *args), stacked, tolerance)


@GROUP
def test_getitem(group: str):
    """x[index] and its derivatives, eager, jitted, interpreted and under vmap, equal JAX's."""
    indices = GROUPS[group]
    x = jnp.asarray(data())
    ours, by_jax = reads(ft, indices), jax.jit(reads(jax, indices))
    wanted = by_jax(x)
    check([getitem(x, index) for index in indices], [w[0] for w in wanted], indices, 0)
    check(ft.jit(ours)(x), wanted, indices, 1e-6)
    program = ft.make_ir(ours)(x)
    flat = ft.interpret(program, x)
    check(list(zip(*[iter(flat)] * 3, strict=True)), wanted, indices, 1e-6)
    many = data((*SHAPE[:2], 2, 3))
    check_mapped(ours, 2, [many], [by_jax(many[:, :, k]) for k in range(2)], 1e-6)


@pytest.mark.parametrize("index", [np.bool_(True), (None, True), (0, None, True, I % 3)], ids=str)
def test_single_bools(index: Any):
    """As NumPy has them (JAX's differ, or fail)."""
    x = data()
    assert_close(ft.jit(lambda x: x[index])(x), x[index], 0)
    expected = x.copy()
    expected[index] = 7
    assert_close(ft.jit(lambda x: x.at[index].set(7.0))(x), expected, 0)


@pytest.mark.parametrize("mode", ["clip", "fill", "promise_in_bounds"])
def test_get_with_traced_arrays(mode: str):
    """Index arrays as arguments of the traced function, in every mode."""
    x = jnp.asarray(data())
    indices = [i for i in ARRAYS if not (mode == "promise_in_bounds" and _beyond(i))]
    dynamic = [[np.asarray(p) for p in _parts(i) if isinstance(p, np.ndarray)] for i in indices]

    def run(x: Any, dynamic: Any) -> list[Any]:
        made = []
        for index, arrays in zip(indices, dynamic, strict=True):
            given = iter(arrays)
            parts = [next(given) if isinstance(p, np.ndarray) else p for p in _parts(index)]
            made.append(x.at[tuple(parts)].get(mode=mode))
        return made

    by_jax = jax.jit(run)
    wanted = by_jax(x, dynamic)
    check(ft.jit(run)(x, dynamic), wanted, indices, 0)
    if mode != "fill":
        return
    check(ft.interpret(ft.make_ir(run)(x, dynamic), x, dynamic), wanted, indices, 0)
    other = jax.tree.map(np.flip, dynamic)
    both = jax.tree.map(lambda a, b: np.stack([a, b]), dynamic, other)
    xs = np.stack([x, -x])
    check_mapped(run, (None, 0), [x, both], [wanted, by_jax(x, other)], 0)
    check_mapped(run, (0, None), [xs, dynamic], [wanted, by_jax(-x, dynamic)], 0)
    check_mapped(run, (0, 0), [xs, both], [wanted, by_jax(-x, other)], 0)


def _parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _beyond(index: Any) -> bool:
    arrays = [p for p in _parts(index) if isinstance(p, np.ndarray) and p.size]
    return any(abs(p).max() > 5 for p in arrays)


UPDATES = ["set", "add", "subtract", "multiply", "divide", "min", "max", "power"]


OFTEN = ("set", "add", "min")  # one of each kind


@GROUP
@pytest.mark.parametrize(
    "method", [m if m in OFTEN else pytest.param(m, marks=pytest.mark.sweep) for m in UPDATES]
)
def test_at(group: str, method: str):
    """Some indices with each method; `test_at_everywhere` has all pairs."""
    check_updates(GROUPS[group][UPDATES.index(method) % 4 :: 4], group, method)


@pytest.mark.heavy
@GROUP
@pytest.mark.parametrize("method", UPDATES)
def test_at_everywhere(group: str, method: str):
    check_updates(GROUPS[group], group, method)


def check_updates(indices: list[Any], group: str, method: str) -> None:
    """x.at[index].method(values) = JAX's, also with a scalar, under vmap, and its derivatives."""
    x = jnp.abs(jnp.asarray(data())) + 1
    rng = np.random.default_rng(2)
    indices = [i for i in indices if _fits(i, method)]
    ys = [np.abs(rng.normal(size=x[i].shape)).astype("float32") + 0.5 for i in indices]
    smooth = method in ("set", "add", "subtract", "min", "max") or group == "static"

    def updates(library: Any) -> Callable[..., list[Any]]:
        def run(x: Any, ys: Any) -> list[Any]:
            made: list[Any] = []
            for index, y in zip(indices, ys, strict=True):
                made.append([getattr(x.at[index], method)(y), getattr(x.at[index], method)(2.0)])
                if smooth:
                    back = library.vjp(lambda x, y, i=index: getattr(x.at[i], method)(y), x, y)[1]
                    made[-1].extend(back(x[::-1]))
            return made

        return run

    by_jax = jax.jit(updates(jax))
    wanted = by_jax(x, ys)
    check(ft.jit(updates(ft))(x, ys), wanted, indices, 1e-4)
    eager = [getattr(At(x)[i], method)(y) for i, y in zip(indices[:3], ys, strict=False)]
    check(eager, [w[0] for w in wanted[:3]], indices[:3], 1e-5)
    many, both, twice = np.stack([x, x + 1]), [np.stack([y, 2 * y]) for y in ys], [2 * y for y in ys]
    check_mapped(updates(ft), (None, 0), [x, both], [wanted, by_jax(x, twice)], 1e-4)
    check_mapped(updates(ft), (0, None), [many, ys], [wanted, by_jax(x + 1, ys)], 1e-4)
    check_mapped(updates(ft), (0, 0), [many, both], [wanted, by_jax(x + 1, twice)], 1e-4)


def _fits(index: Any, method: str) -> bool:
    """Where several updates fall on one element, `set` leaves any of them, and products have no
    derivative."""
    return method in ("add", "subtract", "min", "max") or not _repeats(index)


def _repeats(index: Any) -> bool:
    places = np.arange(60).reshape(SHAPE)
    try:
        hit = places[index]
    except IndexError:
        return True
    return np.unique(hit).size != hit.size


def test_traced_scalars():
    x = jnp.asarray(data())

    def run(x: Any, i: Any, j: Any) -> Any:
        return (
            x[i],
            x[i, j],
            x[i, :, j],
            x[:, i],
            x[1:, j],
            x[::-2, i],
            x[..., j, None],
            x[i, 0],
            x[i, jnp.array([0, 1])],
            x.at[i].get(mode="fill"),
            x.at[i, 1:, j].set(1.0),
            x.at[i, ::2].add(2.0),
            x.at[0, j].multiply(x[0, 1]),
            x.at[i].get(mode="clip"),
            x.at[i].add(1.0, wrap_negative_indices=False),
        )

    for i, j in ((0, 1), (-1, 2), (4, -3), (7, 9), (-20, 0)):
        assert_close(ft.jit(run)(x, i, j), jax.jit(run)(x, i, j), 1e-6)
    both = np.array([[0, -1, 7], [1, 2, 0]], np.int32)
    many = jnp.stack([x, -x, 2 * x])

    def mapped(m: Any) -> Any:
        return m.jit(lambda x, xs, *ij: (m.vmap(run, (None, 0, 0))(x, *ij), m.vmap(run)(xs, *ij)))

    assert_close(mapped(ft)(x, many, *both), mapped(jax)(x, many, *both), 1e-6)


def test_lean_programs():
    """Static indices need no gather; one traced index is one dynamic_slice."""
    x = jnp.asarray(data())

    def names(f: Callable[..., Any], *args: Any) -> list[str]:
        return [e.primitive.name for e in ft.make_ir(f)(*args).equations]

    assert names(lambda x: x[0], x) == ["slice", "reshape"]
    assert names(lambda x: x[1:3, ..., 0:2], x) == ["slice"]
    assert names(lambda x: x[None, :], x) == ["reshape"]
    assert names(lambda x: x[...], x) == []
    assert names(lambda x: x[::-1], x) == ["rev"]
    assert names(lambda x, i: x[i], x, 1) == ["lt", "add", "select_n", "dynamic_slice", "reshape"]
    assert names(lambda x: x[np.array([0, 1])], x) == ["gather"]
    assert names(lambda x: x.at[1:3, 0].set(1.0), x) == ["dynamic_update_slice"]
    assert names(lambda x: x.at[1:3, 0].add(1.0), x) == ["scatter_add"]


@pytest.mark.parametrize("method", ["set", "add", "multiply", "min"])
def test_an_empty_axis_drops_updates(method: str):
    """But an index of one element, known or not, is out of bounds there."""
    x, rows = np.zeros((0, 3), "float32"), data((3, 3))

    def write(x: Any, rows: Any) -> Any:
        return getattr(fnp.asarray(x).at[I], method)(rows, unique_indices=True)

    def both(x: Any, rows: Any) -> Any:
        y, back = ft.vjp(write, x, rows)
        return y, back(y), ft.jvp(write, (x, rows), (x, rows))[1]

    assert_close(write(x, rows), getattr(jnp.asarray(x).at[I], method)(rows))
    assert_close(ft.jit(both)(x, rows), (x, (x, np.zeros_like(rows)), x))  # JAX has no derivative
    for index in (0, np.array(1)):
        for library, asarray in ((jax, jnp.asarray), (ft, fnp.asarray)):
            with pytest.raises(IndexError, match="out of bounds for axis 0 with size 0"):
                library.jit(lambda i, a=asarray: getattr(a(x).at[i], method)(1.0))(index)
            with pytest.raises(IndexError, match="out of bounds for axis 0 with size 0"):
                library.jit(lambda x, i=index, a=asarray: getattr(a(x).at[i], method)(1.0))(x)


def test_get_of_many_kinds():
    x = jnp.asarray(data())
    i = np.array([7, -8, 1, 4])
    hows: list[Any] = [
        {},
        {"mode": "fill"},
        {"mode": "fill", "fill_value": 1},
        {"mode": "clip"},
        {"mode": "drop"},
        {"mode": "fill", "wrap_negative_indices": False},
    ]

    def run(many: Any, i: Any) -> Any:
        return [
            [x.at[i].get(**how), x.at[9].get(**how), x.at[:, -1].get(**how)] for x in many for how in hows
        ]

    kinds = (jnp.float32, jnp.int32, jnp.uint8, bool, jnp.complex64, jnp.bfloat16)
    many = [(4 * x).astype(kind) for kind in kinds]
    assert_close(ft.jit(run)(many, i), jax.jit(run)(many, i), 0)


def test_dtypes_of_updates():
    """x keeps its dtype and weak type; what is lost is warned of."""
    for x, y in (
        (jnp.arange(4), 2),
        (jnp.arange(4), 1.5),
        (jnp.arange(4.0), 2),
        (jnp.arange(4.0), True),
        (jnp.arange(4.0), np.float16(1.5)),
        (jnp.ones(4, jnp.bfloat16), np.float32(1.5)),
        (jnp.ones(4, bool), 2),
        (jnp.arange(4, dtype="uint8"), 7),
        (jnp.asarray(2.0), 3.0),
        (jnp.arange(4.0), [1.0, 2.0]),
        (jnp.ones(4, jnp.complex64), 1.5),
    ):
        index = () if x.ndim == 0 else slice(1, 3)

        def run(x: Any, index: Any = index, y: Any = y) -> Any:
            return x.at[index].set(np.asarray(y) if isinstance(y, list) else y)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            ours, wanted = ft.jit(run)(x), jax.jit(run)(x)
        assert_close(ours, wanted, 0)
        assert ours.weak_type == wanted.weak_type
    with pytest.warns(FutureWarning, match="test_indexing"):
        ft.jit(lambda x: x.at[0].set(1.5))(jnp.arange(4))


def test_repeated_set_has_one_winner():
    """The gradient of updates that overwrite each other goes to the one that stays."""
    i = np.array([1, 1, 2])

    def f(library: Any) -> Callable[..., Any]:
        return lambda u: (library.zeros(4).at[i].set(u) * library.arange(4.0)).sum()

    u = jnp.array([5.0, 6.0, 7.0])
    assert_close(ft.jit(ft.grad(f(fnp)))(u), jnp.array([0.0, 1.0, 2.0]), 0)
    assert_close(jax.grad(f(jnp))(u), jnp.array([0.0, 1.0, 2.0]), 0)


def test_keys():
    keys = jax.random.split(jax.random.key(0), (5, 2))

    def run(keys: Any, i: Any) -> Any:
        return (
            keys[0],
            keys[1:, ::-1],
            keys[i],
            keys[i, 0],
            keys[None, :, 1],
            keys[np.array([1, 2])],
            keys[::2],
            keys.at[0].set(keys[1]),
            keys.at[np.array([3, 1])].set(keys[:2]),
        )

    assert_close(ft.jit(run)(keys, 2), jax.jit(run)(keys, 2), 0)
    assert_close(
        ft.vmap(lambda k, i: (k[i], k[0]))(keys, np.arange(5) % 2),
        jax.vmap(lambda k, i: (k[i], k[0]))(keys, np.arange(5) % 2),
        0,
    )


@pytest.mark.skipif(not NEWEST, reason="JAX has strategies since 0.12")
def test_strategies():
    x = jnp.asarray(data())

    def run(m: Any, x: Any, i: Any) -> Any:
        window = x.at[1:3, 2].get(strategy="static_slice")
        rows = [x.at[i].get(strategy=s, mode="clip") for s in ("auto", "gather", "dynamic_slice")]
        return window, rows, m.grad(lambda x: x.at[i].get(strategy="gather").sum())(x)

    theirs = jax.jit(lambda x, i: run(jax, x, i))(x, 7)
    assert_close(ft.jit(lambda x, i: run(ft, x, i))(x, 7), theirs, 1e-6)
    for wrong in ("scatter", "fast", 1):
        kind = TypeError if wrong == 1 else ValueError
        for jit in (jax.jit, ft.jit):
            with pytest.raises(kind, match="trategy"):
                jit(lambda x, wrong=wrong: x.at[0].get(strategy=wrong))(x)


def test_lists_of_traced_numbers():
    x = jnp.asarray(data())
    assert_close(ft.jit(lambda x, i: x[[i, 0], :])(x, 2), x[np.array([2, 0])], 0)
    made = ft.jit(lambda x, a: x.at[0, 0].set([a, 2.0, a]))(x, 3.0)
    assert_close(made, x.at[0, 0].set(jnp.array([3.0, 2.0, 3.0])), 0)
