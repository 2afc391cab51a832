"""The Python array API standard, 2024.12: its types, constants and methods of traced arrays. (Functions and
their parameters are those of `jax.numpy`: test_namespace.py; values: the tables.)"""

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp


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
