"""x[...], x.at[...], take, nonzero and relatives against JAX, in and out of transformations."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans import errors
from functrans.numpy.indexing import At, getitem
from tests.closeness import assert_close

SHAPE = (5, 4, 3)
ONES = np.array([True, False, True, True, False])
MASK2 = np.arange(20).reshape(5, 4) % 3 == 0
I = np.array([3, 0, -1])  # noqa: E741
J = np.array([[1], [-2]])

# What stands in the brackets of an array of shape (5, 4, 3).
STATIC = [
    0, -1, 4, np.int64(2), slice(None), slice(1, 3), slice(None, None, 2), slice(None, None, -1),
    slice(4, 1, -2), slice(-2, None), slice(3, 1), slice(10, 20), slice(2, 3, -1), (), Ellipsis,
    None, (0, 1, 2), (slice(1, 4), 2), (Ellipsis, 0), (0, Ellipsis),
    (Ellipsis, slice(None, None, -1)), (None, 0), (slice(None), None, 1), (1, None, None),
    (Ellipsis, None),
    (None, Ellipsis, None, -1),
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
    (Ellipsis, np.array([True, False, True])), np.zeros(5, bool), True, False,
    (True, 0), (slice(None), True), (MASK2, 1), (0, MASK2[0], None),
    np.arange(60).reshape(SHAPE) % 2 == 0,
]  # fmt: skip
GROUPS = {"static": STATIC, "arrays": ARRAYS, "masks": MASKS}
GROUP = pytest.mark.parametrize("group", GROUPS)


def data(shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype("float32")


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


@GROUP
def test_getitem(group: str):
    """x[index] and its derivatives, eager, jitted, interpreted and under vmap, equal JAX's."""
    indices = GROUPS[group]
    x = jnp.asarray(data())
    ours = reads(ft, indices)
    wanted = jax.jit(reads(jax, indices))(x)
    check([getitem(x, index) for index in indices], [w[0] for w in wanted], indices, 0)
    check(ft.jit(ours)(x), wanted, indices, 1e-6)
    program = ft.make_ir(ours)(x)
    flat = ft.interpret(program, x)
    check(list(zip(*[iter(flat)] * 3, strict=True)), wanted, indices, 1e-6)
    few, many = indices[::2], jnp.asarray(data((*SHAPE[:2], 2, 3)))
    mapped = jax.jit(jax.vmap(reads(jax, few), 2))(many)
    check(ft.jit(ft.vmap(reads(ft, few), 2))(many), mapped, few, 1e-6)


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

    wanted = jax.jit(run)(x, dynamic)
    check(ft.jit(run)(x, dynamic), wanted, indices, 0)
    if mode != "fill":
        return
    check(ft.interpret(ft.make_ir(run)(x, dynamic), x, dynamic), wanted, indices, 0)
    indices, dynamic = indices[::2], dynamic[::2]
    twice = jax.tree_util.tree_map(lambda a: np.stack([a, a]), dynamic)
    both = jnp.stack([x, -x])
    for axes, xs in (((None, 0), x), ((0, None), both), ((0, 0), both)):
        given = dynamic if axes[1] is None else twice
        mapped = jax.jit(jax.vmap(run, axes))(xs, given)
        check(ft.jit(ft.vmap(run, axes))(xs, given), mapped, indices, 0)


def _parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _beyond(index: Any) -> bool:
    arrays = [p for p in _parts(index) if isinstance(p, np.ndarray) and p.size]
    return any(abs(p).max() > 5 for p in arrays)


UPDATES = ["set", "add", "subtract", "multiply", "divide", "min", "max", "power"]


