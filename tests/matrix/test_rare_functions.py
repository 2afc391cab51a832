"""The less common functions of functrans.numpy beside JAX's, interpreted by NumPy: what XLA makes
of the operations is a matter of `test_primitives.py`. The same table runs compiled, under vmap and
through grad in `tests/sweep/test_numpy_tail.py`."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as ft_numpy
from functrans import errors
from tests.matrix.test_numpy import arguments, function_of, run_rows, tolerance
from tests.support.closeness import assert_close
from tests.support.wide import each
from tests.sweep.numpy_tail import TABLE


@pytest.mark.parametrize("group", TABLE)
def test_values(group: str):
    rows = TABLE[group]
    theirs = run_rows(rows, jax.numpy, jax.jit, lambda f: f)

    def check(row: str) -> None:
        if isinstance(theirs[row], Exception):  # it depends on values
            with pytest.raises(errors.FunctransError):
                ft.make_ir(function_of(row, ft_numpy))(*arguments(row))
            return
        program = ft.make_ir(function_of(row, ft_numpy))(*arguments(row))
        with np.errstate(all="ignore"):
            found = ft.interpret(program, *arguments(row))
        for x, t, y in zip(found, program.out_types, jax.tree.leaves(theirs[row]), strict=True):
            weak = t.weak_type and t.dtype != bool  # that some of JAX's booleans are has no meaning
            assert (t.shape, t.dtype, weak) == (y.shape, y.dtype, y.weak_type and y.dtype != bool)
            assert_close(x, y, tolerance(row), "value,")

    each(rows, check)
