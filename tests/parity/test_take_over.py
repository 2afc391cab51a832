"""`take_over`: programs that know JAX alone, run by us, beside the same under JAX."""

import copy
import functools
import inspect
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit as jit_imported_before
from jax._src import api
from jax._src.pjit import pjit
from jax.sharding import PartitionSpec, SingleDeviceSharding

import functrans as ft
from functrans.interop.takeover import PjitFunction
from tests.support import extras

ROOT = Path(ft.__file__).parents[1]
PARTIAL = functools.partial(jax.jit, static_argnames=("n",))
TESTED_LIBRARIES = {"equinox": "filter_jit", "flax.nnx": "jit"}


def power(x, n=2):
    """The n-th power of a sine."""
    y = jnp.sin(x) + jnp.sin(x)
    return y**n


@pytest.fixture
def taken():
    with ft.interop.take_over() as taken:
        yield taken


def is_ours(taken):
    assert [f.refused for f in taken.functions] == [""] * len(taken.functions)
    return all([f.called for f in taken.functions])


# --- by which name ----------------------------------------------------------------------------


@pytest.mark.parametrize("ways", [
    lambda: jax.jit(power), lambda: jit_imported_before(power), lambda: api.jit(power),
    lambda: jax.jit(static_argnames="n")(power), lambda: PARTIAL(power),
    lambda: functools.partial(jax.jit, static_argnums=1)(power),
    lambda: next(map(jax.jit, [power])),
], ids=range(7))  # fmt: skip
def test_every_way_to_jit(taken, ways):
    f = ways()
    assert isinstance(f, PjitFunction)
    np.testing.assert_allclose(f(jnp.arange(3.0)), power(jnp.arange(3.0)), rtol=1e-6)
    assert is_ours(taken)
    assert taken.functions[0].name == "power"
    assert taken.functions[0].place.endswith(f"test_take_over.py:{power.__code__.co_firstlineno}")


@pytest.mark.parametrize(("library", "name"), TESTED_LIBRARIES.items())
def test_libraries_are_taken_over(taken, library, name):
    jit = getattr(extras.library(library), name)
    f = jit(lambda x: jnp.sin(x) * 2)
    np.testing.assert_allclose(f(jnp.ones(2)), 2 * np.sin(np.ones(2)), rtol=1e-6)
    assert taken.functions[-1].called
    assert not taken.functions[-1].refused
    assert "test_take_over.py" in taken.functions[-1].place


def test_what_jax_jits_for_itself_stays_its_own(taken):
    jnp.linalg.norm(jnp.sort(jnp.ones(5)))
    jax.random.choice(jax.random.key(0), 4, (2,))
    jax.pmap(lambda x: x + 1)(jnp.ones((1, 2)))
    ft.jit(lambda x: x + 1)(1.0)
    assert taken.functions == []


def test_the_program_may_exchange_the_name_itself(taken, monkeypatch):
    asked, jit = [], jax.jit
    monkeypatch.setattr(jax, "jit", lambda fun: asked.append(fun) or jit(fun))
    jax.jit(lambda x: jnp.sort(x) + 1)(jnp.ones((1, 2, 1, 3)))
    ft.numpy.cumsum(jnp.ones((1, 2, 1, 3)))
    assert len(asked) == 1
    assert is_ours(taken)


def test_outside_all_is_jax(taken):
    before = type(jax.jit(power)), api.jit
    with ft.interop.take_over():
        inside = jax.jit(power)
    assert isinstance(inside, PjitFunction)
    assert inside.ours is None
    assert before == (PjitFunction, jax.jit)
    assert inside(2.0) == jax.jit(power)(2.0)
    taken.give_back()
    assert type(jax.jit(power)).__module__.startswith("jaxlib")


def test_the_environment_turns_it_off(monkeypatch):
    monkeypatch.setenv("FUNCTRANS_TAKE_OVER", "0")
    with ft.interop.take_over() as taken:
        assert not isinstance(jax.jit(power), PjitFunction)
    assert taken.functions == []


