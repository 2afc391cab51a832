"""Loops of small operations as one kernel each: which are chosen, that results stay, and that what
XLA cannot compile is compiled plainly."""

import functools
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import errors, lax
from functrans.backends import kernel_calls
from functrans.interop import from_jax
from functrans.passes import kernels
from functrans.primitives.indexing.sorting import Sort
from tests.support.closeness import assert_close
from tests.support.tables import functions

pytestmark = pytest.mark.smoke

LOOPS = Path(__file__).with_name("loops.txt")
X = np.linspace(-1, 1, 4, dtype="float32")
M = (np.eye(4) + 0.1 * np.arange(16).reshape(4, 4)).astype("float32")
MANY = np.ones((80, 60), "float32")
KEY, KEYS = ft.random.key(1), ft.random.split(ft.random.key(1), 5)
STEPS = np.linspace(0, 1, 30, dtype="float32")


def swing(state: Any, force: Any) -> tuple[Any, Any]:
    x, v = state
    v = v - 0.1 * jnp.sin(x) + force
    return (x + 0.1 * v, v), x


def simulated(x: Any, forces: Any = STEPS) -> Any:
    return lax.scan(swing, (x, x * 0), forces)[1]


def by_numpy(f: Callable[..., Any], *args: Any) -> Any:
    """The results as the reference computes them."""
    return ft.interpret(ft.make_ir(f)(*args), *args)


def count_kernels(f: Callable[..., Any], *args: Any) -> int:
    return ft.jit(f).lower(*args).as_text().count('xla_cpu_small_call = "true"')


# --- the choice -----------------------------------------------------------------------------------


def repeated(step: Callable[[Any, Any], Any], n: int = 9) -> Callable[[Any], Any]:
    return lambda x: lax.fori_loop(0, n, lambda i, x: step(i, x), x)


CHOSEN = functions(LOOPS, "one kernel", "", globals())

LEFT = functions(LOOPS, "no kernel", "", globals())


@pytest.mark.parametrize("name", CHOSEN)
def test_loops_of_small_operations_are_kernels(name: str):
    f, x = CHOSEN[name]()
    assert count_kernels(f, x) == 1
    assert_close(ft.tree.leaves(ft.jit(f)(x)), by_numpy(f, x), 1e-4)
    assert [obstacle for _, obstacle, _ in ft.passes.explain(f)(x).loops] == [None]


@pytest.mark.parametrize("name", LEFT)
def test_loops_that_are_left(name: str):
    f, x, why = LEFT[name]()
    assert count_kernels(f, x) == 0
    (said,) = [str(obstacle) for _, obstacle, _ in ft.passes.explain(f)(x).loops]
    assert why in said
    assert re.search(r"test_kernels\.py|loops\.txt", said)


def test_a_loop_of_too_many_operations_may_hold_kernels(monkeypatch: pytest.MonkeyPatch):
    def f(x: Any) -> Any:
        def step(i: Any, x: Any) -> Any:
            return jnp.sin(lax.fori_loop(0, 3, lambda j, x: jnp.tanh(x) * 0.5, x)) + i

        return lax.fori_loop(0, 4, step, x)

    assert count_kernels(f, X) == 1
    monkeypatch.setattr(kernels, "_MANY", 5)
    text = str(ft.passes.explain(f)(X))
    assert "too many to be compiled at once" in text
    assert "not one kernel: test_kernels.py" in text
    assert "    one kernel: test_kernels.py" in text


@pytest.mark.parametrize("scatters", [2, 9])
def test_windows_are_written_by_loops(scatters: int):
    """In jumanji's Rubik's cube a loop has 36 scatters of 12 windows: rollouts took a minute to compile."""

    def step(i: Any, x: Any) -> Any:
        for k in range(scatters):
            x = x.at[(jnp.arange(12) * (k + 1) + i) % 40].multiply(0.5)
        return x

    f, x = repeated(step), np.sin(np.arange(40, dtype="float32"))
    text = ft.jit(f).lower(x).as_text()
    assert text.count("stablehlo.dynamic_update_slice") == scatters
    assert count_kernels(f, x) == 1
    assert_close(ft.jit(f)(x), by_numpy(f, x))


