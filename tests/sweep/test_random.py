"""functrans.random against jax.random: the same bits for the same keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from functrans import errors, random

KEYS = {"typed": jax.random.key(3), "raw": jax.random.PRNGKey(3)}
LOGITS = np.random.default_rng(0).normal(size=(4, 5)).astype("float32")
MATRIX = np.arange(12.0, dtype="float32").reshape(4, 3)
P = np.array([0.2, 0.3, 0.4, 0.1], "float32")

CALLS: list[tuple[str, tuple]] = [
    ("bits", ((),)), ("bits", ((3, 5),)), ("bits", ((7,), "uint8")), ("bits", ((7,), "uint16")),
    ("uniform", ()), ("uniform", ((3, 4),)), ("uniform", ((0, 4),)),
    ("uniform", ((99,), "bfloat16")), ("uniform", ((99,), "float16")),
    ("uniform", ((99,), None, -2.0, 3.0)), ("uniform", ((4, 3), None, MATRIX, 20)),
    ("normal", ((99,),)), ("normal", ((99,), "bfloat16")), ("normal", ((99,), "float16")),
    ("normal", ((99,), "complex64")),
    ("bernoulli", ()), ("bernoulli", (0.3, (99,))), ("bernoulli", (P,)),
    ("bernoulli", (P, (3, 4), "high")),
    ("randint", ((99,), 0, 10)), ("randint", ((99,), -(2**31), 2**31 - 1)),
    ("randint", ((99,), 0, 256, "uint8")), ("randint", ((99,), -5, 300, "uint8")),
    ("randint", ((99,), -3, 3, "int8")), ("randint", ((99,), 0, 10, "uint32")),
    ("randint", ((9,), 3, 3)), ("randint", ((2,), np.array([1, 3]), np.array([9, 2]), "int16")),
    ("rademacher", ((99,),)), ("rademacher", ((99,), "float32")), ("rademacher", ((99,), "int8")),
    ("truncated_normal", (-1.0, 2.0, (99,))),
    ("truncated_normal", (-1.0, 2.0, (99,), "bfloat16")),
    ("exponential", ((99,),)), ("laplace", ((99,),)), ("logistic", ((99,),)), ("cauchy", ((99,),)),
    ("gumbel", ((99,),)), ("gumbel", ((99,), None, "high")), ("gumbel", ((99,), None, "highest")),
    ("gumbel", ((99,), "bfloat16")), ("gumbel", ((99,), "bfloat16", "highest")),
    ("pareto", (2.0, (99,))), ("pareto", (P,)), ("rayleigh", (P,)), ("lognormal", (0.5, (99,))),
    ("wald", (P,)), ("triangular", (0.0, 1.0, 3.0, (99,))), ("triangular", (-P, 0.0, P)),
    ("weibull_min", (2.0, 1.5, (99,))), ("weibull_min", (P, 1.5)),
    ("weibull_min", (P, P[:, None], (len(P), 1))), ("geometric", (0.3, (99,))), ("geometric", (P,)),
    ("categorical", (LOGITS,)), ("categorical", (LOGITS, 0, (6, 5))),
    ("categorical", (LOGITS, -1, None, True, "high")),
    ("categorical", (LOGITS, -1, (3, 4), False)), ("categorical", (LOGITS, 0, (3, 5), False)),
    ("permutation", (10,)), ("permutation", (-1,)), ("permutation", (np.arange(7),)),
    ("permutation", (MATRIX,)), ("permutation", (MATRIX, 1)), ("permutation", (MATRIX, 1, True)),
    ("choice", (10,)), ("choice", (10, (3, 4))), ("choice", (10, (3, 2), False)),
    ("choice", (MATRIX, (2,), True, None, 1)), ("choice", (MATRIX, (2,), False, None, 1)),
    ("choice", (4, (50,), True, P)), ("choice", (MATRIX, (2, 2), False, P)),
    ("split", ()), ("split", (5,)), ("split", ((2, 3),)), ("fold_in", (7,)),
    ("fold_in", (np.int32(7),)), ("key_data", ()), ("clone", ()),
]  # fmt: skip
WIDE: list[tuple[str, tuple]] = [
    ("bits", ((5,),)), ("uniform", ((99,),)), ("normal", ((99,),)),
    ("normal", ((9,), "complex128")),
    ("randint", ((99,), -(2**62), 2**62)), ("randint", ((99,), 0, 10)), ("permutation", (9,)),
    ("truncated_normal", (-1.0, 1.0, (9,))), ("gumbel", ((99,), None, "high")),
    ("bernoulli", (0.3, (99,))), ("categorical", (LOGITS,)), ("uniform", ((9,), "float32")),
    ("choice", (4, (50,), True, P)),
    ("weibull_min", (P.astype("float16"), np.float16(1.3), (), "float64")),
]  # fmt: skip


def both(name: str, args: tuple) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    return lambda k: getattr(random, name)(k, *args), lambda k: getattr(jax.random, name)(k, *args)


def assert_identical(ours: Any, theirs: Any) -> None:
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    if jax.dtypes.issubdtype(theirs.dtype, jax.dtypes.prng_key):
        ours, theirs = jax.random.key_data(ours), jax.random.key_data(theirs)
    assert ours.weak_type == theirs.weak_type
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize(("name", "args"), CALLS)
def test_bits(name: str, args: tuple):
    """Un-jitted, and over a batch of keys under jit. (XLA folds what it knows under jit, so
    JAX itself gives other last bits there than un-jitted.)"""
    ours, theirs = both(name, args)
    assert_identical(ours(KEYS["typed"]), theirs(KEYS["typed"]))
    keys = jax.random.split(KEYS["typed"], 3)
    assert_identical(ft.jit(ft.vmap(ours))(keys), jax.jit(jax.vmap(theirs))(keys))


def test_bits_of_bounds_that_are_arrays():
    """Un-jitted: what XLA folds of them under jit is the last bit of what it computes there."""
    ours, theirs = both("truncated_normal", (-P, P))
    assert_identical(ours(KEYS["typed"]), theirs(KEYS["typed"]))


@pytest.mark.parametrize("name", ["bits", "normal", "split", "permutation", "fold_in"])
def test_raw_keys(name: str):
    args = {"split": (), "permutation": (5,), "fold_in": (3,)}.get(name, ((5,),))
    ours, theirs = both(name, args)
    wanted = theirs(KEYS["raw"])
    assert_identical(ours(KEYS["raw"]), wanted)
    assert_identical(ft.jit(ours)(KEYS["raw"]), wanted)


@pytest.mark.parametrize(("name", "args"), WIDE)
def test_with_64_bit_types(name: str, args: tuple):
    ours, theirs = both(name, args)
    with jax.enable_x64(True):
        assert_identical(ft.jit(ours)(KEYS["typed"]), jax.jit(theirs)(KEYS["typed"]))


@pytest.mark.parametrize("args", [((99,),), (1.0, 2.0, (9,)), (P, 2.0)])
def test_maxwell(args: tuple):
    """XLA contracts the sum of three squares of ours and of JAX's differently: one unit apart."""
    name = "maxwell" if len(args) == 1 else "double_sided_maxwell"
    ours, theirs = both(name, args)
    np.testing.assert_array_max_ulp(
        np.asarray(ours(KEYS["typed"])), np.asarray(theirs(KEYS["typed"])), 4
    )


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
@pytest.mark.parametrize(
    ("name", "args"), [("normal", ((9,),)), ("split", (3,)), ("fold_in", (3,))]
)
def test_other_generators(impl: str, name: str, args: tuple):
    ours, theirs = both(name, args)
    key = random.key(1, impl=impl)
    assert random.key_impl(key) == impl
    assert_identical(ft.jit(ours)(key), theirs(jax.random.key(1, impl=impl)))


