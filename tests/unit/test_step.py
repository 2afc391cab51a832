"""`debug.step`: transcripts; and `disable_jit`, under which Python runs as it is written."""

import bdb
import contextlib
import io
import operator
import re

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from tests.support.reporting import line_number

pytestmark = pytest.mark.smoke

X = np.array([1.0, 2.0, 3.0], "float32")


def f(x):
    y = jnp.sin(x)
    z = y * 2.0
    return {"sum": jnp.sum(z), "y": y}


def looped(xs):
    def body(carry, x):
        y = carry * x
        return y + 1.0, y

    return lax.scan(body, 1.0, xs)


def walk(function, *args, commands):
    """The result, and what was shown with the file's name left out."""
    output = io.StringIO()
    out = ft.debug.step(function, commands=commands, output=output)(*args)
    return out, output.getvalue().replace(__file__, "FILE")


def test_the_terminal_may_be_redirected_after_step_was_made():
    stepped, seen = ft.debug.step(f, commands=["next"]), io.StringIO()
    with contextlib.redirect_stdout(seen):
        stepped(X)
    assert "(step) next" in seen.getvalue()


def test_next_print_and_list():
    out, seen = walk(f, X, commands=["n", "print b", "next", "list", "p zz", "nonsense"])
    n = line_number(f, "jnp.sin")
    start = seen.splitlines()
    assert start[0] == f"equation 0 (sin)  FILE:{n} (f)  y = jnp.sin(x)"
    assert start[1:4] == [
        "    b: f32[3] = sin a",
        "(step) n",
        "    b = f32[3] [0.84147096, 0.9092974 , 0.14112   ]",
    ]
    assert "(step) print b\nb = f32[3] [0.84147096, 0.9092974 , 0.14112   ]\n" in seen
    assert "->    2  d: f32[] = reduce_sum[axes=(0,)] c" in seen
    assert "no variable 'zz' has a value here; known: a, b, c, x, y, z\n" in seen
    assert "no command 'nonsense'" in seen
    assert isinstance(out["y"], jax.Array)
    np.testing.assert_allclose(out["sum"], f(X)["sum"], rtol=1e-6)


def test_arguments_by_their_paths():
    def scaled(params, x):
        return jnp.sin(x) * params["w"]["scale"]

    commands = ["args", "print x", "p params['w']['scale']", 'p params["w"]["scale"]']
    _, seen = walk(scaled, {"w": {"scale": X}}, 2.0, commands=commands)
    assert "(step) args\na = params['w']['scale']: f32[3]\nb = x: ~f32[]\n" in seen
    assert "(step) print x\nx, which is b here, = ~f32[] 2." in seen
    assert "\nparams['w']['scale'], which is a here, = f32[3] [1., 2., 3.]" in seen
    assert '\nparams["w"]["scale"], which is a here, = f32[3] [1., 2., 3.]' in seen
    _, seen = walk(ft.ir.parse("program (a: f32[]) { b: f32[] = sin a; return b }"), 1.0, commands=["args"])
    assert "the arguments of this program have no names" in seen


def test_breakpoints_where_nothing_stands():
    _, seen = walk(f, X, commands=["b 1", "b other.py:3", "b matmul", "b sin"])
    for at in ("1", "other.py:3", "matmul"):
        assert f"(step) b {at}\nno equation at {at};" in seen
    assert seen.count("breakpoints: none") == 3
    assert "breakpoints: sin" in seen


def test_into_out_and_where_in_a_loop():
    (carry, ys), seen = walk(looped, X, commands=["into", "next", "next", "where", "out", "c"])
    assert "equation 0 (scan) > body, step 1 (counted from 0) > equation 0 (mul)" in seen
    place = f"equation 0 (scan) > body, step 1\n    FILE:{line_number(looped, 'lax.scan')} (looped)"
    assert place in seen
    expected = looped(X)
    np.testing.assert_array_equal(ys, expected[1])
    np.testing.assert_array_equal(carry, expected[0])


def test_breakpoints_at_lines_and_operations():
    n = line_number(looped, "y + 1.0")
    _, seen = walk(looped, X, commands=[f"break {n}", "c", "p carry", "c", f"clear {n}", "c"])
    assert f"breakpoints: {n}" in seen
    assert "step 0 (counted from 0) > equation 1 (add)" in seen
    assert "step 1 (counted from 0) > equation 1 (add)" in seen
    assert "step 2" not in seen
    assert "breakpoints: none" in seen
    at = f"test_step.py:{line_number(f, 'jnp.sum(z)')}"
    _, seen = walk(f, X, commands=[f"b {at}", "c", "b", "clear"])
    assert "equation 2 (reduce_sum)" in seen
    assert "equation 1 (mul)" not in seen
    _, seen = walk(f, X, commands=["b reduce_sum", "c"])
    assert "(step) c\n    b = " in seen
    assert "equation 2 (reduce_sum)" in seen
    assert "elsewhere.py:1" not in walk(f, X, commands=["b elsewhere.py:1", "c"])[1].split("(step) c")[1]


