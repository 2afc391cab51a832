"""Programs that hold Python objects, the rules of functions: text and back."""

import gc
from typing import Any

import jax
import jax.numpy as J
import numpy as np
import pytest

import functrans as ft
from functrans import errors
from functrans.trace import evaluate

X = np.float32(0.5)


def with_vjp(lib: Any, factor: float = 2.0) -> Any:
    f = lib.custom_vjp(lambda x: J.sin(x))
    f.defvjp(lambda x: (J.sin(x), x), lambda x, ct: (ct * x * factor,))
    return f


def with_jvp(lib: Any) -> Any:
    f = lib.custom_jvp(lambda x: J.sin(x))
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * 3))
    return f


def with_vmap(lib: Any) -> Any:
    f = lib.custom_batching.custom_vmap(lambda x: J.sin(x))
    f.def_vmap(lambda size, batched, x: (J.cos(x), True))
    return f


FUNCTIONS = {
    "custom_vjp": with_vjp(ft),
    "custom_jvp": with_jvp(ft),
    "custom_vmap": with_vmap(ft),
    "jax.custom_vjp": with_vjp(jax),
    "jax.custom_jvp": with_jvp(jax),
    "jax.custom_vmap": with_vmap(jax),
    "jax.nn.relu": jax.nn.relu,
    "derivative": lambda x: ft.jvp(with_vjp(ft), (x,), (x,))[1],
    "jit": ft.jit(with_vjp(jax)),
    "scan": lambda x: ft.lax.scan(lambda c, _: (with_vjp(ft)(c), None), x, None, length=2)[0],
    "callback": lambda x: jax.pure_callback(np.sin, x, x, vmap_method="sequential"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_text_and_back(name: str):
    program = ft.make_ir(FUNCTIONS[name])(X)
    again = ft.ir.parse(str(program), program.values)
    assert ft.ir.equal(again, program)
    assert str(again) == str(program)

    def run(p: Any) -> Any:
        return lambda x: evaluate(p, [x])[0]

    np.testing.assert_array_equal(run(again)(X), run(program)(X))
    if name != "callback":  # which has no derivative
        np.testing.assert_array_equal(ft.grad(run(again))(X), ft.grad(run(program))(X))
    xs = np.stack([X, 2 * X])
    np.testing.assert_array_equal(ft.vmap(run(again))(xs), ft.vmap(run(program))(xs))


def test_rules_of_one_name_are_told_apart():
    programs = [ft.make_ir(with_vjp(ft, factor))(X) for factor in (2.0, 5.0, 7.0)]
    texts = [str(p) for p in programs]
    assert len(set(texts)) == 3
    slopes = [ft.grad(lambda x, t=t: evaluate(ft.ir.parse(t), [x])[0])(X) for t in texts]
    np.testing.assert_array_equal(slopes, [2 * X, 5 * X, 7 * X])


def test_a_rule_that_is_gone():
    text = str(ft.make_ir(with_vjp(ft, 9.0))(X))
    ft.clear_caches()
    gc.collect()
    with pytest.raises(errors.ParseError, match=r"(?s)line 2, column.*<vjp rule of .*Make the pro"):
        ft.ir.parse(text)