@pytest.mark.parametrize("turns", [1, 2])
def test_what_is_known_and_not_finite_stays(turns: int):
    """Of a loop that is none LLVM knows the operands, and computes exp(NaN) as any number."""
    x = np.array([-np.inf, -25, -2, -1, -0.0, 0, 9, np.inf, np.nan], "float32")

    def f() -> Any:
        def step(c: Any, _: Any) -> tuple[Any, None]:
            return (ft.nn.sigmoid(c[0]), jnp.exp((c[1] - c[1]) / (c[1] - c[1]))), None

        return lax.scan(step, (x, x), None, length=3 * turns, unroll=3)[0]

    ((_, obstacle, _),) = ft.passes.explain(f)().loops
    assert count_kernels(f) == turns - 1
    assert obstacle is None or "scan has one iteration, at" in str(obstacle)
    for a, b in zip(ft.jit(f)(), ft.jit(f, cpu="plain")(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.isnan(ft.jit(f)()[0][-1])


def test_plainly():
    plain = ft.jit(simulated, cpu="plain")
    nested = ft.jit(lambda x: ft.jit(simulated)(jnp.sort(x)), cpu="plain")
    beside_keys = ft.jit(lambda x: (simulated(x), jax.random.split(KEY)), cpu="plain")
    for f in (plain, nested, beside_keys):
        assert "small_call" not in f.lower(X).as_text()
    report = ft.passes.explain(plain)(X)
    assert all("cpu=" in str(obstacle) for _, obstacle, _ in report.loops)
    assert 'is left to XLA by cpu="plain", or with the loop around it, at' in str(report)
    assert report.options is None


def solved(a: Any, end: Any = 3.0) -> Any:
    """y' = sin t - a y^2 by Heun's method, with steps that are accepted or rejected."""

    def slope(t: Any, y: Any) -> Any:
        return jnp.sin(t) - a * y * y

    def step(state: Any) -> Any:
        t, y, h = state
        k = slope(t, y)
        euler = y + h * k
        heun = y + h * (k + slope(t + h, euler)) / 2
        error = jnp.abs(heun - euler) * 1e3
        taken = error < 1
        wider = h * jnp.clip(0.9 / jnp.sqrt(error + 1e-6), 0.3, 2.0)
        return jnp.where(taken, t + h, t), jnp.where(taken, heun, y), wider

    return lax.while_loop(lambda s: s[0] < end, step, (0 * a, 0 * a + 1, 0 * a + 0.5))[1]


def test_decisions_that_a_gradient_makes_twice_do_not_depend_on_contractions():
    a = np.float32(2)
    alike = "decides as another one: products are rounded by themselves"
    for fun, loops, marked in (
        (solved, 1, 0),
        (ft.grad(solved), 2, 2),
        (lambda a: (ft.grad(solved)(a), simulated(a * X)), 3, 2),
        (lambda a: lax.fori_loop(0, 3, lambda i, a: a - 0.1 * ft.grad(solved)(a), a), 1, 0),
    ):
        report = ft.passes.explain(fun)(a)
        assert [loop.obstacle for loop in report.loops] == [None] * loops
        assert str(report).count(alike) == marked
    for dtype, rtol in (("float32", 1e-4), ("float64", 1e-12)):
        with ft.enable_x64():
            x = np.array(2, dtype)
            for function in ft.jit(ft.grad(solved)).lower(x).as_text().split("func.func")[2:]:
                products = re.findall(r"stablehlo.multiply .*f\d+>", function)
                assert 0 < len(products) == len(re.findall(r"stablehlo.and .*ui\d+>", function))
            np.testing.assert_allclose(ft.jit(ft.grad(solved))(x), ft.grad(solved)(x), rtol)


def test_loops_that_decide_alike_are_all_kernels_or_none():
    def halved(x: Any, again: Any = lambda x: x) -> Any:
        return lax.while_loop(lambda x: x[0] * 2 + x[1] > 1, lambda x: again(x) * 0.5, x)

    def of_many(x: Any) -> Any:
        return jnp.sort(jnp.tile(x, 4000))[: x.size]

    def both(x: Any) -> Any:
        return halved(x), halved(x, of_many)

    x = np.array([3, 2, 1], "float32")
    assert count_kernels(lambda x: (halved(x), halved(x + 1)), x) == 2
    report = ft.passes.explain(both)(x)
    said = "makes the decisions of another loop, which cannot be a kernel"
    assert [loop.obstacle.problem for loop in report.loops] == [said, "works on 12000 elements"]
    for ours, plain in zip(ft.jit(both)(x), ft.jit(both, cpu="plain")(x), strict=True):
        np.testing.assert_array_equal(ours, plain)


def fixed_point(f: Any, a: Any, x: Any) -> Any:
    def is_moving(state: Any) -> Any:
        return jnp.abs(state[0] - state[1]) > 1e-5

    return lax.while_loop(is_moving, lambda state: (state[1], f(a, state[1])), (x, f(a, x)))[1]


def test_an_implicit_derivative_by_the_same_loop_decides_nothing_twice():
    def newton(a: Any, x: Any) -> Any:
        return 0.5 * (x + a / x)

    @ft.custom_vjp
    def root(a: Any) -> Any:
        return fixed_point(newton, a, a)

    def backward(known: Any, ct: Any) -> Any:
        a, x = known
        moved = fixed_point(lambda _, u: ct + ft.vjp(lambda x: newton(a, x), x)[1](u)[0], a, ct)
        return ft.vjp(lambda a: newton(a, x), a)[1](moved)

    root.defvjp(lambda a: (x := root(a), (a, x)), backward)
    loops = ft.passes.explain(ft.value_and_grad(root))(np.float32(2)).loops
    assert len(loops) == 2
    assert not any(loop.obstacle for loop in loops)


def test_what_would_be_computed_anew_is_kept():
    x = np.linspace(0, 1, 8, dtype="float32")

    def often(i: Any, x: Any) -> Any:
        y = jnp.sin(x) * x + 1
        return 0.01 * (y + (jnp.cos(x)[:, None] * y[None]).sum(0) + jnp.roll(y, 1))

    def rarely(i: Any, x: Any) -> Any:
        y = 2 * x
        return 0.01 * (y + jnp.roll(y, 1) - jnp.sin(x))

    def from_what_is_kept(i: Any, x: Any) -> Any:
        y = jnp.sin(x) * jnp.exp(x)
        z = 2 * y + 1  # computed anew from y
        return 0.01 * (z + jnp.roll(z, 1) + jnp.roll(y, 1))

    def in_part(i: Any, x: Any) -> Any:
        y = x.at[1:].add(jnp.sin(x[1:]) * x[1:])
        z = lax.dynamic_update_slice(x, x[:4], (i % 4,))  # XLA does not know where
        return 0.01 * (jnp.roll(y, 1) + y[::-1] + jnp.roll(z, 1) + z[::-1])

    def diagonal(i: Any, x: Any) -> Any:
        y = jnp.sin(x[:, None] * x)
        return 0.01 * jnp.diagonal(y + y.T)

    vectors = {often: 2, rarely: 0, from_what_is_kept: 1, in_part: 1, diagonal: 0}
    for step, kept in (*vectors.items(), (lambda i, x: often(i, x[None])[0], 0)):
        f, arg = repeated(step), x if step in vectors else x[0]
        program = ft.passes.kernels.kernels(ft.passes.explain(f)(arg).after)
        assert str(program).count("optimization_barrier") == kept, program
        assert_close(ft.jit(f)(arg), by_numpy(f, arg))


def test_operations_on_what_is_broadcast_are_of_its_rows():
    def step(i: Any, x: Any) -> Any:
        y = 1 / jnp.broadcast_to(1 + jnp.sum(x, 0), x.shape)
        return 0.01 * (x * y - jnp.sin(y) * y)

    f, x = repeated(step), np.linspace(0, 1, 24, dtype="float32").reshape(3, 8)
    program = str(ft.passes.kernels.kernels(ft.passes.explain(f)(x).after))
    assert "f32[8] = div" in program
    assert "f32[8] = sin" in program
    assert_close(ft.jit(f)(x), by_numpy(f, x))


# --- results --------------------------------------------------------------------------------------


def total(x: Any) -> Any:
    return jnp.sum(jnp.sin(simulated(x)))


@ft.custom_vjp
def clipped(x: Any) -> Any:
    return jnp.sin(x)


clipped.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (jnp.clip(ct * jnp.cos(x), -0.5, 0.5),))


def test_integers_wrap_and_what_is_not_finite_stays():
    def f(x: Any, n: Any) -> Any:
        return lax.scan(lambda s, v: ((s[0] * v, s[1] * 1664525 + 7), s), (x, n), jnp.arange(40.0))

    x = np.array([np.inf, np.nan, -0.0, 1e30], "float32")
    n = np.array([1, -5, 2**31 - 1], "int32")
    found, plain = ft.jit(f)(x, n), ft.jit(f, cpu="plain")(x, n)
    for a, b in zip(ft.tree.leaves(found), ft.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(a, b)
    with jax.debug_nans(True), pytest.raises(errors.NotFinite, match=r"test_kernels\.py"):
        ft.jit(f)(x[2:] * 0 + np.float32(np.inf), n)


SPECIAL = np.resize(np.array([-0.0, 0.0, 1.5, np.nan, -np.inf, 3.0, -2.0], "float32"), 400)


def shifted(x: Any, axis: int) -> Any:
    """Shifts that wrap around, that repeat the first element, and that let in a zero."""
    first, rest = (lax.slice_in_dim(x, *ends, axis=axis) for ends in ((0, 1), (0, x.shape[axis] - 1)))
    zero = [(1, 0) if d == axis else (0, 0) for d in range(x.ndim)]
    return jnp.roll(x, 1, axis), jnp.concatenate([first, rest], axis), jnp.pad(rest, zero)


@pytest.mark.parametrize("x", [SPECIAL, SPECIAL.reshape(20, 20)], ids=["vector", "matrix"])
def test_joins_keep_zeros_with_their_sign_and_what_is_not_finite(x: Any):
    axis = x.ndim - 1

    def moved(i: Any, x: Any) -> Any:
        around, repeated, zero = shifted(x, axis)
        return jnp.where(i % 3 == 0, around, jnp.where(i % 3 == 1, repeated, zero - 0.0))

    f = repeated(moved, 7)
    found, plain = ft.jit(f)(x), ft.jit(f, cpu="plain")(x)
    np.testing.assert_array_equal(found, plain)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(plain))


@pytest.mark.parametrize(
    ("shape", "axis", "keys"), [((6,), 0, 1), ((2, 5, 3), 1, 2), ((4, 1), 1, 1), ((40,), 0, 2)]
)
def test_orders_are_those_of_a_sort(shape: tuple[int, ...], axis: int, keys: int):
    def ordered(*state: Any) -> Any:
        step = functools.partial(lax.sort, dimension=axis, num_keys=keys)
        return lax.fori_loop(0, 300, lambda i, s: tuple(step(s)), state)

    size = int(np.prod(shape))
    x, n = SPECIAL[:size].reshape(shape), (np.arange(size, dtype="int32") * 7 % 3).reshape(shape)
    for operands in ((x, n), (n, x)):
        assert count_kernels(ordered, *operands) == 1
        for a, b in zip(ft.jit(ordered)(*operands), by_numpy(ordered, *operands), strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


def test_products_of_booleans():
    a = np.tril(np.ones((12, 12), bool))
    f = ft.jit(lambda a: (lax.fori_loop(0, 3, lambda i, c: lax.dot(c, a), a), jnp.matmul(a[-1], a)))
    np.testing.assert_array_equal(f(a)[0], a)
    np.testing.assert_array_equal(f(a)[1], a[-1])


KNOWN = np.arange(12, dtype="int32").reshape(4, 3)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: repeated(lambda i, s: s + jnp.asarray(KNOWN)[i % 4, 0])(x),
        lambda x: lax.scan(lambda s, v: (s + v[0], v * 0), x, KNOWN * (x[0] > 9).astype("int32")),
        lambda x: lax.scan(lambda s, v: (s + 1, jnp.ones(3)), x, jnp.stack([x, x]) * 0),
        lambda x: lax.scan(lambda s, v: (s, s[0]), x, jnp.zeros((5, 2)).at[0, 0].set(0.0)),
        lambda x: lax.fori_loop(0, 0, lambda i, s: s * x, x),
        lambda x: lax.scan(lambda s, _: (s, 1.0), 0.0, None, length=3),
    ],
)
def test_operands_that_xla_knows(f: Callable[[Any], Any]):
    """XLA puts them into the kernel, and ends the process if none is left to read."""
    for passes in (("default",), ("dead_code",)):
        run, plain = ft.jit(f, passes=passes), ft.jit(f, passes=passes, cpu="plain")
        for a, b in zip(ft.tree.leaves(run(X)), ft.tree.leaves(plain(X)), strict=True):
            np.testing.assert_array_equal(a, b)


