"""Functions of ours where JAX's flags forbid implicit promotion: they do not trip over themselves.

Each call that JAX's own function accepts under `jax_numpy_rank_promotion="raise"`, or under strict
dtype promotion, ours accepts, with the same types. Nothing is run: promotion happens in tracing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import pytest

import functrans as ft
from benchmarks.namespace import ARRAYS, JAX, OURS, calls

MODES = {
    "rank": lambda: jax.numpy_rank_promotion("raise"),
    "dtype": lambda: jax.numpy_dtype_promotion("strict"),
}
CALLS = calls()


def types(row: str, library: dict[str, Any], evaluate: Callable[..., Any]) -> Any:
    """Shapes and dtypes of a call's results."""
    names = sorted({*re.findall(r"\w+", row)} & {*ARRAYS})
    function = eval(f"lambda {', '.join(names)}: {row}", dict(library))
    found = evaluate(function, *[ARRAYS[name] for name in names])
    return [(x.shape, x.dtype) for x in jax.tree.leaves(found)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("group", CALLS)
def test_what_jax_accepts_is_accepted(group, mode):
    wrong, accepted = [], 0
    with MODES[mode]():
        for row in CALLS[group]:
            try:
                wanted = types(row, JAX, jax.eval_shape)
            except (TypeError, ValueError):
                continue
            accepted += 1
            try:
                found = types(row, OURS, ft.eval_shape)
            except (TypeError, ValueError) as error:
                wrong.append(f"{row}: {error}")
            else:
                if found != wanted:
                    wrong.append(f"{row}: {found}, JAX: {wanted}")
    assert not wrong, "\n".join(wrong)
    assert accepted > len(CALLS[group]) // 2  # else the rows say little


@pytest.mark.parametrize("mode", MODES)
def test_what_the_flag_is_for_is_refused(mode):
    row = {"rank": "jnp.add(x, v)", "dtype": "jnp.add(x, i)"}[mode]
    assert types(row, OURS, ft.eval_shape)
    with MODES[mode](), pytest.raises(ft.errors.ImplicitPromotion):
        types(row, OURS, ft.eval_shape)
