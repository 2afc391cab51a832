"""`jax.lax` names over primitives/windows.py and primitives/windows_general.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans import errors
from functrans import pytrees as tree
from functrans.ir.program import Equation, Literal, Program
from functrans.ir.source import describe, user_source
from functrans.ir.types import ArrayType, dtype_class
from functrans.lax.arguments import as_array, integers, invalid, mismatch
from functrans.lax.convolution_arguments import padtype_to_pads
from functrans.lax.elementwise import operand as number_or_array
from functrans.primitives import windows as _windows
from functrans.primitives.conversion import convert_element_type
from functrans.primitives.reduction import highest, lowest
from functrans.primitives.windows_general import reduce_window as _any_fold
from functrans.trace import AnyTracer, literal, stage, typeof

__all__ = ["reduce_window", "reduce_window_shape_tuple"]


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[[Any, Any], Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Fold each window of an array that slides over it.

    Arguments:
        operand: an array, or a pytree of arrays of equal shapes that are folded together.
        init_value: a scalar, or a pytree like `operand` of scalars: where the fold starts, and what
            padding is filled with.
        computation: `(folded, element) -> folded`, associative, on scalars in pytrees like
            `operand`.
        window_dimensions: the size of a window, along each axis.
        window_strides: how far one window stands from the next; None: 1.
        padding: "SAME", "SAME_LOWER", "VALID", or pairs (before, after), one per axis.
        base_dilation, window_dilation: factors by which the elements of the operand, of a window
            are spread; None: 1.

    Returns:
        A pytree like `operand`, each array with one number per window.

    Raises:
        TypeMismatch: the windows do not fit the operand, or dtypes differ.
        InvalidArgument: the pytrees differ.
        ClosedOverTracer: `computation` closes over a traced value.

    Source: jax.lax.reduce_window

    Example:
        >>> import numpy as np
        >>> from functrans import lax
        >>> print(lax.reduce_window(np.arange(6), 0, lax.add, (3,), (1,)))
        [ 3  6  9 12]
    """
    structure: Any
    flat, structure = tree.flatten(operand)
    starts, start_structure = tree.flatten(init_value)
    if structure != start_structure:
        raise invalid(
            "reduce_window",
            f"operand and init_value must have the same tree structure, got {structure} and "
            f"{start_structure}",
        )
    if not flat:
        raise invalid("reduce_window", "must have at least one operand")
    xs = [as_array(x) for x in flat]
    window = _window(
        typeof(xs[0]).shape, window_dimensions, window_strides, padding, base_dilation,
        window_dilation,
    )  # fmt: skip
    starts = [number_or_array(x) for x in starts]
    types = _scalars(xs, starts)
    program = _staged(computation, structure, types)
    starts = [_as(x, t) for x, t in zip(starts, types, strict=True)]
    name = _known(program, starts[0]) if len(xs) == 1 else None
    if name is not None and dtype_class(types[0].dtype) not in ("bool", "complex"):
        outs = [getattr(_windows, name)(xs[0], **window)]
    else:
        outs = list(_any_fold(*xs, *starts, computation=program, **window))
    # as in JAX: weak is what lax.add, lax.max or lax.min itself joins
    by_name = name is not None and getattr(computation, "__module__", "") == "functrans.lax"
    weak = by_name and typeof(xs[0]).weak_type
    if len(outs) == 1 and typeof(outs[0]).weak_type != weak:
        outs = [convert_element_type(outs[0], dtype=types[0].dtype, weak_type=weak)]
    return tree.unflatten(structure, outs)


def _window(
    shape: Sequence[int], sizes: Any, strides: Any, padding: Any, base: Any, apart: Any
) -> dict[str, Any]:
    """The parameters of the primitives."""
    name = "reduce_window"
    sizes = integers(sizes, name, "window_dimensions")
    ones = (1,) * len(sizes)
    strides, base, apart = [
        ones if x is None else integers(x, name, what)
        for x, what in (
            (strides, "window_strides"), (base, "base_dilation"), (apart, "window_dilation"),
        )
    ]  # fmt: skip
    if min((*strides, *base, *apart), default=1) < 1:
        raise mismatch(name, f"strides and dilations are positive, got {strides}, {base}, {apart}")
    if isinstance(padding, str):
        lengths = (len(shape), len(sizes), len(strides), len(apart))
        if len(set(lengths)) != 1:
            raise mismatch(
                name,
                f"the operand has shape {tuple(shape)}, so window_dimensions {sizes}, "
                f"window_strides {strides} and window_dilation {apart} must have {len(shape)} "
                "entries",
            )
        extents = [_windows.dilated(n, d) for n, d in zip(sizes, apart, strict=True)]
        padding = padtype_to_pads(shape, extents, strides, padding)
    return {
        "window_dimensions": sizes,
        "window_strides": strides,
        "padding": tuple([integers(ends, name, "padding") for ends in padding]),
        "base_dilation": base,
        "window_dilation": apart,
    }


