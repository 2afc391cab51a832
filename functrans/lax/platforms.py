"""`jax.lax` names over primitives/platforms.py."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.lax import RandomAlgorithm as RandomAlgorithm

from functrans.ir.types import canonical_dtype, dtype_class
from functrans.lax.arguments import (
    as_array,
    axis_index,
    check_sizes,
    integer,
    invalid,
    mismatch,
    sizes_of,
)
from functrans.lax.control_flow import switch
from functrans.lax.elementwise import operands
from functrans.primitives import platforms as _platforms
from functrans.trace import AnyTracer, typeof

__all__ = [
    "RandomAlgorithm", "approx_max_k", "approx_min_k", "platform_dependent", "rng_bit_generator",
    "rng_uniform",
]  # fmt: skip


def platform_dependent(
    *args: Any, default: Callable[..., Any] | None = None, **per_platform: Callable[..., Any]
) -> Any:
    """Call the function that is for the platform on which the program runs.

    Arguments:
        args: what the functions are called with.
        default: for platforms that are not named.
        per_platform: functions by name of a platform: cpu, cuda, rocm, tpu.

    Returns:
        What the function returns; all must return the same structure and types.

    Raises:
        InvalidArgument: a function is named "gpu".
        TypeMismatch: no function is for this platform.

    Source: jax.lax.platform_dependent

    Example:
        >>> from functrans import lax
        >>> print(lax.platform_dependent(2.0, cpu=lax.neg, default=lax.neg))
        -2.0
    """
    groups: dict[Callable[..., Any], list[str]] = {}
    for name, branch in per_platform.items():
        if not callable(branch):
            raise mismatch("platform_dependent", f"the branch {name!r} must be callable")
        if name == "gpu":
            raise invalid("platform_dependent", "name 'cuda' or 'rocm' rather than 'gpu'")
        groups.setdefault(branch, []).append(name)
    branches = list(groups)
    platforms: list[tuple[str, ...] | None] = [tuple(names) for names in groups.values()]
    if default is not None:
        if not callable(default):
            raise mismatch("platform_dependent", "the branch 'default' must be callable")
        branches.append(default)
        platforms.append(None)
    if not branches:
        raise invalid("platform_dependent", "needs a function for some platform")
    index = _platforms.platform_index(platforms=tuple(platforms))
    if isinstance(index, AnyTracer):
        return switch(index, branches, *args)
    return branches[int(index)](*args)


# --- generators of the platform -------------------------------------------------------------------


def rng_bit_generator(
    key: Any,
    shape: Sequence[int],
    dtype: Any = np.uint32,
    algorithm: Any = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: Any = None,
) -> tuple[Any, Any]:
    """Draw bits by one of XLA's own generators. The bits differ between platforms and versions.

    Source: `jax.lax.rng_bit_generator`.

    >>> import numpy as np
    >>> key, bits = rng_bit_generator(np.arange(4, dtype=np.uint32), (3,))
    >>> print(key.shape, bits.shape)
    (4,) (3,)
    """
    dtype = canonical_dtype(np.dtype(dtype))
    if dtype_class(dtype) != "uint":
        raise mismatch("rng_bit_generator", f"unsupported dtype {dtype}, give an unsigned one")
    found = _platforms.rng_bit_generator(
        as_array(key),
        shape=check_sizes(sizes_of(shape), "rng_bit_generator"),
        dtype=dtype,
        algorithm=int(RandomAlgorithm(algorithm)),
    )
    return found[0], found[1]


_CALLS = itertools.count()


def rng_uniform(a: Any, b: Any, shape: Sequence[int]) -> Any:
    """Draw numbers in [a, b) from the state that the platform keeps, which nobody can set.

    Source: `jax.lax.rng_uniform`.

    >>> rng_uniform(0.0, 1.0, (3,)).shape
    (3,)
    """
    a, b = operands(a, b)
    return _platforms.rng_uniform(
        a, b, shape=check_sizes(sizes_of(shape), "rng_uniform"), call=next(_CALLS)
    )


# --- approximate search ---------------------------------------------------------------------------


def approx_max_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Any]:
    """Find the k largest elements along an axis, and where they stand; on TPU nearly all of them.

    Arguments:
        operand: an array of floats.
        k: how many.
        reduction_dimension: the axis.
        recall_target: the share of them that must be found.
        reduction_input_size_override: the size of the axis that `recall_target` refers to, where
            the operand is a part of something larger; -1: its own.
        aggregate_to_topk: False: hand back the candidates, more than k and not in order.

    Returns:
        (values, positions).

    Source: jax.lax.approx_max_k

    Example:
        >>> import numpy as np
        >>> print(approx_max_k(np.array([1.0, 5.0, 3.0]), 2)[0])
        [5. 3.]
    """
    return _approximate(
        True, operand, k, reduction_dimension, recall_target, reduction_input_size_override,
        aggregate_to_topk,
    )  # fmt: skip


def approx_min_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Any]:
    """Find the k smallest elements along an axis: see `approx_max_k`.

    Source: `jax.lax.approx_min_k`.

    >>> import numpy as np
    >>> print(approx_min_k(np.array([1.0, 5.0, 3.0]), 2)[1])
    [0 2]
    """
    return _approximate(
        False, operand, k, reduction_dimension, recall_target, reduction_input_size_override,
        aggregate_to_topk,
    )  # fmt: skip


def _approximate(
    is_max_k: bool, x: Any, k: int, axis: int, recall: float, override: int, whole: bool
) -> list[Any]:
    name = "approx_max_k" if is_max_k else "approx_min_k"
    x = as_array(x)
    t = typeof(x)
    if not t.ndim:
        raise mismatch(name, "takes an array with an axis, got a scalar")
    axis = axis_index(axis, t.ndim, name)
    if dtype_class(t.dtype) != "float":
        raise invalid(name, f"takes floats, not {t.dtype}")
    k, override = integer(k, name, "k"), integer(override, name, "reduction_input_size_override")
    if not 0 < k <= t.shape[axis]:
        raise invalid(name, f"k must lie in 1..{t.shape[axis]}, the size of axis {axis}, got {k}")
    if not 0 < recall <= 1:
        raise invalid(name, f"recall_target is a share, in (0, 1], got {recall}")
    return _platforms.approx_top_k(
        x, k=k, reduction_dimension=axis, recall_target=float(recall), is_max_k=is_max_k,
        reduction_input_size_override=override, aggregate_to_topk=bool(whole),
    )  # fmt: skip
