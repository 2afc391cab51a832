"""Cases of primitives/shape/moving.py and primitives/shape/joining.py."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from tests.matrix.cases.case import BOOL, CLASSES, COMPLEX, FLOATS, INTS, UINTS, Case, normal

ALL = (*BOOL, *INTS, *UINTS, *FLOATS, *COMPLEX)


def keys(*shape: int) -> Callable[..., Any]:
    """Typed PRNG keys, whatever the dtype."""
    return lambda rng, dtype: jax.random.split(jax.random.key(int(rng.integers(1 << 30))), shape or ())


def both_kinds(
    name: str, function: Callable[..., Any], *shape: int, label: str = "", **params: Any
) -> list[Case]:
    """A row for numbers and one for typed keys."""
    numbers = Case(name, (normal(*shape),), function, params, CLASSES, differentiable=(0,), label=label)
    typed = Case(name, (keys(*shape),), function, params, label=f"{label}-keys".lstrip("-"))
    return [numbers, typed]


def several(count: int, *shapes: tuple[int, ...], **params: Any) -> Case:
    return Case(
        "concatenate",
        tuple([normal(*shape) for shape in shapes]),
        lambda *xs: lax.concatenate(xs, params["dimension"]),
        params,
        CLASSES,
        differentiable=tuple(range(len(shapes))),
        label=f"{count}-along-{params['dimension']}",
    )


def padded(label: str, *config: tuple[int, int, int], shape: tuple[int, ...] = (3, 4)) -> Case:
    return Case(
        "pad",
        (normal(*shape), normal()),
        lambda x, v: lax.pad(x, v, config),
        {"config": config},
        CLASSES,
        differentiable=(0, 1),
        label=label,
    )


def counted(dtype: str, *shape: int, dimension: int) -> Case:
    return Case(
        "iota",
        (),
        lambda: lax.broadcasted_iota(dtype, shape, dimension),
        {"dtype": np.dtype(jax.numpy.dtype(dtype)), "shape": shape, "dimension": dimension},
        (dtype,),
        label=f"{dtype}-{'x'.join(map(str, shape))}-{dimension}",
    )


CASES: list[Case] = [
    *both_kinds("transpose", lambda x: lax.transpose(x, (2, 0, 1)), 2, 3, 4, permutation=(2, 0, 1)),
    *both_kinds(
        "broadcast_in_dim",
        lambda x: lax.broadcast_in_dim(x, (2, 5, 3), (0, 2)),
        2,
        3,
        shape=(2, 5, 3),
        dimensions=(0, 2),
    ),
    *both_kinds(
        "broadcast_in_dim",
        lambda x: lax.broadcast_in_dim(x, (3, 2), ()),
        shape=(3, 2),
        dimensions=(),
        label="scalar",
    ),
    *both_kinds(
        "broadcast_in_dim",
        lambda x: lax.broadcast_in_dim(x, (2, 0), (0,)),
        2,
        shape=(2, 0),
        dimensions=(0,),
        label="to-nothing",
    ),
    *both_kinds("reshape", lambda x: lax.reshape(x, (4, 6)), 2, 3, 4, shape=(4, 6)),
    *both_kinds("reshape", lambda x: lax.reshape(x, ()), 1, 1, shape=(), label="to-scalar"),
    *both_kinds("reshape", lambda x: lax.reshape(x, (3, 0)), 0, 2, shape=(3, 0), label="empty"),
    *both_kinds("squeeze", lambda x: lax.squeeze(x, (0, 2)), 1, 3, 1, 2, dimensions=(0, 2)),
    *both_kinds("rev", lambda x: lax.rev(x, (0, 2)), 2, 3, 4, dimensions=(0, 2)),
    *both_kinds(
        "slice",
        lambda x: lax.slice(x, (1, 0, 2), (3, 4, 5), (1, 3, 2)),
        3,
        4,
        6,
        start=(1, 0, 2),
        limit=(3, 4, 5),
        strides=(1, 3, 2),
    ),
    *both_kinds(
        "slice",
        lambda x: lax.slice(x, (1, 2), (3, 2)),
        3,
        4,
        start=(1, 2),
        limit=(3, 2),
        strides=(1, 1),
        label="nothing",
    ),
    several(3, (2, 3), (2, 1), (2, 4), dimension=1),
    several(2, (2, 3), (0, 3), dimension=0),
    several(1, (2, 3), dimension=0),
    Case(
        "concatenate",
        (keys(2, 3), keys(1, 3)),
        lambda *xs: lax.concatenate(xs, 0),
        {"dimension": 0},
        label="keys",
    ),
    *both_kinds("split", lambda x: lax.split(x, (1, 0, 3), 1), 2, 4, 3, sizes=(1, 0, 3), axis=1),
    padded("around", (1, 2, 0), (0, 1, 0)),
    padded("between", (0, 1, 2), (2, 0, 1)),
    padded("removing", (-1, 1, 1), (2, -3, 0)),
    padded("nothing", (2, 1, 1), (0, 0, 0), shape=(0, 2)),
    *[counted(dtype, 3, 4, dimension=1) for dtype in (*INTS, *UINTS, *FLOATS, *COMPLEX)],
    counted("int32", 5, 2, dimension=0),
    counted("float32", 2, 0, dimension=1),
]
