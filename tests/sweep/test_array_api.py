"""The Python array API standard, 2024.12: its names, its parameters, its values."""

from __future__ import annotations

import inspect
import operator
from pathlib import Path

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp

ROWS = [
    [part.strip() for part in line.split(" ; ")]
    for line in (Path(__file__).parent / "array_api_names.txt").read_text().splitlines()
    if not line.startswith("#")
]
CALLS = [row[1] for row in ROWS if len(row) == 2]

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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].partition("(")[0])
def test_names_and_parameters(row):
    name, asked = wanted(row[0])
    ours, theirs = (operator.attrgetter(name)(xp) for xp in (jnp, jax.numpy))
    missing = set(refused(ours, asked)) - set(refused(theirs, asked))
    assert not missing, f"{name} does not take {missing} of {asked}"


def test_everything_is_there():
    for name in f"{DTYPES} {CONSTANTS}".split():
        assert hasattr(jnp, name), name
    found = {}

    def traced(x):
        found[type(x).__module__.partition(".")[0]] = {
            name for name in (*ATTRIBUTES, *(f"__{name}__" for name in SPECIAL.split()))
            if hasattr(type(x), name)
        }  # fmt: skip
        return x

    ft.jit(traced)(1.0)
    jax.jit(traced)(1.0)
    assert found["functrans"] == set(ATTRIBUTES) | {f"__{name}__" for name in SPECIAL.split()}


def operands() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    b = rng.normal(size=(3, 4)).astype(np.float32)
    s = rng.normal(size=(4, 4)).astype(np.float32)
    return {
        "a": np.abs(b) + np.float32(0.5), "b": b, "v": np.arange(4, dtype=np.float32) / 2,
        "i": rng.integers(1, 5, (3, 4)).astype(np.int32),
        "j": rng.integers(1, 5, (3, 4)).astype(np.int32), "p": b > 0,
        "s": s @ s.T + 4 * np.eye(4, dtype=np.float32),
        "c": (rng.normal(size=4) + 1j * rng.normal(size=4)).astype(np.complex64),
    }  # fmt: skip


def all_calls(xp):
    """A function of the operands that makes every call of the table."""

    def run(values):
        scope = {**values, "xp": xp}
        return {call: eval(f"xp.{call}", scope) for call in CALLS}

    return run


def test_calls():
    ours, theirs = ft.jit(all_calls(jnp))(operands()), jax.jit(all_calls(jax.numpy))(operands())
    for call in CALLS:
        a, b = (jax.tree.flatten(made[call]) for made in (ours, theirs))
        assert len(a[0]) == len(b[0]), call
        for x, y in zip(a[0], b[0], strict=True):
            assert (x.dtype, x.shape) == (y.dtype, y.shape), call
            np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5, err_msg=call)


def test_shapes_that_depend_on_values():
    x = np.array([[3.0, 1.0], [1.0, 0.0]], np.float32)
    for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values", "nonzero"):
        ours, theirs = (getattr(xp, name)(xp.asarray(x)) for xp in (jnp, jax.numpy))
        assert getattr(type(ours), "_fields", None) == getattr(type(theirs), "_fields", None)
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_array_equal(a, b)
    shared = jnp.from_dlpack(jnp.asarray(x))
    np.testing.assert_array_equal(shared, x)


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


# --- what NumPy has beyond the standard -----------------------------------------------------------


def test_quantiles_with_weights():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4, 5)).astype(np.float32)
    gaps = np.where(x > 1, np.nan, x)
    weights = np.abs(rng.normal(size=x.shape)).astype(np.float32)
    bad = weights.copy()
    bad[1, 1, 1], bad[2, 2, 2] = -1, np.nan
    rows = np.array([1, 0, 2.0, 1, 3], np.float32)
    q = np.array([0, 0.25, 0.5, 1.0])

    def cases(xp):
        how = {"method": "inverted_cdf"}
        for a in (x, gaps):
            yield xp.quantile(a, q, axis=1, **how)
            yield xp.quantile(a, 0.3, weights=weights, **how)
            yield xp.quantile(a, q, axis=(0, 2), weights=weights, keepdims=True, **how)
            yield xp.nanquantile(a, q, axis=0, weights=bad, **how)
            yield xp.nanquantile(a, 0.5, axis=-1, weights=rows, keepdims=True, **how)
            yield xp.percentile(a, 100 * q, axis=(0, 1), weights=weights[..., 0], **how)
            yield xp.nanpercentile(a, 30.0, axis=2, weights=rows, **how)

    ours, theirs = (lib.jit(lambda lib=lib: list(cases(lib.numpy)))() for lib in (ft, jax))
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(a, b, str(k))
    with pytest.raises(NotImplementedError, match="Only method 'inverted_cdf' supports weights"):
        jnp.quantile(x, 0.5, weights=weights)
    with pytest.raises(ValueError, match="must match reduction axes"):
        jnp.quantile(x, 0.5, axis=0, weights=rows, method="inverted_cdf")
    with pytest.raises(ValueError, match="does not support overwrite_input"):
        jnp.median(x, overwrite_input=True)


def test_student_t_takes_its_shape_from_its_parameter():
    df = np.array([1.0, 5.0, 30.0], np.float32)
    ours, theirs = (lib.random.t(lib.random.key(3), df) for lib in (ft, jax))
    np.testing.assert_array_equal(ours, theirs)
