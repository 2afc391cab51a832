"""What every test may rely on: no trace of another test is left active, 64-bit types are off."""

from __future__ import annotations

import jax
import pytest

from functrans.trace import state


@pytest.fixture(autouse=True)
def nothing_left_active():
    yield
    left, state.trace, state.derived = state.trace, None, None
    assert left is None, "the test left a trace active"
    assert not jax.config.jax_enable_x64, "the test left 64-bit types enabled"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long sweeps run only when they are asked for: `pytest -m heavy`."""
    if not config.option.markexpr:
        heavy = [item for item in items if item.get_closest_marker("heavy")]
        config.hook.pytest_deselected(items=heavy)
        items[:] = [item for item in items if not item.get_closest_marker("heavy")]
