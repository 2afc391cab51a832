"""A table of equations with wrong operands or parameters: `check` says what the type rule says."""

import re
from pathlib import Path

import pytest

from functrans import errors
from functrans.ir import check, parse
from tests.support.wide import each

TABLE = Path(__file__).parent / "wrong_equations.txt"
ROWS = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]


@pytest.mark.smoke
def test_what_an_operation_does_not_take():
    each(ROWS, refused)


def refused(row: str) -> None:
    operands, operation, words = row.split(" ; ")
    types = operands.split()
    names = [f"x{i}" for i in range(len(types))]
    given = ", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))
    head, brace, programs = operation.partition(" {")
    equation = f"y: f32[] = {' '.join([head, *names])}{brace}{programs}"
    program = parse(f"program ({given}) {{ {equation}; return y }}")
    with pytest.raises(errors.CheckError, match=re.escape(words)) as caught:
        check(program)
    name = re.match(r"\w+", operation)
    assert name
    assert f": {name[0]} cannot be applied: {name[0]}" in str(caught.value)