# --- where kernels are not, and where XLA has none ------------------------------------------------


def test_someone_elses_jit_has_kernels_and_what_is_exported_has_none():
    def outer(x: Any) -> Any:
        return ft.jit(simulated)(x) * 2

    assert 'xla_cpu_small_call = "true"' in jax.jit(outer).lower(X).as_text()
    assert_close(jax.jit(outer)(X), 2 * ft.jit(simulated, cpu="plain")(X), 1e-6)
    exported = jax.export.export(jax.jit(outer), platforms=("cpu", "cuda"))(X)
    assert "small_call" not in exported.mlir_module()


def sorted_step(np_: Any, lax_: Any) -> Callable[[Any], Any]:
    return lambda x: lax_.scan(lambda c, v: (c + v, np_.sort(v) * c), x[0], x)[1]


LONG_ROWS = MANY[:4, :41] + np.arange(164, dtype="float32").reshape(41, 4).T


def UNJITTED(f: Any, x: Any) -> Any:
    return f(x)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    """A sort is taken for what may stand in a kernel, which XLA then does not compile."""
    monkeypatch.setattr(Sort, "in_kernel", True)
    monkeypatch.setattr(kernels, "_REFUSED", set())
    monkeypatch.setattr(kernel_calls, "_fine", set())
    monkeypatch.setattr(kernel_calls, "_read", set())
    monkeypatch.setattr(kernel_calls, "_folder", lambda: tmp_path)
    ft.clear_caches()
    yield tmp_path
    ft.clear_caches()