def test_configuration_of_threefry():
    with jax.threefry_partitionable(False):
        for name, args in (("bits", ((5,),)), ("split", (3,)), ("normal", ((4,), "bfloat16"))):
            ours, theirs = both(name, args)
            assert_identical(ours(KEYS["typed"]), theirs(KEYS["typed"]))


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed", [0, 7, -1, 2**31 - 1, 2**40 + 3, np.uint32(2**32 - 1), np.int8(-2)]
)
@pytest.mark.parametrize("wide", [False, True])
def test_keys_of_seeds(seed: Any, wide: bool):
    """At top level, of a constant inside jit, and of a traced seed."""
    with jax.enable_x64(wide):
        wanted = jax.random.key(seed)
        assert_identical(random.key(seed), wanted)
        assert_identical(ft.jit(lambda: random.key(seed))(), wanted)
        assert_identical(ft.jit(lambda: random.PRNGKey(seed))(), jax.random.PRNGKey(seed))
        traced = jnp.asarray(np.int64(seed) if isinstance(seed, int) else seed)
        assert_identical(ft.jit(random.key)(traced), jax.jit(jax.random.key)(traced))
        assert_identical(ft.vmap(random.key)(traced[None]), jax.vmap(jax.random.key)(traced[None]))


def test_key_data_round_trip():
    key = KEYS["typed"]
    assert_identical(random.wrap_key_data(random.key_data(key)), key)
    assert_identical(ft.jit(lambda d: random.wrap_key_data(d))(KEYS["raw"]), key)
    assert random.key_impl(key) == random.key_impl(KEYS["raw"]) == "threefry2x32"
    assert random.key_dtype() == key.dtype