def test_run_to_nan():
    xs = np.array([1.0, np.inf, 0.0], "float32")

    def g(xs):
        return lax.scan(lambda c, x: (c + x, jnp.log(x) * 0.0), 0.0, xs)

    _, seen = walk(g, xs, commands=["nan", "print c", "c"])
    assert "NaN made by\nequation 0 (scan) > <lambda>, step 1" in seen.replace("program", "<lambda>")
    assert "result   f32[] nan" in seen
    assert walk(f, X, commands=["nan"])[1].count("made by") == 0


def reassigned(x, y):
    y = x + y
    x = jnp.sin(x)
    y = y * x
    z = jnp.cos(y)
    y = z - y
    x = z * 2.0
    z = y + x
    return z


@pytest.mark.smoke
def test_a_name_is_what_the_user_s_lines_gave_it_last():
    """Before each equation each name, beside the letters of the equations so far."""
    assigned = ["y", "x", "y", "z", "y", "x", "z"]
    for i in range(1, len(assigned)):
        commands = [*["n"] * i, *[f"p {name}" for name in "xyz"]]
        _, seen = walk(reassigned, np.float32(2.0), np.float32(0.5), commands=commands)
        for name in "xyz":
            told = re.findall(rf"^{name}, which is (\w) here,", seen, re.MULTILINE)
            given = ["ab"["xy".index(name)]] if name in "xy" else []
            made = [letter for letter, n in zip("cdefghi"[:i], assigned, strict=False) if n == name]
            assert told == given + made[-1:], (i, name)
        for name in set("xyz") - {*assigned[:i]} - {"x", "y"}:
            assert f"no variable {name!r} has a value here" in seen


def test_typed_commands_repeat_and_end():
    output = io.StringIO()
    typed = io.StringIO("next\n\nprint c\n")
    out = ft.debug.step(f, input=typed, output=output)(X)
    assert output.getvalue().count("equation") == 3
    assert "c = f32[3]" in output.getvalue()
    np.testing.assert_allclose(out["y"], np.sin(X), rtol=1e-6)
    output = io.StringIO()
    with pytest.raises(bdb.BdbQuit):
        ft.debug.step(f, commands=["help", "quit"], output=output)(X)
    assert "run until an equation makes a NaN" in output.getvalue()


def test_python_runs_as_it_is_written():
    seen = []

    @ft.jit
    def g(x):
        if float(x) > 0:  # which jit would not know
            seen.append(float(x))
        return x * 2

    with ft.disable_jit():
        assert g(1.5) == 3.0
        assert ft.grad(g)(2.5) == 2.0
        assert ft.jit(lambda x, n: x**n, static_argnums=1)(3, 2) == 9
        start = np.array(1.0)  # a body may write `x += 1`, which would change it
        found = lax.while_loop(lambda c: c[0] < 3, lambda c: (operator.iadd(c[0], 1), c[1] + 1), (start,) * 2)
        assert [*map(float, (*found, start))] == [3.0, 3.0, 1.0]
        with ft.disable_jit(False), pytest.raises(ft.errors.AbstractValueError):
            g(1.0)
    assert seen == [1.5, 2.5]
    with pytest.raises(ft.errors.AbstractValueError):
        g(1.0)


def test_functions_of_several_operations_without_jit():
    """They are not traced by JAX either, whose tracers our own rules do not know."""
    a, x = jnp.diag(jnp.array([2.0, -3.0, 4.0])), jnp.arange(-2.0, 3.0)
    ft.clear_caches()
    with ft.disable_jit():
        found = jnp.linalg.slogdet(a), jnp.clip(x, -1, 1), jnp.median(x)
    assert jax.tree.all(jax.tree.map(lambda y: isinstance(y, jax.Array), found))
    assert [*map(float, found[0])] == pytest.approx([-1.0, np.log(24.0)])
    np.testing.assert_array_equal(found[1], [-1, -1, 0, 1, 1])
    np.testing.assert_array_equal(jnp.clip(x, -1, 1), found[1])


@pytest.mark.parametrize("numbers", [(0.0, -0.0), (-0.0, 0.0), (0j, -0j, complex(0, -0.0)), (1, 1.0, True)])
def test_numbers_that_are_equal_are_not_the_same(numbers):
    """An operation alone is given the number that stands there, whichever came first."""
    ft.clear_caches()
    x = np.float32(2.0)
    for number in numbers:
        stepped = ft.debug.step(lambda x, n=number: x * n, commands=["continue"])(x)
        wanted = ft.interpret(ft.make_ir(lambda x, n=number: x * n)(x), x)[0]
        assert (str(np.asarray(stepped)), stepped.dtype) == (str(wanted), wanted.dtype)