# --- options and attributes -------------------------------------------------------------------

ONE = SingleDeviceSharding(jax.devices()[0])
OPTIONS = [
    {"static_argnums": 1},
    {"static_argnums": (1,), "static_argnames": ("n",)},
    {"static_argnames": "n"},
    {"in_shardings": ONE, "static_argnums": 1},
    {"out_shardings": ONE},
    {"keep_unused": True},
    {"device": jax.devices()[0]},
    {"backend": "cpu"},
    {"inline": True},
    {"compiler_options": {"xla_cpu_enable_fast_math": False}},
    {"donate_argnums": 0},
    {"donate_argnames": ("x",)},
]


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options(taken, options):
    f = jax.jit(power, **options)
    x = jnp.arange(4.0)
    wanted = f.theirs(x.copy(), 3)
    np.testing.assert_allclose(f(x, 3), wanted, rtol=1e-5)
    assert is_ours(taken)
    assert x.is_deleted() == any("donate" in name for name in options)


def test_attributes(taken):
    def power(x, n=2):  # JAX counts the signatures of all that is jitted of one function
        """The n-th power of a sine."""
        return (jnp.sin(x) + jnp.sin(x)) ** n

    f, x = jax.jit(power, static_argnames="n"), jnp.ones(3)
    assert f.__wrapped__ is power
    assert f.__name__ == "power"
    assert f.__doc__ == power.__doc__
    assert inspect.signature(f) == inspect.signature(power) == f.__signature__
    assert isinstance(f, jax.stages.Wrapped)
    assert repr(f) == repr(f.theirs)
    assert {f: 1}[f] == 1
    assert f != jax.jit(power)
    assert weakref.ref(f)() is f
    assert copy.copy(f) is f
    assert copy.deepcopy([f])[0] is f
    assert f._cache_size() == 0
    f(x), f(x, n=3)
    assert f._cache_size() == 2
    f.clear_cache()
    assert f._cache_size() == 0
    assert str(f.trace(x).jaxpr) == str(f.theirs.trace(x).jaxpr)
    assert f.eval_shape(x) == f.theirs.eval_shape(x)
    lowered = f.lower(x, n=3)
    assert lowered.as_text().count("sine") == 1 < f.theirs.lower(x, n=3).as_text().count("sine")
    np.testing.assert_allclose(lowered.compile()(x), power(x, 3), rtol=1e-6)
    exported = jax.export.export(f)(x)
    np.testing.assert_allclose(exported.call(x), f(x), rtol=1e-6)
    with pytest.raises(AttributeError, match="no attribute 'lowr'"):
        f.lowr  # noqa: B018


def test_pickling_is_as_jax_has_it(taken):
    f = jax.jit(power)
    with pytest.raises((AttributeError, pickle.PicklingError), match="cache_miss"):
        pickle.dumps(f)
    cloudpickle = pytest.importorskip("cloudpickle")
    assert cloudpickle.loads(cloudpickle.dumps(f))(1.0) == f.theirs(1.0)


# --- what stands around it --------------------------------------------------------------------


def test_inside_other_traces_it_is_jax(taken):
    f, x = jax.jit(power), jnp.ones(3)
    jaxpr = jax.make_jaxpr(f)(x)
    assert [e.params["name"] for e in jaxpr.eqns] == ["power"]
    wanted = 2 * 2 * np.sin(1.0) * 2 * np.cos(1.0)
    for grad in (jax.grad(f), jax.jit(jax.grad(f)), ft.grad(f), ft.jit(ft.grad(f))):
        np.testing.assert_allclose(grad(1.0), wanted, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(f)(x), f(x), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(f)(x), f(x), rtol=1e-6)
    assert not any(f.refused for f in taken.functions)


