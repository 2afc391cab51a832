"""What an addition costs: an elementwise operation one line and one row, a transformation one file.

Each is made in a temporary copy of the package and the tests, and used there as any other.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import functrans as ft

ROOT = Path(__file__).parents[2]

LINE = """
sine_of_sine: Unary = Unary("sine_of_sine", FLOATS, lambda x, y: mul(cos(sin(x)), cos(x)), numpy=lambda x: np.sin(np.sin(x)), op=lambda x: hlo.sine(hlo.sine(x)))
"""  # noqa: E501
ROW = """
CASES.append(Case("sine_of_sine", [normal(5)], lambda x: lax.sin(lax.sin(x)), {}, FLOATS, (0,)))
"""
# Intervals that hold the results of increasing operations, sums and products with positive numbers.
TRANSFORMATION = '''"""Bounds of a program's results from bounds of its inputs."""

from __future__ import annotations

from functrans.ir.program import Literal, Program
from functrans.trace import bind, stage

RISING = ("exp", "tanh", "add", "max", "min", "convert_element_type")


def bounded(program: Program) -> Program:
    """`lows, highs -> lows, highs`, of a program of operations that rise in each operand."""
    n = len(program.inputs)

    def run(*values):
        sides = []
        for given in (values[:n], values[n:]):
            env = dict(zip(program.inputs, given, strict=True))
            for e in program.equations:
                assert e.primitive.name in RISING, e.primitive
                operands = [x if x.__class__ is Literal else env[x] for x in e.inputs]
                env[e.outputs[0]] = bind(e.primitive, operands, e.params)
            sides += [env[v] for v in program.outputs]
        return sides

    return stage(run, [*program.in_types, *program.in_types], program.name)
'''
USE = """
import functrans as ft, functrans.numpy as jnp
from functrans.transforms.intervals import bounded
program = ft.make_ir(lambda x, y: jnp.exp(x) + jnp.tanh(y))(1.0, 2.0)
low, high = ft.jit(lambda *xs: ft.evaluate(bounded(program), xs))(0.0, -1.0, 1.0, 1.0)
assert abs(low - 0.2384058) < 1e-5 and abs(high - 3.4798759) < 1e-5
steep = ft.grad(lambda x: ft.evaluate(bounded(program), [x, -1.0, x, 1.0])[1])(0.0)
assert abs(steep - 1.0) < 1e-6
batched = ft.vmap(lambda x: ft.evaluate(bounded(program), [x, -1.0, x, 1.0])[0])(jnp.arange(3.0))
assert batched.shape == (3,)
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "sweep", "faults")
    for folder in (Path(ft.__file__).parent, ROOT / "tests"):
        shutil.copytree(folder, tmp_path / folder.name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def python(copy: Path, *words: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run([sys.executable, *words], cwd=copy, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_an_elementwise_operation_is_one_line_and_one_row(copy: Path):
    primitives = copy / "functrans/primitives/elementwise/transcendental.py"
    primitives.write_text(primitives.read_text() + LINE)
    cases = copy / "tests/matrix/cases/elementwise.py"
    cases.write_text(cases.read_text() + ROW)
    table = "tests/matrix/test_primitives.py"
    python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", table, "-k", "sine_of_sine or row")


def test_a_transformation_is_one_short_file(copy: Path):
    (copy / "functrans/transforms/intervals.py").write_text(TRANSFORMATION)
    assert len(TRANSFORMATION.splitlines()) < 150
    python(copy, "-c", USE)
