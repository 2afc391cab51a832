"""Functions of ours where JAX's flags forbid implicit promotion: they do not trip over themselves.

Each call that JAX's own function accepts under `jax_numpy_rank_promotion="raise"`, or under strict
dtype promotion, ours accepts, with the same types; of the functions that are JAX's, every eighth. Nothing
is run: promotion happens in tracing.
"""

import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import jax
import pytest

import functrans as ft
from benchmarks.namespace import ARRAYS, JAX, OURS, calls
from tests.support.wide import each

MODES = {
    "rank": lambda: jax.numpy_rank_promotion("raise"),
    "dtype": lambda: jax.numpy_dtype_promotion("strict"),
}


def is_jaxs(row: str) -> bool:
    """Whether all that a call names is handed on."""
    names = re.findall(r"\b[a-z]\w*(?:\.\w+)+(?=\()", row)
    return bool(names) and all([hasattr(eval(name, dict(OURS)), "clear_cache") for name in names])


CALLS = {
    group: [row for i, row in enumerate(rows) if i % 8 == 0 or not is_jaxs(row)]
    for group, rows in calls().items()
}


def types(row: str, library: dict[str, Any], evaluate: Callable[..., Any]) -> Any:
    """Shapes and dtypes of a call's results."""
    names = sorted({*re.findall(r"\w+", row)} & {*ARRAYS})
    function = eval(f"lambda {', '.join(names)}: {row}", dict(library))
    found = evaluate(function, *[ARRAYS[name] for name in names])
    return [(x.shape, x.dtype) for x in jax.tree.leaves(found)]


@pytest.mark.parametrize("group", CALLS)
def test_what_jax_accepts_is_accepted(group):
    """Under both flags; what JAX refuses then, under each."""
    accepted = 0

    def agrees(row: str, *modes: str) -> bool:
        with ExitStack() as flags:
            for mode in modes:
                flags.enter_context(MODES[mode]())
            try:
                wanted = types(row, JAX, jax.eval_shape)
            except (TypeError, ValueError):
                return False
            assert types(row, OURS, ft.eval_shape) == wanted, modes
            return True

    def check(row: str) -> None:
        nonlocal accepted
        accepted += agrees(row, *MODES) or any([agrees(row, mode) for mode in MODES])

    each(CALLS[group], check)
    assert accepted > len(CALLS[group]) // 2  # else the rows say little


@pytest.mark.parametrize("mode", MODES)
def test_what_the_flag_is_for_is_refused(mode):
    row = {"rank": "jnp.add(x, v)", "dtype": "jnp.add(x, i)"}[mode]
    assert types(row, OURS, ft.eval_shape)
    with MODES[mode](), pytest.raises(ft.errors.ImplicitPromotion):
        types(row, OURS, ft.eval_shape)