def test_with_jit_disabled_it_is_python(taken):
    seen = []
    f = jax.jit(lambda x: seen.append(float(x)) or x)
    with jax.disable_jit():
        f(2.0)
    assert seen == [2.0]


# --- what cannot be taken over ----------------------------------------------------------------


def asks_jax_for_its_trace(x):
    calls.append(1)
    x._trace.frame  # noqa: B018
    return x + 1


calls: list[int] = []


def test_what_fails_with_us_alone_is_jax_from_then_on(capsys):
    calls.clear()
    with ft.interop.take_over() as taken:
        f = jax.jit(asks_jax_for_its_trace)
        assert f(1) == 2
        assert len(calls) == 2
        assert f.ours is None
        assert f(5) == 6
        assert jax.jit(asks_jax_for_its_trace)(1) == 2
        assert len(calls) == 2
        jax.jit(power)(1.0)
    assert str(taken) in capsys.readouterr().err
    head, name, reason = str(taken).split("\n")
    assert head == "functrans took over 1 of 2 jitted functions:"
    line = asks_jax_for_its_trace.__code__.co_firstlineno
    assert name.startswith("    asks_jax_for_its_trace, ")
    assert name.endswith(f".py:{line}")
    assert "run by JAX: " in reason
    assert "'frame'" in reason
    assert f"test_take_over.py:{line + 2}  x._trace.frame" in reason


def test_lower_falls_back_too(taken):
    f = jax.jit(asks_jax_for_its_trace)
    assert f.lower(1).compile()(1) == 2
    assert "frame" in taken.functions[0].refused


def test_several_processes(taken, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert jax.jit(power, static_argnums=1)(1.0, 0) == 1
    assert "several processes" in str(taken)


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_pjit_reads_the_mesh_around_it(taken):
    with jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,)):
        f = pjit(lambda x: x + 1, out_shardings=PartitionSpec("i"))
        assert f(jnp.ones(2)).sharding.spec == PartitionSpec("i")
    assert "pjit reads the mesh" in str(taken)


def test_explain(capsys):
    with ft.interop.take_over(explain=True):
        f = jax.jit(power, static_argnums=1)
        f(1.0), f(1.0, 3)
        for _ in range(3):
            jax.jit(lambda x: x * 1)(2)
    told = capsys.readouterr().err
    assert told.startswith("functrans took over 2 of 2 jitted functions:\n    power, ")
    assert "common_subexpressions: 1 x sin" in told
    assert "equations 4 -> 3, FLOPs 22 -> 12" in told
    assert told.count("    power, ") == told.count("<lambda>, ") == 1
    assert "(3 times)" in told


# --- errors -----------------------------------------------------------------------------------


def test_what_the_program_raises_comes_once(taken):
    @jax.jit
    def f(x):
        calls.append(1)
        raise KeyError("mine")

    calls.clear()
    with pytest.raises(KeyError, match="mine") as caught:
        f(1)
    assert len(calls) == 1
    assert caught.value.__context__ is None
    assert is_ours(taken)


@pytest.mark.parametrize(
    ("wrong", "x"),
    [
        (lambda x: jnp.ones(3) @ x, jnp.ones(2)),
        (lambda x: x if x > 0 else -x, 1.0),
        (lambda x: np.asarray(x), 1.0),
        (lambda x: range(x), 3),
        (lambda x: x.nothing, 1.0),
        (lambda x: jnp.reshape(x, (5,)), jnp.ones(3)),
        (lambda x: "text", 1.0),
        (lambda x: x, "text"),
        (lambda x: x[jnp.array([True, False]) & (x > 0)], jnp.ones(2)),
        (lambda x, y: x, 1.0),
        (lambda x: jax.lax.scan(lambda c, _: (c.astype(int), c), x, None, 3), 1.0),
    ],
    ids=range(11),
)
def test_errors_are_those_of_jax(taken, wrong, x):
    f = jax.jit(wrong)
    with pytest.raises(Exception) as jaxs:
        f.theirs(x)
    with pytest.raises(Exception) as ours:
        f(x)
    assert type(ours.value) is type(jaxs.value)
    assert str(ours.value).split("\n")[0] == str(jaxs.value).split("\n")[0]
    assert is_ours(taken)
    assert f.ours is not None


