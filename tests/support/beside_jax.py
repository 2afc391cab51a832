"""Wrong calls of `lax`, beside JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest

from functrans import errors, lax


def refused_by_both(call: Callable[[Any], Any], kind: type[Exception]) -> None:
    """JAX raises an error of this kind; ours is one too, is our own, and names the user's line."""
    with pytest.raises(kind):
        call(jax.lax)
    with pytest.raises(errors.FunctransError, match="at\n") as caught:
        call(lax)
    assert isinstance(caught.value, kind)
