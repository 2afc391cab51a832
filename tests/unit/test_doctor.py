"""The doctor: its samples use every operation, and it says what is wrong."""

import io
import runpy
import subprocess
import sys

import numpy as np
import pytest

import functrans as ft
from functrans.inspect.doctor import doctor, operations_of
from functrans.inspect.operation_samples import samples
from functrans.ir.program import PRIMITIVES
from tests.unit.test_compare import wrong_sin  # noqa: F401  (a fixture)

pytestmark = pytest.mark.smoke

ALL = list(samples())
# Primitives that no complete program runs: collectives over a named axis, which become ordinary
# operations when the axis is mapped. And one without a right answer: draws from a hidden state.
NOT_RUN = frozenset(
    {"all_gather", "all_to_all", "axis_index", "pmax", "pmin", "ppermute", "psum", "psum_scatter"}
    | {"rng_uniform", "one_kernel", "outlined", "jax_call"}
)


def test_the_samples_use_every_operation():
    found = set()
    for _, function, operands in ALL:
        found.update(operations_of(ft.make_ir(function)(*operands)))
    assert set(PRIMITIVES) - found == NOT_RUN


def test_a_healthy_device():
    output = io.StringIO()
    few = [s for s in ALL if s[0] in ("exp", "and", "reductions", "scan", "windows")]
    assert doctor(output, chosen=few)
    text = output.getvalue()
    assert f"jax {__import__('jax').__version__}" in text
    assert "devices: cpu:0" in text
    assert "all passed" in text
    assert "exact: " in text
    assert "operations compiled" in text  # of the caches
    assert "evictions" in text
    assert "\r" not in text  # no progress bar where nobody looks


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_wrong_is_said_first(wrong_sin):  # noqa: F811
    def broken(x):
        raise ValueError("no such thing")

    x = np.linspace(0.1, 3, 8, dtype="float32")
    output = Terminal()
    chosen = [("wrong_sin", wrong_sin, (x,)), ("exp", PRIMITIVES["exp"], (x,)), ("bad", broken, (x,))]
    assert not doctor(output, chosen=chosen)
    text = output.getvalue()
    assert "] 0/3 wrong_sin" in text
    assert "2 of 3 operations failed" in text
    table = text[text.index("worst ULP") :]
    assert table.index("wrong_sin") < table.index("exp ")
    assert "inaccurate in sample 'wrong_sin'" in table
    assert "ValueError: no such thing" in table


@pytest.mark.parametrize("well", [True, False])
def test_the_status_of_the_command_says_if_all_is_well(well, monkeypatch):
    monkeypatch.setattr("functrans.doctor", lambda: well)
    monkeypatch.setattr(sys, "argv", ["functrans"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("functrans", run_name="__main__")
    assert ended.value.code == (0 if well else 1)


@pytest.mark.long
def test_the_command_takes_no_arguments_and_says_so():
    told = [
        subprocess.run([sys.executable, "-m", "functrans", word], capture_output=True, text=True)
        for word in ("--help", "sin")
    ]
    assert [made.returncode for made in told] == [0, 2]
    assert "compare every operation" in " ".join(told[0].stdout.split())
    assert "sin" in told[1].stderr