def test_nothing_that_ran_is_run_again(taken):
    seen = []

    def fail(x):
        seen.append(1)
        raise ValueError("in the callback")

    f = jax.jit(lambda x: jax.pure_callback(fail, jax.ShapeDtypeStruct((), "float32"), x))
    with pytest.raises(Exception, match="in the callback"):
        jax.block_until_ready(f(1.0))
    assert len(seen) == 1
    assert is_ours(taken)


# --- python -m functrans run ------------------------------------------------------------------


def python(*words, cwd, ours=True, **env):
    words = (*(["-m", "functrans", "run"] if ours else []), *words)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", **env}
    env.pop("FUNCTRANS_TRACEBACK", None)
    return subprocess.run([sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True)


def written(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))


SCRIPT = """
    import os, sys
    os.environ["JAX_ENABLE_X64"] = "1"  # read by JAX when it is imported
    import beside
    import jax.numpy as jnp

    @beside.jax.jit
    def f(x):
        return jnp.sum(jnp.sin(x) + jnp.sin(x))

    print(sys.argv, __name__, __file__, sys.path[0], sys.modules["__main__"].f is f)
    print(f(jnp.zeros(3)).dtype, __spec__, __doc__)
    if __name__ == "__main__":
        sys.exit(3)
"""


@pytest.mark.rest
def test_a_script_is_run_as_python_runs_it(tmp_path):
    (tmp_path / "scripts").mkdir()
    written(tmp_path / "scripts", script=SCRIPT, beside="import functrans.lax, jax")
    given = ("scripts/script.py", "--explain", "-m", "x")
    alone, ours = (python(*given, cwd=tmp_path, ours=False), python("--explain", *given, cwd=tmp_path))
    assert alone.returncode == ours.returncode == 3
    assert alone.stdout == ours.stdout != ""
    assert "functrans took over 1 of 1 jitted functions:\n    f, scripts/script.py:7" in ours.stderr
    assert "common_subexpressions: 1 x sin" in ours.stderr


FAILING = """
    import sys

    def fail(what):
        raise {"error": ValueError, "stop": KeyboardInterrupt}[what]("bye")

    if len(sys.argv) > 2:
        sys.excepthook = lambda kind, error, tb: print(kind, tb.tb_frame.f_code.co_name)
    fail(sys.argv[1])
"""


@pytest.mark.parametrize("words", [("error",), ("error", "hook"), ("stop",)], ids=" ".join)
def test_ends_and_tracebacks(tmp_path, words):
    written(tmp_path, failing=FAILING, broken="x = = 1")
    alone, ours = [python("failing.py", *words, cwd=tmp_path, ours=o) for o in (False, True)]
    assert (ours.returncode, ours.stdout, ours.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    assert ours.returncode == {"error": 1, "stop": -signal.SIGINT}[words[0]]


def test_scripts_that_are_not_there(tmp_path):
    missing = python("missing.py", cwd=tmp_path)
    assert missing.returncode == 2
    assert "can't open file 'missing.py'" in missing.stderr
    assert "expected a script" in python(cwd=tmp_path).stderr


@pytest.mark.sweep
def test_modules_and_pytest(tmp_path):
    written(
        tmp_path,
        test_it="""
        import jax

        def test_it():
            assert type(jax.jit(lambda x: x + 1)).__module__.startswith("functrans")
    """,
    )
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path)
    assert done.returncode == 0
    assert "1 passed" in done.stdout
    assert not done.stderr
    off = python("-m", "pytest", "-q", cwd=tmp_path, FUNCTRANS_TAKE_OVER="0")
    assert off.returncode == 1
    assert "1 failed" in off.stdout