@GROUP
@pytest.mark.parametrize("method", UPDATES)
def test_at(group: str, method: str):
    """Every index with two of the methods; `test_at_everywhere` has all pairs."""
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

    wanted = jax.jit(updates(jax))(x, ys)
    check(ft.jit(updates(ft))(x, ys), wanted, indices, 1e-4)
    eager = [getattr(At(x)[i], method)(y) for i, y in zip(indices[:3], ys, strict=False)]
    check(eager, [w[0] for w in wanted[:3]], indices[:3], 1e-5)
    many, both = jnp.stack([x, x + 1]), [np.stack([y, 2 * y]) for y in ys]

    def plain(x: Any, ys: Any) -> list[Any]:
        return [getattr(x.at[i], method)(y) for i, y in zip(indices, ys, strict=True)]

    for over, args in (((None, 0), (x, both)), ((0, None), (many, ys)), ((0, 0), (many, both))):
        mapped = jax.jit(jax.vmap(plain, over))(*args)
        check(ft.jit(ft.vmap(plain, over))(*args), mapped, indices, 1e-5)


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
            x[i], x[i, j], x[i, :, j], x[:, i], x[1:, j], x[::-2, i], x[..., j, None], x[i, 0],
            x[i, jnp.array([0, 1])], x.at[i].get(mode="fill"), x.at[i, 1:, j].set(1.0),
            x.at[i, ::2].add(2.0), x.at[0, j].multiply(x[0, 1]), x.at[i].get(mode="clip"),
        )  # fmt: skip

    for i, j in ((0, 1), (-1, 2), (4, -3), (7, 9), (-20, 0)):
        wanted = jax.jit(run)(x, i, j)
        assert_close(ft.jit(run)(x, i, j), wanted, 1e-6)
        assert_close(run(x, i, j)[:10], wanted[:10], 1e-6)
    both = np.array([[0, -1, 7], [1, 2, 0]], np.int32)
    assert_close(ft.vmap(run, (None, 0, 0))(x, *both), jax.vmap(run, (None, 0, 0))(x, *both), 1e-6)
    many = jnp.stack([x, -x, 2 * x])
    assert_close(ft.jit(ft.vmap(run))(many, *both), jax.vmap(run)(many, *both), 1e-6)


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


@pytest.mark.parametrize("mode", ["clip", "drop", "fill", None])
def test_updates_out_of_bounds(mode: str | None):
    x = jnp.asarray(data())
    i = np.array([7, -8, 1, 4])

    def run(x: Any, i: Any) -> Any:
        return (
            x.at[i].add(1.0, mode=mode), x.at[9].set(2.0, mode=mode),
            x.at[-7, 1].add(1.0, mode=mode), x.at[1, i].max(0.5, mode=mode),
            x.at[i, wrapping].add(1.0, mode=mode),
            x.at[-1].set(3.0, mode=mode, wrap_negative_indices=False),
            x.at[i].add(1.0, mode=mode, wrap_negative_indices=False),
        )  # fmt: skip

    wrapping = slice(1, None, 2)
    assert_close(ft.jit(run)(x, i), jax.jit(run)(x, i), 1e-6)


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
        {}, {"mode": "fill"}, {"mode": "fill", "fill_value": 1}, {"mode": "clip"}, {"mode": "drop"},
        {"mode": "fill", "wrap_negative_indices": False},
    ]  # fmt: skip

    def run(many: Any, i: Any) -> Any:
        return [
            [x.at[i].get(**how), x.at[9].get(**how), x.at[:, -1].get(**how)]
            for x in many for how in hows
        ]  # fmt: skip

    kinds = (jnp.float32, jnp.int32, jnp.uint8, bool, jnp.complex64, jnp.bfloat16)
    many = [(4 * x).astype(kind) for kind in kinds]
    assert_close(ft.jit(run)(many, i), jax.jit(run)(many, i), 0)


def test_dtypes_of_updates():
    """x keeps its dtype and weak type; what is lost is warned of."""
    for x, y in (
        (jnp.arange(4), 2), (jnp.arange(4), 1.5), (jnp.arange(4.0), 2), (jnp.arange(4.0), True),
        (jnp.arange(4.0), np.float16(1.5)), (jnp.ones(4, jnp.bfloat16), np.float32(1.5)),
        (jnp.ones(4, bool), 2), (jnp.arange(4, dtype="uint8"), 7), (jnp.asarray(2.0), 3.0),
        (jnp.arange(4.0), [1.0, 2.0]), (jnp.ones(4, jnp.complex64), 1.5),
    ):  # fmt: skip
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


