"""Calls of the libraries with wrong arguments, `wrong_calls_*.txt`: an error says what is wrong in
the words of the table, with ` ... ` between them, and shows the call. JAX refuses it too, with an
error of a class of ours; where it does something else, the table says what: the class of its error,
or nothing. No trace is left active."""

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
from functrans import errors
from functrans.ir.tracebacks import frames
from functrans.trace import state
from tests.support.libraries import ARRAYS, functions
from tests.support.matrices import marked
from tests.support.versions import NEWER
from tests.support.wide import each

HERE = Path(__file__).parent
ROWS = [
    [part.strip() for part in line.split(" ; ")]
    for path in sorted(HERE.glob("wrong_calls_*.txt"))
    for line in path.read_text().splitlines()
    if not line.startswith("#")
]
SHARES = 3  # of the rows, each a test


def raised(row: str, library: Any) -> Exception:
    scope = {"ft": library, "np": np, "key": jax.random.key(3), **functions(library.__name__)}
    arrays = {name: jax.numpy.asarray(x) for name, x in ARRAYS.items()}
    code = compile(row, row, "eval")
    try:
        eval(code, {**scope, **arrays})
    except Exception as error:
        return error
    raise AssertionError(f"{library.__name__} does it")


def classes(error: Exception) -> set[type]:
    """Those that a user would name: JAX's public ones, and Python's."""
    own = (Exception, BaseException, object)
    return {
        c
        for c in type(error).__mro__
        if c not in own and (c.__module__ == "builtins" or hasattr(jax.errors, c.__name__))
    }


@pytest.mark.parametrize("share", [0, *marked("rest", *range(1, SHARES))])
def test_what_is_said(share: int, monkeypatch):
    monkeypatch.delenv("FUNCTRANS_TRACEBACK", raising=False)

    def check(row: list[str]) -> None:
        call, words, *jax_differs = row
        error = raised(call, ft)
        assert isinstance(error, errors.FunctransError)
        said = re.sub(r"\s+", " ", f"{type(error).__name__} {error}")
        assert all(word in said for word in words.split(" ... ")), error
        assert f"{call}:1" in str(error), error
        assert state.trace is state.provenance is None
        shown = {Path(tb.tb_frame.f_code.co_filename) for tb in frames(error)}
        if not call.endswith(".__enter__()"):  # Python calls it
            assert not any(Path(ft.__file__).parent in path.parents for path in shown), shown
        if NEWER or jax_differs == ["nothing"]:
            return
        theirs = raised(call, jax)
        if jax_differs:
            assert [type(theirs).__name__] == jax_differs
        else:
            assert classes(error) & classes(theirs)

    each(ROWS[share::SHARES], check)
