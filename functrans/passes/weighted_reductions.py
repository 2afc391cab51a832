"""Weighted sums over leading axes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from functrans.ir.program import Equation, Literal, Program, Var
from functrans.ir.types import dtype_class
from functrans.passes.machines import machine
from functrans.passes.rewrite import Rewrite, Rewriter, nested_pass, rewritten
from functrans.primitives.contractions.convolution import conv_general_dilated
from functrans.primitives.contractions.dot_general import HIGHEST, dot_general
from functrans.primitives.elementwise.families import mul
from functrans.primitives.reductions.folds import reduce_sum
from functrans.primitives.shape.moving import broadcast_in_dim, kept_axes, reshape
from functrans.trace import literal

# --- weighted sums of rows as sums of the scaled rows, if these are computed anyway ---------------
#
#     s[k, j] = c[k] * x[k, j]                           s, as it was
#     y[j] = sum over k of c[k] * x[k, j]       ->       y[j] = sum over k of 1 * s[k, j]
#
# In differentially private training this is the gradient of a bias beside that of its weights. The
# rows, as large as the activations of a layer, are then last read where they are scaled, and XLA
# reuses their buffer for `s`: a fifth of the step's temporaries.


def scaled_sums(program: Program) -> Program:
    """Rewrite such sums as sums of the scaled rows; nested programs are unchanged."""
    if not any(map(_is_summed, program.equations)):
        return program
    made_at: dict[Any, int] = {v: i for i, e in enumerate(program.equations) for v in e.outputs}
    scaled_at: dict[tuple[Any, Any], tuple[int, int, Any]] = {}  # weights and rows -> where, and the rows
    for i, e in enumerate(program.equations):
        if e.primitive is mul:
            for x, repeated in (e.inputs, e.inputs[::-1]):
                k = made_at.get(repeated)
                if k is not None and _repeats_rows(program.equations[k]):
                    (weights,) = program.equations[k].inputs
                    scaled_at[weights, _origin(program, made_at, x)] = k, i, x
    equations: list[Equation] = []
    moved: set[int] = set()
    notes: list[Rewrite] = []
    for i, e in enumerate(program.equations):
        if i in moved:
            continue
        if _is_summed(e):
            weights, rows = e.inputs
            *places, x = scaled_at.get((weights, _origin(program, made_at, rows)), (None,))
            if places and made_at.get(x, -1) < i:
                for k in places:
                    if k > i and k not in moved:
                        moved.add(k)
                        equations.append(program.equations[k])
                scaled = program.equations[places[-1]]
                notes.append((e.primitive.name, (e, scaled)))
                e = replace(e, inputs=(literal(1, weights.type), *scaled.outputs))
        equations.append(e)
    return rewritten(program, equations, program.outputs, notes, prunes=False) if notes else program


def _repeats_rows(e: Equation) -> bool:
    """Return whether an equation repeats each number of a vector along a row of a matrix."""
    if e.primitive is not broadcast_in_dim or e.params["dimensions"] != (0,):
        return False
    return e.outputs[0].type.ndim == 2 and e.inputs[0].type.shape == e.params["shape"][:1]


def _is_summed(e: Equation) -> bool:
    """Return whether an equation is the weighted sum of the rows of a matrix, of one dtype."""
    if e.primitive is not dot_general or e.inputs[0].__class__ is not Var:
        return False
    lhs, rhs = e.params["lhs"], e.params["rhs"]
    rows = len(rhs) == 2 and lhs == rhs[:1] and rhs[0] != rhs[1] and e.params["out"] == rhs[1:]
    return rows and len({v.type.dtype for v in (*e.inputs, *e.outputs)}) == 1


def _origin(program: Program, made_at: dict[Var, int], v: Any) -> Any:
    """Return the value of which `v` is a view: the same elements in the same order."""
    while v in made_at:
        e = program.equations[made_at[v]]
        ones = e.primitive is reduce_sum and e.inputs[0].type.size == v.type.size
        if e.primitive is not reshape and not ones:
            break
        (v,) = e.inputs
    return v


# --- weighted sums over leading axes as vector-matrix products ------------------------------------
#
#     sum over l of x[l, i, j] * c[l]   ->   dot_general["lij,l->ij"] x c
#
# This applies if x is in memory anyway: an input, or the result of an operation that XLA does not
# fuse. XLA:CPU reduces a leading axis of three or more axes, with a product as operand, element by
# element: 10 times slower at [64, 256, 10], 200 times at [64, 256, 256]; other platforms do not. It
# runs after `contract`, which matches the user's product. Products have the full precision of the
# dtype on every platform.
#
# A sum of an outer product, both of whose factors are broadcast, is a contraction as well:
#
#     sum over l of x[l, i] * y[l, j]   ->   dot_general["li,lj->ij"] x y
#
# Sums of rows that are scaled by the same weights elsewhere reuse these (above).

LARGE = 1 << 16  # products; a sum of fewer is fused with its operands
MANY = 8  # products in a sum


@nested_pass
def weighted_sums(program: Program) -> Program:
    """Replace weighted sums over leading axes by contractions.

    Arguments:
      program: any Program; nested ones are rewritten too.

    Returns:
      A Program with the same inputs and outputs; the same object if nothing changed. Sums are taken
      in another order.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> program = ft.make_ir(lambda x, c: (x * c[:, None]).sum(0))(jnp.ones((3, 2)), jnp.ones(3))
      >>> print(ft.passes.optimize(program, ("simplify", "weighted_sums")))
      program (a: f32[3,2], b: f32[3]) {
        c: f32[2] = dot_general["ij,i->j", precision=("HIGHEST", "HIGHEST")] a b
        return c
      }
    """
    if _may_hold(program):
        program = Rewriter(program, {reduce_sum: _sum}, "weighted_sums").run()
    return scaled_sums(program)


def _may_hold(program: Program) -> bool:
    """Return whether a product with a broadcast value is summed."""
    found: set[Any] = set()  # broadcast values, and products with these
    for e in program.equations:
        p = e.primitive
        if p is broadcast_in_dim or (p is mul and not found.isdisjoint(e.inputs)):
            found.update(e.outputs)
        elif p is reduce_sum and e.inputs[0] in found and (_is_leading(e) or _is_large(e)):
            return True
    return False


def _is_leading(e: Equation) -> bool:
    """Return whether an equation sums floats over some, but not all, leading axes."""
    t, axes = e.inputs[0].type, e.params["axes"]
    leading = 0 < len(axes) < t.ndim and axes == tuple(range(len(axes)))
    return leading and dtype_class(t.dtype) == "float" and t.dtype.itemsize >= 4


def _is_large(e: Equation) -> bool:
    """Return whether there are many products, and many in each sum."""
    t = e.inputs[0].type
    if dtype_class(t.dtype) != "float" or t.dtype.itemsize < 4 or t.size < LARGE:
        return False
    return t.size >= MANY * e.outputs[0].type.size


def _sum(w: Rewriter, e: Equation) -> Any:
    found = _sum_of_outer(w, e) if _is_large(e) else None
    return _weighted(w, e) if found is None else found


def _sum_of_outer(w: Rewriter, e: Equation) -> Any:
    """Rewrite the sum of a product of two broadcast values, over axes that both have."""
    (v,), axes = e.inputs, e.params["axes"]
    product = w.made(v, mul)
    if product is None or not w.read_once(v):
        return None
    operands, names = [], []
    for repeated in product.inputs:
        by = w.made(repeated, broadcast_in_dim)
        if by is None or by.inputs[0].__class__ is Literal:
            return None
        x, dims = by.inputs[0], by.params["dimensions"]
        if x.type.size == v.type.size or not set(axes) <= set(dims):
            return None
        if x.type.shape != tuple([v.type.shape[d] for d in dims]):
            return None
        operands.append(x)
        names.append(dims)
    if set(names[0]) | set(names[1]) != set(range(v.type.ndim)):
        return None
    kept = kept_axes(v.type.ndim, axes)
    return w.make(dot_general, *operands, lhs=names[0], rhs=names[1], out=kept, precision=HIGHEST)


def _weighted(w: Rewriter, e: Equation) -> Any:
    (v,), axes = e.inputs, e.params["axes"]
    product = w.made(v, mul) if machine().by_columns and _is_leading(e) else None
    if product is None or not w.read_once(v):
        return None
    for x, repeated in (product.inputs, product.inputs[::-1]):
        by = w.made(repeated, broadcast_in_dim)
        if by is None or by.params["dimensions"] != axes or by.inputs[0].__class__ is Literal:
            continue
        if by.inputs[0].type.shape == v.type.shape[: len(axes)] and _stands_in_memory(w, x):
            names = tuple(range(v.type.ndim))
            kept = names[len(axes) :]
            return w.make(dot_general, x, by.inputs[0], lhs=names, rhs=axes, out=kept, precision=HIGHEST)
    return None


def _stands_in_memory(w: Rewriter, x: Any) -> bool:
    if x.__class__ is Literal:
        return False
    by = w.made_by.get(x)
    return by is None or by.primitive in (dot_general, conv_general_dilated)
