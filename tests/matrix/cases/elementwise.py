"""Cases of primitives/: elementwise, arithmetic, bitwise, complex_numbers, conversion, special,
transcendental."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.matrix.cases.case import BOOL, COMPLEX, FLOATS, INTS, UINTS, Case, fixed, normal, uniform

EVERY_INTEGER = (*INTS, *UINTS)
INTEGERS = ("int8", "int32", "int64", "uint8", "uint32")  # where each width is treated alike
INEXACT = (*FLOATS, *COMPLEX)
NUMBERS = (*INEXACT, *INTEGERS)
ANY = (*NUMBERS, *BOOL)
ORDERED = ("float32", "bfloat16", "float64", "int32", "uint8", "uint64", "bool")
SOME = ("float32", "bfloat16", "complex64", "int32", "uint8", "bool")

A = normal(2, 3)
SPECIAL_VALUES = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, np.inf, -np.inf, np.nan)


def within(low: float, high: float, *shape: int) -> Callable[..., np.ndarray]:
    """Numbers in [low, high); complex ones have both parts there; coin flips for bool."""

    def make(rng: np.random.Generator, dtype: Any) -> np.ndarray:
        if str(dtype) == "bool":
            return rng.random(shape) < 0.5
        if str(dtype).startswith("complex"):
            z = rng.uniform(low, high, size=shape) + 1j * rng.uniform(low, high, size=shape)
            return np.asarray(z).astype(dtype)
        if str(dtype).startswith("uint"):
            return uniform(*shape, low=max(low, 0), high=high)(rng, dtype)
        return uniform(*shape, low=low, high=high)(rng, dtype)

    return make


def bits(*shape: int) -> Callable[..., np.ndarray]:
    """Integers of any size; coin flips for bool."""

    def make(rng: np.random.Generator, dtype: Any) -> np.ndarray:
        if str(dtype) == "bool":
            return rng.random(shape) < 0.5
        words = rng.integers(0, 256, size=(*shape, np.dtype(dtype).itemsize), dtype=np.uint8)
        return words.view(dtype)[..., 0]

    return make


def unary(
    name: str,
    dtypes: Sequence[str],
    low: float = -2.0,
    high: float = 2.0,
    *,
    jax: Callable[..., Any] | None = None,
    special: Sequence[float] = SPECIAL_VALUES,
    smooth: bool = True,
    tolerance: dict[str, float] | None = None,
    **params: Any,
) -> list[Case]:
    """A row of random numbers of a domain, and one of special values at the real float dtypes."""
    same = jax or getattr(lax, name)
    tolerance = tolerance or {}
    label = "-".join(f"{k}={v}" for k, v in params.items())
    rows = [
        Case(name, [within(low, high, 2, 3)], same, params, dtypes, (0,) if smooth else (), tolerance, label)
    ]
    floats = [d for d in dtypes if d in ("float32", "bfloat16")]
    if special and floats:
        label = f"{label}-special" if label else "special"
        rows.append(Case(name, [fixed(special)], same, params, floats, (), tolerance, label))
    return rows


def binary(
    name: str,
    dtypes: Sequence[str],
    x: Callable[..., np.ndarray] = A,
    y: Callable[..., np.ndarray] = A,
    *,
    jax: Callable[..., Any] | None = None,
    smooth: Sequence[int] = (),
    special: bool = True,
    label: str = "",
    tolerance: dict[str, float] | None = None,
) -> list[Case]:
    """A row of random numbers, and one of all pairs of special values at the float dtypes."""
    same = jax or getattr(lax, name)
    tolerance = tolerance or {}
    rows = [Case(name, [x, y], same, {}, dtypes, smooth, tolerance, label)]
    floats = [d for d in dtypes if d in ("float32", "bfloat16")]
    if special and floats:
        left, right = np.meshgrid(SPECIAL_VALUES, SPECIAL_VALUES)
        rows.append(
            Case(
                name,
                [fixed(left), fixed(right)],
                same,
                {},
                floats,
                (),
                tolerance,
                f"{label}-special" if label else "special",
            )
        )
    return rows


# XLA's and NumPy's half precision functions are each rounded from float32, once or at every step.
HALF = {"float16": 2e-2, "bfloat16": 1e-1}

ROUNDING = [
    *unary("sign", NUMBERS, smooth=False),
    *unary("floor", FLOATS, -5, 5),
    *unary("ceil", FLOATS, -5, 5),
    *unary(
        "round",
        FLOATS,
        -5,
        5,
        jax=lambda x: lax.round(x, lax.RoundingMethod(0)),
        special=(*SPECIAL_VALUES, 1.5, 2.5, -0.5, 0.49999997),
        rounding_method=0,
    ),
    *unary(
        "round",
        FLOATS,
        -5,
        5,
        jax=lambda x: lax.round(x, lax.RoundingMethod(1)),
        special=(*SPECIAL_VALUES, 1.5, 2.5, -0.5, 0.49999997),
        rounding_method=1,
    ),
    *unary("is_finite", FLOATS, smooth=False),
]

ARITHMETIC = [
    *unary("neg", NUMBERS),
    *unary("square", NUMBERS),
    *unary("one_minus_square", NUMBERS, jax=lambda x: (1 + x) * (1 - x)),
    *[
        row
        for y in (-3, -1, 0, 1, 2, 3, 7)
        for row in unary(
            "integer_pow",
            (*FLOATS, "complex64", "int32", "uint8") if y >= 0 else INEXACT,
            0.5,
            2.0,
            jax=lambda x, y=y: lax.integer_pow(x, y),
            y=y,
            tolerance=HALF,
        )
    ],
    *binary("add", NUMBERS, smooth=(0, 1)),
    *binary("sub", NUMBERS, smooth=(0, 1)),
    *binary("mul", NUMBERS, smooth=(0, 1)),
    *binary("div", INEXACT, normal(2, 3), normal(2, 3, shift=4.0, scale=0.5), smooth=(0, 1)),
    *binary("div", EVERY_INTEGER, bits(4, 5), within(-3, 4, 4, 5), label="integers"),
    *binary("rem", FLOATS, within(5.1, 5.9, 2, 3), within(2.1, 2.4, 2, 3), smooth=(0, 1)),
    *binary("rem", EVERY_INTEGER, bits(4, 5), within(-3, 4, 4, 5), label="integers"),
    *binary("pow", INEXACT, within(0.5, 2, 2, 3), normal(2, 3), smooth=(0, 1), tolerance=HALF),
    Case(
        "pow",
        [within(-2, 2, 2, 3), fixed([[0, 1, 2], [3, -1, -2]], np.int32)],
        lax.pow,
        {},
        INEXACT,
        (0,),
        HALF,
        "integer-exponent",
    ),
    Case("pow", [fixed([0.0, 0.0, 0.0]), fixed([0, 1, 2], np.int32)], lax.pow, {}, FLOATS, (), {}, "of-zero"),
    *binary("max", ANY, smooth=(0, 1)),
    *binary("min", ANY, smooth=(0, 1)),
    Case("max", [fixed([0.0, 1.0, 1.0]), fixed([0.0, 1.0, 2.0])], lax.max, {}, FLOATS, (), {}, "ties"),
    *binary("nextafter", FLOATS, smooth=(0,)),
    *unary("abs", (*INEXACT, *INTS)),
]

COMPARISONS = [
    *[row for name in ("eq", "ne") for row in binary(name, SOME, within(-2, 3, 4, 5), within(-2, 3, 4, 5))],
    *[
        row
        for name in ("lt", "le", "gt", "ge")
        for row in binary(name, ORDERED, within(-2, 3, 4, 5), within(-2, 3, 4, 5))
    ],
    *[
        Case(
            name,
            [fixed([1 + 2j, 1 + 2j, 0, np.nan]), fixed([1 + 2j, 1 + 3j, 0, np.nan])],
            getattr(lax, name),
            {},
            COMPLEX,
            (),
            {},
            "complex",
        )
        for name in ("eq", "ne")
    ],
]

BITWISE = [
    *[
        Case(name, [bits(3, 4)], same, {}, dtypes)
        for name, same, dtypes in (
            ("not", lax.bitwise_not, (*EVERY_INTEGER, *BOOL)),
            ("population_count", lax.population_count, EVERY_INTEGER),
            ("clz", lax.clz, EVERY_INTEGER),
        )
    ],
    Case("clz", [fixed([0, 1, 2, 3, 64, 127])], lax.clz, {}, EVERY_INTEGER, (), {}, "small"),
    *[
        Case(name, [bits(3, 4), bits(3, 4)], same, {}, (*EVERY_INTEGER, *BOOL))
        for name, same in (("and", lax.bitwise_and), ("or", lax.bitwise_or), ("xor", lax.bitwise_xor))
    ],
    *[
        row
        for name in ("shift_left", "shift_right_logical", "shift_right_arithmetic")
        for row in (
            Case(name, [bits(3, 4), within(0, 8, 3, 4)], getattr(lax, name), {}, EVERY_INTEGER),
            Case(
                name,
                [bits(3, 4), within(-2, 80, 3, 4)],
                getattr(lax, name),
                {},
                EVERY_INTEGER,
                (),
                {},
                "beyond",
            ),
        )
    ],
    Case("mulhi", [bits(3, 4), bits(3, 4)], lax.mulhi, {}, EVERY_INTEGER),
]

COMPLEX_NUMBERS = [
    *[Case(name, [normal(2, 3)], getattr(lax, name), {}, COMPLEX, (0,)) for name in ("real", "imag")],
    Case("conj", [normal(2, 3)], lax.conj, {}, (*COMPLEX, "float32", "float64"), (0,)),
    Case("complex", [normal(2, 3), normal(2, 3)], lax.complex, {}, ("float32", "float64"), (0, 1)),
    Case("abs", [fixed([0, 3 + 4j, -1j])], lax.abs, {}, COMPLEX, (), {}, "zero"),
    Case("sign", [fixed([0, 3 + 4j, -1j])], lax.sign, {}, COMPLEX, (), {}, "zero"),
    Case("sign", [fixed([1 - 2j, 3 + 4j, -1j])], lax.sign, {}, COMPLEX, (0,), {}, "turned"),
]

EVERYWHERE = "exp exp2 expm1 sin cos sinh cosh tanh asinh atan logistic"
ACCURATE = "exp exp2 expm1 log log1p sqrt rsqrt cbrt sin cos tan tanh logistic"  # they take an accuracy
TRANSCENDENTAL = [
    *[row for name in EVERYWHERE.split() for row in unary(name, INEXACT, tolerance=HALF)],
    *[
        row
        for name in ("log", "sqrt", "rsqrt", "acosh")
        for row in unary(name, INEXACT, 1.1, 3.0, tolerance=HALF)
    ],
    Case("acosh", [fixed([-2 + 1j, -1 - 3j, 0.5 + 2j])], lax.acosh, {}, COMPLEX, (0,), {}, "left"),
    *unary("log1p", INEXACT, -0.5, 3.0, tolerance=HALF),
    *unary("cbrt", FLOATS, 0.5, 3.0, tolerance=HALF),
    *unary("tan", INEXACT, -1.0, 1.0, tolerance=HALF),
    *[row for name in ("asin", "acos", "atanh") for row in unary(name, INEXACT, -0.8, 0.8, tolerance=HALF)],
    *binary("atan2", FLOATS, smooth=(0, 1), tolerance=HALF),
    *[
        Case(name, [fixed([1e-3, -1e-3, 1e-2])], getattr(lax, name), {}, FLOATS, (), {}, "small")
        for name in ("expm1", "log1p", "tanh", "sinh", "asinh", "atanh")
    ],
    *[
        Case(
            name,
            [within(0.5, 0.9, 2, 3)],
            lambda x, name=name: getattr(lax, name)(x, accuracy=lax.AccuracyMode.HIGHEST),
            {"accuracy": "HIGHEST"},
            ("float32",),
            (0,),
            {},
            "accurate",
        )
        for name in ACCURATE.split()
    ],
]

SPECIAL = [
    *unary("erf", FLOATS, tolerance=HALF),
    *unary("erfc", FLOATS, tolerance=HALF),
    *unary("erf_inv", FLOATS, -0.9, 0.9, tolerance=HALF),
    *unary("lgamma", FLOATS, 0.5, 5.0, tolerance=HALF),
    *unary("digamma", FLOATS, 0.5, 5.0, tolerance=HALF),
    Case(
        "polygamma",
        [fixed([[0, 1, 2], [3, 1, 2]]), within(0.5, 5.0, 2, 3)],
        lax.polygamma,
        {},
        FLOATS,
        (1,),
        HALF,
    ),
    Case("zeta", [within(1.5, 4.0, 2, 3), within(0.5, 3.0, 2, 3)], lax.zeta, {}, FLOATS, (), HALF),
]

EVERY = ("bool", "int8", "int32", "int64", "uint8", "uint32", "uint64", *INEXACT)
FAR = (0.0, -0.0, 0.4, -0.6, 1.5, -2.5, 130.0, -130.0, 300.0, -70000.0, 3e9, 1e20, np.inf, -np.inf, np.nan)


def convert(to: str, weak_type: bool = False) -> Case:
    dtypes = [d for d in EVERY if d != to]
    wide = to in ("int64", "uint64", "float64", "complex128")  # else they stand for 32-bit types
    if wide:
        dtypes = [d for d in ("float64", "int64", "complex128") if d != to]
    smooth = to in INEXACT and to not in ("float16", "bfloat16")  # slopes need digits
    return Case(
        "convert_element_type",
        [within(-5, 5, 2, 3)],
        lambda x: (x.real if jnp.iscomplexobj(x) and to not in COMPLEX else x).astype(to),
        {"dtype": jnp.dtype(to), "weak_type": weak_type},
        dtypes,
        (0,) if smooth else (),
        {d: 1e-2 for d in INEXACT} if to in ("float16", "bfloat16") else {},
        f"to-{to}",
    )


def convert_far(to: str) -> Case:
    return Case(
        "convert_element_type",
        [fixed(FAR)],
        lambda x: x.astype(to),
        {"dtype": jnp.dtype(to), "weak_type": False},
        FLOATS,
        (),
        {},
        f"far-to-{to}",
    )


def bitcast(to: str, dtypes: Sequence[str], *shape: int) -> Case:
    return Case(
        "bitcast_convert_type",
        [normal(*shape)],
        lambda x: lax.bitcast_convert_type(x, to),
        {"dtype": jnp.dtype(to)},
        dtypes,
        (),
        {},
        f"to-{to}-{len(shape)}",
    )


def reduced(exponent_bits: int, mantissa_bits: int) -> Case:
    return Case(
        "reduce_precision",
        [fixed([*SPECIAL_VALUES, 1.1, 3.14159, 1e-6, 300.0, 70000.0, -1e-40])],
        lambda x: lax.reduce_precision(x, exponent_bits, mantissa_bits),
        {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits},
        FLOATS,
        (),
        {},
        f"{exponent_bits}-{mantissa_bits}",
    )


CONVERSION = [
    *[convert(to) for to in EVERY],
    *[convert_far(to) for to in ("bool", "int8", "int32", "uint8", "uint32")],
    bitcast("uint32", ("float32", "int32"), 2, 3),
    bitcast("uint8", ("float32", "int32", "float16", "bfloat16", "float64", "int8"), 2, 3),
    bitcast("uint16", ("int8", "uint8"), 3, 2),
    bitcast("float32", ("int16", "bfloat16"), 3, 2),
    bitcast("float64", ("int32",), 3, 2),
    *[reduced(*bits) for bits in ((8, 23), (5, 10), (8, 7), (4, 3), (5, 0), (11, 52))],
]

CASES: list[Case] = [
    *ROUNDING,
    *ARITHMETIC,
    *COMPARISONS,
    *BITWISE,
    *COMPLEX_NUMBERS,
    *TRANSCENDENTAL,
    *SPECIAL,
    *CONVERSION,
]
