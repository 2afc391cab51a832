"""`cost`: by hand where it can be, beside XLA's own account where it cannot."""

import inspect
import json
import re

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from benchmarks import models
from functrans import lax
from functrans.passes.explanation import measured

pytestmark = pytest.mark.smoke


def shape(*sizes, dtype="float32"):
    return jax.ShapeDtypeStruct(sizes, dtype)


def plainly(f):
    return ft.cost(f, passes=(), xla=False)


def test_a_product_and_a_sum():
    report = plainly(lambda a, b: jnp.sum(a @ b, axis=0))(shape(8, 16), shape(16, 4))
    assert report.flops == 2 * 8 * 16 * 4 + 8 * 4
    assert report.arguments == 4 * (8 * 16 + 16 * 4)
    assert report.results == 4 * 4
    assert report.peak == report.arguments + 4 * (8 * 4) + 4 * 4
    assert report.moved == 4 * (8 * 16 + 16 * 4 + 8 * 4) + 4 * (8 * 4 + 4)
    assert report.intensity == report.flops / report.moved
    assert report.xla == {}


def test_elementwise_chains_are_one_pass_over_memory():
    report = plainly(lambda x: jnp.exp(-x) * 2.0 + 1.0)(shape(100))
    assert report.flops == 300 + 10 * 100  # an exponential is some ten operations
    assert report.moved == 800
    assert report.bytes > 2 * report.moved
    assert report.peak == 800


def test_memory_in_use_while_an_equation_runs():
    def f(x):
        y = x @ x
        z = jnp.sum(y @ y)
        return z * 2.0

    size = 4 * 10 * 10
    report = plainly(f)(shape(10, 10))
    found = {e.primitive: e.peak for e in report.equations}
    assert [e.peak for e in report.equations][:2] == [2 * size, 3 * size]
    assert found["mul"] == size + 4  # x, and the sum where its double is written
    lines = {line.line.partition("  ")[2]: line.peak for line in report.lines}
    assert lines["y = x @ x"] == 2 * size
    assert lines["z = jnp.sum(y @ y)"] == report.peak == 3 * size


def test_steps_of_a_scan_count_each():
    def f(c, xs):
        return lax.scan(lambda c, x: (jnp.tanh(c @ x), None), c, xs)[0]

    once = plainly(lambda c, x: jnp.tanh(c @ x))(shape(4, 4), shape(4, 4))
    report = plainly(f)(shape(4, 4), shape(7, 4, 4))
    assert report.flops == 7 * once.flops
    assert report.moved == 7 * once.moved
    assert sum(e.flops for e in report.equations) == report.flops
    assert {e.primitive for e in report.equations} == {"dot_general", "tanh"}


def test_the_dearest_branch_counts():
    report = plainly(lambda x: lax.cond(x[0, 0] > 0, lambda x: x @ x, lambda x: x + 1.0, x))(shape(16, 16))
    assert 2 * 16**3 <= report.flops <= 2 * 16**3 + 10


def test_convolutions_count_what_meets():
    def conv(x, k):
        return lax.conv_general_dilated(x, k, (1,), [(2, 2)])

    report = plainly(conv)(shape(3, 5, 8), shape(7, 5, 3))
    assert report.flops == 2 * 3 * 7 * 5 * (10 * 3 - 2 * (2 + 1))  # the rim meets zeros
    gradient = plainly(ft.grad(lambda x, k: jnp.sum(conv(x, k))))(shape(3, 5, 8), shape(7, 5, 3))
    assert max(e.flops for e in gradient.equations) == report.flops


def loss(w, x):
    h = jnp.tanh(x @ w)
    return jnp.sum(h * h)


def test_lines_add_up_and_name_the_user():
    report = plainly(ft.grad(loss))(shape(30, 20), shape(10, 30))
    _, first = inspect.getsourcelines(loss)
    assert report.lines[0].line.startswith(f"{__file__}:{first + 1} (loss)")
    assert report.lines[0].line.endswith("h = jnp.tanh(x @ w)")
    assert report.lines[0].flops >= 2 * 2 * 10 * 30 * 20  # forward and backward
    assert sum(x.flops for x in report.lines) == pytest.approx(report.flops)
    assert sum(x.bytes for x in report.lines) == pytest.approx(report.bytes)
    program = ft.make_ir(ft.grad(loss))(shape(30, 20), shape(10, 30))
    assert (report.flops, report.bytes) == measured(program)[1:]


def test_library_functions_called_twice_have_the_lines_of_their_calls():
    """JAX traces the body of its loop, and keeps one program for both calls of `gelu`."""

    def called(x):
        for _ in range(2):
            x = jax.nn.gelu(x)
        return jnp.sum(jax.nn.gelu(x))

    def f(x):
        return jax.lax.scan(lambda x, _: (ft.grad(called)(x), None), x, None, length=3)[0]

    _, first = inspect.getsourcelines(called)
    lines = {x.line.split(" ")[0] for x in ft.cost(f, xla=False)(shape(8, 8)).lines}
    assert {f"{__file__}:{first + i}" for i in (2, 3)} <= lines
    assert "<unknown>" not in lines


def test_saved_reports(tmp_path):
    report = plainly(ft.grad(loss))(shape(3, 2), shape(1, 3))
    report.save(tmp_path / "cost.json")
    report.save(tmp_path / "cost.html")
    data = json.loads((tmp_path / "cost.json").read_text())
    assert data["flops"] == report.flops
    assert len(data["equations"]) == len(report.equations)
    assert "jnp.tanh(x @ w)" in (tmp_path / "cost.html").read_text()


L = models.OURS
PROGRAMS = {
    "dense": lambda: (
        ft.grad(models.mlp_loss(L)),
        models.mlp_params((784, 256, 256, 10)),
        shape(64, 784),
        shape(64, 10),
    ),
    "convolutional": lambda: (
        ft.grad(models.conv_loss(L)),
        models.conv_params(),
        shape(32, 28, 28, 1),
        shape(32, dtype="int32"),
    ),
    "transformer": lambda: (
        ft.grad(models.transformer_loss(L)),
        models.transformer_params(2, 64),
        shape(65, dtype="int32"),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_close_to_the_account_of_xla(name):
    """What the docstring of `cost` promises."""
    f, *args = PROGRAMS[name]()
    report = ft.cost(f)(*args)
    assert report.flops == pytest.approx(report.xla["flops"], rel=0.02)
    assert report.moved == pytest.approx(report.xla["bytes"], rel=0.3)
    assert report.peak == pytest.approx(report.xla["peak"], rel=0.4)
    assert report.arguments == pytest.approx(report.xla["arguments"], rel=0.01)
    assert report.results == pytest.approx(report.xla["results"], rel=0.01)
    assert "XLA" in str(report)


def test_what_xla_does_not_know_is_left_out():
    def double(x):
        return ft.pure_callback(lambda a: 2 * a, x, x)

    report = ft.cost(double)(np.ones(3, np.float32))
    assert all(count >= 0 for count in report.xla.values())
    assert not re.search(r"\s-1\b", str(report))
