"""functrans.nn.initializers, nn.dot_product_attention and functrans.ops against JAX's."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans.nn import initializers
from tests.support.closeness import assert_close

KEY = jax.random.key(3)
THEIRS = jax.nn.initializers

# --- initializers: bit for bit --------------------------------------------------------------------

MADE = {
    "zeros": lambda m: m.zeros,
    "ones": lambda m: m.ones,
    "constant": lambda m: m.constant(2.5),
    "uniform": lambda m: m.uniform(0.3),
    "normal": lambda m: m.normal(0.3),
    "truncated_normal": lambda m: m.truncated_normal(0.3, lower=-1.0, upper=1.5),
    "fan_out uniform": lambda m: m.variance_scaling(1.7, "fan_out", "uniform", 0, 1),
    "fan_avg normal": lambda m: m.variance_scaling(1.7, "fan_avg", "normal"),
    "fan_geo_avg truncated": lambda m: m.variance_scaling(2, "fan_geo_avg", "truncated_normal"),
    "orthogonal": lambda m: m.orthogonal(1.5),
    "orthogonal columns": lambda m: m.orthogonal(column_axis=0),
    "delta_orthogonal": lambda m: m.delta_orthogonal(2.0),
    **{
        name: functools.partial(lambda name, m: getattr(m, name)(), name)
        for name in (
            "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "kaiming_normal",
            "kaiming_uniform", "lecun_normal", "lecun_uniform", "xavier_normal", "xavier_uniform",
        )
    },
}  # fmt: skip


def same_bits(ours: Any, theirs: Any) -> None:
    assert (ours.dtype, ours.shape, ours.weak_type) == (
        theirs.dtype,
        theirs.shape,
        theirs.weak_type,
    )
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize("name", MADE)
def test_the_numbers_are_those_of_jax(name):
    same_bits(MADE[name](initializers)(KEY, (3, 4, 4)), MADE[name](THEIRS)(KEY, (3, 4, 4)))


@pytest.mark.parametrize("dtype", ["bfloat16", "complex64"])
@pytest.mark.parametrize("name", ["normal", "he_uniform", "lecun_normal", "constant"])
def test_dtypes(name, dtype):
    same_bits(MADE[name](initializers)(KEY, (5, 3), dtype), MADE[name](THEIRS)(KEY, (5, 3), dtype))


def test_axes_of_inputs_outputs_and_batch():
    def draw(m):
        init = m.variance_scaling(1.0, "fan_in", "normal", (0, 1), 2, batch_axis=3)
        return init(KEY, (2, 3, 4, 5))

    same_bits(draw(initializers), draw(THEIRS))


# --- attention ------------------------------------------------------------------------------------

_rng = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return jnp.asarray(_rng.normal(size=shape), jnp.float32)


B, T, S, N, K, H = 2, 5, 6, 4, 2, 8
QUERY, KEYS, VALUES = normal(B, T, N, H), normal(B, S, K, H), normal(B, S, K, H)
BIAS = normal(B, N, T, S)
MASK = jnp.asarray(_rng.random((1, 1, T, S)) < 0.7)
LENGTHS = jnp.array([3, 5])

OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "causal": {"is_causal": True, "scale": 0.3},
    "bias": {"bias": BIAS},
    "mask": {"mask": MASK, "bias": BIAS[:1, :1]},
    "window": {"local_window_size": (3, 1), "is_causal": True},
    "one window": {"local_window_size": 2},
    "lengths": {"query_seq_lengths": LENGTHS, "key_value_seq_lengths": LENGTHS},
    "residual": {"return_residual": True, "implementation": "xla"},
}


@pytest.mark.parametrize("case", OPTIONS)
def test_attention(case):
    options = OPTIONS[case]
    for heads in (QUERY, QUERY[:, :, :2]):  # two heads a key-value head; one
        if heads is not QUERY and {"bias", "mask"} & set(options):
            continue
        ours = ft.jit(lambda q, k, v: ft.nn.dot_product_attention(q, k, v, **options))
        theirs = jax.jit(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, **options))
        assert_close(ours(heads, KEYS, VALUES), theirs(heads, KEYS, VALUES), 1e-5)


def test_attention_in_half_precision_and_without_a_batch():
    few = [x.astype(jnp.bfloat16) for x in (QUERY, KEYS, VALUES)]
    # bfloat16 keeps 8 bits, and the weights are rounded to it before the second product
    ours, theirs = ft.nn.dot_product_attention(*few), jax.nn.dot_product_attention(*few)
    assert_close(ours, theirs, 2e-2)
    one = [x[0] for x in (QUERY, KEYS, VALUES)]
    ours, theirs = ft.nn.dot_product_attention(*one), jax.nn.dot_product_attention(*one)
    assert_close(ours, theirs, 1e-5)


def test_gradient_and_vmap_of_attention():
    def loss(attend, q, k, v):
        return (attend(q, k, v, is_causal=True, bias=BIAS) ** 2).sum()

    ours = ft.jit(ft.grad(lambda *x: loss(ft.nn.dot_product_attention, *x), (0, 1, 2)))
    theirs = jax.jit(jax.grad(lambda *x: loss(jax.nn.dot_product_attention, *x), (0, 1, 2)))
    assert_close(ours(QUERY, KEYS, VALUES), theirs(QUERY, KEYS, VALUES), 1e-4)
    each = ft.vmap(lambda q, k, v: ft.nn.dot_product_attention(q, k, v, is_causal=True))
    together = ft.nn.dot_product_attention(QUERY, KEYS, VALUES, is_causal=True)
    assert_close(each(QUERY, KEYS, VALUES), together, 1e-5)


# --- segments -------------------------------------------------------------------------------------

IDS = jnp.array([0, 2, 2, -1, 5, 1])
ROWS, NUMBERS = normal(6, 3), jnp.array([3, 1, 2, 5, 6, 7])


@pytest.mark.parametrize("name", ["segment_sum", "segment_prod", "segment_max", "segment_min"])
def test_segments(name):
    def all_of(ops):
        f = getattr(ops, name)
        return [
            f(ROWS, IDS),
            f(ROWS, IDS, 4),
            f(NUMBERS, IDS, num_segments=8, bucket_size=2),
            f(NUMBERS.astype("uint8"), IDS, 7),
            f(NUMBERS > 3, IDS, 7) if name in ("segment_max", "segment_min") else None,
            f(NUMBERS * (1 + 2j), IDS, 7),
            f(NUMBERS, IDS, 4, mode="clip"),
            f(NUMBERS, IDS, jnp.array(4)),
            f(ROWS, IDS * 0 - 1),
        ]

    assert_close(all_of(ft.ops), all_of(jax.ops), 1e-6)


def test_segments_transformed():
    def loss(ops, rows):
        return (ops.segment_sum(rows, IDS, 4) ** 2).sum() + ops.segment_max(rows, IDS, 3)[0].sum()

    assert_close(
        ft.jit(ft.grad(lambda x: loss(ft.ops, x)))(ROWS), jax.grad(lambda x: loss(jax.ops, x))(ROWS)
    )
    batch = jnp.stack([ROWS, -ROWS])
    assert_close(
        ft.vmap(lambda x: ft.ops.segment_sum(x, IDS, 4))(batch),
        jnp.stack([jax.ops.segment_sum(x, IDS, 4) for x in batch]),
    )
    with pytest.raises(jax.errors.ConcretizationTypeError, match="segment_sum"):
        ft.jit(lambda i: ft.ops.segment_sum(ROWS, i))(IDS)


def test_functions_of_trees():
    assert ft.tree.broadcast(1, {"a": 2, "b": 3}) == {"a": 1, "b": 1}
    assert ft.tree.reduce_associative(lambda a, b: a + b, [1, 2, 3]) == 6
    assert ft.tree_util.tree_map(lambda x: x + 1, (1, 2)) == (2, 3)
    part = ft.tree_util.Partial(lambda a, b: a * b, fnp.float32(3))
    assert ft.jit(lambda f, x: f(x))(part, 2.0) == 6
    assert ft.dtypes.result_type(1.0, return_weak_type_flag=True) == (np.dtype("float32"), True)
