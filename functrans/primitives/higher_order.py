"""Operations that hold programs: loops, branches, calls, what JAX or Python does.

They owe `interpret` instead of `reference`, and their rules are given the running transformation as
`t`: the bodies that they hold are transformed by it, so they import none.

    interpret       the results on NumPy arrays; `run(program, values)` runs a body (mandatory)
    differentiate   `jvp`, given the running jvp or linearize
    transpose_with  `transpose`, given the running transposition
    batch           `t.program(body, ...)` is the batched body
    record          bind with a program for a Python function, where `holds_functions` is set
    run_now         the results on concrete arrays, where `runs_now` is set
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from functrans.primitives.base import Primitive, axes_inside, owed


class HigherOrderPrimitive(Primitive):
    """Base of the operations whose parameters hold programs; they have a list of results."""

    multiple_results = holds_programs = True
    mandatory: tuple[str, ...] = ("abstract_eval", "interpret", "lower")

    @owed
    def interpret(self, run: Any, values: Sequence[Any], params: dict[str, Any]) -> Sequence[Any]:
        """The results on NumPy arrays. `run(program, values)` runs a program, and
        `run(program, values, i)` one that is the step i of a loop."""
        raise self.missing("interpret")

    def run_eagerly(self, values: Sequence[Any], params: dict[str, Any]) -> Any:
        """The results on concrete arrays, where `runs_now` is set."""
        raise self.missing("run_now")

    def record(self, trace: Any, own: bool, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Bind with a Program for the function, where `holds_functions` is set. `own`: among the
        operands is a tracer of the recording trace."""
        raise self.missing("record")

    def named_axes(self, params: dict[str, Any]) -> Container[Any]:
        return axes_inside(tuple(params.values()))