def test_apply_and_lists():
    x = jnp.asarray(data())
    assert_close(ft.jit(lambda x: x.at[1:3].apply(fnp.sin))(x), x.at[1:3].apply(jnp.sin), 1e-6)
    i = np.array([0, 3])
    assert_close(ft.jit(lambda x: x.at[i].apply(fnp.exp))(x), x.at[i].apply(jnp.exp), 1e-6)
    assert_close(
        ft.jit(lambda x, a: x.at[0, 0].set([a, 2.0, a]))(x, 3.0),
        x.at[0, 0].set(jnp.array([3.0, 2.0, 3.0])), 0,
    )  # fmt: skip
    assert_close(ft.jit(lambda x, i: x[[i, 0], :])(x, 2), x[np.array([2, 0])], 0)


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
            keys[0], keys[1:, ::-1], keys[i], keys[i, 0], keys[None, :, 1], keys[np.array([1, 2])],
            keys[::2], keys.at[0].set(keys[1]), keys.at[np.array([3, 1])].set(keys[:2]),
        )  # fmt: skip

    assert_close(ft.jit(run)(keys, 2), jax.jit(run)(keys, 2), 0)
    assert_close(ft.vmap(lambda k, i: (k[i], k[0]))(keys, np.arange(5) % 2),
                 jax.vmap(lambda k, i: (k[i], k[0]))(keys, np.arange(5) % 2), 0)  # fmt: skip


TAKES = [
    {}, {"axis": 0}, {"axis": 1}, {"axis": -1}, {"axis": 0, "mode": "clip"},
    {"axis": 1, "mode": "wrap"}, {"axis": 0, "mode": "fill", "fill_value": 7.0}, {"mode": "wrap"},
    {"axis": 2, "indices_are_sorted": True, "unique_indices": True},
]  # fmt: skip


def test_take():
    x = jnp.asarray(data())
    indices = [np.array([0, -1, 2]), np.array([[9], [-9]]), np.array(1), 1, np.array([], int)]

    def run(library: Any, x: Any) -> list[Any]:
        return [library.take(x, library.asarray(i), **how) for how in TAKES for i in indices]

    def back(library: Any, numpy: Any) -> Any:
        v = [jnp.ones(y.shape) for y in wanted]
        return library.jit(lambda x: library.vjp(lambda x: run(numpy, x), x)[1](v))(x)

    wanted = jax.jit(run, static_argnums=0)(jnp, x)
    assert_close(ft.jit(run, static_argnums=0)(fnp, x), wanted, 0)
    assert_close(fnp.take(x, indices[0], axis=1), wanted[10], 0)
    assert_close(back(ft, fnp), back(jax, jnp), 1e-6)


def test_take_along_axis():
    x = jnp.asarray(data())
    rng = np.random.default_rng(3)
    cases: list[Any] = []
    for axis in (0, 1, -1):
        for shape in (SHAPE, (1, 4, 3), (5, 1, 1), (1, 1, 1), (5, 4, 1)):
            shape = tuple(2 if d == axis % 3 else n for d, n in enumerate(shape))
            mode = (None, "clip")[len(cases) % 2]
            cases.append((rng.integers(-4, 6, size=shape), axis, mode))

    def run(library: Any, x: Any) -> list[Any]:
        return [library.take_along_axis(x, i, axis, mode) for i, axis, mode in cases]

    wanted = jax.jit(run, static_argnums=0)(jnp, x)
    assert_close(ft.jit(run, static_argnums=0)(fnp, x), wanted, 0)
    assert_close(fnp.take_along_axis(x, *cases[0]), wanted[0], 0)
    i = np.argsort(data(), 1)
    assert_close(fnp.take_along_axis(x, i, 1), np.sort(data(), 1), 0)
    assert_close(fnp.take_along_axis(x[:1], i, 1), jnp.take_along_axis(x[:1], i, 1), 0)
    assert_close(fnp.take_along_axis(x, np.array([3, 59, 60]), None),
                 jnp.take_along_axis(x, np.array([3, 59, 60]), None), 0)  # fmt: skip
    g = ft.jit(ft.grad(lambda x: (fnp.take_along_axis(x, i[:, :2], 1) ** 2).sum()))(x)
    assert_close(g, jax.grad(lambda x: (jnp.take_along_axis(x, i[:, :2], 1) ** 2).sum())(x), 1e-6)


