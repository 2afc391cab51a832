"""Convolutions, gamma functions, generators, what depends on the platform, half precision."""

from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
from functrans import lax
from tests.support.closeness import assert_close

pytestmark = pytest.mark.smoke


@pytest.mark.long
def test_a_preset_of_products_leaves_a_convolution_as_it_is():
    """XLA has no algorithms for convolutions."""
    rng = np.random.default_rng(0)
    x, kernel = (rng.normal(size=s).astype(np.float32) for s in ((2, 3, 4, 5), (4, 3, 2, 2)))
    preset = lax.DotAlgorithmPreset.F32_F32_F32
    found = lax.conv(x, kernel, (1, 1), "SAME", precision=preset)
    assert_close(found, jax.lax.conv(x, kernel, (1, 1), "SAME", precision=preset), 1e-5)


def test_the_derivative_of_the_incomplete_gamma_function_in_numpy():
    """Where x is large, too."""
    a = np.array([0.5, 1, 3, 10, 50, 0.7, 2, 5, 40], np.float32)
    x = np.array([1000, 0.1, 30, 5, 55, 0, 1e-3, 200, 3000], np.float32)
    program = ft.make_ir(lax.igamma_grad_a)(a, x)
    wanted = np.asarray(jax.jit(jax.lax.igamma_grad_a)(a, x))
    np.testing.assert_allclose(ft.interpret(program, a, x)[0], wanted, rtol=1e-4, atol=1e-30)


@pytest.mark.long
def test_generators_of_the_platform():
    key = np.arange(4, dtype=np.uint32)
    assert_close(lax.rng_bit_generator(key, (3,)), jax.lax.rng_bit_generator(key, (3,)))
    keys = np.stack([key, key + 1])
    mapped = ft.vmap(lambda k: lax.rng_bit_generator(k, (2,), "uint8"))(keys)
    assert_close(mapped, jax.vmap(lambda k: jax.lax.rng_bit_generator(k, (2,), "uint8"))(keys))
    low = np.array([0.0, 5.0], np.float32)
    x = ft.vmap(lambda a: lax.rng_uniform(a, a + 1, (20,)))(low)
    assert bool(((x >= low[:, None]) & (x < low[:, None] + 1)).all())
    whole = ft.vmap(lambda a: lax.rng_uniform(a, a + 9, (40,)))(low.astype(np.int32))
    assert whole.dtype == np.int32
    assert set(np.asarray(whole[1]) - 5) <= set(range(9))
    assert len(set(np.asarray(whole[0]))) > 3
    with pytest.raises(TypeError, match="unsupported dtype"):
        lax.rng_bit_generator(key, (3,), np.int32)


def test_what_the_platform_decides():
    def chosen(x: Any) -> Any:
        other = lambda x: x * 100.0  # noqa: E731
        return lax.platform_dependent(x, cpu=lambda x: x * 2.0, cuda=lambda x: x * 2.0, tpu=other)

    assert float(chosen(3.0)) == 6.0
    assert float(ft.jit(chosen)(3.0)) == 6.0
    assert float(ft.jit(ft.grad(chosen))(3.0)) == 2.0
    assert float(ft.interpret(ft.make_ir(chosen)(3.0), 3.0)[0]) == 6.0
    exported = jax.export.export(ft.jit(chosen), platforms=("cpu", "tpu"))(3.0)
    assert float(exported.call(3.0)) == 6.0
    alone = jax.export.export(ft.jit(chosen), platforms=("tpu",))(3.0)  # which branch: of the TPU
    assert "constant dense<2> : tensor<i32>" in alone.mlir_module()
    with pytest.raises(NotImplementedError, match="not found for platform cpu"):
        lax.platform_dependent(1.0, tpu=lambda x: x)
    with pytest.raises(ValueError, match="'rocm'"):
        lax.platform_dependent(1.0, gpu=lambda x: x)


@pytest.mark.sweep  # which XLA:CPU's older emitters lack
def test_a_product_of_complex_numbers_whose_real_part_is_asked_for():
    x = jax.numpy.array([[1 + 2j, 3], [1j, 2]])
    for name in ("matmul", "dot", "inner", "vdot"):
        made = getattr(ft.numpy, name)(x, x, preferred_element_type="float32")
        assert_close(made, getattr(jax.numpy, name)(x, x, preferred_element_type="float32"), 1e-5)
    made = ft.grad(lambda x: ft.numpy.vdot(x, x, preferred_element_type="float32"))(x)
    np.testing.assert_allclose(made, jax.grad(lambda x: jax.numpy.vdot(x, x).real)(x), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_reference_solves_triangular_systems_of_half_precision(dtype: str):
    a, b = jax.numpy.array([[2, 1], [9, 4]], dtype), jax.numpy.ones((2, 2), dtype)
    program = ft.make_ir(ft.lax.linalg.triangular_solve)(a, b)
    (made,) = ft.interpret(program, a, b)
    assert made.dtype == dtype
    np.testing.assert_array_equal(made, ft.lax.linalg.triangular_solve(a, b))
