"""The names that the inputs of a program have in the arguments of the user's function."""

import gc
import inspect
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import tree_util
from functrans.inspect.python_source.writer import to_python
from functrans.ir.program import Program, argument_names, hoist_constants
from functrans.passes.redundancy import without_unused_inputs
from tests.unit.test_to_python import agrees, normal

pytestmark = pytest.mark.smoke


class Block(NamedTuple):
    w: Any
    b: Any


@dataclass
class Head:
    scale: Any
    kind: str = "linear"


tree_util.register_dataclass(Head, ["scale"], ["kind"])


class Opaque:
    """A pytree whose leaves have no path that is Python."""

    def __init__(self, inside: Any):
        self.inside = inside


tree_util.register_pytree_node(Opaque, lambda x: ((x.inside,), None), lambda _, xs: Opaque(*xs))


class Strict:
    """A pytree that only takes arrays."""

    def __init__(self, inside: Any):
        self.inside = np.shape(inside) and inside


tree_util.register_pytree_node(Strict, lambda x: ((x.inside,), None), lambda _, xs: Strict(xs[0] + 0))


def loss(params: Any, mask: Any, x: Any, *more: Any, rate: Any = 1.0, **rest: Any) -> Any:
    for block in params["blocks"]:
        x = jnp.tanh(x @ block.w + block.b)
    return jnp.sum(x * params["head"].scale) * rate + more[0]["a b"] * more[0]["a_b"] + rest["class"]


PARAMS = {"blocks": [Block(normal(3, 3), normal(3)) for _ in range(2)], "head": Head(normal(3))}
ARGS = (PARAMS, None, normal(4, 3), {"a b": 1.0, "a_b": 2.0})
KWARGS = {"rate": 0.5, "class": 3.0}
PATHS = [
    "params['blocks'][0].w", "params['blocks'][0].b", "params['blocks'][1].w", "params['blocks'][1].b",
    "params['head'].scale", "x", "more[0]['a b']", "more[0]['a_b']", "class", "rate",
]  # fmt: skip


def names(program: Program) -> list[str]:
    found = argument_names(program)
    return [found.get(v, "") for v in program.inputs]


@pytest.mark.parametrize("make", [ft.make_ir, lambda f: ft.jit(f).program], ids=["ir", "jit"])
@pytest.mark.parametrize("through", [lambda f: f, ft.grad, ft.checkpoint], ids=["", "grad", "again"])
def test_paths(make: Any, through: Any):
    assert names(make(through(loss))(*ARGS, **KWARGS)) == PATHS


def test_static_arguments_are_none():
    def power(x: Any, n: int, y: Any, *, twice: bool) -> Any:
        return x**n * y * (2 if twice else 1)

    jitted = ft.jit(power, static_argnums=1, static_argnames="twice")
    assert names(jitted.program(1.0, 2, 3.0, twice=True)) == ["x", "y"]
    assert names(jitted.program(1.0, n=2, y=3.0, twice=True)) == ["x", "n", "y"]  # static by position only
    staged = ft.make_ir(power, static_argnums=1, static_argnames="twice")
    assert names(staged(1.0, 2, 3.0, twice=True)) == ["x", "y"]
    nested = ft.make_ir(lambda a: jitted(a, 2, a, twice=False))(1.0)
    assert names(nested.equations[0].params["program"]) == ["x", "y"]


def test_what_has_no_names():
    text = "program (x: f32[3]) { y: f32[3] = sin x; return y }"
    assert names(ft.ir.parse(text)) == [""]
    assert names(ft.make_ir(lambda s: s.inside * 2)(Strict(normal(3)))) == [""]
    assert argument_names(ft.make_ir(lambda: jnp.zeros(3))()) == {}


def test_an_input_that_stays_keeps_its_name():
    program = ft.make_ir(lambda a, b, c: a["x"] + c + normal(3))({"x": normal(3)}, 1.0, normal(3))
    assert names(program.replace(name="g")) == ["a['x']", "b", "c"]
    assert names(without_unused_inputs(program)[0]) == ["a['x']", "c"]
    assert names(hoist_constants(program)[0]) == ["", "a['x']", "b", "c"]
    assert names(program.replace(inputs=program.inputs[::-1])) == ["c", "b", "a['x']"]