def test_put():
    x, i = jnp.asarray(data()), np.array([[1], [3], [0], [2], [1]])[:, :, None]
    for mode in (None, "clip"):
        assert_close(fnp.put_along_axis(x, i, 9.0, 1, inplace=False, mode=mode),
                     jnp.put_along_axis(x, i, 9.0, 1, inplace=False, mode=mode), 0)  # fmt: skip
    j, v = np.array([0, 7, 59, 80, -1]), np.array([1.0, 2.0, 3.0], "float32")
    for mode in (None, "clip", "wrap"):
        assert_close(fnp.put(x, j[:4], v, mode, inplace=False),
                     jnp.put(x, j[:4], v, mode, inplace=False), 0)  # fmt: skip
    with pytest.raises(ValueError, match="inplace=False"):
        fnp.put_along_axis(x, i, 9.0, 1)
    with pytest.raises(ValueError, match="inplace=False"):
        fnp.put(x, j, v)


def test_nonzero():
    x = jnp.asarray(MASK2.astype(int) * 3)
    assert_close(fnp.nonzero(x), jnp.nonzero(x), 0)
    assert_close(fnp.argwhere(x), jnp.argwhere(x), 0)
    assert_close(fnp.flatnonzero(x), jnp.flatnonzero(x), 0)
    hows: list[Any] = [
        {"size": n, "fill_value": f} for n in (0, 3, 7, 12) for f in (None, -1, (7, -2))
    ]

    def run(library: Any, x: Any) -> list[Any]:
        return [library.nonzero(x, **how) for how in hows] + [library.argwhere(x, **hows[4])]

    assert_close(ft.jit(run, static_argnums=0)(fnp, x), jax.jit(run, static_argnums=0)(jnp, x), 0)
    assert_close(fnp.nonzero(x, size=7, fill_value=-1), jnp.nonzero(x, size=7, fill_value=-1), 0)
    both = jnp.stack([x, x.T.reshape(5, 4)])
    ours = ft.jit(ft.vmap(lambda x: fnp.nonzero(x, size=8, fill_value=-1)))(both)
    assert_close(ours, jax.vmap(lambda x: jnp.nonzero(x, size=8, fill_value=-1))(both), 0)
    assert_close(fnp.argwhere(jnp.asarray(2)), jnp.argwhere(jnp.asarray(2)), 0)
    with pytest.raises(jax.errors.ConcretizationTypeError, match="size="):
        ft.jit(fnp.nonzero)(x)
    with pytest.raises(ValueError, match="without axes"):
        fnp.nonzero(jnp.asarray(1))


def test_compress():
    x = jnp.asarray(data())
    for axis, mask in ((None, np.arange(60) % 7 == 0), (0, ONES), (1, ONES[:4]), (-1, ONES[:2])):
        wanted = jnp.compress(mask, x, axis)
        assert_close(fnp.compress(mask, x, axis), wanted, 0)
        for size in (0, 1, 2):
            how = {"size": size, "fill_value": -5.0}
            run = ft.jit(lambda m, x, axis=axis, how=how: fnp.compress(m, x, axis, **how))
            assert_close(run(mask, x), jnp.compress(mask, x, axis, **how), 0)
    assert_close(fnp.extract(MASK2, x[:, :, 0]), jnp.extract(MASK2, x[:, :, 0]), 0)
    assert_close(ft.jit(lambda m, x: fnp.extract(m, x, size=4))(MASK2, x[:, :, 0]),
                 jnp.extract(MASK2, x[:, :, 0], size=4), 0)  # fmt: skip


# index, error, words of its message
WRONG = [
    ([0, 1], TypeError, r"jnp\.array"), ([slice(None), 0], TypeError, r"tuple"),
    (1.5, TypeError, "integer or boolean"), (np.array([1.5]), TypeError, "integer or boolean"),
    ("a", TypeError, "string"), ((0, 0, 0, 0), IndexError, "Too many indices"),
    ((Ellipsis, Ellipsis), IndexError, "single ellipsis"), (object(), IndexError, "valid indices"),
    (np.array([True, False]), IndexError, "boolean index"),
    (slice(None, None, 0), ValueError, "zero"), (slice(0.5, 1), TypeError, "static integers"),
    ((np.array([1, 2]), np.array([1, 2, 3])), ValueError, "shapes"),
]  # fmt: skip


