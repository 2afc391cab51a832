"""Passes on short programs, `rewrites.txt`: what they make of them, and what they must leave alone."""

from pathlib import Path

import jax
import numpy as np
import pytest

import functrans as ft
from functrans.backends import reference
from functrans.ir import Program, check, equal
from tests.support.wide import each
from tests.unit.contraction_searches import Everything, chosen
from tests.unit.rewriting import inputs_of, read

pytestmark = pytest.mark.smoke

Row = list[str]


def table() -> dict[str, list[Row]]:
    """The rows of each section: name, inputs, before, and after where something is to be made."""
    sections: dict[str, list[Row]] = {}
    for line in Path(__file__).with_name("rewrites.txt").read_text().splitlines():
        if line.startswith("["):
            rows = sections[line.strip("[]")] = []
        elif not line.startswith("#"):
            name, *parts = line.split(" | ")
            rows.append([name, *parts] if parts[0][1] == ":" else [name, "", *parts])
    return sections


TABLE = table()
NUMBERS = np.array([-0.0, 0.0, 1.5, np.inf, -2.5, -np.inf, np.nan, -0.0, 0.25])


def bits_stay(made: Program, program: Program) -> None:
    """The values, the signs of zeros among them, of numbers that are special."""
    with np.errstate(all="ignore"):
        types = program.in_types
        args = [np.resize(np.roll(NUMBERS, 4 * i), t.shape).astype(t.dtype) for i, t in enumerate(types)]
        for x, y in zip(reference.run(made, args), reference.run(program, args), strict=True):
            np.testing.assert_array_equal(x, y)
            signs = [np.signbit(np.real(v)[~np.isnan(y)]) for v in (x, y)]
            np.testing.assert_array_equal(*signs)


@pytest.mark.parametrize("section", TABLE)
def test_rewrites(section: str, monkeypatch: pytest.MonkeyPatch):
    name, _, how = section.partition(" ")
    run = getattr(ft.passes, name.strip(","))
    if how == "whatever it costs":
        chosen(monkeypatch, Everything)

    def check_row(row: Row) -> None:
        _, inputs, before, *after = row
        inputs = inputs or inputs_of(before)
        program = read(before, inputs)
        check(program)
        if not after:
            assert run(program) is program
            return
        made = run(program, **({"fast_math": True} if "fast_math" in how else {}))
        check(made)
        assert equal(made, read(after[0], inputs)), made
        if how == "in any order":
            assert equal(run(program, exact=True), made)
        if how.endswith("unless it is exact"):
            assert run(program, exact=True) is program
        if how in ("in any order", "bit for bit unless it is exact"):
            bits_stay(made, program)

    with jax.enable_x64(True):
        each(TABLE[section], check_row)
