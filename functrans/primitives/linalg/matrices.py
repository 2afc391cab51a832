"""What linear algebra on stacks of matrices shares: base classes, then products, parts and
permutations of matrices.

    [*batch, m, n], [*batch, n], ...  ->  the same of results

The last axes of an operand are those of a matrix or a vector; the others are batch axes, equal for
all operands. So the batch rule moves the new axis to the front. The operations are lowered as in
JAX, to LAPACK on a CPU and to the libraries of other platforms. The reference is SciPy's LAPACK,
one matrix at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.ir.source import here
from functrans.ir.types import ArrayType, dtype_class, is_inexact
from functrans.loading import Later
from functrans.primitives.base import Cost, Primitive, bytes_of
from functrans.primitives.contractions.dot_general import HIGHEST, dot_general
from functrans.primitives.elementwise import complex_numbers as complex_numbers
from functrans.primitives.elementwise.conversion import cast
from functrans.primitives.elementwise.families import add, eq, full_like, ge, gt, le, lt, mul, sub
from functrans.primitives.elementwise.selection import select_n
from functrans.primitives.indexing.gather import PROMISE, gather
from functrans.primitives.reductions.folds import reduce_sum
from functrans.primitives.shape.joining import iota
from functrans.primitives.shape.moving import broadcast_to_axis, reshape, transpose
from functrans.trace import typeof

DTYPES = ("float32", "float64", "complex64", "complex128")
INT32 = np.dtype(np.int32)


class MatrixOperation(Primitive):
    """Base class: an operation on the last axes of its operands; `ranks` gives their numbers."""

    axis_params: tuple[str, ...] = ()
    ranks: tuple[int, ...] = (2,)
    dtypes: Sequence[str] = DTYPES
    work: int = 2  # multiplied with rows, columns and the smaller of both: the operations of a matrix

    # --- defined by subclasses instead of `type`, `reference` and `lower`

    def shapes(self, *types: ArrayType, **params: Any) -> Any:
        """The type of the result, or of the results, for one example."""
        raise self.missing("abstract_eval")

    def one(self, *arrays: Any, **params: Any) -> Any:
        """Return the result, or the results, on NumPy arrays for one non-empty example."""
        raise self.missing("reference")

    def by_jax(self, *operands: Any, **params: Any) -> Any:
        """Apply JAX's operation, by default that of the same name, to stacks."""
        return getattr(jax.lax.linalg, self.name)(*operands, **params)

    # --- derived

    def abstract_eval(self, *types: ArrayType, **params: Any) -> Any:
        batch = self._batch_shape(types)
        single = [ArrayType(t.shape[t.ndim - r :], t.dtype) for t, r in zip(types, self.ranks, strict=True)]
        weak = all(t.weak_type for t in types)
        made = self.shapes(*single, **params)
        whole = [
            t.update(shape=(*batch, *t.shape), weak_type=weak)
            for t in (made if self.multiple_results else (made,))
        ]
        return whole if self.multiple_results else whole[0]

    def _batch_shape(self, types: Sequence[ArrayType]) -> tuple[int, ...]:
        first = types[0].dtype
        for i, (t, rank) in enumerate(zip(types, self.ranks, strict=True)):
            if t.ndim < rank:
                what = "matrices" if rank == 2 else "vectors"
                raise self.mismatch(types, f"takes {what}, with {rank} or more axes, not {t}")
            if first.name not in self.dtypes:
                problem = f"takes {', '.join(self.dtypes)}, not {first}"
                error = errors.UnsupportedDtype if is_inexact(first) else errors.TypeMismatch
                raise self.mismatch(types, problem, "Cast with x.astype(jnp.float32).", error)
            if t.dtype != first:
                raise self.mismatch(types, f"operand {i} must have dtype {first} to match operand 0")
        batches = [t.shape[: t.ndim - r] for t, r in zip(types, self.ranks, strict=True)]
        if any(b != batches[0] for b in batches):
            raise self.misfit(types, "the batch axes of the operands must be equal")
        return batches[0]

    def reference(self, *arrays: Any, **params: Any) -> Any:
        types = [ArrayType(x.shape, x.dtype) for x in arrays]
        made = self.result_types(types, params)
        outs = [self.of_nothing(i, t) for i, t in enumerate(made)]
        batch = self._batch_shape(types)
        if all(prod(t.shape[len(batch) :]) for t in types):
            for place in np.ndindex(batch):
                found = self.one(*[x[place] for x in arrays], **params)
                for y, z in zip(outs, found if self.multiple_results else [found], strict=True):
                    y[place] = z
        return outs if self.multiple_results else outs[0]

    def of_nothing(self, i: int, t: ArrayType) -> np.ndarray:
        """Return result i for an empty matrix: factors are identity matrices and permutations."""
        if dtype_class(t.dtype) == "int":
            return np.broadcast_to(np.arange(t.shape[-1], dtype=t.dtype), t.shape).copy()
        if t.ndim < 2:
            return np.zeros(t.shape, t.dtype)
        return np.broadcast_to(np.eye(*t.shape[-2:], dtype=t.dtype), t.shape).copy()

    def numpy_source(self, w: Any, *xs: Any, **params: Any) -> Any:
        """Call a copy of `one` for each matrix."""
        batch = xs[0].shape[: xs[0].ndim - self.ranks[0]]
        if not all(prod(x.shape[len(batch) :]) for x in xs):
            return [w.file.constant(t, self.of_nothing(i, t)) for i, t in enumerate(w.out_types)]
        if not batch:
            found = w.copied(self.one, xs, params)
            return [f"{found}[0]"] if self.multiple_results and len(w.outs) == 1 else found
        for name, t in zip(w.outs, w.out_types, strict=True):
            w.line(f"{name} = np.empty({t.shape}, {w.dtype(t.dtype)})")
        i = w.letter()
        with w.block(f"for {i} in np.ndindex({batch}):"):
            found = w.copied(self.one, [f"{x.full}[{i}]" for x in xs], params)
            into = ", ".join([f"{name}[{i}]" for name in w.outs])
            w.line(f"{into}{',' * (self.multiple_results and len(w.outs) == 1)} = {found}")

    def lower(self, ctx: Any, *operands: Any, **params: Any) -> Any:
        outs = ctx.via_jax(functools.partial(self.by_jax, **params), *operands)
        return outs if self.multiple_results else outs[0]

    def cost(self, in_types: Any, out_types: Any, **params: Any) -> Cost:
        """Estimate a cubic algorithm, up to a constant factor."""
        t, rank = in_types[0], self.ranks[0]
        sizes = t.shape[t.ndim - rank :]
        flops = prod(t.shape) * (min(sizes, default=1) if rank == 2 else 1)
        return Cost(self.work * flops, bytes_of(*in_types, *out_types))

    # --- helpers

    def misfit(self, types: Sequence[ArrayType], problem: str) -> Exception:
        """Return the error for invalid shapes."""
        return self.mismatch(types, problem, "", errors.ShapeMismatch)

    def check_square(self, t: ArrayType) -> None:
        if t.shape[0] != t.shape[1]:
            raise self.misfit((t,), f"takes square matrices, got {t.shape[0]} by {t.shape[1]}")

    def no_derivative(self, of: str, fix: str) -> Exception:
        """Return the error for a derivative that is undefined or not implemented."""
        return errors.MissingRule(f"{self.name} has no derivative of {of}, {here()}\n{fix}")


