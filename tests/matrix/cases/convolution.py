"""Cases of primitives/contractions/convolution.py."""

from typing import Any

import jax.numpy as jnp
from jax import lax

from tests.matrix.cases.case import Case, normal

INEXACT = ("float32", "float64", "complex64", "bfloat16")


def _case(
    label: str,
    x: tuple,
    y: tuple,
    layout: tuple[str, str, str],
    dtypes: Any = INEXACT,
    *,
    feature_groups: int = 1,
    batch_groups: int = 1,
    **window: Any,
) -> Case:
    """A row whose `layout` spells examples N, features C, I and O, groups G, space as it likes. G
    is the outer part of what it stands before, as jax.lax reads it."""
    lhs, rhs, out = (s.replace("C", "I" if i == 0 else "O") for i, s in enumerate(layout))
    names = {c: i for i, c in enumerate(dict.fromkeys(lhs + rhs + out))}
    space = "".join(c for c in rhs if c not in "GIO")
    one = (1,) * len(space)
    params = {
        "lhs": tuple([names[c] for c in lhs]),
        "rhs": tuple([names[c] for c in rhs]),
        "out": tuple([names[c] for c in out]),
        "spatial": tuple([names[c] for c in space]),
        "strides": one,
        "padding": ((0, 0),) * len(space),
        "lhs_dilation": one,
        "rhs_dilation": one,
    } | window

    def by_jax(a: Any, b: Any) -> Any:
        made = lax.conv_general_dilated(
            _merged(a, layout[0]),
            _merged(b, layout[1]),
            params["strides"],
            params["padding"],
            params["lhs_dilation"],
            params["rhs_dilation"],
            tuple([s.replace("G", "") for s in layout]),
            feature_group_count=feature_groups,
            batch_group_count=batch_groups,
            preferred_element_type=window.get("preferred"),
        )
        i = layout[2].find("G")
        if i < 0:
            return made
        groups = feature_groups * batch_groups
        return made.reshape(*made.shape[:i], groups, made.shape[i] // groups, *made.shape[i + 1 :])

    return Case(
        "conv_general_dilated",
        (normal(*x), normal(*y)),
        by_jax,
        params,
        dtypes,
        differentiable=(0, 1),
        label=label,
        tolerance={"float32": 3e-5, "complex64": 3e-5},
    )


def _merged(x: Any, letters: str) -> Any:
    i = letters.find("G")
    return x if i < 0 else x.reshape(*x.shape[:i], x.shape[i] * x.shape[i + 1], *x.shape[i + 2 :])


NHWC = ("NHWC", "HWIO", "NHWC")
NCHW = ("NCHW", "OIHW", "NCHW")

CASES: list[Case] = [
    _case("NHWC", (2, 5, 6, 3), (3, 2, 3, 4), NHWC, (*INEXACT, "int32", "uint8", "float16"),
          padding=((1, 1), (0, 1))),
    _case("NCHW strides", (2, 3, 7, 6), (4, 3, 3, 2), NCHW, strides=(2, 3),
          padding=((1, 1), (0, 1))),
    _case("dilated input", (2, 3, 4, 3), (4, 3, 3, 2), NCHW, ("float32", "float64"),
          padding=((2, 1), (-1, 2)), lhs_dilation=(2, 3)),
    _case("dilated kernel", (2, 3, 8, 7), (4, 3, 3, 2), NCHW, ("float32", "float64"),
          padding=((2, -1), (0, 1)), rhs_dilation=(2, 3), strides=(2, 1)),
    _case("odd layout", (5, 3, 2, 6), (2, 4, 3, 3), ("HCNW", "WOIH", "CNWH"), ("float32",
    "float64")), _case("one axis", (2, 3, 7), (4, 3, 3), ("NCX", "OIX", "NCX"), ("float32",
    "float64"),
          padding=((1, 1),)),
    _case("three axes", (1, 4, 3, 4, 2), (2, 2, 2, 2, 3), ("NXYZC", "XYZIO", "NXYZC"),
          ("float32", "float64"), strides=(1, 2, 1), padding=((0, 1),) * 3),
    _case("no axes", (2, 3), (4, 3), ("NC", "OI", "NC"), ("float32", "float64")),
    _case("feature groups", (2, 5, 2, 3), (3, 3, 2, 2), ("NXGC", "XIGO", "NXGC"),
          ("float32", "float64"), feature_groups=2, padding=((1, 1),)),
    _case("depthwise", (2, 4, 1, 6), (4, 2, 1, 3), ("NGCX", "GOIX", "NGCX"),
          ("float32", "float64"), feature_groups=4),
    _case("batch groups", (2, 3, 2, 6), (2, 3, 2, 3), ("GNCX", "GOIX", "NGCX"),
          ("float32", "float64"), batch_groups=2, padding=((1, 0),)),
    _case("kernel larger than input", (2, 3, 2), (4, 3, 5), ("NCX", "OIX", "NCX"), ("float32",)),
    _case("empty input", (2, 3, 0), (4, 3, 2), ("NCX", "OIX", "NCX"), ("float32",),
          padding=((1, 1),)),
    _case("to float32", (2, 3, 7), (4, 3, 3), ("NCX", "OIX", "NCX"), ("bfloat16", "int8"),
          preferred=jnp.dtype("float32")),
]  # fmt: skip