@pytest.mark.parametrize(("index", "error", "words"), WRONG, ids=[str(w[2]) for w in WRONG])
def test_wrong_indices(index: Any, error: type[Exception], words: str):
    """The same kind of error as JAX's, with the user's line and a way out."""
    x = jnp.asarray(data())
    with pytest.raises(error):
        x[index]
    for run in (lambda x: x[index], lambda x: x.at[index].set(0.0)):
        with pytest.raises(error, match=words) as caught:
            ft.jit(run)(x)
        if error is not ValueError:
            assert "test_indexing.py" in str(caught.value)
            assert isinstance(caught.value, errors.FunctransError)


def test_wrong_uses():
    x = jnp.asarray(data())
    with pytest.raises(TypeError, match=r"x\.at\[i\]\.set"):
        ft.jit(_assign)(x)
    with pytest.raises(jax.errors.NonConcreteBooleanIndexError, match=r"jnp\.where"):
        ft.jit(lambda x, m: x[m])(x, ONES)
    with pytest.raises(jax.errors.NonConcreteBooleanIndexError, match=r"jnp\.where"):
        ft.vmap(lambda x: x.at[x > 0].set(0.0))(x)
    with pytest.raises(IndexError, match="dynamic_slice"):
        ft.jit(lambda x, i: x[i : i + 2])(x, 1)
    with pytest.raises(ValueError, match="broadcast"):
        ft.jit(lambda x: x.at[0].set(fnp.ones((2, 4, 3))))(x)
    with pytest.raises(ValueError, match="broadcast"):
        ft.jit(lambda x: x.at[0].set(fnp.ones(2)))(x)
    with pytest.raises(IndexError, match="size 0"):
        ft.jit(lambda x: x[0])(jnp.zeros((0, 3)))
    with pytest.raises(ValueError, match="mode"):
        ft.jit(lambda x: x.at[0].get(mode="nearest"))(x)
    with pytest.raises(NotImplementedError, match="unique_indices"):
        ft.grad(lambda y: x.at[I].multiply(y).sum())(2.0)


def _assign(x: Any) -> None:
    x[0] = 1.0


def test_dynamic_masks():
    """Un-jitted code sees values: a mask computed from the argument selects."""
    x = jnp.asarray(data())
    assert_close(
        ft.grad(lambda x: (x[x > 0] ** 2).sum())(x),
        jax.grad(lambda x: (x[x > 0] ** 2).sum())(x),
        1e-6,
    )


def test_concrete_arrays():
    """Arrays from outside of the traced function, indexed or updated by what is traced in it."""
    x = jnp.asarray(data())
    made = ft.jit(lambda i: (x[i], x[0, i], x[1:, i]))(1)
    assert_close(made, (x[1], x[0, 1], x[1:, 1]), 0)
    assert_close(ft.vmap(lambda i: x[i])(I), x[I], 0)
    assert_close(ft.jit(lambda i, y: x.at[i].set(y))(1, 2.0), x.at[1].set(2.0), 0)
    for f in (
        lambda y: (x.at[0].set(y) ** 2).sum(),
        lambda y: x.at[I].multiply(y, unique_indices=True).sum(),
        lambda y: x.at[0].divide(y).sum(),
        lambda y: x.at[1:].add(values=y).sum(),
    ):
        assert_close(ft.grad(f)(2.0), jax.grad(f)(2.0), 1e-5)
        assert_close(ft.jit(ft.grad(f))(2.0), jax.grad(f)(2.0), 1e-5)
    assert_close(
        ft.grad(lambda y: x.at[1:, 0].apply(lambda e: e * y).sum())(2.0), x[1:, 0].sum(), 1e-5
    )


@pytest.mark.parametrize("method", ["multiply", "divide"])
def test_products_at_one_traced_place_are_differentiated(method):
    """One index falls on no element twice, whatever slices stand beside it."""
    x = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3)

    def slope(lib: Any) -> Any:
        def f(x: Any, i: Any) -> Any:
            return getattr(x.at[i, ::-1], method)(2 * x[0]).sum()

        return lib.jit(lib.grad(f))

    np.testing.assert_allclose(slope(ft)(x, 1), slope(jax)(x, 1), rtol=1e-6)
