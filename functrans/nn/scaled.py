"""Products of matrices of narrow floats with a scale for each block of elements of a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans.lax.contraction import dot_general
from functrans.lax.scaled import over_blocks
from functrans.numpy.promotion import array_of, cast, invalid
from functrans.primitives.elementwise import mul
from functrans.trace import typeof

__all__ = ["scaled_matmul"]

FLOAT32 = np.dtype(np.float32)
ROWS = (((2,), (2,)), ((0,), (0,)))  # [B, M, K], [B, N, K] -> [B, M, N]


def scaled_matmul(
    lhs: Any, rhs: Any, lhs_scales: Any, rhs_scales: Any, preferred_element_type: Any = np.float32
) -> Any:
    """Multiply stacks of matrices, rows by rows, each row times the scales of its blocks.

    The factors are float32, in which scaled narrow floats (8 bits or 4) are exact. It runs on every
    platform and has derivatives; JAX's runs on few GPUs, by a kernel of cuDNN.

    Arguments:
      lhs: [B, M, K].
      rhs: [B, N, K].
      lhs_scales: [B, M, L], one factor for each K / L elements of a row.
      rhs_scales: [B, N, L].
      preferred_element_type: of the result.

    Returns:
      [B, M, N]: sums over K.

    Raises:
      InvalidArgument: shapes that do not fit.

    Source: `jax.nn.scaled_matmul`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> a, scale = jnp.arange(1.0, 5.0).reshape(1, 1, 4), jnp.array([[[1.0, 0.5]]])
      >>> print(ft.nn.scaled_matmul(a, a, scale, scale))
      [[[11.25]]]
    """
    name = "scaled_matmul"
    x, y, s, u = (array_of(z, name, i) for i, z in enumerate((lhs, rhs, lhs_scales, rhs_scales)))
    a, b, c, d = (typeof(z).shape for z in (x, y, s, u))
    if not len(a) == len(b) == len(c) == len(d) == 3:
        raise invalid(name, f"takes arrays of three axes, got {a}, {b}, {c} and {d}")
    if (a[0], a[2]) != (b[0], b[2]):
        raise invalid(name, f"lhs {a} and rhs {b} must agree in batch and in contracted axis")
    if (c[0], c[2]) != (d[0], d[2]) or (c[:2], d[:2]) != (a[:2], b[:2]):
        raise invalid(name, f"scales {c} and {d} do not belong to operands {a} and {b}")
    if not c[2] or a[2] % c[2]:
        raise invalid(name, f"{a[2]} elements of a row cannot be cut into {c[2]} blocks")
    rows, columns = (
        mul(cast(z, FLOAT32), over_blocks(cast(w, FLOAT32), typeof(z).shape))
        for z, w in ((x, s), (y, u))
    )
    out = dot_general(rows, columns, ROWS, preferred_element_type=FLOAT32)
    return cast(out, np.dtype(preferred_element_type))