def _scalars(xs: Sequence[Any], starts: Sequence[Any]) -> list[ArrayType]:
    """The types of the scalars that are folded; Python numbers take the dtype of their operand."""
    types = []
    for x, start in zip(xs, starts, strict=True):
        t, s = typeof(x), typeof(start)
        if s.shape:
            raise mismatch("reduce_window", f"init_value must be a scalar, got {s}")
        if s.dtype != t.dtype and not s.weak_type:
            raise mismatch(
                "reduce_window", f"operand and init_value must have equal dtypes, got {t} and {s}"
            )
        types.append(ArrayType((), t.dtype))
    return types


def _as(x: Any, t: ArrayType) -> Any:
    """A start as a value of its operand's dtype, infinity as the end of its range."""
    if x.__class__ is Literal:
        if isinstance(x.value, float) and math.isinf(x.value):
            return literal((lowest if x.value < 0 else highest)(t.dtype), t)
        return literal(x.value, t)
    if typeof(x).same(t):
        return x
    raise mismatch("reduce_window", f"the dtypes of {typeof(x)} and of its operand, {t}, differ")


def _staged(computation: Callable[..., Any], structure: Any, types: list[ArrayType]) -> Program:
    """The computation on flat scalars, as a program without constants."""
    n = len(types)

    def flat(*values: Any) -> list[Any]:
        both = [tree.unflatten(structure, vs) for vs in (values[:n], values[n:])]
        out, made = tree.flatten(computation(*both))
        if made != structure:
            raise invalid(
                "reduce_window",
                f"the computation must return a pytree like operand, {structure}, got {made}",
            )
        return [number_or_array(x) for x in out]

    return _closed(stage(flat, [*types, *types], getattr(computation, "__name__", "")))


def _closed(program: Program) -> Program:
    """Scalars that the computation closed over as literals."""
    if not program.constants:
        return program
    known: dict[Any, Any] = {}
    for var, x in zip(program.constants, program.values, strict=True):
        if isinstance(x, AnyTracer) or var.type.shape:
            error = errors.ClosedOverTracer if isinstance(x, AnyTracer) else errors.InvalidArgument
            raise error(
                f"reduce_window: the computation closes over a value {var.type}; it may close over "
                f"concrete scalars only, at\n    {describe(user_source())}\n"
                "Fold an array of these values along, as a second operand."
            )
        known[var] = literal(np.asarray(x), var.type)
    equations = [
        Equation(
            e.primitive, tuple([known.get(v, v) for v in e.inputs]), e.outputs, e.params, e.source
        )
        for e in program.equations
    ]
    outputs = [known.get(v, v) for v in program.outputs]
    return Program(program.inputs, equations, outputs, name=program.name)


_FOLDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "add": ("reduce_window_sum", lambda dtype: 0),
    "max": ("reduce_window_max", lowest),
    "min": ("reduce_window_min", highest),
}


def _known(program: Program, start: Any) -> str | None:
    """The primitive for a computation that is one operation, from the start that is its own."""
    if len(program.equations) != 1 or isinstance(start, AnyTracer):
        return None
    (eqn,) = program.equations
    mine = eqn.outputs[0] is program.outputs[0] and set(eqn.inputs) == set(program.inputs)
    if not mine or eqn.primitive.name not in _FOLDS:
        return None
    name, identity = _FOLDS[eqn.primitive.name]
    value = start.value if start.__class__ is Literal else np.asarray(start).item()
    return name if value == identity(program.inputs[0].type.dtype) else None


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """The shape of `reduce_window`'s result.

    Source: jax.lax.reduce_window_shape_tuple

    Example:
        >>> reduce_window_shape_tuple((8, 8), (2, 3), (2, 1), ((0, 0), (1, 1)))
        (4, 8)
    """
    window = _window(
        operand_shape, window_dimensions, window_strides, padding, base_dilation, window_dilation
    )
    shape = integers(operand_shape, "reduce_window_shape_tuple", "operand_shape")
    return _windows.window_counts(shape, *window.values())