def test_keys_are_taken_apart_inside_jit():
    def noise(library: Any) -> Callable[[Any], Any]:
        def f(key: Any) -> Any:
            a, b = library.split(key)
            keys = library.split(a, 3)
            return library.normal(keys[1], (2,)) + library.normal(b, (2,))

        return f

    assert_identical(ft.jit(noise(random))(KEYS["typed"]), noise(jax.random)(KEYS["typed"]))
    assert_identical(noise(random)(KEYS["raw"]), noise(jax.random)(KEYS["raw"]))


def test_batched_parameters_and_keys():
    keys = jax.random.split(KEYS["typed"], 4)
    for axes in ((0, 0), (None, 0), (0, None)):
        args = (keys if axes[0] == 0 else keys[0], P if axes[1] == 0 else P[0])
        for name in ("bernoulli", "pareto"):
            ours = ft.vmap(lambda k, p, n=name: getattr(random, n)(k, p, (3,)), axes)
            theirs = jax.vmap(lambda k, p, n=name: getattr(jax.random, n)(k, p, (3,)), axes)
            assert_identical(ours(*args), theirs(*args))


# --- derivatives ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("uniform", lambda lo, hi: ((4,), None, lo, hi)),
        ("truncated_normal", lambda lo, hi: (lo, hi, (4,))),
        ("pareto", lambda lo, hi: (hi, (4,))),
        ("lognormal", lambda lo, hi: (hi, (4,))),
        ("triangular", lambda lo, hi: (lo, (lo + hi) / 2, hi, (4,))),
    ],
)
def test_gradients(name: str, args: Any):
    """With respect to the parameters, un-jitted, jitted and batched."""

    def loss(library: Any) -> Callable[..., Any]:
        return lambda lo, hi: (getattr(library, name)(KEYS["typed"], *args(lo, hi)) ** 2).sum()

    low, high = jnp.float32(-0.5), jnp.float32(1.5)
    wanted = jax.grad(loss(jax.random), (0, 1))(low, high)
    ours = ft.grad(loss(random), (0, 1))
    for found in (ours(low, high), ft.jit(ours)(low, high)):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)
    found = ft.vmap(ours)(low[None], high[None])
    np.testing.assert_allclose([x[0] for x in found], wanted, rtol=2e-5, atol=1e-6)


def test_noise_of_a_loss_is_a_constant():
    def loss(library: Any, numpy: Any) -> Callable[..., Any]:
        return lambda x: (library.normal(KEYS["raw"], (3,)) * numpy.sin(x)).sum()

    import functrans.numpy as fnp

    x = jnp.arange(3.0)
    ours, theirs = ft.grad(loss(random, fnp))(x), jax.grad(loss(jax.random, jnp))(x)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


# --- programs -------------------------------------------------------------------------------------


