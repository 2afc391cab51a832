"""What functrans says about the misuses of `misuses.py`, and what its tracebacks show."""

import os
import re
import subprocess
import sys
import textwrap
import traceback
import warnings

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import errors
from functrans.ir.tracebacks import hide_frames
from tests.pages import misuses
from tests.pages.misuses import FOLDER, TABLE, caught, marked_line
from tests.support.versions import NEWER
from tests.support.wide import each

pytestmark = pytest.mark.smoke

HERE = __file__
X = np.ones(3, np.float32)
SAID_FIRST = (  # their first line says what to do
    errors.RuleMismatch,
    errors.CotangentMismatch,
    errors.BatchRuleMismatch,
    errors.NotAnArray,
    errors.ParseError,
    errors.CheckError,
)


def longest(row):
    """Lines of a message, as the document folds them, its class and all; the error of `debug_nans`
    holds the report of a search."""
    return 15 if row.error is errors.NotFinite else 9


ROWS = {row.run.__name__: row for row in TABLE}


def test_what_is_said():
    def check(name):
        row = ROWS[name]
        error = caught(row.run, ft)
        assert type(error) is row.error
        message = str(error)
        for word in row.words:
            assert word in message, message
        line = marked_line(row.run)
        if line is not None:
            file = os.path.basename(row.run.__code__.co_filename)
            assert f"{file}:{line}" in message, message
        assert re.search(r"^ +\^+$", message, re.MULTILINE), message
        assert message.count("\n") < longest(row) - 1
        assert misuses.shown(error).count("\n") < longest(row)
        if row.error not in SAID_FIRST:
            assert not message.endswith("^"), "what to do"

    assert len(ROWS) == len(TABLE) >= 100
    each(ROWS, check)


def test_of_which_class_jax_is():
    def check(name):
        row = ROWS[name]
        bases = (
            base
            for base in type(caught(row.run, jax)).__mro__
            if base.__module__ == "builtins" or getattr(jax.errors, base.__name__, None) is base
        )
        assert issubclass(row.error, errors.FunctransError)
        assert not row.jax or issubclass(row.error, next(bases))

    each(ROWS, check)


