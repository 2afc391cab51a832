"""Loops and small matrices as on a GPU: the same numbers in fewer operations, where it is worth it."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.backends.lowering import Lowering
from functrans.ir.text import with_nested
from functrans.passes import kernels, launches
from functrans.passes.kernel_expansions import summed_axes
from functrans.primitives.contractions.dot_general import dot_general
from functrans.primitives.control_flow.scan import scan
from tests.matrix.test_loop_programs import check
from tests.support.closeness import assert_close

pytestmark = pytest.mark.smoke

X = np.array([0.5, -1.25, 2.0], "float32")


def rows(n: int) -> np.ndarray:
    return np.linspace(-1, 1, 3 * n, dtype="float32").reshape(n, 3)


def recurrence(c: Any, x: Any) -> Any:
    c = jnp.sin(c) + x
    return c, (c * x, jnp.sum(c) > 0)


def scanned(reverse: bool = False) -> Callable[..., Any]:
    return lambda c, xs: lax.scan(recurrence, c, xs, reverse=reverse)


def summed(f: Callable[..., Any]) -> Callable[..., Any]:
    def total(*args: Any) -> Any:
        c, (ys, _) = f(*args)
        return jnp.sum(c) + jnp.sum(ys**2)

    return total


def turns(f: Callable[..., Any], *args: Any) -> list[int]:
    """How many steps a turn of each loop of a jitted function runs."""
    return [n for _, n in launches.unrolled(ft.jit(f).program(*args))]


def agree(f: Callable[..., Any], *args: Any, tolerance: float | None = None) -> None:
    """The compiled program and the reference."""
    wanted = ft.interpret(ft.make_ir(f)(*args), *args)
    assert_close(ft.tree.leaves(ft.jit(f)(*args)), wanted, tolerance)


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    plainly = Lowering.emit

    def emit(self: Any, program: Any, operands: Any, **how: Any) -> Any:
        whole = self._outermost and not self._single
        return plainly(self, launches.fewer_launches(program) if whole else program, operands, **how)

    monkeypatch.setattr(Lowering, "emit", emit)
    monkeypatch.setattr(kernels, "kernels", lambda program, _: program)


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize(
    ("length", "steps", "reverse"), [(16, 2, False), (16, 4, True), (35, 2, True), (35, 4, False)]
)
def test_values_and_gradients(length: int, steps: int, reverse: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launches, "STEPS", ((steps, 512),))
    monkeypatch.setattr(launches, "TURNS", 2)
    f, args = scanned(reverse), (X, rows(length))
    assert turns(f, *args) == [steps]
    assert f"tensor<{steps}x3xf32>" in ft.jit(f).lower(*args).as_text()
    jax.tree.map(np.testing.assert_array_equal, ft.jit(f)(*args), ft.jit(f, cpu="plain")(*args))
    gradient = ft.grad(summed(f), (0, 1))
    assert turns(gradient, *args) == [steps, steps]
    agree(gradient, *args)
    agree(ft.vmap(gradient, (None, 0)), X, np.stack([rows(length), 2 * rows(length)]))


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("seed", range(3))
def test_random_loops(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launches, "TURNS", 2)
    check(seed)


def test_a_program_for_a_gpu():
    def steps(f: Callable[..., Any]) -> str:
        return ft.jit(f).trace(X, rows(64)).lower(lowering_platforms=("cuda",)).as_text()

    assert "tensor<4x3xf32>" in steps(scanned())
    plain = ft.jit(scanned(), cpu="plain").trace(X, rows(64)).lower(lowering_platforms=("cuda",))
    assert "tensor<4x3xf32>" not in plain.as_text()
    on_a_cpu = ft.jit(scanned()).trace(X, rows(64)).lower(lowering_platforms=("cpu",))
    assert "tensor<4x3xf32>" not in on_a_cpu.as_text()


def many_arrays(carried: int) -> Callable[..., Any]:
    """A loop that carries many numbers, and writes arrays of three types."""

    def step(c: list[Any], x: Any) -> Any:
        c = [jnp.sin(a) + b for a, b in zip(c, c[1:] + c[:1], strict=True)]
        return c, (c[0] * x, c[0] > 0, c[1] - x, c[-1], x + 1, c[0], c[2] * jnp.float32(2))

    return lambda c, xs: lax.scan(step, list(c), xs, reverse=carried % 2 == 1)


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("carried", [3, 37])
def test_loops_with_many_arrays(carried: int):
    f, args = many_arrays(carried), (np.linspace(-1, 1, carried, dtype="float32"), rows(24))
    lowered = ft.jit(f).lower(*args).as_text()
    assert "tensor<24x4x3xf32>" not in lowered
    assert "tensor<24x3x3xf32>" in lowered  # three arrays of rows together
    assert ("tensor<16xf32>" in lowered) == (carried >= 16)
    jax.tree.map(np.testing.assert_array_equal, ft.jit(f)(*args), ft.jit(f, cpu="plain")(*args))

    def total(*args: Any) -> Any:
        c, ys = f(*args)
        return sum(c) + sum(jnp.sum(y**2) for y in ys if y.dtype == X.dtype)

    gradient = ft.grad(total, (0, 1))  # of a long chain, whose rounding errors grow
    jax.tree.map(assert_close, ft.jit(gradient)(*args), ft.jit(gradient, cpu="plain")(*args))


def test_several_devices_join_nothing():
    program = ft.jit(many_arrays(16)).program(np.ones(16, "float32"), rows(24))
    apart = launches.fewer_launches(program, joins=False)
    names = {e.primitive.name for p in with_nested(apart) for e in p.equations}
    assert "concatenate" not in names
    assert [e.params["unroll"] for e in apart.equations if e.primitive is scan] == [2]


@pytest.mark.usefixtures("as_on_a_gpu")
def test_large_rows_stay_apart():
    def f(x: Any) -> Any:
        return lax.scan(lambda c, _: (c + 1, (c, 2 * c)), x, None, length=32)[1]

    lowered = ft.jit(f).lower(ft.ShapeDtypeStruct((3000,), "float32")).as_text()
    assert "tensor<32x3000xf32>" in lowered
    assert "tensor<32x2x3000xf32>" not in lowered
    assert "tensor<32x2x2000xf32>" in ft.jit(f).lower(ft.ShapeDtypeStruct((2000,), "float32")).as_text()


def filtered(m: Any, ys: Any) -> Any:
    """Steps with products, a factorization and solutions of small matrices."""

    def step(p: Any, y: Any) -> Any:
        p = m @ p @ m.T + jnp.eye(3)
        factor = jnp.linalg.cholesky(p)
        gain = jnp.linalg.solve(p + jnp.eye(3), p)
        return p - gain @ p, factor @ (gain @ y)

    return lax.scan(step, jnp.eye(3), ys)


def calls(f: Callable[..., Any], *args: Any) -> set[str]:
    """The operations of a jitted function on a GPU that are calls of libraries."""
    program = launches.fewer_launches(ft.jit(f).program(*args))
    equations = [e for p in with_nested(program) for e in p.equations]
    products = {"dot_general" for e in equations if e.primitive is dot_general and summed_axes(e)}
    return products | {e.primitive.name for e in equations} & {"lu", "cholesky", "triangular_solve"}


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("how", ["alone", "batched"])
def test_small_matrices_in_loops(how: str):
    m = np.linspace(-0.5, 0.75, 9, dtype="float32").reshape(3, 3)
    f, args = filtered, (m, rows(16))
    if how == "batched":
        f, args = ft.vmap(filtered, (0, None)), (np.stack([m, m.T, -m]), rows(16))
    gradient = ft.grad(lambda m, ys: jnp.sum(f(m, ys)[1] ** 2))
    assert calls(f, *args) == calls(gradient, *args) == set()
    agree(f, *args, tolerance=1e-5)
    if how == "alone":
        agree(gradient, *args, tolerance=1e-4)


def test_what_stays_a_call():
    a, small = np.eye(9, dtype="float32"), np.eye(4, dtype="float32")
    assert calls(jnp.linalg.cholesky, a) == {"cholesky"}
    assert calls(jnp.linalg.cholesky, small) == set()
    assert calls(lambda x: x @ x, small) == {"dot_general"}  # in no loop

    def f(x: Any) -> Any:
        return lax.fori_loop(0, 9, lambda i, c: c @ x, x)

    assert calls(f, a) == {"dot_general"}
    assert calls(f, small) == set()
    assert calls(f, small.astype("float16")) == {"dot_general"}


def test_the_choice():
    def loop(step: Callable[[Any], Any], length: int = 64, **options: Any) -> Callable[..., Any]:
        return lambda x: lax.scan(lambda c, _: (step(c), None), x, None, length=length, **options)[0]

    def many(n: int) -> Callable[[Any], Any]:
        def step(c: Any) -> Any:
            for _ in range(n):
                c = jnp.sin(c)
            return c

        return step

    assert turns(loop(jnp.sin), X) == [4]
    assert turns(loop(jnp.sin, 20), X) == [2]
    assert turns(loop(jnp.sin, 12), X) == []
    assert turns(loop(many(100)), X) == [2]
    assert turns(loop(many(600)), X) == []
    assert turns(loop(jnp.sin, unroll=3), X) == [3]
    assert turns(loop(jnp.sin, 4, unroll=0), X) == [4]
    assert turns(loop(ft.jit(jnp.sin)), X) == [4]
    assert turns(loop(jnp.sin), ft.ShapeDtypeStruct((2048, 2048), "float32")) == []
    assert turns(loop(lambda c: ft.debug.print("{}", c) or c), X) == []
    assert turns(loop(loop(jnp.sin)), X) == [4]  # the inner one
    assert turns(loop(lambda c: jnp.convolve(c, X, "same")), X) == []
    assert turns(loop(lambda c: lax.cond(c[0] > 0, jnp.sin, jnp.cos, c)), X) == []
    assert turns(lambda x: lax.while_loop(lambda c: c[0] < 9, lambda c: c + 1, x), X) == []


def test_the_report(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    report = str(ft.passes.explain(scanned())(X, rows(64)))
    assert "in a turn" not in report
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    report = str(ft.passes.explain(scanned())(X, rows(64)))
    assert "loops on a GPU\n    4 steps in a turn: test_launches.py" in report
    assert "loops on a CPU" not in report
    report = str(ft.passes.explain(ft.jit(scanned(), cpu="plain"))(X, rows(64)))
    assert "in a turn" not in report


def test_keys_for_several_platforms():
    lowered = ft.jit(lambda k: ft.random.permutation(k, 10)).trace(jax.random.key(0))
    assert "threefry" in lowered.lower(lowering_platforms=("cpu", "cuda")).as_text()