def test_a_draw_is_one_equation_and_one_program_per_signature():
    program = ft.make_ir(lambda k: [random.normal(k, (3,)) for _ in range(3)])(KEYS["typed"])
    assert len(program.equations) == 3
    assert len({id(e.params["program"]) for e in program.equations}) == 1


def test_reference_gives_the_same_bits():
    def draws(key: Any) -> list[Any]:
        a, b = random.split(key)
        return [random.bits(a, (5,)), random.randint(b, (5,), 0, 9), random.uniform(b, (5,))]

    here = ft.interpret(ft.make_ir(draws)(KEYS["typed"]), KEYS["typed"])
    for x, y in zip(here, draws(KEYS["typed"]), strict=True):
        np.testing.assert_array_equal(x, np.asarray(y))


# --- errors ---------------------------------------------------------------------------------------

BATCH = jax.random.split(KEYS["typed"], 2)
MISUSES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: random.normal(0, (3,)), TypeError, "invalid PRNG key data.* Got 0"),
    (lambda: random.normal("key"), TypeError, "of type str"),
    (lambda: random.normal(jnp.zeros(2)), TypeError, "dtype=float32"),
    (lambda: random.normal(BATCH), ValueError, r"accepts a single key.* shape \(2,\)"),
    (lambda: random.split(jax.random.key_data(BATCH)), ValueError, "vmap"),
    (lambda: random.normal(KEYS["raw"], 3.5), TypeError, "shape must be integers"),
    (lambda: random.normal(KEYS["raw"], (-1,)), ValueError, "invalid tensor dimension"),
    (lambda: random.normal(KEYS["raw"], (3,), int), ValueError, "dtype must be float or complex"),
    (lambda: random.randint(KEYS["raw"], (3,), 0, 5, float), TypeError, "must be int or uint"),
    (lambda: random.uniform(KEYS["raw"], (3,), None, jnp.zeros(2)), TypeError, "incompatible"),
    (lambda: random.bernoulli(KEYS["raw"], 1), TypeError, "must be a float"),
    (lambda: random.choice(KEYS["raw"], 3, (5,), False), ValueError, "without replacement"),
    (lambda: random.choice(KEYS["raw"], 3, (5,), p=P), ValueError, "vector of 3 probabilities"),
    (lambda: random.key(1.5), TypeError, "a seed must be an integer"),
    (lambda: random.key(jnp.arange(3)), TypeError, "vmap"),
    (lambda: random.key(KEYS["typed"]), TypeError, "was given a key"),
    (lambda: random.key(0, impl="mersenne"), ValueError, "mersenne"),
    (lambda: random.fold_in(KEYS["raw"], jnp.arange(3)), TypeError, "takes a scalar"),
    (lambda: random.gumbel(KEYS["raw"], (3,), mode="lowest"), ValueError, "highest"),
    (lambda: random.categorical(KEYS["raw"], LOGITS, shape=(3,)), ValueError, "not broadcast"),
    (lambda: random.categorical(KEYS["raw"], LOGITS, 2), IndexError, "out of bounds"),
    (lambda: random.categorical(KEYS["raw"], np.arange(3)), ValueError, "logits must be floats"),
    (lambda: random.rayleigh(KEYS["raw"], P, (-1,)), TypeError, "negative"),
    (lambda: random.ball(KEYS["raw"], -1), TypeError, "negative"),
    (lambda: random.orthogonal(KEYS["raw"], -1), ValueError, "negative"),
    (lambda: random.key(2**63), OverflowError, "does not fit in int64"),
    *[
        (lambda f=f: f(dtype="bfloat16"), errors.InvalidArgument, "cannot safely cast")
        for f in (
            partial(random.pareto, KEYS["raw"], P), partial(random.rayleigh, KEYS["raw"], P),
            partial(random.lognormal, KEYS["raw"], P), partial(random.wald, KEYS["raw"], P),
            partial(random.triangular, KEYS["raw"], 0, P, 1),
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(MISUSES)))
def test_misuse(number: int):
    """The error is of JAX's kind and names the function, what was given, and the fix."""
    call, error, message = MISUSES[number]
    with pytest.raises(errors.FunctransError, match=message) as caught:
        call()
    assert isinstance(caught.value, error)
