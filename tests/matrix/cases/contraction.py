"""Cases of primitives/contractions/dot_general.py."""

from typing import Any

import jax.numpy as jnp
from jax import lax

from tests.matrix.cases.case import CLASSES, INTS, UINTS, Case, normal

INEXACT = ("float32", "float64", "complex64", "bfloat16")


def _case(
    label: str, x: tuple, y: tuple, lhs: str, rhs: str, out: str, dtypes: Any = INEXACT, **how: Any
) -> Case:
    """`_case("", (2, 3), (3, 4), "ij", "jk", "ik")`, checked against jnp.einsum."""
    names = {name: i for i, name in enumerate(dict.fromkeys(lhs + rhs))}
    params = {
        key: tuple([names[n] for n in axes]) for key, axes in (("lhs", lhs), ("rhs", rhs), ("out", out))
    }
    wanted = how.get("preferred")

    def by_jax(a: Any, b: Any) -> Any:
        precision = how.get("precision") and lax.Precision.HIGHEST
        return jnp.einsum(
            f"{lhs},{rhs}->{out}", a, b, precision=precision, preferred_element_type=wanted or a.dtype
        )

    return Case(
        "dot_general",
        (normal(*x), normal(*y)),
        by_jax,
        params | how,
        dtypes,
        differentiable=(0, 1),
        label=label or f"{lhs},{rhs}->{out}",
    )


CASES: list[Case] = [
    _case("", (2, 3), (3, 4), "ij", "jk", "ik", CLASSES),
    _case("", (2, 3), (3, 4), "ij", "jk", "ki"),
    _case("", (2, 3), (3,), "ij", "j", "i", (*INTS, *UINTS)),
    _case("", (3,), (3,), "i", "i", ""),
    _case("", (5, 2, 3), (5, 3, 4), "bij", "bjk", "bik"),
    _case("", (2, 3, 5), (4, 5, 3), "ijb", "kbj", "bki"),
    _case("", (2, 3, 5), (5, 4, 3), "ijk", "klj", "li"),
    _case("outer", (3,), (4,), "i", "j", "ij", CLASSES),
    _case("outer swapped", (3,), (4,), "i", "j", "ji"),
    _case("batch only", (2, 3), (3, 2), "ij", "ji", "ij"),
    _case("no axes", (), (), "", "", ""),
    _case("empty", (0, 3), (3, 4), "ij", "jk", "ik"),
    _case("empty sum", (2, 0), (0, 4), "ij", "jk", "ik"),
    # the reference multiplies these by groups of rows
    _case("middling", (2, 90, 50), (2, 60, 50), "bik", "bjk", "bji", ("float32",)),
    _case(
        "to float32",
        (2, 3),
        (3, 4),
        "ij",
        "jk",
        "ik",
        ("bfloat16", "float16"),
        preferred=jnp.dtype("float32"),
    ),
    _case("to int32", (2, 3), (3, 4), "ij", "jk", "ik", ("int8", "int16"), preferred=jnp.dtype("int32")),
    _case("highest", (2, 3), (3, 4), "ij", "jk", "ik", ("float32",), precision=("HIGHEST", "HIGHEST")),
    *[
        Case(
            "dot_general",
            (normal(2, 3), normal(3, 4)),
            lambda a, b, preset=preset: lax.dot(a, b, precision=preset),
            {"lhs": (0, 1), "rhs": (1, 2), "out": (0, 2), "precision": preset},
            ("float32",),
            label=preset,
            tolerance={"float32": tolerance},
        )
        # F16_F16_F16 adds up in float16
        for preset, tolerance in (("BF16_BF16_F32", 1e-5), ("F16_F16_F16", 1e-2))
    ],
]
