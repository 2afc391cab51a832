"""Products of matrices with groups of rows of unlike sizes, each with a matrix of its own.

A ragged axis of lhs is cut into groups, the first `group_sizes[0]` elements, the next
`group_sizes[1]`, ... What is not in a group is zero. Written as one dense product over one more
axis, that of the groups, along which lhs is masked; XLA sees the mask and the product together.
"""

from __future__ import annotations

from typing import Any

from jax.lax import RaggedDotDimensionNumbers as RaggedDotDimensionNumbers

from functrans.ir.types import dtype_class
from functrans.lax.arguments import as_array, invalid, mismatch
from functrans.lax.contraction import dot_general
from functrans.lax.elementwise import select
from functrans.primitives.bitwise import and_
from functrans.primitives.conversion import strong
from functrans.primitives.cumulative import cumsum
from functrans.primitives.elementwise import ge, lt, sub
from functrans.primitives.joining import iota
from functrans.primitives.shape import broadcast_in_dim
from functrans.primitives.shape import transpose as _permute
from functrans.trace import literal, typeof

__all__ = ["RaggedDotDimensionNumbers", "ragged_dot", "ragged_dot_general"]

_BASIC = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))


def ragged_dot(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Multiply groups of rows each by a matrix of its own.

    Arguments:
        lhs: [m, k], the rows of the first group, then those of the second, ...
        rhs: [g, k, n], a matrix for each group.
        group_sizes: [g] integers, how many rows each group has.
        precision, preferred_element_type: as of `dot_general`.
        group_offset, out_sharding: must be None.

    Returns:
        [m, n]; rows behind the last group are zero.

    Source: jax.lax.ragged_dot

    Example:
        >>> import numpy as np
        >>> x, w = np.ones((4, 2)), np.array([1.0, 2.0])[:, None, None] * np.ones((2, 2, 1))
        >>> print(ragged_dot(x, w, np.array([3, 1]))[:, 0])
        [2. 2. 2. 4.]
    """
    return ragged_dot_general(
        lhs, rhs, group_sizes, _BASIC, precision, preferred_element_type, group_offset, out_sharding
    )


def ragged_dot_general(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    ragged_dot_dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> Any:
    """`dot_general` with one ragged axis of lhs.

    Arguments:
        lhs, rhs: arrays.
        group_sizes: [..., g] integers; the leading axes are those of lhs before the ragged one that
            are not summed (batch axes, then others), or there are none.
        ragged_dot_dimension_numbers: a `RaggedDotDimensionNumbers`. The ragged axis is kept, and
            rhs has an axis of groups; or it is summed, and the result gets one in front; or it is a
            batch axis, and nothing changes.
        precision, preferred_element_type: as of `dot_general`.
        group_offset, out_sharding: must be None.

    Source: jax.lax.ragged_dot_general

    Example:
        >>> import numpy as np
        >>> summed = RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ())
        >>> x = np.ones((4, 2))
        >>> print(ragged_dot_general(x, x, np.array([3, 1]), summed)[:, 0, 0])
        [3. 1.]
    """
    name = "ragged_dot_general"
    if group_offset is not None or out_sharding is not None:
        raise invalid(name, "group_offset and out_sharding must be None")
    lhs, rhs, sizes = as_array(lhs), as_array(rhs), as_array(group_sizes)
    numbers = ragged_dot_dimension_numbers
    (summed, rhs_summed), (batch, rhs_batch) = numbers.dot_dimension_numbers
    if len(numbers.lhs_ragged_dimensions) != 1:
        raise mismatch(name, "expects exactly one ragged dimension of lhs")
    (ragged,) = numbers.lhs_ragged_dimensions
    _check(name, typeof(lhs), typeof(rhs), typeof(sizes), numbers)

    def product(x: Any, y: Any, dims: Any) -> Any:
        return strong(dot_general(x, y, dims, precision, preferred_element_type))

    if ragged in batch:
        return product(lhs, rhs, (((*summed,), (*rhs_summed,)), (batch, rhs_batch)))
    if ragged in summed:
        partner = rhs_summed[list(summed).index(ragged)]
        x = _by_group(lhs, ragged, _before(lhs, ragged, batch, ()), sizes)
        y = _by_group(rhs, partner, [rhs_batch[list(batch).index(b)] for b in
                                     _before(lhs, ragged, batch, ())], sizes)  # fmt: skip
        dims = (_next(summed), _next(rhs_summed)), ((0, *_next(batch)), (0, *_next(rhs_batch)))
        return product(x, y, dims)
    x = _by_group(lhs, ragged, _before(lhs, ragged, batch, summed), sizes)
    (group,) = numbers.rhs_group_dimensions
    dims = ((*_next(summed), 0), (*rhs_summed, group)), (_next(batch), rhs_batch)
    return product(x, rhs, dims)


def _next(axes: Any) -> tuple[int, ...]:
    return tuple([a + 1 for a in axes])


def _before(lhs: Any, ragged: int, batch: Any, summed: Any) -> list[int]:
    """The axes of lhs that group sizes may have in front: batch axes, and kept ones before the
    ragged one (if that is kept itself)."""
    if not summed:
        return list(batch)
    others = [i for i in range(ragged) if i not in batch and i not in summed]
    return [*batch, *others]


def _by_group(x: Any, axis: int, before: list[int], sizes: Any) -> Any:
    """[g, *shape of x], in row i of which only the elements of group i along the axis are."""
    shape, s = typeof(x).shape, typeof(sizes)
    groups = s.shape[-1]
    full = (groups, *shape)
    ends = cumsum(sizes, axis=s.ndim - 1, reverse=False)
    starts = sub(ends, sizes)
    at = iota(dtype=s.dtype, shape=full, dimension=axis + 1)

    def spread(v: Any) -> Any:
        """Sizes [*before, g] along the axes of the whole."""
        if s.ndim == 1:
            return broadcast_in_dim(v, shape=full, dimensions=(0,))
        places = [*[b + 1 for b in before], 0]
        order = sorted(range(len(places)), key=lambda i: places[i])
        moved = _transpose(v, tuple(order))
        return broadcast_in_dim(moved, shape=full, dimensions=tuple(sorted(places)))

    inside = and_(ge(at, spread(starts)), lt(at, spread(ends)))
    wide = broadcast_in_dim(x, shape=full, dimensions=tuple(range(1, len(full))))
    return select(inside, wide, literal(0, typeof(wide)))


def _transpose(x: Any, order: tuple[int, ...]) -> Any:
    return x if order == tuple(range(len(order))) else _permute(x, permutation=order)


def _check(name: str, x: Any, y: Any, sizes: Any, numbers: Any) -> None:
    (summed, _), (batch, _) = numbers.dot_dimension_numbers
    (ragged,) = numbers.lhs_ragged_dimensions
    if not 0 <= ragged < x.ndim:
        raise mismatch(name, f"the ragged dimension {ragged} must lie in 0..{x.ndim - 1}")
    if dtype_class(sizes.dtype) not in ("int", "uint"):
        raise mismatch(name, f"group_sizes must be integers, got {sizes}")
    if not sizes.ndim:
        raise mismatch(name, "group_sizes must have an axis, got a scalar")
    groups = list(numbers.rhs_group_dimensions)
    kept = ragged not in summed and ragged not in batch
    if len(groups) != int(kept):
        raise mismatch(
            name, "rhs has an axis of groups if the ragged axis of lhs is kept, and only then; "
            f"got rhs_group_dimensions {groups}",
        )  # fmt: skip
    if kept and y.shape[groups[0]] != sizes.shape[-1]:
        raise mismatch(
            name, f"rhs has {y.shape[groups[0]]} groups along axis {groups[0]}, but group_sizes "
            f"{sizes} has {sizes.shape[-1]}",
        )  # fmt: skip
