"""Names around operations, and what is computed while a function is traced."""

import re
import threading
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import errors

pytestmark = pytest.mark.smoke


def layer(x: Any) -> Any:
    with ft.named_scope("attention"):
        x = jnp.sin(x)
    return jnp.log(x)


def net(x: Any) -> Any:
    for i in range(2):
        with ft.named_scope(f"layer{i}"):
            x = layer(x)
    return x


def names(f: Any, *args: Any) -> set[str]:
    """What a profiler shows of the compiled program."""
    text = ft.jit(f).lower(*args).compile().as_text()
    return set(re.findall(r'op_name="([^"]*)"', text))


def test_scopes_name_the_compiled_operations():
    assert {"jit(net)/layer0/attention/layer", "jit(net)/layer1/layer"} <= names(net, 1.0)
    backward = names(ft.grad(net), 1.0)
    assert any("layer0/attention/layer" in name for name in backward)
    batched = names(ft.vmap(net), np.ones(3, np.float32))
    assert "jit(net)/layer1/attention/layer" in batched


def test_scopes_stand_in_messages():
    finding = ft.find_nan(net)(4.0).first
    assert "layer0/layer" in finding.line
    assert "attention" not in finding.line

    def product(x: Any) -> Any:
        with ft.named_scope("inner"):
            return jnp.dot(x, jnp.ones(4))

    called = ft.named_call(product, name="outer")
    with pytest.raises(errors.FunctransError, match=r"\(outer/inner/test_scopes_stand.*product\)"):
        ft.jit(called)(np.ones(3))


def test_a_scope_ends_with_its_block_and_belongs_to_its_thread():
    seen = []

    def work() -> None:
        seen.append(str(ft.find_nan(jnp.log)(-1.0)))

    with ft.named_scope("here"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    with pytest.raises(KeyError), ft.named_scope("lost"):
        raise KeyError
    seen.append(str(ft.find_nan(lambda x: jnp.log(x))(-1.0)))
    assert not any(word in text for text in seen for word in ("here/", "lost/"))


def with_constants(m: Any, numpy: Any) -> Any:
    def f(x: Any) -> Any:
        with m.ensure_compile_time_eval():
            n = numpy.arange(4).sum()
            assert int(n) == 6
            joined = numpy.concatenate([numpy.ones(2), numpy.zeros_like(numpy.asarray([1.0]))])
            assert int(joined.sum() + numpy.full(2, 3)[0]) == int(numpy.array(4) + 1)
            assert int(jax.numpy.sum(jax.numpy.ones(3))) == 3
            middle = float(numpy.linspace(0.0, 1.0, 3)[1])
            y = x * n
        return y + middle

    return f


def test_values_at_once():
    def all_of(m: Any, numpy: Any) -> list[Any]:
        f = with_constants(m, numpy)
        transformed = [f(2.0), m.jit(f)(2.0), m.grad(f)(2.0), m.jit(m.grad(m.jit(f)))(2.0)]
        return [*transformed, m.vmap(f)(np.arange(3.0))]

    jax.tree.map(np.testing.assert_allclose, all_of(ft, jnp), all_of(jax, jax.numpy))


def test_traced_values_have_no_value_at_once_either():
    def f(x: Any) -> Any:
        with ft.ensure_compile_time_eval():
            return int(x)

    with pytest.raises(jax.errors.ConcretizationTypeError):
        ft.jit(f)(1)
    assert ft.jit(lambda x: x + 1)(1) == 2


def test_make_jaxpr():
    program, shape = ft.make_jaxpr(lambda x, n: {"y": x**n}, 1, return_shape=True)(np.ones(3), 2)
    assert [e.primitive.name for e in program.equations] == ["integer_pow"]
    assert shape == {"y": jax.ShapeDtypeStruct((3,), "float32")}
    summed = ft.make_jaxpr(lambda x: ft.lax.psum(x, "i"), axis_env=[("i", 4)])(1.0)
    assert summed.equations[0].params["sizes"] == (4,)
    with pytest.raises(NameError):
        ft.make_jaxpr(lambda x: ft.lax.psum(x, "i"))(1.0)


def test_scopes_of_jax_name_our_operations():
    ft.jit(lambda x: x)(1.0)  # from the first trace on

    @jax.named_scope("outer")
    def f(x: Any) -> Any:
        with jax.named_scope("inner"):
            return jax.numpy.sin(x)

    def g(x: Any) -> Any:
        return f(x) + jax.named_call(lambda x: jax.numpy.cos(x), name="called")(x)

    shown = " ".join(names(g, 1.0))
    assert "outer/inner/" in shown
    assert "called/" in shown

    def h(x: Any) -> Any:
        with jax.named_scope("loop"):
            return jax.lax.fori_loop(0, 3, lambda _, x: jax.lax.cond(x > 0, jax.jit(f), f, x), x)

    assert "/loop/outer/inner/" in ft.jit(h).lower(1.0).as_text(debug_info=True)
    with pytest.raises(KeyError), jax.named_scope("lost"):
        raise KeyError
    told = str(ft.find_nan(lambda x: jax.numpy.log(x))(-1.0))
    assert "lost/" not in told