linalg: Any = Later("scipy.linalg")


def lapack(name: str, x: Any) -> Any:
    """Return the LAPACK routine for the dtype of x."""
    return linalg.get_lapack_funcs((name,), (x,))[0]


# --- products, parts and permutations -------------------------------------------------------------
#
# In: values `[*batch, i, j]` with equal batch axes. Out: others. Products have the highest precision
# of the platform: a derivative should be as accurate as the factors.


def is_complex(x: Any) -> bool:
    """Return whether a value is complex."""
    return dtype_class(typeof(x).dtype) == "complex"


def einsum(axes: str, x: Any, y: Any) -> Any:
    """Multiply each pair of matrices in the stacks by an einsum such as `ij,jk->ik`."""
    left, _, out = axes.partition("->")
    lhs, _, rhs = left.partition(",")
    n = typeof(x).ndim - len(lhs)
    stack = tuple(range(n))

    def names(letters: str) -> tuple[int, ...]:
        return (*stack, *[n + ord(letter) - ord("a") for letter in letters])

    return dot_general(x, y, lhs=names(lhs), rhs=names(rhs), out=names(out), precision=HIGHEST)


def matmul(x: Any, y: Any) -> Any:
    """Return the matrix product."""
    return einsum("ij,jk->ik", x, y)


