"""Scaled dot-product attention.

In: queries [batch, T, heads, H]; keys, values [batch, S, kv_heads, H]. Out: [batch, T, heads, H].
Each of the kv_heads serves heads / kv_heads heads that follow one another.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.ir.source import describe, user_source
from functrans.ir.types import dtype_class
from functrans.nn.normalizing import logsumexp, softmax
from functrans.numpy.einsums import einsum
from functrans.numpy.promotion import array_of, cast, invalid, mismatch
from functrans.numpy.selecting import where
from functrans.numpy.shaping import expand_dims, reshape, squeeze
from functrans.numpy.ufuncs import add, less, multiply
from functrans.trace import typeof

__all__ = ["dot_product_attention"]


def dot_product_attention(
    query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, *,
    scale: float | None = None, is_causal: bool = False, query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None, local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None, return_residual: bool = False,
) -> Any:  # fmt: skip
    """softmax(query keyᵀ scale + bias) value, of each head of each example.

    Arguments:
      query: [batch, T, heads, H], or without the batch.
      key, value: [batch, S, kv_heads, H]; kv_heads divides heads.
      bias: what to add to the logits; broadcasts to [batch, heads, T, S].
      mask: truth values, which keys a query may see; broadcasts likewise.
      scale: of the logits; by default 1 / sqrt(H).
      is_causal: a query sees no key after its own place.
      query_seq_lengths, key_value_seq_lengths: [batch] integers: what lies beyond is padding.
      local_window_size: a query sees the keys so far before and after its place; one number for
        both, or a pair.
      implementation: None or "xla". "cudnn" is refused: XLA chooses its kernels by itself.
      return_residual: also the logarithm of the sum of the exponentials, [batch, T, heads].

    Returns:
      An array of query's shape and dtype; with `return_residual` a pair.

    Raises:
      InvalidArgument: shapes that do not fit.

    Source: `jax.nn.dot_product_attention`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> x = jnp.ones((1, 3, 2, 4))
      >>> ft.nn.dot_product_attention(x, x, x, is_causal=True).shape
      (1, 3, 2, 4)
    """
    name = "dot_product_attention"
    if implementation not in (None, "xla"):
        raise errors.NotSupported(
            f"{name}: implementation={implementation!r} is not supported, at\n"
            f"    {describe(user_source())}\nPass None or 'xla'."
        )
    q, k, v = (array_of(x, name, i) for i, x in enumerate((query, key, value)))
    given = typeof(q)
    q, k, v = (expand_dims(x, 0) if typeof(x).ndim == 3 else x for x in (q, k, v))
    batch, t, heads, s, groups = _sizes(name, q, k, v)
    logits = einsum(
        "btkgh,bskh->bkgts", reshape(q, (batch, t, heads // groups, groups, -1)), k,
        preferred_element_type=np.float32 if _narrow(given) else None,
    )  # fmt: skip
    wide = typeof(logits).dtype
    factor = 1 / math.sqrt(typeof(q).shape[-1]) if scale is None else scale
    logits = multiply(logits, cast(array_of(factor, name), wide))
    full = (batch, heads, t, s)
    if bias is not None:
        logits = add(logits, cast(_over_groups(name, bias, full, groups), wide))
    seen = _seen(name, mask, full, groups, is_causal, local_window_size, query_seq_lengths,
                 key_value_seq_lengths)  # fmt: skip
    for one in seen:
        logits = where(one, logits, -0.7 * float(jax.numpy.finfo(wide).max))
    logits = cast(logits, np.promote_types(wide, np.float32))
    weights = cast(softmax(logits, axis=-1), typeof(k).dtype)
    out = reshape(einsum("bkgts,bskh->btkgh", weights, v), (batch, t, heads, -1))
    if query_seq_lengths is not None:
        inside = less(np.arange(t), expand_dims(array_of(query_seq_lengths, name), 1))
        out = where(reshape(inside, (-1, t, 1, 1)), out, 0)
    out = reshape(out, (*given.shape[:-1], typeof(v).shape[-1]))
    if not return_residual:
        return out
    total = reshape(logsumexp(logits, axis=-1), (batch, heads, t))
    total = cast(_heads_last(total), typeof(k).dtype)
    return out, squeeze(total, 0) if given.ndim == 3 else total


def _narrow(t: Any) -> bool:
    return dtype_class(t.dtype) == "float" and t.dtype.itemsize < 4


def _heads_last(x: Any) -> Any:
    return einsum("bnt->btn", x)


def _sizes(name: str, q: Any, k: Any, v: Any) -> tuple[int, int, int, int, int]:
    tq, tk, tv = typeof(q), typeof(k), typeof(v)
    if not tq.dtype == tk.dtype == tv.dtype or dtype_class(tq.dtype) != "float":
        raise mismatch(name, f"takes floats of one dtype, got {tq}, {tk} and {tv}")
    if tq.ndim != 4 or tk.ndim != 4 or tk.shape[:3] != tv.shape[:3]:
        raise invalid(
            name, f"takes query [batch, T, heads, H], key and value [batch, S, kv_heads, H], got "
            f"{tq}, {tk} and {tv}",
        )  # fmt: skip
    batch, t, heads, h = tq.shape
    if tk.shape[0] != batch or tk.shape[3] != h:
        raise invalid(name, f"query {tq} and key {tk} must agree in batch and size of a head")
    if not tk.shape[2] or heads % tk.shape[2]:
        raise invalid(name, f"{heads} heads are no multiple of {tk.shape[2]} key-value heads")
    return batch, t, heads, tk.shape[1], heads // tk.shape[2]


def _over_groups(name: str, x: Any, full: tuple[int, ...], groups: int) -> Any:
    """What broadcasts to [batch, heads, T, S], as what broadcasts to [batch, K, G, T, S]."""
    x = array_of(x, name)
    shape = (1,) * (4 - typeof(x).ndim) + typeof(x).shape
    if len(shape) != 4 or any(n not in (1, m) for n, m in zip(shape, full, strict=True)):
        raise invalid(name, f"bias and mask must broadcast to {full}, got {typeof(x)}")
    each = (1, 1) if shape[1] == 1 else (full[1] // groups, groups)
    return reshape(x, (shape[0], *each, *shape[2:]))


def _seen(
    name: str, mask: Any, full: tuple[int, ...], groups: int, is_causal: bool, window: Any,
    query_lengths: Any, key_lengths: Any,
) -> list[Any]:  # fmt: skip
    """The truth values, broadcasting to [batch, K, G, T, S], that say which keys a query sees."""
    _, _, t, s = full
    rows, columns = np.arange(t)[:, None], np.arange(s)[None, :]
    seen: list[Any] = []
    if mask is not None:
        if typeof(array_of(mask, name)).dtype != np.dtype(bool):
            raise mismatch(name, f"mask must be booleans, got {typeof(array_of(mask, name))}")
        seen.append(_over_groups(name, mask, full, groups))
    if is_causal:
        seen.append(array_of(columns <= rows, name))
    if window is not None:
        left, right = (window, window) if isinstance(window, int) else window
        seen.append(array_of((columns >= rows - left) & (columns <= rows + right), name))
    for lengths, places in ((query_lengths, rows), (key_lengths, columns)):
        if lengths is not None:
            ends = array_of(lengths, name)
            if dtype_class(typeof(ends).dtype) not in ("int", "uint"):
                raise invalid(name, f"lengths are integers, got {typeof(ends)}")
            if typeof(ends).ndim != 1:
                raise invalid(name, f"lengths are a vector over the batch, got {typeof(ends)}")
            seen.append(less(places, reshape(ends, (-1, 1, 1, 1, 1))))
    return seen
