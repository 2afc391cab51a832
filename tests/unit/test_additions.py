"""What an addition costs: an elementwise operation is one line and one row, in a copy of all. A
transformation is one file: examples/own_transformation.py."""

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


@pytest.mark.sweep
def test_an_elementwise_operation_is_one_line_and_one_row(tmp_path: Path):
    ignored = shutil.ignore_patterns("__pycache__", "sweep", "faults")
    for folder in (Path(ft.__file__).parent, ROOT / "tests"):
        shutil.copytree(folder, tmp_path / folder.name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for file, line in (
        ("functrans/primitives/elementwise/transcendental.py", LINE),
        ("tests/matrix/cases/elementwise.py", ROW),
    ):
        with (tmp_path / file).open("a") as text:
            text.write(line)
    table = "tests/matrix/test_primitives.py"
    words = [sys.executable, *f"-m pytest -q -p no:cacheprovider {table} -k".split(), "sine_of_sine or row"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
