"""Every argument of the functions of JAX's libraries is here too. (Names: test_namespace_table.py.)

Arguments are compared by name, and positional-only ones by number: what they are called is no part
of how a function is called.
"""

import importlib
import inspect
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
from functrans.tracer import Tracer
from tests.support.versions import NEWER

_NAMESPACES = """numpy nn nn.initializers tree tree_util ops dtypes random lax image scipy.interpolate
scipy.optimize scipy.sparse.linalg scipy.spatial.transform"""
NAMESPACES = _NAMESPACES.split()
# Arguments that JAX has and we lack, or that only we have, and why.
ARGUMENTS_LACKING: dict[str, set[str]] = {
    "numpy.array": {"args"},  # positional copy, order, ndmin: deprecated there
    "numpy.einsum": {"_dot_general"},  # private
}
ARGUMENTS_ADDED: dict[str, set[str]] = {
    "numpy.einsum": {"more"},  # operands and their axes in turn
    "numpy.inner": {"out_sharding"},
    "lax.cond": {"linear"},
    "lax.fori_loop": {"max_steps"},  # reverse mode through loops
    "lax.while_loop": {"max_steps"},
    **{f"lax.reduce_{name}": {"out_sharding"} for name in ("and", "or", "prod", "xor")},
}
if not NEWER:  # what JAX 0.11 added
    ARGUMENTS_ADDED |= {
        name: {"out_sharding"}
        for name in ("lax.reduce_max", "lax.reduce_min", "numpy.histogram", "nn.one_hot")
    }
    ARGUMENTS_ADDED["lax.top_k"] = {"is_stable"}
    ARGUMENTS_ADDED |= {
        f"random.{name}": {"method"} for name in ("beta", "chisquare", "gamma", "loggamma", "poisson")
    }
# JAX's are wrappers (*args, **kwargs), whose arguments are those of what they wrap.
OPAQUE = {"tree.static", "lax.random_gamma_grad"}


def modules(namespace: str) -> tuple[Any, Any]:
    return tuple(importlib.import_module(f"{p}.{namespace}") for p in ("jax", "functrans"))


def public(module: Any) -> list[str]:
    """Names for users: without JAX's primitives, which are objects of its own interpreters."""
    return [n for n in dir(module) if not n.startswith("_") and not n.endswith("_p")]


def shape_of_call(function: Any) -> tuple[set[str], int] | None:
    """The names of arguments that may be given by name, and how many are positional only."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    named = {p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY}
    return named, sum(p.kind is p.POSITIONAL_ONLY for p in parameters)


def shared_functions() -> dict[str, tuple[Any, Any]]:
    found = {}
    for namespace in NAMESPACES:
        theirs, ours = modules(namespace)
        for name in public(theirs):
            a, b = getattr(theirs, name), getattr(ours, name, None)
            if b is not None and a is not b and callable(a) and not isinstance(a, type):
                found[f"{namespace}.{name}"] = (a, b)
    return found


def test_functions_have_the_arguments_of_jax():
    wrong = []
    for name, (theirs, ours) in shared_functions().items():
        if name in OPAQUE:
            continue
        a, b = shape_of_call(theirs), shape_of_call(ours)
        if a is None or b is None:
            continue
        if isinstance(theirs, jax.numpy.ufunc):  # (*args, out, where) there; (x, y, /, out, where)
            a = a[0] - {"args"}, theirs.nin
        lacking = a[0] - b[0] - ARGUMENTS_LACKING.get(name, set())
        added = b[0] - a[0] - ARGUMENTS_ADDED.get(name, set())
        # what is positional only there may have a name here
        if lacking or len(added) + b[1] != a[1]:
            wrong.append((name, sorted(lacking), sorted(added), a[1], b[1]))
    assert not wrong


# Arrays that exist have a device, shards and a buffer; a traced one stands for a value only.
_OF_CONCRETE_ARRAYS = """addressable_data addressable_shards committed copy_to_host_async device global_shards
is_fully_addressable is_fully_replicated sharding"""
OF_CONCRETE_ARRAYS = set(_OF_CONCRETE_ARRAYS.split())


def test_traced_arrays_have_the_methods_of_arrays():
    names = [n for n in dir(jax.Array) if not n.startswith("_")]
    missing = {n for n in names if not hasattr(Tracer, n)}
    assert missing <= OF_CONCRETE_ARRAYS


def test_methods_have_the_arguments_of_jax():
    wrong = []
    for name in dir(jax.Array):
        theirs = getattr(type(jax.numpy.zeros(())), name, None)
        ours = getattr(Tracer, name, None)
        if name.startswith("_") or not inspect.isfunction(theirs) or not callable(ours):
            continue
        a, b = shape_of_call(theirs), shape_of_call(ours)
        lacking = a[0] - b[0] - {"self", "args"}
        if lacking and not any(p.kind is p.VAR_KEYWORD for p in inspect.signature(ours).parameters.values()):
            wrong.append((name, sorted(lacking)))
    assert not wrong


def test_everything_public_says_where_it_comes_from():
    undocumented = []
    for namespace in ("numpy", "nn", "nn.initializers", "ops"):
        module = modules(namespace)[1]
        for name in getattr(module, "__all__", public(module)):
            function = getattr(module, name)
            ours = inspect.isfunction(function) and function.__module__.startswith("functrans")
            if hasattr(function, "clear_cache"):
                continue  # JAX's, with its text
            if ours and "Source: `jax." not in (function.__doc__ or ""):
                undocumented.append(f"{namespace}.{name}")
    assert not undocumented


def test_the_namespace_of_the_array_api_standard():
    assert ft.numpy.__array_api_version__ == jax.numpy.__array_api_version__ >= "2024.12"
    info, theirs = ft.numpy.__array_namespace_info__(), jax.numpy.__array_namespace_info__()
    for name in ("capabilities", "default_device", "default_dtypes", "devices", "dtypes"):
        assert getattr(info, name)() == getattr(theirs, name)()
    assert info.dtypes(kind="bool") == {"bool": np.dtype(bool)}
    spaces = []

    def f(x):
        spaces.append(x.__array_namespace__())
        with pytest.raises(ValueError, match=r"api_version '2021\.12' is not available"):
            x.__array_namespace__(api_version="2021.12")
        return spaces[0].sum(x.__array_namespace__(api_version=ft.numpy.__array_api_version__).sin(x))

    ft.jit(ft.grad(f))(ft.numpy.ones(2))
    ft.grad(f)(ft.numpy.ones(2))
    ft.vmap(f)(ft.numpy.ones((2, 2)))
    assert len(spaces) == 3
    assert all(space is ft.numpy for space in spaces)
    # that of concrete arrays, which are JAX's
    assert ft.numpy.ones(2).__array_namespace__() is jax.numpy