JAX_SAID = re.compile(r"^JAX [^\n]*:\n\n```text\n.*?\n```$", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(NEWER or sys.version_info[:2] != (3, 11), reason="of JAX 0.10, Python 3.11")
def test_the_pages_are_not_stale():
    """All but JAX's words, which change with its version."""
    stale = "docs/errors is stale: run python -m tests.pages.misuses"
    made = misuses.documents()
    assert {path.name for path in FOLDER.glob("*.md")} == set(made), stale
    for name, text in made.items():
        assert JAX_SAID.sub("", (FOLDER / name).read_text()) == JAX_SAID.sub("", text), stale


@pytest.mark.parametrize("upper", [3, jnp.int32(3)], ids=["known", "traced"])
def test_the_counters_of_a_fori_loop_are_not_the_users(upper):
    def loop(n, body):
        return ft.lax.fori_loop(0, n, body, {"x": X})

    run = loop if isinstance(upper, int) else ft.jit(loop, static_argnums=1)
    with pytest.raises(errors.TypeMismatch) as caught:
        run(upper, lambda i, carry: (i, carry))
    assert "carry has the structure {'x': *}, " in str(caught.value)
    assert " returned (*, {'x': *})" in str(caught.value)
    with pytest.raises(errors.TypeMismatch, match=r"carry\['x'\]: f32\[3\] became i32\[3\]"):
        run(upper, lambda i, carry: {"x": carry["x"].astype(int)})


def test_a_dtype_that_is_truncated_is_a_warning():
    for name, np_like in (("functrans", jnp), ("jax", jax.numpy)):
        with pytest.warns(UserWarning, match="float64") as found:
            np_like.zeros(2, "float64")
        if name == "functrans":
            assert found[0].category is errors.TruncatedDtype
            assert found[0].filename == HERE
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("default")
            for _ in range(2):
                np_like.zeros(2, "float64")
        assert len(found) == 1  # Python shows a line's warning once
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jnp.zeros(2, float).dtype == np.float32


@pytest.fixture
def short(monkeypatch):
    monkeypatch.delenv("FUNCTRANS_TRACEBACK", raising=False)


def mine(x):
    raise KeyError("mine")


def mismatched(x):
    return x + jnp.ones(4)


def callback(x):
    return jnp.sum(x.at[jnp.arange(3)].apply(mine))


LEAKED: list = []
ft.jit(LEAKED.append)(1.0)
ENTRIES = {
    "jit": lambda: ft.jit(mismatched)(X),
    "grad": lambda: ft.grad(mismatched)(X),
    "vmap": lambda: ft.vmap(mismatched)(np.ones((2, 3))),
    "jit of vmap of grad": lambda: ft.jit(ft.vmap(ft.grad(mismatched)))(np.ones((2, 3))),
    "nested jit": lambda: ft.grad(ft.jit(mismatched))(X),
    "make_ir": lambda: ft.make_ir(mismatched)(X),
    "scan": lambda: ft.lax.scan(lambda c, x: (mismatched(c), x), X, None, length=2),
    "cond": lambda: ft.lax.cond(True, mismatched, mismatched, X),
    "a function of numpy": lambda: jnp.add(X, np.ones(4)),
    "of linalg": lambda: jnp.linalg.cholesky(X),
    "of random": lambda: ft.random.normal(X),
    "an operator": lambda: LEAKED[0] + 1,
    "a method": lambda: LEAKED[0].sum(),
    "a condition": lambda: bool(LEAKED[0]),
    "of the user": lambda: ft.jit(ft.grad(mine))(1.0),
    "of the user, below": lambda: ft.grad(callback)(X),
    "custom_jvp": lambda: ft.custom_jvp(mine)(1.0),
    "checkpoint": lambda: ft.checkpoint(mine)(1.0),
    "arguments": lambda: ft.jit(mine)(),
}


OF_JAX = ("of random", "of linalg")  # their errors are raised in JAX, and again by us


@pytest.mark.parametrize("name", ENTRIES)
def test_frames_of_ours_are_hidden(name, short):
    with pytest.raises(Exception) as found:
        ENTRIES[name]()
    error = found.value
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    assert set(files) == {HERE}
    text = "".join(traceback.format_exception(error))
    assert "JAX has removed" not in text
    assert "During handling" not in text
    hidden = "FUNCTRANS_TRACEBACK=full" in text  # said where what raised was not the user's
    assert hidden == (name in ("arguments", *OF_JAX))


def test_all_frames_are_shown_on_demand(monkeypatch):
    monkeypatch.setenv("FUNCTRANS_TRACEBACK", "full")
    with pytest.raises(errors.ShapeMismatch) as found:
        ENTRIES["a function of numpy"]()
    files = [frame.filename for frame in traceback.extract_tb(found.value.__traceback__)]
    assert any("functrans/numpy" in name.replace("\\", "/") for name in files)


def test_the_errors_an_error_was_raised_from_are_trimmed_too(short):
    def f(x):
        try:
            return mismatched(x)
        except TypeError as error:
            raise RuntimeError("no model") from error

    with pytest.raises(RuntimeError) as found:
        ft.jit(f)(X)
    cause = found.value.__cause__
    for error in (found.value, cause):
        files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        assert set(files) == {HERE}


def test_an_error_that_points_to_itself_is_no_endless_loop(short):
    error = ValueError()
    error.__cause__, error.__context__ = error, error
    hide_frames(error)


@pytest.mark.rest
@pytest.mark.long
def test_a_plain_script_shows_the_users_lines(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import functrans as ft, functrans.numpy as jnp
        def loss(w, x):
            return jnp.sum((x @ w) ** 2)
        ft.jit(ft.grad(loss))(jnp.ones(3), jnp.ones((4, 2)))
        """)
    )
    env = {k: v for k, v in os.environ.items() if k != "FUNCTRANS_TRACEBACK"}
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=env, check=False)
    assert ran.returncode == 1
    frames = re.findall(r'File "(.*?)", line (\d+)', ran.stderr)
    assert frames == [(str(script), "5"), (str(script), "4")]
    assert "errors.TypeMismatch: matmul(f32[4,2], f32[3])" in ran.stderr
