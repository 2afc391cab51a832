"""What a user may have installed beside functrans, and a fresh machine may lack."""

from typing import Any

import pytest


def library(name: str) -> Any:
    """A library of the JAX world; where it is missing the test is skipped, and says what brings
    it."""
    why = f"{name} is not installed: pip install 'functrans[libraries]'"
    return pytest.importorskip(name, reason=why)
