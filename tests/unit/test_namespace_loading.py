"""Importing functrans loads next to nothing; whatever is imported first, all is there in time."""

import ast
import os
import subprocess
import sys
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import pytest

import functrans as ft

ROOT = Path(ft.__file__).parent
LAZY = ["functrans"] + [f"functrans.{name}" for name in ("interop", "lax", "nn", "numpy", "passes")]
STARRED = ["lax", "nn", "numpy"]
# Modules beside the public ones: what they define is reached by other names.
NOT_SHOWN = {
    "api", "backends", "caching", "flags", "inspect", "jax_names", "jax_trace", "loading", "mlir",
    "primitives", "pytrees", "records", "runtime", "trace", "tracer", "transforms",
}  # fmt: skip


def run(code: str) -> str:
    """What a fresh Python prints."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("XLA_")} | {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT.parent),
    }
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def lazily(package: str) -> list[ast.ImportFrom]:
    """The imports that a package does when they are asked for."""
    tree = ast.parse((ROOT.parent / package.replace(".", "/") / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.With)]
    return [node for node in block.body if isinstance(node, ast.ImportFrom)]


@pytest.mark.parametrize("package", LAZY)
def test_what_type_checkers_read_is_what_is_loaded(package):
    """Each name is what its import says. Of JAX's, what is ours under the same name."""
    shown = import_module(package)
    for node in lazily(package):
        for alias in node.names if node.names[0].name != "*" else []:
            loaded = getattr(shown, str(alias.asname))
            if isinstance(loaded, ModuleType) and loaded.__name__.startswith("functrans"):
                assert loaded is import_module(f"{package}.{alias.name}")
            else:
                named = getattr(import_module(str(node.module)), alias.name)
                assert getattr(loaded, "__wrapped__", loaded) is getattr(named, "__wrapped__", named)
            assert alias.asname in shown.__all__


@pytest.mark.parametrize("name", ["image", "ops", "scipy", "scipy.linalg"])
def test_modules_that_fall_back_to_jaxs_are_ours(name):
    assert attrgetter(name)(ft) is import_module(f"functrans.{name}")


@pytest.mark.parametrize("package", STARRED)
def test_what_modules_define_is_what_a_package_shows(package):
    """Each module with an `__all__` is named by its package."""
    defining = {
        f"functrans.{package}.{path.stem}"
        for path in (ROOT / package).glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    }
    assert {n.module for n in lazily(f"functrans.{package}") if n.names[0].name == "*"} == defining


def test_an_import_in_another_thread_meanwhile_is_done_at_once():
    run(
        "import sys, threading, types\n"
        "from functrans.loading import lazily\n"
        "sys.modules['mine'] = module = types.ModuleType('mine')\n"
        "with lazily('mine'):\n"
        "    other = threading.Thread(target=lambda: exec('from math import tau; print(tau > 6)', {}))\n"
        "    other.start(); other.join()\n"
        "    exec('from math import sqrt as root', vars(module))\n"
        "assert 'root' not in vars(module) and module.root(9.0) == 3 and module.__all__ == ['root']\n"
    )


def test_every_module_is_shown_or_known_not_to_be():
    modules = {p.stem for p in ROOT.glob("*.py")} | {p.parent.name for p in ROOT.glob("*/*.py")}
    assert modules - {"__init__", "__main__"} - NOT_SHOWN <= set(ft.__all__)


def test_names_are_listed_and_others_refused():
    assert {"grad", "numpy", "scipy", "Array", "P", "export", "__version__"} <= set(dir(ft))
    assert not {"jax_names", "tracer", "api"} & set(dir(ft))
    assert all(getattr(ft, name) is not None for name in ft.__all__)
    with pytest.raises(AttributeError, match="'functrans' has no attribute 'gard'"):
        ft.gard  # noqa: B018


FIRST = """
import sys, threading
import jax
import functrans as ft
light = ("functrans.loading", "functrans.records", "functrans.runtime")
heavy = [m for m in sys.modules if m.startswith("functrans.") and m not in light]
assert not heavy, heavy
import functrans.numpy as jnp, functrans.lax, functrans.nn, functrans.random, functrans.tree_util
ft.jit, ft.passes, ft.interop, ft.ir
jax.config.update("jax_num_cpu_devices", 2)  # refused where devices were started
assert ft.device_count() == 2
assert "functrans.interop.jax_functions" not in sys.modules

# several threads at once, each the first to need something
from functrans.scipy.special import erf
results = []
work = [
    lambda: ft.grad(lambda x: erf(x) * x)(1.0),
    lambda: ft.scipy.linalg.cholesky(jnp.eye(2)),
    lambda: ft.interop.from_jax(jax.numpy.sin)(1.0),
    lambda: ft.scipy.fft.dct(jnp.ones(2)),
]
threads = [threading.Thread(target=lambda f=f: results.append(f())) for f in work * 2]
[t.start() for t in threads]
[t.join() for t in threads]
assert len(results) == 8, results

# at the end of the process nothing is said of what is remembered
f = ft.jit(lambda x: jnp.sum(jnp.sin(x)))
ft.grad(f)(jnp.ones(3)), ft.vmap(f)(jnp.ones((2, 3)))
program = ft.make_ir(ft.grad(f))(jnp.ones(3))
str(ft.passes.optimize(program))
"""
# What is the first thing done, in a process that knows nothing yet.
ORDERS = {
    "ir": """
import functrans as ft
program = ft.ir.parse("program (a: f32[]) { b: f32[] = sin a; return b }")
assert abs(float(ft.interpret(program, 1.0)[0]) - 0.841471) < 1e-6
from functrans import *
assert jit is ft.jit and numpy is ft.numpy
""",
    "lax": """
import jax
from functrans import lax
x = jax.numpy.arange(3.0)
assert float(lax.sin(0.0)) == 0.0
# a traced value meets operators, methods, and a jax array that it indexes
body = lambda i, s: s + x[i] * 2 + (-x).at[i].get().sum()
assert float(lax.fori_loop(0, 3, body, 0.0)) == 3.0
""",
    "vmap": """
from functrans.api.vmap import vmap
import numpy as np
assert vmap(lambda x: np.ones(2) @ x.T + len(x))(np.ones((3, 2), "f4")).shape == (3,)
""",
}


@pytest.mark.rest
def test_a_fresh_process_loads_late_and_in_threads():
    run(FIRST)


FORKS = f"""
import os, sys, jax
children = {{}}
for name, code in {ORDERS!r}.items():
    child = os.fork()
    if not child:
        try:
            exec(code, {{}})
        except BaseException as error:
            print(name, type(error), error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    children[child] = name
for child, name in children.items():
    assert os.waitpid(child, 0)[1] == 0, name
"""


@pytest.mark.rest
def test_any_order_of_import():
    """In forks of one process, which has JAX only: each is as fresh as a new one."""
    run(FORKS)
