"""What every test may rely on: no trace of another test is left active, 64-bit types are off.

The tests compile much and run little, so LLVM optimises nothing in them: a fifth less time. XLA's
own passes, which see what we emit, are not affected.
"""

from __future__ import annotations

import os
from itertools import count

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
os.environ.setdefault("FUNCTRANS_TRACEBACK", "full")  # a failing test shows where

import jax
import pytest

import functrans as ft
from functrans.trace import state

_ran = count(1)
_KEPT = 250  # tests whose compiled programs are held: some 15 MB each


@pytest.fixture(autouse=True)
def nothing_left_active():
    yield
    left, state.trace, state.derived = state.trace, None, None
    assert left is None, "the test left a trace active"
    assert not jax.config.jax_enable_x64, "the test left 64-bit types enabled"


@pytest.fixture(autouse=True)
def bounded_memory():
    yield
    if next(_ran) % _KEPT == 0:
        ft.clear_caches()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long sweeps run only when they are asked for: `pytest -m heavy`."""
    if not config.option.markexpr:
        heavy = [item for item in items if item.get_closest_marker("heavy")]
        config.hook.pytest_deselected(items=heavy)
        items[:] = [item for item in items if not item.get_closest_marker("heavy")]