@pytest.mark.long
@pytest.mark.parametrize(
    "run",
    [
        lambda f, x: ft.jit(f)(x),
        lambda f, x: jax.jit(lambda x: ft.jit(f)(x))(x),
        lambda f, x: ft.jit(f).trace(x).lower().compile()(x),
        UNJITTED,
        lambda f, x: from_jax(sorted_step(jax.numpy, jax.lax))(x),
    ],
)
def test_a_kernel_that_xla_does_not_compile(run: Any, refused: Any, caplog: Any):
    f, x = sorted_step(jnp, lax), LONG_ROWS
    with caplog.at_level(logging.WARNING, "functrans"):
        found = run(f, x)
    assert_close(found, sorted_step(jax.numpy, jax.lax)(x), 1e-6)
    (said,) = caplog.messages
    assert "cannot compile the loop at" in said
    assert "test_kernels.py" in said or run is UNJITTED
    (line,) = (refused / kernel_calls._FILE).read_text().splitlines()
    kernels._REFUSED.clear()  # another process
    kernel_calls._read.clear()
    ft.clear_caches()
    caplog.clear()
    assert_close(run(f, x), found, 1e-6)
    assert not caplog.messages
    assert line.split()[0] in kernels._REFUSED


def test_other_errors_stay(refused: Any):
    def failing(x: Any) -> Any:
        y = simulated(x)
        return ft.pure_callback(_fail, y[0], y[0])

    with pytest.raises(RuntimeError, match="on purpose"):
        ft.jit(failing)(X)
    assert not kernels._REFUSED
    with jax.enable_x64(True):
        ft.jit(simulated)(np.asarray(X, np.float64))
    with pytest.raises(RuntimeError, match="on purpose"):
        ft.jit(_fail)(X)


def _fail(x: Any) -> Any:
    raise RuntimeError("on purpose")


@pytest.mark.rest
def test_a_kernel_s_operands_live_until_it_is_called():
    code = (
        "import functrans as ft\n"
        "total = lambda x: ft.lax.scan(lambda c, a: (c / 2 + a, c), 0.0, x)\n"
        "ft.jit(total)(ft.numpy.ones(9))\n"
    )
    env = {**os.environ, "PYTHONMALLOC": "debug"}  # what is freed is overwritten
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