def transposed(x: Any) -> Any:
    """Return the transpose."""
    n = typeof(x).ndim
    return transpose(x, permutation=(*range(n - 2), n - 1, n - 2))


def conj(x: Any) -> Any:
    """Return the complex conjugate; a real value unchanged."""
    return complex_numbers.conj(x) if is_complex(x) else x


def real(x: Any) -> Any:
    """Return the real part; a real value unchanged."""
    return complex_numbers.real(x) if is_complex(x) else x


def adjoint(x: Any) -> Any:
    """Return the conjugate transpose, x^H."""
    return conj(transposed(x))


def plus_adjoint(x: Any) -> Any:
    """Return x + x^H."""
    return add(x, adjoint(x))


def minus_adjoint(x: Any) -> Any:
    """Return x - x^H."""
    return sub(x, adjoint(x))


# --- parts ----------------------------------------------------------------------------------------


def where_indices(compare: Callable[[Any, Any], Any], x: Any) -> Any:
    """Return compare(row, column) for each element of x."""
    t = typeof(x)
    rows, columns = [
        iota(dtype=np.dtype(np.int32), shape=t.shape, dimension=t.ndim + axis) for axis in (-2, -1)
    ]
    return compare(rows, columns)


def kept_where(compare: Callable[[Any, Any], Any], x: Any) -> Any:
    """Return x where compare(row, column), else 0."""
    return select_n(where_indices(compare, x), full_like(x, 0), x)


def lower_part(x: Any, strict: bool = False) -> Any:
    """Return x with zeros above its diagonal; with `strict` on it too."""
    return kept_where(gt if strict else ge, x)


def upper_part(x: Any, strict: bool = False) -> Any:
    """Return x with zeros below its diagonal; with `strict` on it too."""
    return kept_where(lt if strict else le, x)


def identity_like(x: Any) -> Any:
    """Return identity matrices of the shape of x."""
    return select_n(where_indices(eq, x), full_like(x, 0), full_like(x, 1))


def diagonal(x: Any) -> Any:
    """Return the diagonal, [..., n] of [..., n, n]."""
    return reduce_sum(kept_where(eq, x), axes=(typeof(x).ndim - 2,))


# --- rows and columns -----------------------------------------------------------------------------


def per_column(v: Any, x: Any) -> Any:
    """Broadcast a vector with one number per column of x to the shape and dtype of x."""
    t = typeof(x)
    return cast(broadcast_to_axis(v, t.ndim - 2, t.shape[-2]), t.dtype)


def per_row(v: Any, x: Any) -> Any:
    """Broadcast a vector with one number per row of x to the shape and dtype of x."""
    t = typeof(x)
    return cast(broadcast_to_axis(v, t.ndim - 1, t.shape[-1]), t.dtype)


def scaled_columns(x: Any, v: Any) -> Any:
    """Return x diag(v)."""
    return mul(x, per_column(v, x))


def permuted(x: Any, order: Any, axis: int) -> Any:
    """Return x[..., order, :] if `axis` is -2, x[..., order] if it is -1; one order per matrix."""
    t = typeof(x)
    n = t.ndim
    stack, new = tuple(range(n - 2)), n
    sizes = [1] * n
    sizes[-2 if axis == -1 else -1] = t.shape[-2 if axis == -1 else -1]
    return gather(
        x,
        reshape(order, shape=(*typeof(order).shape, 1)),
        operand=tuple(range(n)),
        indices=(*stack, new),
        slices=(*stack, n - 2, new) if axis == -1 else (*stack, new, n - 1),
        indexed=(n + axis,),
        sizes=tuple(sizes),
        mode=PROMISE,
        unique_indices=True,
    )
