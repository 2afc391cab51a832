"""The Python array API standard, 2024.12: its names and its parameters. (Values: the tables.)"""

from __future__ import annotations

import inspect
import operator
from pathlib import Path

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans.trace import Tracer
from tests.support.wide import each

ROWS = [
    line
    for line in (Path(__file__).parent / "array_api_names.txt").read_text().splitlines()
    if not line.startswith("#")
]

DTYPES = """bool complex128 complex64 float32 float64 int16 int32 int64 int8 uint16 uint32 uint64
uint8"""
CONSTANTS = "e inf nan newaxis pi"
# a traced array has no values to hand over, and is on no device
ATTRIBUTES = ["T", "mT", "dtype", "ndim", "shape", "size", "to_device"]
SPECIAL = """abs add and array_namespace bool complex eq float floordiv ge getitem gt index int
invert le lshift lt matmul mod mul ne neg or pos pow rshift setitem sub truediv xor radd rand
rfloordiv rlshift rmatmul rmod rmul ror rpow rrshift rsub rtruediv rxor"""


def wanted(text: str) -> tuple[str, inspect.Signature]:
    """The name and the signature that the standard writes."""
    name, _, parameters = text.partition("(")
    return name, inspect.signature(eval(f"lambda {parameters.removesuffix(')')}: 0"))


def refused(function: object, asked: inspect.Signature) -> list[str]:
    """What a function does not take of what a signature allows."""
    has = inspect.signature(function)
    places = [p for p in asked.parameters.values() if p.kind is p.POSITIONAL_ONLY]
    both = [p for p in asked.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    named = [p for p in asked.parameters.values() if p.kind is p.KEYWORD_ONLY]
    # what may be left out is asked for one by one
    calls = {"": ([0 for p in places], [p for p in both if p.default is p.empty])}
    for p in [*both, *named]:
        calls[p.name] = ([0 for q in places], [*calls[""][1], p])
    found = []
    for what, (args, kwargs) in calls.items():
        try:
            has.bind(*args, **{p.name: 0 for p in kwargs})
        except TypeError:
            found.append(what)
    return found


def test_names_and_parameters():
    def check(row: str) -> None:
        name, asked = wanted(row)
        ours, theirs = (operator.attrgetter(name)(xp) for xp in (jnp, jax.numpy))
        missing = set(refused(ours, asked)) - set(refused(theirs, asked))
        assert not missing, f"{name} does not take {missing} of {asked}"

    each(ROWS, check)


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
