"""What every test may rely on: no trace of another test is left active, 64-bit types are off."""

from __future__ import annotations

from itertools import count

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
