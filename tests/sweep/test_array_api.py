"""The Python array API standard, 2024.12: its types, constants and methods of traced arrays. (Functions and
their parameters are those of `jax.numpy`: test_namespace.py; values: the tables.)"""

from __future__ import annotations

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans.trace import Tracer

DTYPES = """bool complex128 complex64 float32 float64 int16 int32 int64 int8 uint16 uint32 uint64
uint8"""
CONSTANTS = "e inf nan newaxis pi"
# a traced array has no values to hand over, and is on no device
ATTRIBUTES = ["T", "mT", "dtype", "ndim", "shape", "size", "to_device"]
SPECIAL = """abs add and array_namespace bool complex eq float floordiv ge getitem gt index int
invert le lshift lt matmul mod mul ne neg or pos pow rshift setitem sub truediv xor radd rand
rfloordiv rlshift rmatmul rmod rmul ror rpow rrshift rsub rtruediv rxor"""


def test_everything_is_there():
    for name in f"{DTYPES} {CONSTANTS}".split():
        assert hasattr(jnp, name), name
    wanted = {*ATTRIBUTES, *[f"__{name}__" for name in SPECIAL.split()]}
    lacking = []

    @ft.jit
    def traced(x):
        assert type(x) is Tracer
        lacking.extend([name for name in wanted if not hasattr(type(x), name)])
        return x

    traced(1.0)
    assert not lacking


def test_namespace():
    assert jnp.__array_api_version__ == jax.numpy.__array_api_version__ >= "2024.12"
    info, theirs = jnp.__array_namespace_info__(), jax.numpy.__array_namespace_info__()
    for name in ("capabilities", "default_device", "default_dtypes", "devices", "dtypes"):
        assert getattr(info, name)() == getattr(theirs, name)()
    assert info.dtypes(kind="bool") == {"bool": np.dtype(bool)}
    spaces = []

    def f(x):
        spaces.append(x.__array_namespace__())
        with pytest.raises(ValueError, match=r"api_version '2021\.12' is not available"):
            x.__array_namespace__(api_version="2021.12")
        return spaces[0].sum(x.__array_namespace__(api_version=jnp.__array_api_version__).sin(x))

    ft.jit(ft.grad(f))(jnp.ones(2))
    ft.grad(f)(jnp.ones(2))
    ft.vmap(f)(jnp.ones((2, 2)))
    assert len(spaces) == 3
    assert all(space is jnp for space in spaces)
    # that of concrete arrays, which are JAX's
    assert jnp.ones(2).__array_namespace__() is jax.numpy
