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