def test_names_are_worked_out_when_asked_for_and_keep_no_function_alive():
    def f(x: Any) -> Any:
        return x["w"] * 2

    program = ft.make_ir(f)({"w": 1.0})
    alive = weakref.ref(f)
    del f
    gc.collect()
    assert alive() is None
    assert names(program) == ["x['w']"]


def test_a_default_value_that_knows_its_function_keeps_nothing_alive():
    class Settings:
        f: Any = None

    def made():
        settings = Settings()

        def f(x, settings=settings):
            return x * 2

        settings.f = f
        jitted = ft.jit(lambda x: f(x))
        assert jitted(3.0) == ft.grad(lambda x: x * ft.jit(f)(x))(1.5) == 6.0
        assert list(inspect.signature(ft.jit(f)).parameters) == ["x", "settings"]
        return weakref.ref(settings)

    alive = made()
    gc.collect()
    assert alive() is None


def head(text: str) -> str:
    """The parameters of the function that a file is about."""
    return text.rpartition("def ")[2].partition(":\n")[0]


def test_written_functions_take_the_arguments():
    text = agrees(ft.make_ir(ft.grad(loss))(*ARGS, **KWARGS), ARGS, **KWARGS)
    assert head(text) == "loss(params, mask, x, *more, class_2, rate)"
    assert "    params_blocks_0_w = np.asarray(params['blocks'][0].w, np.float32)  # (3, 3)" in text
    assert "    more_0_a_b = np.asarray(more[0]['a b'], np.float32)  # ()" in text
    assert "    more_0_a_b_2 = np.asarray(more[0]['a_b'], np.float32)  # ()" in text
    assert "x @ params_blocks_0_w" in text
    text = agrees(ft.jit(loss).program(*ARGS, **KWARGS), ARGS, **KWARGS)
    assert head(text) == "loss(params, mask, x, *more, class_2, rate)"


def test_leaves_that_have_no_path_are_parameters():
    def f(params: Any, odd: Any) -> Any:
        return params["w"] * odd.inside["s"] + odd.inside["t"]

    program = ft.make_ir(f)({"w": normal(3)}, Opaque({"s": normal(3), "t": 1.0}))
    text = to_python(program)
    assert head(text) == "f(params, odd_flat_index_0_s, odd_flat_index_0_t)"
    agrees(program, ({"w": normal(3)}, normal(3), 1.0))


def test_names_that_are_taken():
    def f(np: Any, input: Any, f: Any, **rest: Any) -> Any:
        return np["a"] * input + f + rest["lambda"]

    args = ({"a": normal(3)}, 2.0, 3.0)
    text = to_python(ft.make_ir(f)(*args, **{"lambda": 4.0}))
    assert head(text) == "f(np_2, input_2, f_2, lambda_2)"
    assert "np_a = np.asarray(np_2['a'], np.float32)  # (3,)" in text
    agrees(ft.make_ir(f)(*args, **{"lambda": 4.0}), (*args, 4.0))


def test_many_parameters_are_one_a_line():
    names = [f"parameter_{i}" for i in range(8)]
    args = tuple(range(8))
    text = agrees(ft.make_ir(eval(f"lambda {', '.join(names)}: {' + '.join(names)}"))(*args), args)
    assert "(\n    parameter_0,\n    parameter_1," in text


def test_reports_name_arguments():
    def f(params: Any, x: Any) -> Any:
        return jnp.log(params["scale"]) * x

    params = {"scale": np.float32([1.0, -1.0])}
    report = ft.find_nan(f)(params, 1.0)
    assert report.first is not None
    assert report.first.inputs[0].startswith("params['scale']: f32[2] [ 1., -1.]")
    given = ft.find_nan(f)({"scale": np.float32([1.0, np.nan])}, 1.0)
    assert "The arguments params['scale'] are not finite;" in str(given)
    edited = ft.make_ir(lambda params, x: jnp.exp(params["scale"]) * x)(params, 1.0)
    found = ft.compare(edited, against=ft.make_ir(f)(params, 1.0))({"scale": params["scale"]}, 1.0)
    assert found.first is not None
    assert found.first.arguments == "a is params['scale']"
    assert "\n    where a is params['scale']\n" in str(found)
