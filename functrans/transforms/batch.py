"""Vectorization: rewrite a program for batched operands.

In: a program, its arguments, and the batch axis of each, or None. Each equation with a batched
operand, and each collective over the named axis, is replaced by its primitive's batch rule. Other
equations stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans import runtime
from functrans.caching import memo
from functrans.ir.program import Literal, Origin, Program, keep_names
from functrans.primitives.calls.captured import closed, stage_with
from functrans.primitives.shape.moving import broadcast_to_axis, move_axis
from functrans.trace import bind, derive_from, provenance


class Batching:
    """The running vmap, as batch rules see it.

    axis_name      : the name of the mapped axis, for collectives
    spmd_axis_name : the mesh axes over which the batch axis is sharded, for sharding rules
    """

    __slots__ = ("axis_name", "size", "spmd_axis_name")

    def __init__(self, size: int, axis_name: Any = None, spmd_axis_name: tuple[Any, ...] = ()):
        self.size: int = size
        self.axis_name: Any = axis_name
        self.spmd_axis_name: tuple[Any, ...] = spmd_axis_name

    def at(self, x: Any, dim: int | None, to: int) -> Any:
        """Return x with its batch axis at `to`; broadcast along a new one if `dim` is None."""
        if dim is None:
            return broadcast_to_axis(x, to, self.size)
        return x if dim == to else move_axis(x, dim, to)

    def move(self, x: Any, dim: int | None, to: int) -> Any:
        """Return x with its batch axis, if any, at `to`."""
        return x if dim is None or dim == to else move_axis(x, dim, to)

    def program(
        self, program: Program, dims: tuple[int | None, ...], out_batched: Sequence[bool] = ()
    ) -> tuple[Program, tuple[int | None, ...]]:
        """Return the batched program and the batch axes of its results; cached. Results marked in
        `out_batched` are batched at axis 0 even if they need not be."""
        options = self.size, self.axis_name, self.spmd_axis_name
        return memo(program, _batched, options, dims, tuple(out_batched))

    def run(
        self, program: Program, args: Sequence[Any], dims: Sequence[int | None]
    ) -> tuple[list[Any], list[int | None]]:
        """Bind the batched equations in the current trace; return the results and their batch axes."""
        env: dict[Any, Any] = dict(zip(program.inputs, args, strict=True))
        env.update(zip(program.constants, program.values, strict=True))
        dim_of: dict[Any, int | None] = dict(zip(program.inputs, dims, strict=True))
        with provenance():
            for eqn in program.equations:
                derive_from(eqn.source, Origin("batch of", eqn))
                args = [v if v.__class__ is Literal else env[v] for v in eqn.inputs]
                outs, found = self.apply(eqn.primitive, args, [*map(dim_of.get, eqn.inputs)], eqn.params)
                for v, y, d in zip(eqn.outputs, outs, found, strict=True):
                    env[v], dim_of[v] = y, d
        outs = [v if v.__class__ is Literal else env[v] for v in program.outputs]
        return outs, [dim_of.get(v) for v in program.outputs]

    def apply(
        self, primitive: Any, args: Sequence[Any], dims: Sequence[int | None], params: dict[str, Any]
    ) -> tuple[Sequence[Any], Sequence[int | None]]:
        """Apply one operation; return the results and their batch axes."""
        if any([d is not None for d in dims]) or (
            self.axis_name is not None and self.axis_name in primitive.named_axes(params)
        ):
            outs, found = primitive.batch(self, args, dims, **params)
            return (outs, found) if primitive.multiple_results else ([outs], [found])
        outs = bind(primitive, args, params)
        outs = outs if primitive.multiple_results else [outs]
        return outs, [None] * len(outs)


@runtime.answers("batch_program")
def of_stacks(program: Program, size: int) -> Program:
    """Return the program for operands with a first axis of this size, with such results."""
    return Batching(size).program(program, (0,) * len(program.inputs), (True,) * len(program.outputs))[0]


def _batched(
    program: Program,
    options: tuple[int, Any, tuple[Any, ...]],
    dims: tuple[int | None, ...],
    out_batched: tuple[bool, ...],
) -> tuple[Program, tuple[int | None, ...]]:
    t = Batching(*options)

    def batched(*args: Any) -> tuple[list[Any], list[int | None]]:
        outs, found = t.run(program, args, dims)
        for i, force in enumerate(out_batched):
            if force:
                outs[i], found[i] = t.at(outs[i], found[i], 0), 0
        return outs, found

    types = [
        x if d is None else x.update(shape=(*x.shape[:d], t.size, *x.shape[d:]))
        for x, d in zip(program.in_types, dims, strict=True)
    ]
    made, out_dims = stage_with(batched, types, program.name)
    return keep_names(closed(made), program), tuple(out_dims)
