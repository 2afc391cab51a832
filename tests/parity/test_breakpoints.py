"""`jax.debug.breakpoint` in functions that functrans transforms, against JAX."""

import io
from typing import Any

import jax
import jax.numpy as J
import pytest

import functrans as ft

MODES = {
    "un-jitted": lambda m, f: f,
    "jit": lambda m, f: m.jit(f),
    "jit of grad": lambda m, f: m.jit(m.grad(f)),
    "jvp": lambda m, f: lambda x: m.jvp(f, (x,), (x,)),
    "vmap": lambda m, f: lambda x: m.vmap(f)(J.stack([x, 2 * x])),
}


def session(m: Any, transform: Any, ordered: bool) -> tuple[Any, str]:
    """What is computed, and what the debugger shows."""
    asked, shown = io.StringIO("p y\nbt\nu\np x\nc\nc\n"), io.StringIO()

    def f(x: Any) -> Any:
        y = J.float32(2) * x
        jax.debug.breakpoint(backend="cli", stdin=asked, stdout=shown, num_frames=2, ordered=ordered)
        return J.sin(y)

    found = transform(m, f)(J.float32(0.5))
    jax.effects_barrier()
    return found, shown.getvalue()


CASES = [*[(mode, False) for mode in MODES], ("un-jitted", True), ("jit of grad", True)]


@pytest.mark.rest
@pytest.mark.parametrize(("mode", "ordered"), CASES)
def test_a_breakpoint_shows_what_it_shows_in_jax(mode: str, ordered: bool):
    want, shown = session(jax, MODES[mode], ordered)
    found, seen = session(ft, MODES[mode], ordered)
    assert "Array(1., dtype=float32" in shown
    assert seen == shown
    assert jax.tree.all(jax.tree.map(J.allclose, found, want))
