"""Higher-order primitives: loops, branches, calls, callbacks to JAX and Python.

They define `interpret` instead of `reference`. Their rules receive the running transformation `t`,
which transforms their bodies, so this layer need not import the transformations.

    interpret       the results on NumPy arrays; `run(program, values)` runs a body (mandatory)
    differentiate   `jvp`, given the running jvp or linearize
    transpose_with  `transpose`, given the running transposition
    batch           `t.program(body, ...)` is the batched body
    record          trace a Python function and bind with its program, if `holds_functions` is set
    run_eagerly     the results on concrete arrays, if `runs_eagerly` is set
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from functrans.primitives.base import Primitive, axes_inside, owed


class HigherOrderPrimitive(Primitive):
    """Base class of primitives whose parameters hold programs. They have a list of results."""

    multiple_results = holds_programs = True
    mandatory: tuple[str, ...] = ("abstract_eval", "interpret", "lower")

    @owed
    def interpret(self, run: Any, values: Sequence[Any], params: dict[str, Any]) -> Sequence[Any]:
        """Return the results on NumPy arrays. `run(program, values)` runs a program, `run(program,
        values, i)` runs it as step i of a loop."""
        raise self.missing("interpret")

    def run_eagerly(self, values: Sequence[Any], params: dict[str, Any]) -> Any:
        """Return the results on concrete arrays, if `runs_eagerly` is set."""
        raise self.missing("run_eagerly")

    def record(self, trace: Any, own: bool, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Trace the function to a Program and bind with it, if `holds_functions` is set. `own`: an
        operand is a tracer of the recording trace."""
        raise self.missing("record")

    def named_axes(self, params: dict[str, Any]) -> Container[Any]:
        return axes_inside(tuple(params.values()))
