"""Named axes in scope: those of our transformations, and those that JAX has named around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from functrans import errors
from functrans.ir.program import Program
from functrans.ir.source import describe, user_source
from functrans.primitives.base import axes_inside
from functrans.trace import state


def size_of(operation: str, name: Any) -> int:
    """The size of the innermost axis of a name, of those that our transformations give and then of
    JAX's; UnboundAxis if there is none."""
    for known, size in reversed(state.axes):
        if known == name:
            return size
    try:
        return jax.lax.axis_size(name)
    except NameError:
        raise unbound(operation, (name,)) from None


def speaks_of_others_axes(program: Program) -> bool:
    """Does it speak of an axis that JAX has named? Then its sizes are not in our signatures."""
    given = {name for name, _ in state.axes}
    return not axes_inside(program) <= given


def unbound(operation: str, axes: Sequence[Any]) -> errors.UnboundAxis:
    """The error for a collective over a name that no transformation around it has given."""
    shown = ", ".join([repr(a) for a in axes])
    inside = ", ".join([f"{name!r} of size {n}" for name, n in state.axes]) or "none"
    return errors.UnboundAxis(
        f"{operation} over the axis {shown}: no axis of that name is in scope (names in scope: "
        f"{inside}), at\n    {describe(user_source())}\n"
        f"Call it inside a function that is mapped with vmap(f, axis_name={axes[0]!r})."
    )
